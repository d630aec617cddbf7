"""Every class of torch.distributions: moments of its samples, densities as on CPU, and gradients
through samples, all without leaving the device. csrc/aten/rejection.cpp has what is sampled by
rejection."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
import torch.distributions as D
from harness import DEVICE, check_equal

COUNT = 20_000


def t(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)


# Parameters by class, on CPU. What is differentiated through samples are those that are listed.
CASES: dict[str, tuple[type, dict[str, torch.Tensor]]] = {
    "Bernoulli": (D.Bernoulli, {"probs": t(0.3, 0.8)}),
    "Beta": (D.Beta, {"concentration1": t(0.7, 3.0), "concentration0": t(2.0, 4.0)}),
    "Binomial": (D.Binomial, {"total_count": t(5.0, 90.0), "probs": t(0.3, 0.6)}),
    "Categorical": (D.Categorical, {"probs": t(0.2, 0.5, 0.3)}),
    "Cauchy": (D.Cauchy, {"loc": t(0.0, 1.0), "scale": t(1.0, 2.0)}),
    "Chi2": (D.Chi2, {"df": t(1.0, 6.0)}),
    "ContinuousBernoulli": (D.ContinuousBernoulli, {"probs": t(0.2, 0.7)}),
    "Dirichlet": (D.Dirichlet, {"concentration": t(0.6, 1.5, 4.0)}),
    "Exponential": (D.Exponential, {"rate": t(0.5, 3.0)}),
    "FisherSnedecor": (D.FisherSnedecor, {"df1": t(4.0, 8.0), "df2": t(20.0, 30.0)}),
    "Gamma": (D.Gamma, {"concentration": t(0.4, 9.0), "rate": t(1.0, 2.0)}),
    "GeneralizedPareto": (
        D.GeneralizedPareto,
        {"loc": t(0.0, 1.0), "scale": t(1.0, 2.0), "concentration": t(0.1, 0.2)},
    ),
    "Geometric": (D.Geometric, {"probs": t(0.3, 0.7)}),
    "Gumbel": (D.Gumbel, {"loc": t(0.0, 1.0), "scale": t(1.0, 2.0)}),
    "HalfCauchy": (D.HalfCauchy, {"scale": t(1.0, 2.0)}),
    "HalfNormal": (D.HalfNormal, {"scale": t(1.0, 2.0)}),
    "InverseGamma": (D.InverseGamma, {"concentration": t(5.0, 9.0), "rate": t(1.0, 2.0)}),
    "Kumaraswamy": (D.Kumaraswamy, {"concentration1": t(0.8, 3.0), "concentration0": t(2.0, 4.0)}),
    "LKJCholesky": (D.LKJCholesky, {"dim": 3, "concentration": torch.tensor(1.5)}),
    "Laplace": (D.Laplace, {"loc": t(0.0, 1.0), "scale": t(1.0, 2.0)}),
    "LogNormal": (D.LogNormal, {"loc": t(0.0, 0.5), "scale": t(0.3, 0.5)}),
    "LogisticNormal": (D.LogisticNormal, {"loc": t(0.0, 1.0), "scale": t(1.0, 2.0)}),
    "LowRankMultivariateNormal": (
        D.LowRankMultivariateNormal,
        {"loc": t(0.0, 1.0), "cov_factor": t(1.0, 0.5)[:, None], "cov_diag": t(0.5, 1.0)},
    ),
    "Multinomial": (D.Multinomial, {"total_count": 10, "probs": t(0.2, 0.5, 0.3)}),
    "MultivariateNormal": (
        D.MultivariateNormal,
        {"loc": t(0.0, 1.0), "covariance_matrix": torch.tensor([[2.0, 0.5], [0.5, 1.0]])},
    ),
    "NegativeBinomial": (D.NegativeBinomial, {"total_count": t(3.0, 8.0), "probs": t(0.3, 0.5)}),
    "Normal": (D.Normal, {"loc": t(0.0, 1.0), "scale": t(1.0, 2.0)}),
    "OneHotCategorical": (D.OneHotCategorical, {"probs": t(0.2, 0.5, 0.3)}),
    "OneHotCategoricalStraightThrough": (
        D.OneHotCategoricalStraightThrough,
        {"probs": t(0.2, 0.5, 0.3)},
    ),
    "Pareto": (D.Pareto, {"scale": t(1.0, 2.0), "alpha": t(6.0, 9.0)}),
    "Poisson": (D.Poisson, {"rate": t(0.7, 40.0)}),
    "RelaxedBernoulli": (D.RelaxedBernoulli, {"temperature": t(0.8), "probs": t(0.3, 0.7)}),
    "RelaxedOneHotCategorical": (
        D.RelaxedOneHotCategorical,
        {"temperature": torch.tensor(0.8), "probs": t(0.2, 0.5, 0.3)},
    ),
    "StudentT": (D.StudentT, {"df": t(6.0, 9.0), "loc": t(0.0, 1.0), "scale": t(1.0, 2.0)}),
    "Uniform": (D.Uniform, {"low": t(0.0, 1.0), "high": t(1.0, 4.0)}),
    "VonMises": (D.VonMises, {"loc": t(0.0, 1.0), "concentration": t(1.0, 4.0)}),
    "Weibull": (D.Weibull, {"scale": t(1.0, 2.0), "concentration": t(1.5, 3.0)}),
    "Wishart": (D.Wishart, {"df": t(5.0), "covariance_matrix": torch.eye(2)[None]}),
}

# Their samples loop in Python until a look at the device says that all are accepted.
LOOKS = {"VonMises", "Wishart"}
# What wraps other distributions.
WRAPPERS = {
    "Independent": lambda d: D.Independent(D.Normal(t(0.0, 1.0).to(d), t(1.0, 2.0).to(d)), 1),
    "MixtureSameFamily": lambda d: D.MixtureSameFamily(
        D.Categorical(t(0.3, 0.7).to(d)), D.Normal(t(-2.0, 1.0).to(d), t(1.0, 0.5).to(d))
    ),
    "TransformedDistribution": lambda d: D.TransformedDistribution(
        D.Normal(t(0.0, 1.0).to(d), t(0.2, 0.3).to(d)),
        [D.AffineTransform(t(1.0).to(d), t(2.0).to(d)), D.SigmoidTransform()],
    ),
}
ABSTRACT = {"Distribution", "ExponentialFamily"}


def distribution(name: str, device, grad: bool = False):
    """The distribution and those of its parameters that require gradients."""
    if name in WRAPPERS:
        return WRAPPERS[name](device), []
    kind, parameters = CASES[name]
    own = {
        key: value.clone().to(device) if isinstance(value, torch.Tensor) else value
        for key, value in parameters.items()
    }
    leaves = [x for x in own.values() if isinstance(x, torch.Tensor)] if grad else []
    for leaf in leaves:
        leaf.requires_grad_()
    return kind(**own), leaves


def test_none_is_forgotten():
    known = {
        name
        for name in D.__all__
        if inspect.isclass(getattr(D, name)) and issubclass(getattr(D, name), D.Distribution)
    }
    assert known == CASES.keys() | WRAPPERS.keys() | ABSTRACT


def moment(of, name):
    """The mean or variance of a distribution that has one."""
    try:
        value = getattr(of, name)
    except NotImplementedError:
        return None
    return value.cpu() if value.isfinite().all() else None


@pytest.mark.parametrize("name", [*CASES, *WRAPPERS])
def test_samples_and_densities(name, metrics):
    ours, _ = distribution(name, DEVICE)
    theirs, _ = distribution(name, "cpu")
    samples = ours.sample((COUNT,))
    density = ours.log_prob(samples)
    assert samples.device.type == "xla" and samples.shape[0] == COUNT
    left = metrics.executed_fallback_ops()
    assert left == [] or name in LOOKS
    x = samples.cpu()
    assert x.isfinite().all()
    check_equal(theirs.log_prob(x), density, strides=False)
    mean, variance = moment(theirs, "mean"), moment(theirs, "variance")
    if mean is not None and variance is not None and mean.shape == x.shape[1:]:
        error = (variance / COUNT).sqrt()
        assert ((x.double().mean(0) - mean).abs() <= 5 * error + 1e-4 * mean.abs() + 1e-6).all()
        if name == "VonMises":  # whose variance is another, that of directions
            return
        spread = (x.double().var(0) - variance).abs() / variance.clamp(min=1e-3)
        assert (spread < 0.25).all()


# Those without a mean; a step function; and torch's Wishart, which writes into a mask that its own
# gradient needs, an error on CPU too.
ROUGH = ("Cauchy", "HalfCauchy", "OneHotCategoricalStraightThrough", "Wishart")
SMOOTH = [name for name, (kind, _) in CASES.items() if kind.has_rsample and name not in ROUGH]


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_through_samples(name, metrics):
    """The mean of the samples moves with a parameter as the distribution's mean does."""
    theirs, leaves = distribution(name, "cpu", grad=True)
    ours, parameters = distribution(name, DEVICE, grad=True)
    samples = ours.rsample((COUNT,)).mean(0)
    # A Dirichlet's sum is 1 whatever the parameters: weigh the elements.
    weights = torch.arange(1.0, 1 + samples.numel()).reshape(samples.shape)
    loss = (samples * weights.to(DEVICE)).sum()
    got = torch.autograd.grad(loss, parameters, allow_unused=True)
    assert name in LOOKS or metrics.executed_fallback_ops() == []
    if moment(theirs, "mean") is None or theirs.mean.shape != samples.shape:
        assert all(grad is None or grad.isfinite().all() for grad in got)
        return
    if not theirs.mean.requires_grad:
        return
    want = torch.autograd.grad((theirs.mean * weights).sum(), leaves, allow_unused=True)
    for expected, grad in zip(want, got, strict=True):
        expected = 0.0 if expected is None else expected
        grad = torch.zeros(()) if grad is None else grad.cpu()
        assert grad.isfinite().all()
        torch.testing.assert_close(grad, expected + torch.zeros_like(grad), rtol=0.1, atol=0.06)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0, 7.0, 100.0, 5000.0, 2e4])
