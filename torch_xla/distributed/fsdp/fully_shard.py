"""`torch.distributed.fsdp.fully_shard` over meshes of xla, in SPMD mode.

    mesh = init_device_mesh("xla", (8,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    fully_shard(model, mesh=mesh)

torch's function leads here where the mesh is one of xla. A parameter stays one tensor with all of
its elements, of which each device holds a part. What a module's forward sees instead is that
tensor's value, whole on each device and in the policy's dtype; the gradient goes to the devices
that hold the part (Rajbhandari et al. 2020, ZeRO stage 3). XLA makes and schedules the transfers.
The batch is cut by `mark_sharding`. `torch.utils.checkpoint` belongs within a module that is given
to fully_shard: around one it saves nothing, since torch asks only the innermost hook what to keep.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    UnshardHandle,
)
from torch.utils import _pytree as pytree

from torch_xla import runtime
from torch_xla._extension import _XLAC
from torch_xla.core.xla_model import optimization_barrier_
from torch_xla.distributed.spmd.api import convert_to_xla_mesh
from torch_xla.distributed.spmd.mesh import Mesh, MeshAxes
from torch_xla.distributed.spmd.xla_sharding import Constrain, annotate_custom_sharding

__all__ = ["XlaFSDPModule", "fully_shard"]

_UNIT = "_xla_fsdp_unit"  # the attribute of a module in which its unit is


def fully_shard(
    module: nn.Module | Sequence[nn.Module],
    *,
    mesh: Any,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[nn.Parameter], Any] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[nn.Parameter] | None = None,
    dp_mesh_dims: Any = None,
) -> nn.Module | Sequence[nn.Module]:
    """See `torch.distributed.fsdp.fully_shard`; what is particular about xla:

    Args:
        module: one or several, moved to xla in place. Parameters on `meta` are cut once
            `to_empty(device="xla")` made them.
        mesh: of torch, of ours, or some axes of one (`mesh["data"]`). Of two axes the second cuts
            and the first has copies.
        reshard_after_forward: whether backward gathers parameters again instead of keeping them.
            A number of devices to keep them on counts as True.
        shard_placement_fn: gives `Shard(dim)` or None for a parameter. By default its first
            dimension is cut, or where that has fewer elements than parts the first that has enough;
            a parameter without any stays whole.
        mp_policy: `reduce_dtype` is what gradients are cast to on their way to their parts; XLA may
            add up what one product gave on several devices before that (libtpu does so after).
        offload_policy: `OffloadPolicy()` only.
        ignored_params: stay as and where they are.
        dp_mesh_dims: which named axes of `mesh` cut, and which have copies.

    Returns:
        what was given; each module is an `FSDPModule` now.

    Raises:
        RuntimeError: outside SPMD mode.
        ValueError: for meshes of other devices than the program's, or of more than two axes; for a
            parameter that is cut over another mesh; as `mark_sharding`.
        NotImplementedError: for offloading, and for parameters with meshes of their own.
    """
    if not runtime.is_spmd():
        raise RuntimeError("fully_shard: call torch_xla.runtime.use_spmd() first")
    if isinstance(offload_policy, CPUOffloadPolicy):
        raise NotImplementedError("fully_shard: over xla parameters stay in devices' memory")
    modules = [module] if isinstance(module, nn.Module) else list(module)
    for each in modules:
        if type(each).forward is nn.Module.forward or type(each).forward is _missing_forward:
            raise ValueError(f"fully_shard: {type(each).__name__} has no forward")
    ignored = {id(p) for p in ignored_params or ()}
    whole, axes = _mesh_and_axes(mesh, dp_mesh_dims)
    unit = _Unit(whole, axes, mp_policy or MixedPrecisionPolicy(), reshard_after_forward)
    for each in modules:
        each._apply(lambda t: t if t.is_meta or id(t) in ignored else t.to("xla"))
    unit.take_over(modules, ignored, shard_placement_fn)
    for each in modules:
        setattr(each, _UNIT, unit)
        each.register_forward_pre_hook(_pre_forward, prepend=True, with_kwargs=True)
        each.register_forward_hook(_post_forward, always_call=True)
        each.__class__ = _class_for(type(each))
    return module


_missing_forward = nn.ModuleList.forward


def _mesh_and_axes(mesh: Any, dp_mesh_dims: Any) -> tuple[Mesh, tuple[int, ...]]:
    """All of the mesh, and the numbers of the axes that cut."""
    whole = convert_to_xla_mesh(mesh)
    axes = mesh.axes if isinstance(mesh, MeshAxes) else tuple(range(len(whole.mesh_shape)))
    if dp_mesh_dims is not None:
        names = dp_mesh_dims.shard
        names = () if names is None else (names,) if isinstance(names, str) else tuple(names)
        return whole, whole[names].axes if names else ()
    if len(axes) > 2:
        raise ValueError(
            f"fully_shard: a mesh of one axis, or of two of which the second cuts; got {mesh}"
        )
    return whole, axes[-1:]


# --- Parameters -----------------------------------------------------------------------------------


class _Gather(torch.autograd.Function):
    """A parameter's value on each device; its gradient on those that hold the part."""

    @staticmethod
    def forward(
        ctx: Any, value: torch.Tensor, cut: Any, whole: Any, reduce_dtype: torch.dtype | None
    ) -> torch.Tensor:
        ctx.cut, ctx.whole, ctx.reduce_dtype = cut, whole, reduce_dtype
        return _XLAC._xla_constrain_sharding(value, whole)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        cast = grad.to(ctx.reduce_dtype or grad.dtype)
        return Constrain.apply(cast, ctx.cut, ctx.whole).to(grad.dtype), None, None, None


