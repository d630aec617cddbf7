"""The classic interface of the package (imported as `xm`).

Collectives here are those of one replica (`world_size()` 1), for which they are exact: a reduction
of one tensor is that tensor, scaled.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TypedDict

import torch

from torch_xla import _api, runtime
from torch_xla._extension import _XLAC
from torch_xla._internal import steps
from torch_xla._internal.steps import DeviceContext
from torch_xla._internal.utils import parse_xla_device
from torch_xla.utils import utils as xu

__all__ = [
    "REDUCE_AND",
    "REDUCE_MAX",
    "REDUCE_MIN",
    "REDUCE_MUL",
    "REDUCE_OR",
    "REDUCE_SUM",
    "XLA_LIB",
    "CoalescingBuckets",
    "DeviceContext",
    "MemoryInfo",
    "RateTracker",
    "ToXlaTensorArena",
    "add_step_closure",
    "all_gather",
    "all_gather_bucketized",
    "all_reduce",
    "all_reduce_bucketized_gradients",
    "all_to_all",
    "broadcast_master_param",
    "check_view_sharing",
    "collective_broadcast",
    "collective_permute",
    "do_on_ordinals",
    "fork_rng",
    "get_local_ordinal",
    "get_memory_info",
    "get_ordinal",
    "get_rng_state",
    "get_stablehlo",
    "get_stablehlo_bytecode",
    "get_xla_supported_devices",
    "is_master_ordinal",
    "is_xla_tensor",
    "mark_step",
    "master_print",
    "mesh_reduce",
    "optimization_barrier_",
    "optimizer_step",
    "reduce_gradients",
    "reduce_scatter",
    "reduce_scatter_bucketized",
    "rendezvous",
    "save",
    "send_cpu_data_to_device",
    "set_replication",
    "set_rng_state",
    "unlazy",
    "wait_device_ops",
    "xla_device",
    "xla_device_hw",
    "xla_device_kind",
    "xla_real_devices",
    "xla_rendezvous",
    "xla_replication_devices",
    "xrt_world_size",
]

# Where operators of the "xla" namespace are defined; programs may add theirs.
XLA_LIB = torch.library.Library("xla", "DEF")

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"
_REDUCTIONS = (REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX)

# --- Devices ---


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    """Whether the tensor is on an xla device."""
    return tensor.device.type == "xla"


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """An xla device of this process; see `torch_xla.device`.

    Args:
        n: which one; by default the thread's current device.
        devkind: the kind of device it has to be ("CPU", "TPU", ...).

    Raises:
        RuntimeError: if there is no such device.
    """
    device = _api.device(n)
    if devkind is not None and xla_device_hw(device) != devkind.upper():
        raise RuntimeError(f"no {devkind} device: this process has {_api.real_devices()}")
    return device


def get_xla_supported_devices(
    devkind: str | None = None, max_devices: int | None = None
) -> list[str] | None:
    """Names of this process's devices, `["xla:0"]`; None when none is of kind `devkind`."""
    if devkind is not None and devkind.upper() != runtime.device_type():
        return None
    return [str(device) for device in _api.devices()][:max_devices]


def xla_real_devices(devices: Iterable[torch.device | str] | None = None) -> list[str]:
    """What these devices are: `["CPU:0"]`. By default, all of this process."""
    return _XLAC._xla_real_devices([str(device) for device in devices or []])


def xla_device_hw(device: torch.device | str) -> str:
    """The kind of device: "CPU", "TPU", "CUDA", ... A cpu device of torch is a "CPU" too."""
    if torch.device(device).type == "cpu":
        return "CPU"
    return _XLAC._xla_get_device_hw_type(str(device))


def xla_device_kind(device: torch.device | str) -> str:
    """The plugin's own name of the hardware: "cpu", "TPU v5 lite", ..."""
    return _XLAC._xla_device_kind(str(device))


def get_ordinal() -> int:
    """Number of this replica; same as `torch_xla.runtime.global_ordinal`."""
    return runtime.global_ordinal()