def test_gradient_of_gamma_samples(alpha):
    concentration = torch.full((500,), alpha, dtype=torch.float64)
    x = torch._standard_gamma(concentration)
    expected = torch._standard_gamma_grad(concentration, x)
    got = torch._standard_gamma_grad(concentration.to(DEVICE), x.to(DEVICE))
    # CPU's own is an approximation of about four digits.
    torch.testing.assert_close(got.cpu(), expected, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("alpha", [(0.05, 0.2), (1.0, 1.0), (3.0, 7.0), (2.0, 300.0), (50.0, 80.0)])
def test_gradient_of_dirichlet_samples(alpha):
    concentration = torch.tensor(alpha, dtype=torch.float64).expand(500, 2).contiguous()
    x = torch._sample_dirichlet(concentration).clamp(1e-8, 1 - 1e-8)
    total = concentration.sum(-1, keepdim=True).expand_as(x).contiguous()
    expected = torch._dirichlet_grad(x, concentration, total)
    got = torch._dirichlet_grad(x.to(DEVICE), concentration.to(DEVICE), total.to(DEVICE))
    torch.testing.assert_close(got.cpu(), expected, rtol=2e-2, atol=1e-4)


@pytest.mark.parametrize("rate", [0.0, 0.3, 9.9, 10.1, 300.0, 1e6])
def test_poisson(rate):
    x = torch.poisson(torch.full((COUNT,), rate, device=DEVICE)).cpu().double()
    assert (x == x.floor()).all() and (x >= 0).all()
    assert abs(x.mean().item() - rate) <= 5 * math.sqrt(rate / COUNT)
    assert abs(x.var().item() - rate) <= 0.06 * rate


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_of_rejection(dtype):
    parameter = torch.full((500,), 2.5, dtype=dtype, device=DEVICE)
    for x in (
        torch.poisson(parameter),
        torch._standard_gamma(parameter),
        torch._sample_dirichlet(parameter.reshape(100, 5)),
        torch.binomial(parameter.floor(), parameter / 5),
    ):
        assert x.dtype == dtype and x.isfinite().all() and (x >= 0).all()


def test_parameters_at_the_edge():
    def values(device):
        count, probability = t(0.0, 5.0, 5.0, 5.0), t(0.5, 0.0, 1.0, float("nan"))
        return torch.binomial(count.to(device), probability.to(device)).cpu()

    torch.testing.assert_close(values(DEVICE), values("cpu"), equal_nan=True)
    assert torch.poisson(torch.zeros(3, device=DEVICE)).tolist() == [0, 0, 0]
    empty = torch.empty(0, device=DEVICE)
    assert torch.poisson(empty).shape == torch._standard_gamma(empty).shape == (0,)


def test_one_stream_whatever_the_graphs(device):
    """The same numbers with a sync after every draw as with one at the end."""
    import torch_xla

    def draws(sync: bool):
        torch.manual_seed(5)
        results = []
        for draw in (
            lambda: torch.rand(7, device=device),
            lambda: torch._standard_gamma(torch.full((7,), 0.5, device=device)),
            lambda: torch.poisson(torch.full((7,), 20.0, device=device)),
            lambda: torch.randperm(7, device=device),
            lambda: torch.multinomial(torch.ones(7, device=device), 3),
            lambda: torch.rand(7, device=device),
        ):
            results.append(draw())
            if sync:
                torch_xla.sync()
        return [x.tolist() for x in results]

    assert draws(True) == draws(False)


def test_generators_of_ones_own(device):
    rate = torch.full((9,), 20.0, device=device)

    def draw():
        generator = torch.Generator(device="xla").manual_seed(3)
        return torch.poisson(rate, generator).tolist()

    first = draw()
    torch.poisson(rate)
    assert draw() == first