@dataclass(eq=False)
class _Slot:
    """A parameter that a unit cuts, by the places where modules have it."""

    places: list[tuple[nn.Module, str]]
    spec: tuple[Any, ...]  # as it lies
    whole_spec: tuple[Any, ...]  # as forward sees it
    cut: Any  # the same as shardings
    whole: Any
    placed: nn.Parameter | None = None

    def parameter(self) -> nn.Parameter:
        module, name = self.places[0]
        return module._parameters[name]

    def lies_otherwise(self) -> bool:
        """Whether devices hold other parts of the parameter than they are to."""
        if self.parameter().device.type != "xla":
            return False
        now = _XLAC._xla_get_sharding(self.parameter())
        return now is not None and now != self.cut

    def put(self, tensor: torch.Tensor) -> None:
        for module, name in self.places:
            module._parameters[name] = tensor
            if isinstance(module, nn.RNNBase) and name in module._flat_weights_names:
                # Its forward reads a list of its own.
                module._flat_weights[module._flat_weights_names.index(name)] = tensor


@dataclass(eq=False)
class _Pass:
    """A forward of a unit's modules, and the backward that follows."""

    parameters: dict[_Slot, nn.Parameter]
    seen: dict[int, _Slot] = field(default_factory=dict)  # by the storage of what forward sees
    gathered: list[torch.Tensor] = field(default_factory=list)  # keeps these storages
    again: dict[_Slot, torch.Tensor] = field(default_factory=dict)  # gathered by backward
    grad: torch.Tensor | None = None  # one with which backward came to the modules
    hooks: Any = None

    def forget(self) -> None:
        self.grad = None
        self.again.clear()


