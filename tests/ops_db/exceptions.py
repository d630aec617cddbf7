"""What the runs over PyTorch's databases do not compare, each with its reason."""

from __future__ import annotations

# Cases that are passed over: name of the entry (a pattern), dtypes and variants ("*": all), reason.
PASSED_OVER: list[tuple[str, str, str, str]] = [
    ("jiterator_*", "*", "*", "CUDA source code, which CPU cannot run either"),
    ("equal", "*", "out", "its result is a bool, not a tensor"),
]

# Entries and dtypes that are compared as a less accurate dtype is, with the reason.
LESS_ACCURATE: list[tuple[str, str, str, str]] = [
    (
        "special_bessel_*",
        "float64",
        "float32",
        "CPU's series are good to 9e-7 near 5; here they are good to the last digits",
    ),
    (
        "logcumsumexp",
        "complex64",
        "float16",
        "gradients are exponentials of numbers around 1e4: an ulp there is a thousandth here",
    ),
]

# Entries and dtypes of which CPU computes other values where memory is strided, with the reason:
# values are compared where it is not.
DIFFERS_BY_STRIDE: dict[tuple[str, str], str] = {
    ("mul", "complex64"): "the strided loop fuses products into sums, where both may overflow",
}

# Operators with errors about numbers in tensors: the read of their result raises.
ABOUT_VALUES = {"multinomial"}

# Operators whose results are drawn: their dtypes, sizes and strides are compared, and their values
# where a sample turns that off.
DRAWN = {
    "bernoulli",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "nn.functional.alpha_dropout",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.multi_head_attention_forward",
    "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention",
    "normal",
    "pca_lowrank",
    "svd_lowrank",
    "normal.number_mean",
    "normal.in_place",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "uniform",
}

# Operators whose results have no defined contents.
UNDEFINED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}

# Operators that make tensors from nothing: the device is an argument.
FACTORIES = {
    "arange",
    "empty",
    "empty_permuted",
    "empty_strided",
    "eye",
    "full",
    "linspace",
    "logspace",
    "normal",
    "ones",
    "randint",
    "randn",
    "scalar_tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
}
