"""Tensors that lie cut over the devices, and what each device holds of them."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import optimizer as _optimizer
from torch.utils import _foreach_utils

from torch_xla._api import real_devices
from torch_xla._extension import _XLAC

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement


class ShardingType(enum.IntEnum):
    """Kinds of shardings, numbered as in XLA."""

    REPLICATED = 0  # whole on each device
    MAXIMAL = 1  # on one device only
    TUPLE = 2
    TILED = 3  # each device holds another part
    MANUAL = 4  # cut by the program itself
    PARTIAL = 5  # cut, and parts are on several devices
    UNKNOWN = 6  # not decided yet: nothing was said, and nothing computed


@dataclass
class XLAShard:
    """What one device holds of a tensor."""

    data: torch.Tensor  # on CPU
    # Where it is in the whole tensor: a slice for each dimension, or all of it.
    indices: EllipsisType | list[slice]
    shard_device: str  # "CPU:3"
    replica_id: int  # number of this device among those that hold the same part

    @property
    def unpadded_data(self) -> torch.Tensor:
        """`data` within `indices`; parts have no padding here, so this is all of it."""
        if self.indices is Ellipsis:
            return self.data
        return self.data[tuple(slice(0, index.stop - index.start) for index in self.indices)]


@contextmanager
def no_dispatch() -> Iterator[None]:
    """Operators inside skip `__torch_dispatch__` of tensor subclasses and modes."""
    with torch._C._DisableTorchDispatch():
        yield


class XLAShardedTensor(torch.Tensor):
    """A tensor with a view of its parts: what `mark_sharding` returns.

    It shares memory, gradient and history with the tensor that it is made of, and goes wherever
    that goes. What operators make of it are plain tensors, on which XLA propagates the sharding.

    Args:
        elem: a tensor on xla.
    """

    # Operators take it for the plain tensor that it is.
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, elem: torch.Tensor, *args: Any, **kwargs: Any) -> XLAShardedTensor:
        if not isinstance(elem, torch.Tensor):
            raise TypeError(f"XLAShardedTensor: a tensor, not {type(elem).__name__}")
        if elem.device.type != "xla":
            raise ValueError(f"XLAShardedTensor: a tensor on xla, not on {elem.device}")
        return elem.as_subclass(cls)

    @property
    def global_tensor(self) -> torch.Tensor:
        """The same tensor as a plain one."""
        return self.as_subclass(torch.Tensor)

    # --- What lies where ---

    @property
    def local_shards(self) -> list[XLAShard]:
        """What each device of this process holds, as copies on CPU in the order of the devices.

        Runs what is pending.
        """
        return local_shards(self)

    def load_local_shards_(self, shards: Sequence[XLAShard]) -> None:
        """Replaces the contents, in place, by parts of the devices; see `local_shards`.

        Args:
            shards: one for each device of this process, in any order. Where several devices hold
                a part, that of the first counts.

        Raises:
            ValueError: if shards are missing or of other shapes or dtypes, or the tensor has no
                sharding.
        """
        load_local_shards_(self, shards)

    @property
    def sharding_spec(self) -> str:
        """XLA's text of the sharding, as `{devices=[2,1]0,1}`; empty where none is known yet."""
        return _XLAC._get_xla_sharding_spec(self)

    @property
    def sharding_type(self) -> ShardingType:
        """What kind of sharding it is."""
        return sharding_type(self)

    # --- In the words of torch.distributed.tensor ---

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh as torch has it.

        Raises:
            ValueError: if no sharding is known.
        """
        from torch.distributed.device_mesh import DeviceMesh

        sharding = self._known_sharding()
        return DeviceMesh(
            "xla",
            torch.tensor(sharding.devices).view(sharding.mesh_shape),
            mesh_dim_names=tuple(sharding.axis_names),
        )

    @property
    def placements(self) -> tuple[Placement, ...]:
        """For each axis of the mesh, what it does to the tensor.

        Raises:
            ValueError: if no sharding is known, or none of whole axes in the order of the mesh,
                which is all that placements can say.
        """
        from torch.distributed.tensor import Replicate, Shard

        sharding = self._known_sharding()
        placements: list[Placement] = [Replicate()] * len(sharding.mesh_shape)
        for dim, parts in enumerate(sharding.dims):
            axes = [axis for axis, _, _ in parts]
            if axes != sorted(axes) or any(
                size != sharding.mesh_shape[axis] for axis, _, size in parts
            ):
                raise ValueError(f"placements cannot say the sharding {sharding}")
            for axis in axes:
                placements[axis] = Shard(dim)
        return tuple(placements)

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
    ) -> XLAShardedTensor:
        """A tensor equal to this one that is cut otherwise, as is its gradient.

        Args:
            device_mesh: by default its own.
            placements: one for each axis of the mesh.
            async_op: everything is asynchronous here anyway.

        Raises:
            ValueError: as `mark_sharding`.
        """
        from torch_xla.distributed.spmd import api, xla_sharding

        if placements is None:
            raise ValueError("redistribute: placements are missing")
        along = self.device_mesh if device_mesh is None else device_mesh
        mesh, spec = api.spec_over("redistribute", self, along, placements)
        return XLAShardedTensor(xla_sharding.mark_sharding_with_gradients(self, mesh, spec))

    def full_tensor(self, **_: Any) -> torch.Tensor:
        """The whole tensor, as a plain one; of a tensor that is cut, a copy."""
        whole = self.global_tensor
        return whole if sharding_type(self) == ShardingType.REPLICATED else whole.clone()

    def to_local(self, **_: Any) -> torch.Tensor:
        """The whole tensor, as a plain one: the only process has all parts of it."""
        return self.global_tensor

    def invalidate_spec_cache(self) -> None:
        """Does nothing: shardings are asked for each time, and never kept here."""

    def _known_sharding(self) -> Any:
        sharding = _XLAC._xla_get_sharding(self)
        if sharding is None:
            raise ValueError("the tensor has no sharding yet: mark it, or run torch_xla.sync()")
        if sharding.is_manual:
            raise ValueError(
                "the tensor is one device's piece, which no mesh and placements can say: "
                "disable_manual_sharding() it first"
            )
        return sharding

    # --- What would otherwise lose the class, or save it ---

    def detach(self) -> XLAShardedTensor:
        """See `torch.Tensor.detach`."""
        return super().detach().as_subclass(type(self))

    def clone(self, *, memory_format: torch.memory_format = torch.preserve_format) -> Any:
        """See `torch.Tensor.clone`."""
        return super().clone(memory_format=memory_format).as_subclass(type(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Files hold plain tensors, for machines with other devices or none.
        if getattr(self, "_is_param", False):
            plain = self.global_tensor.detach()
            return nn.Parameter(plain, self.requires_grad).__reduce_ex__(protocol)
        return self.global_tensor.__reduce_ex__(protocol)


# Optimizers and clipping take parameters of these classes in one call instead of one by one.
for _classes in (_optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types):
    if XLAShardedTensor not in _classes:
        _classes.append(XLAShardedTensor)


def local_shards(t: torch.Tensor) -> list[XLAShard]:
    """See `XLAShardedTensor.local_shards`."""
    t = t.detach()
    parts, sharding = _XLAC._xla_local_shards(t)
    shards = []
    for number, (data, device) in enumerate(parts):
        indices: EllipsisType | list[slice] = Ellipsis
        replica = number
        if sharding is not None and not sharding.is_manual:
            tile = sharding.tile_of[number]
            replica = sharding.tile_of[:number].count(tile)
            if not sharding.is_replicated:
                ranges = sharding.ranges(list(t.shape), number)
                indices = [slice(start, stop, 1) for start, stop in ranges]
        shards.append(XLAShard(data, indices, device, replica))
    return shards


def load_local_shards_(t: torch.Tensor, shards: Sequence[XLAShard]) -> None:
    """See `XLAShardedTensor.load_local_shards_`."""
    devices = real_devices()
    by_device = {shard.shard_device: shard for shard in shards}
    if sorted(by_device) != sorted(devices) or len(shards) != len(devices):
        raise ValueError(
            f"load_local_shards_: one shard for each of {devices}, got shards of "
            f"{[shard.shard_device for shard in shards]}"
        )
    with torch.no_grad():
        _XLAC._xla_load_local_shards(t, [by_device[device].unpadded_data for device in devices])


def sharding_type(t: torch.Tensor) -> ShardingType:
    """What kind of sharding a tensor has."""
    known = _XLAC._get_xla_sharding_type(t)
    return ShardingType.UNKNOWN if known is None else ShardingType(known)
