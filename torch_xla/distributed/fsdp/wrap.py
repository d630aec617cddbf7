"""Which submodules of a model a wrapper is put around.

A policy is asked twice about a module: with `recurse=True`, whether to look at its children, and
with `recurse=False`, after these had their turn, whether to wrap the module itself.
`unwrapped_params` is the number of elements in its parameters that no child's wrapper has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from torch import nn

__all__ = [
    "always_wrap_policy",
    "lambda_auto_wrap_policy",
    "recursive_wrap",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
]

# A list of modules has no forward that a wrapper could call.
_NEVER_WRAPPED = {nn.ModuleList, nn.ModuleDict}
# Its forward reads its children's parameters instead of calling the children.
_NEVER_ENTERED = {nn.MultiheadAttention}


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Wraps every module."""
    return True


def lambda_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    unwrapped_params: int,
    lambda_fn: Callable[[nn.Module], bool],
) -> bool:
    """Wraps the modules for which `lambda_fn` is true."""
    return recurse or bool(lambda_fn(module))


def transformer_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    unwrapped_params: int,
    transformer_layer_cls: Collection[type[nn.Module]],
) -> bool:
    """Wraps the modules of these classes: the layers of a transformer."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    unwrapped_params: int,
    min_num_params: int = 100_000_000,
    force_leaf_modules: Collection[type[nn.Module]] | None = None,
    exclude_wrap_modules: Collection[type[nn.Module]] | None = None,
) -> bool:
    """Wraps modules as soon as they have enough parameters that nothing inside them wraps.

    Args:
        min_num_params: elements that are enough.
        force_leaf_modules: classes that are left alone with all that is in them;
            `nn.MultiheadAttention` by default.
        exclude_wrap_modules: classes that are never wrapped; `nn.ModuleList` and `nn.ModuleDict` by
            default.
    """
    leaves = _NEVER_ENTERED if force_leaf_modules is None else force_leaf_modules
    excluded = _NEVER_WRAPPED if exclude_wrap_modules is None else exclude_wrap_modules
    exceptions = leaves if recurse else excluded
    return unwrapped_params >= min_num_params and not isinstance(module, tuple(exceptions))


def recursive_wrap(
    module: nn.Module,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Callable[..., nn.Module],
    ignored_modules: Collection[nn.Module],
    ignored_params: Collection[nn.Parameter],
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[nn.Module, int]:
    """Puts wrappers around the parts of a module that a policy names, innermost first.

    Args:
        module: whose children are replaced by their wrappers, in place.
        auto_wrap_policy: see the module's docstring.
        wrapper_cls: makes a wrapper: `wrapper_cls(module, **kwargs)`.
        ignored_modules: these, and what is in them, are left alone.
        ignored_params: these do not count.
        only_wrap_children: leave `module` itself alone.

    Returns:
        the module or its wrapper, and how many elements of parameters are in wrappers now.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> linears = lambda module, recurse, unwrapped_params: recurse or type(module) is nn.Linear
    >>> wrapped, count = recursive_wrap(model, linears, nn.Sequential, (), ())
    >>> type(wrapped[0]).__name__, count
    ('Sequential', 9)
    """
    ignored = {id(parameter) for parameter in ignored_params}
    for left_alone in ignored_modules:
        ignored.update(id(parameter) for parameter in left_alone.parameters())
    skipped = {id(left_alone) for left_alone in ignored_modules}

    def wrap(current: nn.Module, is_root: bool) -> tuple[nn.Module, int]:
        total = sum(p.numel() for p in current.parameters() if id(p) not in ignored)
        if not auto_wrap_policy(module=current, recurse=True, unwrapped_params=total):
            return current, 0
        wrapped = 0
        for name, child in current.named_children():
            if id(child) not in skipped:
                replacement, count = wrap(child, False)
                wrapped += count
                setattr(current, name, replacement)
        leave = is_root and only_wrap_children
        if not leave and auto_wrap_policy(
            module=current, recurse=False, unwrapped_params=total - wrapped
        ):
            return wrapper_cls(current, **kwargs), total
        return current, wrapped

    return wrap(module, True)