def get_local_ordinal() -> int:
    """Number of this replica on its host."""
    return runtime.local_ordinal()


def xrt_world_size() -> int:
    """Number of replicas; same as `torch_xla.runtime.world_size`."""
    return runtime.world_size()


def is_master_ordinal(local: bool = True) -> bool:
    """Whether this replica is the first, of its host or (with `local=False`) of all."""
    return (get_local_ordinal() if local else get_ordinal()) == 0


def master_print(
    *args: Any, fd: IO[str] = sys.stdout, local: bool = False, flush: bool = False
) -> None:
    """Prints on the first replica only."""
    if is_master_ordinal(local=local):
        print(*args, file=fd, flush=flush)


def xla_replication_devices(local_devices: Sequence[torch.device | str]) -> list[str]:
    """Names, over all processes, of the devices that replicate these."""
    return xla_real_devices(local_devices)


def set_replication(device: torch.device | str, devices: Sequence[torch.device | str]) -> None:
    """Makes `device` this thread's current one, with `devices` as its replicas.

    Raises:
        NotImplementedError: if there is more than one replica.
    """
    if len(devices) > 1:
        raise NotImplementedError(
            f"replication over {len(devices)} devices of one process is not supported yet; "
            "CPU_NUM_DEVICES=1 gives one device"
        )
    if parse_xla_device(device) is not None:
        _XLAC._xla_set_default_device(str(device))


# --- Steps ---


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """Ends a step: runs what was traced; see `torch_xla.sync`."""
    steps.mark(wait=wait, reset_scope=reset_scope)


def add_step_closure(
    closure: Callable[..., Any], args: tuple = (), run_async: bool = False
) -> None:
    """Calls `closure(*args)` after the next `mark_step`, when the tensors in it have values.

    Printing a loss in the midst of a step would run half of it as a program of its own.

    Args:
        run_async: call it on a background thread, in order with others added so. What it raises is
            raised by a later step.
    """
    current = steps.context()
    queue = current.async_closures if run_async else current.closures
    queue.append(functools.partial(closure, *args))


def wait_device_ops(devices: Iterable[torch.device | str] = ()) -> None:
    """Blocks until the launched programs of these devices are over; by default, of all devices.

    Raises an error of theirs, or of a launch, that nobody was told of yet, once.
    """
    _XLAC._xla_wait_device_ops([str(device) for device in devices])


def unlazy(tensors: Sequence[torch.Tensor]) -> None:
    """Computes these tensors now, and waits for them."""
    _XLAC._xla_sync_multi(list(tensors), [], wait=True, sync_xla_data=False)


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: dict[str, Any] | None = None,
    groups: list[list[int]] | None = None,
    pin_layout: bool = True,
) -> Any:
    """Adds up the gradients of all replicas, then calls `optimizer.step`.

    Args:
        optimizer: whose parameters have gradients.
        barrier: also ends the step (`mark_step`). A loader of `parallel_loader` does that itself.
        optimizer_args: keyword arguments of `optimizer.step`.
        groups: replicas that add up among themselves; by default all together.

    Returns:
        What `optimizer.step` returns.
    """
    reduce_gradients(optimizer, groups=groups, pin_layout=pin_layout)
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss


def get_stablehlo(tensors: Sequence[torch.Tensor] | None = None) -> str:
    """The StableHLO program that computes these tensors, as text.

    By default, that of everything pending on the current device. Nothing is run.
    """
    return _XLAC._get_stablehlo(list(tensors or []))


def get_stablehlo_bytecode(tensors: Sequence[torch.Tensor] | None = None) -> bytes:
    """The same program as bytes, for tools that read StableHLO files.

    These are the bytes of the text form: MLIR's readers tell text and bytecode apart themselves,
    but they are no portable artifact that survives versions of StableHLO.
    """
    return get_stablehlo(tensors).encode()


def optimization_barrier_(tensors: Sequence[torch.Tensor]) -> None:
    """Keeps XLA from moving computations across this point, for these tensors (in place)."""
    _XLAC._xla_optimization_barrier_(list(tensors))