def _after_backward(call: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(call)


@dataclass
class _Kept:
    """What autograd keeps of a value that can be gathered again: which part of it that is."""

    slot: _Slot
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


class _Active(threading.local):
    def __init__(self) -> None:
        self.passes: list[tuple[_Unit, _Pass]] = []


_active = _Active()


class _Unit:
    """What one call of `fully_shard` takes care of."""

    def __init__(
        self,
        mesh: Mesh,
        axes: tuple[int, ...],
        policy: MixedPrecisionPolicy,
        reshard: bool | int | None,
    ) -> None:
        self.mesh = mesh
        self.axes = axes
        self.policy = policy
        self.reshard = reshard  # None: unless it is the outermost
        self.slots: list[_Slot] = []
        self._in_backward = False

    def take_over(
        self,
        modules: Sequence[nn.Module],
        ignored: set[int],
        placement_fn: Callable[[nn.Parameter], Any] | None,
    ) -> None:
        """Cuts the parameters of the modules that no unit has."""
        places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
        seen: set[nn.Module] = set()
        for module in modules:
            for owner in _own_modules(module, seen):
                for name, parameter in owner._parameters.items():
                    if parameter is not None and id(parameter) not in ignored:
                        places.setdefault(parameter, []).append((owner, name))
        for parameter, where in places.items():
            self.slots.append(self._slot(parameter, where, placement_fn))
        # Those that lie otherwise move here: the first step would be a program of its own.
        moving = [slot.parameter() for slot in self.slots if slot.lies_otherwise()]
        self.place()
        if moving and not _XLAC._xla_is_dry_run():
            _XLAC._xla_sync_multi(moving, wait=False)

    def _slot(
        self,
        parameter: nn.Parameter,
        places: list[tuple[nn.Module, str]],
        placement_fn: Callable[[nn.Parameter], Any] | None,
    ) -> _Slot:
        name = places[0][1]
        now = self._axes_of(parameter, name)
        used = {axis for entry in now for axis in entry}
        parts = self.mesh.get_logical_mesh().shape
        count = 1
        for axis in self.axes:
            count *= parts[axis]
        placement = placement_fn(parameter) if placement_fn is not None else None
        dim: int | None = None
        if placement is not None:
            if type(placement).__name__ != "Shard":
                raise NotImplementedError(
                    f"fully_shard: shard_placement_fn gave {placement!r} for {name}; over xla it "
                    "gives Shard(dim) or None"
                )
            dim = placement.dim % max(parameter.dim(), 1)
        else:
            for d, size in enumerate(parameter.shape):
                already = 1
                for axis in now[d]:
                    already *= parts[axis]
                if size >= count * already:
                    dim = d
                    break
        whole = tuple(tuple(a for a in entry if a not in self.axes) for entry in now)
        cut = list(now)
        if dim is not None and not used & set(self.axes):
            cut[dim] = (*cut[dim], *self.axes)
        return _Slot(
            places,
            _as_spec(cut),
            _as_spec(whole),
            self.mesh.get_op_sharding(_as_spec(cut)),
            self.mesh.get_op_sharding(_as_spec(whole)),
        )

    def _axes_of(self, parameter: nn.Parameter, name: str) -> list[tuple[int, ...]]:
        """The axes that cut a parameter already, for tensor parallelism say."""
        plain: list[tuple[int, ...]] = [()] * parameter.dim()
        sharding = None if parameter.is_meta else _XLAC._xla_get_sharding(parameter)
        if sharding is None or sharding.is_replicated:
            return plain
        dims = [tuple(axis for axis, _, _ in parts) for parts in sharding.dims]
        if self.mesh.get_op_sharding(_as_spec(dims)) != sharding:
            raise ValueError(f"fully_shard: {name} is cut over another mesh: {sharding}")
        return dims

    def place(self) -> None:
        """Cuts parameters that are new on xla, or were made anew there."""
        for slot in self.slots:
            parameter = slot.parameter()
            slot.placed = parameter
            if parameter.device.type == "xla":
                annotate_custom_sharding(parameter, self.mesh, slot.spec)

    # --- A forward, and what backward does of it ---

    def enter(self) -> None:
        """From here on modules see whole values."""
        for slot in self.slots:
            if slot.parameter() is not slot.placed:  # state_dict with assign=True
                self.place()
        run = _Pass({slot: slot.parameter() for slot in self.slots})
        reshard = bool(_active.passes) if self.reshard is None else bool(self.reshard)
        for slot, parameter in run.parameters.items():
            if parameter.device.type != "xla":
                continue
            value = self._whole(slot, parameter)
            slot.put(value)
            if reshard and slot.cut != slot.whole:
                run.seen[value.untyped_storage()._cdata] = slot
                run.gathered.append(value)
        if run.seen and torch.is_grad_enabled():
            run.hooks = torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: _keep(run, tensor), lambda kept: self._unpack(run, kept)
            )
            run.hooks.__enter__()
        _active.passes.append((self, run))

    def leave(self) -> _Pass | None:
        """Ends what `enter` began; None if that was undone since."""
        if not _active.passes or _active.passes[-1][0] is not self:
            return None
        _, run = _active.passes.pop()
        if run.hooks is not None:
            run.hooks.__exit__(None, None, None)
        for slot, parameter in run.parameters.items():
            slot.put(parameter)
        run.gathered.clear()
        run.seen.clear()
        return run

    def _whole(self, slot: _Slot, parameter: torch.Tensor) -> torch.Tensor:
        dtype = self.policy.param_dtype
        if dtype is not None and parameter.is_floating_point():
            parameter = parameter.to(dtype)
        return _Gather.apply(parameter, slot.cut, slot.whole, self.policy.reduce_dtype)

    def _unpack(self, run: _Pass, kept: torch.Tensor | _Kept) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        slot = kept.slot
        if slot not in run.again:
            with torch.no_grad():
                value = _XLAC._xla_constrain_sharding(run.parameters[slot], slot.cut)
                # Otherwise XLA takes the gather for forward's. What it waits for is backward's.
                waits = [value]
                if run.grad is not None:
                    waits.append(run.grad.clone())
                optimization_barrier_(waits)
                run.again[slot] = self._whole(slot, value)
        return run.again[slot].as_strided(kept.size, kept.stride, kept.offset)

    def backward_begins(self, run: _Pass, grad: torch.Tensor) -> None:
        """Called with the gradient of an output, before backward is in the modules."""
        if run.grad is None:
            # What is left after a backward would be a result of the step's program.
            _after_backward(run.forget)
        run.grad = grad
        if self.policy.param_dtype is None or self._in_backward:
            return
        # Checkpointed code inside the modules computes again what it did in forward.
        self._in_backward = True
        parameters = {slot: slot.parameter() for slot in self.slots}
        with torch.enable_grad():
            for slot, parameter in parameters.items():
                if parameter.device.type == "xla":
                    slot.put(self._whole(slot, parameter))

        def end() -> None:
            self._in_backward = False
            for slot, parameter in parameters.items():
                slot.put(parameter)

        _after_backward(end)

    # --- By the names that torch's functions for FSDPModules use ---

    def _pre_forward(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        policy = self.policy
        if policy.cast_forward_inputs and policy.param_dtype is not None:
            args, kwargs = _cast((args, kwargs), policy.param_dtype)
        if not self._in_backward:
            self.enter()
        return args, kwargs

    def _post_forward(self, module: nn.Module, args: Any, output: Any) -> Any:
        run = self.leave()
        if run is not None and torch.is_grad_enabled():
            for tensor in pytree.tree_leaves(output):
                if isinstance(tensor, torch.Tensor) and tensor.requires_grad and not tensor.is_leaf:
                    tensor.register_hook(lambda grad: self.backward_begins(run, grad))
        if self.policy.output_dtype is not None:
            output = _cast(output, self.policy.output_dtype)
        return output


def _own_modules(module: nn.Module, seen: set[nn.Module]) -> Iterator[nn.Module]:
    """The module and what is in it, without the modules of other units."""
    if module in seen or _UNIT in module.__dict__:
        return
    seen.add(module)
    yield module
    for child in module.children():
        yield from _own_modules(child, seen)


def _as_spec(axes: Sequence[tuple[int, ...]]) -> tuple[Any, ...]:
    return tuple(entry or None for entry in axes)


def _keep(run: _Pass, tensor: torch.Tensor) -> torch.Tensor | _Kept:
    slot = run.seen.get(tensor.untyped_storage()._cdata) if tensor.device.type == "xla" else None
    if slot is None:
        return tensor
    return _Kept(slot, tensor.size(), tensor.stride(), tensor.storage_offset())


def _cast(tree: Any, dtype: torch.dtype) -> Any:
    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return pytree.tree_map_only(torch.Tensor, cast, tree)


# --- Modules --------------------------------------------------------------------------------------


@torch.compiler.disable
def _pre_forward(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    return getattr(module, _UNIT)._pre_forward(module, args, kwargs)


@torch.compiler.disable
def _post_forward(module: nn.Module, args: Any, output: Any) -> Any:
    return getattr(module, _UNIT)._post_forward(module, args, output)


class XlaFSDPModule(FSDPModule):
    """What `fully_shard` adds to a module over xla. See `torch.distributed.fsdp.FSDPModule`.

    Parameters are whole tensors at any time, and XLA decides when their parts are gathered: calls
    that say when to do so have nothing to say here, and change nothing.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """An object of the module's own class: a slice of a container, for example."""
        plain = cls.__mro__[cls.__mro__.index(XlaFSDPModule) + 2]
        self = plain.__new__(plain)
        self.__init__(*args, **kwargs)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        import copy

        copied = nn.Module.__new__(type(self).__mro__[3])
        memo[id(self)] = copied
        copied.__dict__ = copy.deepcopy(self.__dict__, memo)
        copied.__class__ = type(self)
        getattr(copied, _UNIT).place()
        return copied

    def reshard(self) -> None:
        """Nothing: parameters lie cut at any time."""

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Nothing: parameters have all their elements at any time."""
        return UnshardHandle() if async_op else None

    def reset_iter_state(self) -> None:
        """Nothing: a forward that fails leaves nothing behind."""

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Nothing: every backward ends with gradients that are complete."""

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Nothing: gradients are those of the whole batch, so that sums over several backwards are
        the same either way."""

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Nothing; see `set_requires_gradient_sync`."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether backward gathers parameters again; see `fully_shard`."""
        for module in self.modules() if recurse else [self]:
            if isinstance(module, XlaFSDPModule):
                getattr(module, _UNIT).reshard = reshard_after_forward

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, *, recurse: bool = True
    ) -> None:
        """Nothing: parameters lie cut at any time."""

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Nothing: XLA schedules gathers."""

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Nothing: XLA schedules gathers."""

    def set_post_optim_event(self, event: torch.Event) -> None:
        """Nothing: programs run in order."""

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Nothing: XLA only ever sums."""

    def set_reduce_scatter_unused_params(
        self, reduce_scatter_unused_params: bool, *, recurse: bool = True
    ) -> None:
        """Nothing: all devices run one program."""

    def set_reduce_scatter_max_input_buffers(
        self, max_input_buffers: int, *, recurse: bool = True
    ) -> None:
        """Nothing: XLA plans memory."""

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Nothing: what backward does not use is not gathered."""

    def _set_unshard_async_op(self, async_op: bool) -> None:
        pass

    def _get_fsdp_state(self) -> Any:
        return getattr(self, _UNIT)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        result = super(FSDPModule, self)._apply(*args, **kwargs)
        getattr(self, _UNIT).place()
        return result


def _refusal(name: str, why: str) -> Callable[..., None]:
    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{name}: {why}")

    method.__name__ = name
    method.__doc__ = f"Raises NotImplementedError: {why}."
    return method


for _name in (
    "set_custom_all_gather",
    "set_custom_reduce_scatter",
    "set_all_reduce_hook",
    "set_separate_reduce_scatter_group",
    "set_allocate_memory_from_process_group_for_comm",
    "set_symm_mem_for_comm",
):
    setattr(XlaFSDPModule, _name, _refusal(_name, "over xla, transfers are XLA's own"))
for _name in ("set_gradient_divide_factor", "set_reduce_scatter_divide_factor"):
    setattr(
        XlaFSDPModule,
        _name,
        _refusal(_name, "over xla, the loss is that of the whole batch: scale the loss"),
    )


_classes: dict[type, type] = {}


def _class_for(plain: type[nn.Module]) -> type[nn.Module]:
    if plain not in _classes:
        _classes[plain] = type(f"FSDP{plain.__name__}", (XlaFSDPModule, plain), {})
    return _classes[plain]
