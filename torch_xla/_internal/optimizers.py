"""torch's optimizers and gradient clipping, told that xla has kernels over lists of tensors.

`torch.optim` and `torch.nn.utils.clip_grad_norm_` choose between a loop over the parameters, one
call for all of them (foreach) and one call for a whole step (fused) by lists of device types, which
torch keeps in functions. With xla in them a plain `torch.optim.AdamW(model.parameters())` takes the
foreach form, as on CUDA: a step is traced in some ten calls instead of some ten for each parameter.
State stays as on CPU: the count of steps is a CPU tensor unless one asks for `fused` or
`capturable`, also when a state is loaded that was put onto the device as a whole: counts that are
read back would cut each step in two. In SPMD mode a state that is loaded lies as its parameter
does, as one that the optimizer makes: else it would stay whole on each device from then on.

State that a failed step made, and that nothing was there before, was never computed: SGD's momentum
buffers begin as the first gradients. It begins anew in the next step.

`SparseAdam` makes what it adds by `Tensor.new`, which knows only the devices that had sparse
tensors when it was written; here it makes sparse tensors on xla too.
"""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import _get_capturable_supported_devices as _capturable
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._foreach_utils import _get_foreach_kernels_supported_devices as _foreach
from torch.utils._foreach_utils import _get_fused_kernels_supported_devices as _fused

from torch_xla._extension import _XLAC

# TorchScript compiles these with the optimizers that it scripts: they close over nothing.


def _foreach_and_xla() -> list[str]:
    return _foreach() + ["xla"]  # noqa: RUF005


def _fused_and_xla() -> list[str]:
    return _fused() + ["xla"]  # noqa: RUF005


def _capturable_and_xla(supports_xla: bool = True) -> list[str]:
    return _capturable(True)  # torch's foreach forms ask for a list without xla


def register() -> None:
    """Adds xla to the devices with foreach and fused optimizers, capturable foreach ones too."""
    for original, replacement in (
        (_foreach, _foreach_and_xla),
        (_fused, _fused_and_xla),
        (_capturable, _capturable_and_xla),
    ):
        _replace(original, replacement)
    _place_loaded_state()
    _make_sparse_tensors_by_new()
    register_optimizer_step_pre_hook(_drop_lost_state)


_failures_seen: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()


def _drop_lost_state(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if torch.compiler.is_compiling():
        return
    failures = _XLAC._num_failures()
    if failures == _failures_seen.get(optimizer, 0):
        return
    _failures_seen[optimizer] = failures
    lost = 0
    for state in optimizer.state.values():
        if not isinstance(state, dict):
            continue
        if _XLAC._any_failed([value for value in state.values() if torch.is_tensor(value)]):
            state.clear()
            lost += 1
    if lost:
        warnings.warn(
            f"{type(optimizer).__name__}: the state of {lost} parameters could not be computed in "
            "a step that failed, and begins anew",
            stacklevel=3,
        )


def _place_loaded_state() -> None:
    original = Optimizer._process_value_according_to_param_policy

    @functools.wraps(original)
    def process(
        param: torch.Tensor,
        value: torch.Tensor,
        param_id: int,
        param_groups: list[dict[Any, Any]],
        key: Any = None,
    ) -> torch.Tensor:
        value = original(param, value, param_id, param_groups, key)
        if not torch.is_tensor(value) or value.device.type != "xla":
            return value
        if key != "step":
            return _lying_as(param, value)
        group = next((group for group in param_groups if param_id in group["params"]), {})
        on_device = group.get("fused") or group.get("capturable")
        return value if on_device else value.cpu()

    Optimizer._process_value_according_to_param_policy = staticmethod(process)


def _lying_as(param: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A state that is cut as its parameter, unless somebody cut it already."""
    if not _XLAC._xla_is_spmd() or param.device.type != "xla" or value.shape != param.shape:
        return value
    wanted, now = _XLAC._xla_get_sharding(param), _XLAC._xla_get_sharding(value)
    if wanted is None or wanted.is_replicated or wanted.is_manual:
        return value
    if now is None:
        _XLAC._xla_mark_sharding(value, wanted)  # its parts go to their devices, and no more
    elif now.is_replicated:
        value = _XLAC._xla_constrain_sharding(value, wanted)
    return value


def _make_sparse_tensors_by_new() -> None:
    original = torch.Tensor.new

    @functools.wraps(original)
    def new(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.layout != torch.sparse_coo or self.device.type != "xla":
            return original(self, *args, **kwargs)
        if args and torch.is_tensor(args[0]):  # indices, values and perhaps sizes
            return torch.sparse_coo_tensor(*args, dtype=self.dtype, device=self.device)
        empty = torch.sparse_coo_tensor((0,), dtype=self.dtype, device="cpu")
        return original(empty, *args, **kwargs).to(self.device)

    torch.Tensor.new = new


def _replace(original: Callable[..., list[str]], replacement: Callable[..., list[str]]) -> None:
    """Puts a function in the place of one of torch's, wherever torch imported it to."""
    name = original.__name__
    for path, module in list(sys.modules.items()):
        if path.startswith("torch.") and vars(module).get(name) is original:
            setattr(module, name, replacement)