# --- Collectives of one replica ---


def _check_groups(groups: list[list[int]] | None) -> None:
    if groups is not None and [list(group) for group in groups] not in ([], [[0]]):
        raise ValueError(f"groups of replicas must hold each of them once: got {groups} for one")


def _check_reduction(reduce_type: str) -> None:
    if reduce_type not in _REDUCTIONS:
        raise ValueError(f"reduce_type must be one of {_REDUCTIONS}, got {reduce_type!r}")


def _scaled(value: torch.Tensor, scale: float) -> torch.Tensor:
    return value.clone() if scale == 1.0 else value * scale


def _fill(output: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    if output.shape != result.shape:
        raise ValueError(f"output has shape {list(output.shape)}, needed is {list(result.shape)}")
    return output.copy_(result)


def all_reduce(
    reduce_type: str,
    inputs: torch.Tensor | Sequence[torch.Tensor],
    scale: float = 1.0,
    groups: list[list[int]] | None = None,
    pin_layout: bool = True,
) -> torch.Tensor | None:
    """Reduces tensors over the replicas.

    Args:
        reduce_type: "sum", "mul", "and", "or", "min" or "max".
        inputs: one tensor, for which the result is returned; or several, which are replaced in
            place.
        scale: the result is multiplied by it.
        groups: replicas that reduce among themselves.

    Raises:
        ValueError: unknown `reduce_type`, or groups that are none.

    >>> all_reduce(REDUCE_SUM, torch.ones(2, device="xla"), scale=0.5).tolist()
    [0.5, 0.5]
    """
    _check_reduction(reduce_type)
    _check_groups(groups)
    if isinstance(inputs, torch.Tensor):
        return _scaled(inputs, scale)
    if scale != 1.0:
        with torch.no_grad():
            for tensor in inputs:
                tensor.mul_(scale)
    return None


def all_gather(
    value: torch.Tensor | Sequence[torch.Tensor],
    dim: int = 0,
    groups: list[list[int]] | None = None,
    output: torch.Tensor | Sequence[torch.Tensor] | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """Concatenates every replica's `value` along `dim`.

    Args:
        value: a tensor, or several that are gathered one by one.
        output: where results go; they are returned all the same.
    """
    _check_groups(groups)
    if isinstance(value, torch.Tensor):
        if not -max(value.dim(), 1) <= dim < max(value.dim(), 1):
            raise IndexError(f"all_gather: no dimension {dim} in {list(value.shape)}")
        return value.clone() if output is None else _fill(output, value)
    outputs = [None] * len(value) if output is None else output
    return [all_gather(v, dim, groups, o) for v, o in zip(value, outputs, strict=True)]


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: list[list[int]] | None = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Splits `value` among the replicas along one dimension, and joins what comes along another."""
    _check_groups(groups)
    if split_count != 1:
        raise ValueError(f"split_count must be the number of replicas, 1, got {split_count}")
    return value.clone()


def collective_permute(value: torch.Tensor, pairs: list[list[int]]) -> torch.Tensor:
    """Sends `value` along pairs (source, target); a replica that is no target gets zeros."""
    pairs = [list(pair) for pair in pairs]
    if pairs not in ([], [[0, 0]]):
        raise ValueError(f"pairs name replicas that do not exist: {pairs} for one replica")
    return value.clone() if pairs else torch.zeros_like(value)


def collective_broadcast(
    tensors: Sequence[torch.Tensor],
    root_ordinal: int = 0,
    groups: list[int] | None = None,
    pin_layout: bool = True,
) -> None:
    """Replaces tensors, in place, by those of one replica."""
    if root_ordinal != 0:
        raise ValueError(f"no replica {root_ordinal}: there is one")


def reduce_scatter(
    reduce_type: str,
    input: torch.Tensor | Sequence[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: list[list[int]] | None = None,
    output: torch.Tensor | Sequence[torch.Tensor] | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Any:
    """Reduces over the replicas and gives each one its part along `scatter_dim`."""
    _check_reduction(reduce_type)
    _check_groups(groups)
    if shard_count != 1:
        raise ValueError(f"shard_count must be the number of replicas, 1, got {shard_count}")
    if isinstance(input, torch.Tensor):
        result = _scaled(input, scale)
        return result if output is None else _fill(output, result)
    outputs = [None] * len(input) if output is None else output
    return [
        reduce_scatter(reduce_type, i, scale, scatter_dim, shard_count, groups, o)
        for i, o in zip(input, outputs, strict=True)
    ]


class CoalescingBuckets:
    """Collects tensors until they are big enough, then hands them on together.

    Args:
        func: called with `(inputs, outputs)`, or `(inputs,)` when no outputs were given.
        input_list: tensors to add at once.
        output_list: their outputs.
        bucket_cap_mb: size in 2**20 bytes at which a bucket is full.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        input_list: Sequence[torch.Tensor] = (),
        output_list: Sequence[torch.Tensor] | None = None,
        bucket_cap_mb: int = 160,
    ) -> None:
        self._func = func
        self._capacity = bucket_cap_mb * 2**20
        self._inputs: list[torch.Tensor] = []
        self._outputs: list[torch.Tensor] = []
        self._bytes = 0
        self.results: list[Any] = []
        for i, tensor in enumerate(input_list):
            self.add(tensor, output_list[i] if output_list else None)

    def add(self, tensor: torch.Tensor, output: torch.Tensor | None = None) -> None:
        """Adds a tensor; what is there is handed on first when both would be too much."""
        if self._inputs and self._bytes + tensor.nbytes > self._capacity:
            self.flush()
        self._inputs.append(tensor)
        if output is not None:
            self._outputs.append(output)
        self._bytes += tensor.nbytes

    def flush(self) -> None:
        """Hands on what is there."""
        if not self._inputs:
            return
        made = (
            self._func(self._inputs, self._outputs) if self._outputs else self._func(self._inputs)
        )
        self.results.extend(made or [])
        self._inputs, self._outputs, self._bytes = [], [], 0


def all_gather_bucketized(
    input_list: Sequence[torch.Tensor],
    dim: int = 0,
    groups: list[list[int]] | None = None,
    output: Sequence[torch.Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[torch.Tensor]:
    """`all_gather` of many tensors, as many at a time as fit `bucket_cap_mb`."""
    buckets = CoalescingBuckets(
        lambda inputs, outputs=None: all_gather(inputs, dim, groups, outputs),
        input_list,
        output,
        bucket_cap_mb,
    )
    buckets.flush()
    return buckets.results


def reduce_scatter_bucketized(
    reduce_type: str,
    input_list: Sequence[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: list[list[int]] | None = None,
    output: Sequence[torch.Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[torch.Tensor]:
    """`reduce_scatter` of many tensors, as many at a time as fit `bucket_cap_mb`."""
    buckets = CoalescingBuckets(
        lambda inputs, outputs=None: reduce_scatter(
            reduce_type, inputs, scale, scatter_dim, shard_count, groups, outputs
        ),
        input_list,
        output,
        bucket_cap_mb,
    )
    buckets.flush()
    return buckets.results


def _fetch_gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The gradients of an optimizer's parameters."""
    return [
        parameter.grad
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]


def all_reduce_bucketized_gradients(
    gradients: Sequence[torch.Tensor],
    scale: float,
    groups: list[list[int]] | None = None,
    pin_layout: bool = True,
    bucket_cap_mb: int = 0,
) -> None:
    """Adds up gradients over the replicas, in place."""
    all_reduce(REDUCE_SUM, list(gradients), scale, groups, pin_layout)


def reduce_gradients(
    optimizer: torch.optim.Optimizer,
    groups: list[list[int]] | None = None,
    pin_layout: bool = True,
) -> None:
    """Replaces an optimizer's gradients by their average over the replicas."""
    count = runtime.world_size()
    if count > 1:
        all_reduce(REDUCE_SUM, _fetch_gradients(optimizer), 1.0 / count, groups, pin_layout)


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Gives all replicas the first one's parameters and buffers, and ends the step."""
    collective_broadcast([*model.parameters(), *model.buffers()])
    mark_step()


# --- Meeting other processes ---


def xla_rendezvous(
    payload: bytes = b"", ordinals: list[int] | None = None, tag: str | None = None
) -> list[bytes]:
    """Waits for the other replicas. Returns what each of them brought."""
    if not isinstance(payload, bytes):
        raise TypeError(f"the payload of a rendezvous is bytes, got {type(payload).__name__}")
    return [payload]


def rendezvous(tag: str, payload: bytes = b"", replicas: list[int] | None = None) -> list[bytes]:
    """The same, under a name that all of them must give."""
    return xla_rendezvous(payload, replicas, tag)


def do_on_ordinals(
    target: Callable[..., Any], data: Any = (), ordinals: Sequence[int] = (0,)
) -> None:
    """Calls `target(*data)` on some replicas, while the others wait."""
    if get_ordinal() in ordinals:
        target(*_maybe_convert_to_cpu(data))
    rendezvous("torch_xla.core.xla_model.do_on_ordinals")


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """Calls `reduce_fn` with the list of every replica's `data`, on CPU.

    Args:
        tag: a name that all replicas must give.
        data: anything that can be pickled; its xla tensors are copied to the CPU.
    """
    file = io.BytesIO()
    torch.save(_maybe_convert_to_cpu(data), file)
    # weights_only=False: replicas of one program trust each other, and any object is allowed.
    return reduce_fn(
        [
            torch.load(io.BytesIO(payload), weights_only=False)
            for payload in rendezvous(tag, file.getvalue())
        ]
    )


# --- Data ---


class ToXlaTensorArena:
    """Converts all tensors inside some data at once.

    Args:
        convert_fn: takes a list of tensors, gives a list of as many.
        select_fn: which values are converted.

    >>> arena = ToXlaTensorArena(lambda ts: [t + 1 for t in ts], torch.is_tensor)
    >>> arena.transform({"x": torch.zeros(2)})
    {'x': tensor([1., 1.])}
    """

    def __init__(
        self,
        convert_fn: Callable[[list[torch.Tensor]], list[Any]],
        select_fn: Callable[[Any], bool],
    ) -> None:
        self._convert_fn = convert_fn
        self._select_fn = select_fn

    def transform(self, inputs: Any) -> Any:
        """The same structure with converted values; one that occurs twice is converted once."""
        positions: dict[int, int] = {}
        tensors: list[torch.Tensor] = []

        def collect(tensor: torch.Tensor) -> None:
            if id(tensor) not in positions:
                positions[id(tensor)] = len(tensors)
                tensors.append(tensor)

        def select(value: Any) -> bool:
            return isinstance(value, xu.DataWrapper) or self._select_fn(value)

        def visit(value: Any) -> None:
            for tensor in value.get_tensors() if isinstance(value, xu.DataWrapper) else [value]:
                collect(tensor)

        xu.for_each_instance(inputs, select, visit)
        converted = self._convert_fn(tensors) if tensors else []
        if len(converted) != len(tensors):
            raise ValueError(f"convert_fn made {len(converted)} values of {len(tensors)} tensors")

        def replace(value: Any) -> Any:
            if isinstance(value, xu.DataWrapper):
                return value.from_tensors(
                    [converted[positions[id(tensor)]] for tensor in value.get_tensors()]
                )
            return converted[positions[id(value)]]

        return xu.for_each_instance_rewrite(inputs, select, replace)


def check_input_sharding(input_sharding: Any) -> None:
    """Raises as `send_cpu_data_to_device` for an `input_sharding` that it cannot take."""
    if input_sharding is not None and not runtime.is_spmd():
        raise RuntimeError("input_sharding: call torch_xla.runtime.use_spmd() first")
    if isinstance(input_sharding, Mapping | list | tuple):
        parts = input_sharding
        for part in parts.values() if isinstance(parts, Mapping) else parts:
            check_input_sharding(part)
    elif input_sharding is not None and not (
        hasattr(input_sharding, "can_apply") and hasattr(input_sharding, "apply")
    ):
        raise TypeError(
            "input_sharding: a torch_xla.distributed.spmd.ShardingSpec, or a dict or list of them, "
            f"not {type(input_sharding).__name__}"
        )


def send_cpu_data_to_device(
    datas: Any, device: torch.device | str, input_sharding: Any = None
) -> Any:
    """A copy of some data with its CPU tensors on a device.

    Args:
        datas: tensors, or anything that holds some.
        device: where to.
        input_sharding: in SPMD mode, a `torch_xla.distributed.spmd.ShardingSpec` by which tensors
            of its number of dimensions are cut; others are copied to each device. Or a dict of
            such specs, or None, for the keys of `datas`, which is a dict then; or a list or tuple
            of them for the parts of `datas`, which is a list or tuple of as many.

    Raises:
        RuntimeError: if `input_sharding` is given outside SPMD mode.
        TypeError: if it is something else.
        ValueError: if keys or parts of `datas` are missing from `input_sharding`, a spec is for no
            tensor, or a tensor cannot be cut so.
    """
    check_input_sharding(input_sharding)
    if isinstance(input_sharding, Mapping):
        if not isinstance(datas, Mapping):
            raise ValueError(
                f"input_sharding is a dict, and the data of type {type(datas).__name__} is not"
            )
        missing = [key for key in datas if key not in input_sharding]
        if missing:
            raise ValueError(f"input_sharding has no entry for {missing}; None copies them whole")
        result = copy.copy(datas)
        for key, value in datas.items():
            result[key] = send_cpu_data_to_device(value, device, input_sharding[key])
        return result
    if isinstance(input_sharding, list | tuple):
        if not isinstance(datas, list | tuple) or len(datas) != len(input_sharding):
            raise ValueError(
                f"input_sharding is for {len(input_sharding)} parts, and the data of type "
                f"{type(datas).__name__} has not as many"
            )
        parts = [
            send_cpu_data_to_device(value, device, part)
            for value, part in zip(datas, input_sharding, strict=True)
        ]
        return type(datas)(*parts) if hasattr(datas, "_fields") else type(datas)(parts)

    def upload(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        sent = _XLAC._xla_tensors_from_aten(tensors, [str(device)])
        if input_sharding is None:
            return sent
        fitting = [tensor for tensor in sent if input_sharding.can_apply(tensor)]
        if sent and not fitting:
            raise ValueError(
                f"input_sharding: {input_sharding} is for none of the tensors, of shapes "
                f"{[tuple(tensor.shape) for tensor in sent]}"
            )
        for tensor in fitting:
            input_sharding.apply(tensor)
        return sent

    def on_cpu(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device.type == "cpu"

    return ToXlaTensorArena(upload, on_cpu).transform(datas)


def _maybe_convert_to_cpu(data: Any, convert: bool = True) -> Any:
    """A copy of some data with its xla tensors on CPU, after one sync.

    Tensors that are the same, or that look at the same memory in the same way, stay so. Without
    `convert`, the tensors are only computed.
    """

    def download(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        if not convert:
            _XLAC._xla_sync_multi(tensors, [])
            return tensors
        return [
            copy.requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else copy
            for tensor, copy in zip(tensors, _XLAC._xla_get_cpu_tensors(tensors), strict=True)
        ]

    def on_xla(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and is_xla_tensor(value)

    return ToXlaTensorArena(download, on_xla).transform(data)


def save(
    data: Any,
    file_or_path: Any,
    master_only: bool = True,
    global_master: bool = False,
) -> None:
    """Like `torch.save`, with the xla tensors in `data` stored as CPU tensors.

    Args:
        data: anything that `torch.save` takes.
        file_or_path: where to.
        master_only: only the first replica of each host writes.
        global_master: only the first replica of all writes.
    """
    writes = not master_only or is_master_ordinal(local=not global_master)
    cpu_data = _maybe_convert_to_cpu(data, convert=writes)
    if writes:
        torch.save(cpu_data, file_or_path)
    rendezvous("torch_xla.core.xla_model.save")


def check_view_sharing(obj: Any) -> None:
    """Checks that no two xla tensors of some data share memory without being the same.

    Raises:
        RuntimeError: if some do, as a checkpoint would store them apart.
    """
    seen: dict[int, torch.Tensor] = {}

    def check(tensor: torch.Tensor) -> None:
        other = seen.setdefault(_XLAC._xla_get_tensor_id(tensor), tensor)
        if other is not tensor:
            raise RuntimeError(
                f"two tensors share memory: {list(other.shape)} and {list(tensor.shape)}"
            )

    xu.for_each_instance(obj, lambda v: isinstance(v, torch.Tensor) and is_xla_tensor(v), check)


# --- Random numbers ---


def set_rng_state(seed: int, device: torch.device | str | None = None) -> None:
    """Sets the random state of a device, by default of the current one.

    Args:
        seed: a seed, or what `get_rng_state` gave.
    """
    _api.manual_seed(seed, device)


def get_rng_state(device: torch.device | str | None = None) -> int:
    """The random state of a device as a number below 2**63.

    `set_rng_state` restores it exactly, in any process. The state proper has 128 bits, and reading
    this number in the midst of a stream moves the device to another stream; `torch.xla` has
    `get_rng_state` for all bits.
    """
    return _XLAC._xla_get_rng_seed("" if device is None else str(device))


@contextlib.contextmanager
def fork_rng(device: torch.device | str | None = None, enabled: bool = True) -> Iterator[None]:
    """Restores the random states of a device and of the CPU after the block."""
    if not enabled:
        yield
        return
    generator = _XLAC._default_generator("" if device is None else str(device))
    cpu_state, state = torch.get_rng_state(), generator.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(cpu_state)
        generator.set_state(state)


# --- Measuring ---


class MemoryInfo(TypedDict):
    """Memory of a device."""

    bytes_used: int
    bytes_limit: int
    peak_bytes_used: int
    kb_free: int
    kb_total: int


def get_memory_info(device: torch.device | str | None = None) -> MemoryInfo:
    """Memory of a device, in bytes and in units of 1024 bytes.

    Where the plugin keeps no account (CPU), `bytes_used` is what tensors hold, without what a
    running program uses on the way, and `bytes_limit` is the memory of the machine.
    """
    info = _XLAC._xla_memory_info("" if device is None else str(device))
    used, limit = info["bytes_used"], info["bytes_limit"]
    return MemoryInfo(
        bytes_used=used,
        bytes_limit=limit,
        peak_bytes_used=info["peak_bytes_used"],
        kb_free=max(limit - used, 0) // 1024,
        kb_total=limit // 1024,
    )


class RateTracker:
    """Counts things per second.

    Args:
        smooth_factor: weight of the newest measurement, from 0 to 1; by default
            `RATE_TRACKER_SMOOTHING`, else 0.4.
    """

    def __init__(self, smooth_factor: float | None = None) -> None:
        if smooth_factor is None:
            smooth_factor = xu.getenv_as("RATE_TRACKER_SMOOTHING", float, 0.4)
        self._smooth_factor = smooth_factor
        self._lock = threading.Lock()
        self._start = self._last = time.perf_counter()
        self._count = self._pending = 0.0
        self._rate = 0.0

    def add(self, count: float) -> None:
        """Counts `count` more."""
        with self._lock:
            self._count += count
            self._pending += count

    def rate(self) -> float:
        """Per second since the last call, smoothed with earlier calls."""
        with self._lock:
            now = time.perf_counter()
            if self._pending > 0 and now > self._last:
                newest = self._pending / (now - self._last)
                weight = self._smooth_factor if self._rate else 1.0
                self._rate = weight * newest + (1 - weight) * self._rate
                self._pending = 0.0
                self._last = now
            return self._rate

    def global_rate(self) -> float:
        """Per second since the tracker was made."""
        with self._lock:
            elapsed = time.perf_counter() - self._start
            return self._count / elapsed if elapsed > 0 else 0.0
