"""Meshes: all devices of the program in a grid whose axes have names."""

from __future__ import annotations

import ast
import math
import operator
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from torch_xla import runtime
from torch_xla._extension import _XLAC

# For each dimension of a tensor the mesh axes that cut it, by name or number: one, several (the
# first cuts coarsest), or None where it stays whole.
PartitionSpec = tuple[tuple[int | str, ...] | int | str | None, ...]


class Mesh:
    """Devices in a grid. Making one needs no device, so meshes for other machines are fine.

    Args:
        device_ids: numbers of the devices, in row-major order of the grid: 0 to their count - 1,
            each once, in any order.
        mesh_shape: sizes of the grid's axes; their product is the number of devices.
        axis_names: names of the axes. Without any, axes are spoken of by number.

    Raises:
        TypeError: if a size is no whole number, or a name no string.
        ValueError: if these do not fit together.

    >>> mesh = Mesh(range(8), (2, 4), ("data", "model"))
    >>> mesh.size()
    8
    >>> mesh.get_logical_mesh().tolist()
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    >>> mesh.get_op_sharding(("model", None))
    {devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}
    """

    device_ids: np.ndarray
    mesh_shape: tuple[int, ...]
    axis_names: tuple[str, ...] | None
    device_type = "xla"  # to functions of torch.distributed.tensor
    __iter__ = None  # mesh[0] is an axis, and a mesh no list of them

    def __init__(
        self,
        device_ids: np.ndarray | Sequence[int],
        mesh_shape: Sequence[int],
        axis_names: Sequence[str] | None = None,
    ) -> None:
        ids = np.asarray(device_ids).reshape(-1)
        if ids.size == 0:
            raise ValueError("Mesh: no devices")
        if not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(f"Mesh: device_ids must be whole numbers, got {ids.dtype}")
        if isinstance(mesh_shape, str) or not isinstance(mesh_shape, Iterable):
            raise TypeError(f"Mesh: mesh_shape has the size of each axis, got {mesh_shape!r}")
        self.device_ids = ids
        self.mesh_shape = tuple(operator.index(size) for size in mesh_shape)
        self.axis_names = None if axis_names is None else tuple(axis_names)
        if any(size < 1 for size in self.mesh_shape):
            raise ValueError(f"Mesh: an axis has at least one device, got shape {self.mesh_shape}")
        if math.prod(self.mesh_shape) != ids.size:
            raise ValueError(
                f"Mesh: a grid of shape {self.mesh_shape} has {math.prod(self.mesh_shape)} places "
                f"for {ids.size} devices"
            )
        if sorted(ids.tolist()) != list(range(ids.size)):
            raise ValueError(
                f"Mesh: device_ids must be 0 to {ids.size - 1}, each once: got {ids.tolist()}"
            )
        if self.axis_names is not None:
            if not all(isinstance(name, str) for name in self.axis_names):
                raise TypeError(f"Mesh: axis names are strings, got {self.axis_names}")
            if len(self.axis_names) != len(self.mesh_shape):
                raise ValueError(
                    f"Mesh: {len(self.axis_names)} axis names {self.axis_names} for a grid of "
                    f"shape {self.mesh_shape}"
                )
            if len(set(self.axis_names)) != len(self.axis_names):
                raise ValueError(f"Mesh: axis names must differ, got {self.axis_names}")
        self._shardings: dict[PartitionSpec, Any] = {}

    def size(self) -> int:
        """Number of devices."""
        return int(self.device_ids.size)

    def shape(self) -> OrderedDict[str | int, int]:
        """Size of each axis, by name; by number where axes have no names.

        >>> dict(Mesh(range(8), (2, 4), ("data", "model")).shape())
        {'data': 2, 'model': 4}
        """
        names = self.axis_names or range(len(self.mesh_shape))
        return OrderedDict(zip(names, self.mesh_shape, strict=True))

    def get_logical_mesh(self) -> np.ndarray:
        """The devices' numbers, as an array of the grid's shape."""
        return self.device_ids.reshape(self.mesh_shape)

    def __getitem__(self, axes: int | str | Sequence[int | str]) -> MeshAxes:
        """Some of the axes, for functions of `torch.distributed.tensor` that work along these.

        Raises:
            ValueError: if the mesh has no such axis, or one is named twice.

        >>> Mesh(range(8), (2, 4), ("data", "model"))["model"]
        MeshAxes(axes=('model',), of Mesh((2, 4), ('data', 'model')))
        """
        spec = ((axes,) if isinstance(axes, int | str) else tuple(axes),)
        self.get_op_sharding(spec)  # which refuses what is no axis, or there twice
        return MeshAxes(self, tuple(self._axes_of(spec[0], spec)))

    def get_axis_name_idx(self, name: str) -> int | None:
        """Number of an axis, or None if there is no such name."""
        names = self.axis_names or ()
        return names.index(name) if name in names else None

    def get_op_sharding(self, partition_spec: PartitionSpec) -> Any:
        """How these axes cut a tensor, as the compiled half has it (`_XLAC.Sharding`).

        Args:
            partition_spec: an entry for each dimension of the tensor.

        Raises:
            ValueError: if it names an axis that is not there, or one twice.
        """
        key = tuple(tuple(e) if isinstance(e, list) else e for e in partition_spec)
        if key not in self._shardings:
            dims = [self._axes_of(entry, key) for entry in key]
            used = [axis for axes in dims for axis in axes]
            for axis in used:
                if used.count(axis) > 1:
                    raise ValueError(
                        f"partition spec {key}: axis {self._name_of(axis)!r} cuts more than once"
                    )
            names = self.axis_names or [f"axis{i}" for i in range(len(self.mesh_shape))]
            self._shardings[key] = _XLAC.Sharding(
                self.device_ids.tolist(), list(self.mesh_shape), list(names), dims
            )
        return self._shardings[key]

    get_op_sharding_v2 = get_op_sharding

    def _axes_of(self, entry: Any, spec: PartitionSpec) -> list[int]:
        """Numbers of the axes in one entry of a partition spec."""
        if entry is None:
            return []
        if isinstance(entry, tuple):
            return [axis for part in entry for axis in self._axes_of(part, spec)]
        if isinstance(entry, str):
            axis = self.get_axis_name_idx(entry)
        elif isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            axis = int(entry) if 0 <= entry < len(self.mesh_shape) else None
        else:
            raise ValueError(
                f"partition spec {spec}: an entry is None, an axis by name or number, or a tuple "
                f"of axes; got {entry!r}"
            )
        if axis is None:
            raise ValueError(
                f"partition spec {spec}: the mesh has no axis {entry!r}; its axes are "
                f"{dict(self.shape())}"
            )
        return [axis]

    def _name_of(self, axis: int) -> str | int:
        return axis if self.axis_names is None else self.axis_names[axis]

    def get_jax_mesh(self) -> Any:
        """The same devices as a `jax.sharding.Mesh`.

        Raises:
            ImportError: without JAX.
            ValueError: if JAX has other devices, or the axes have no names.
        """
        import jax

        devices = {device.id: device for device in jax.devices()}
        if sorted(devices) != list(range(self.size())):
            raise ValueError(f"JAX has {len(devices)} devices, the mesh {self.size()}")
        if self.axis_names is None:
            raise ValueError("the axes of a JAX mesh need names")
        grid = np.empty(self.size(), dtype=object)
        grid[:] = [devices[i] for i in self.device_ids.tolist()]
        return jax.sharding.Mesh(grid.reshape(self.mesh_shape), self.axis_names)

    def _content(self) -> dict[str, Any]:
        return {
            "device_ids": self.device_ids.tolist(),
            "mesh_shape": self.mesh_shape,
            "axis_names": self.axis_names,
        }

    def __str__(self) -> str:
        return str(self._content())

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{k}={v!r}' for k, v in self._content().items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash((tuple(self.device_ids.tolist()), self.mesh_shape, self.axis_names))

    @staticmethod
    def from_str(mesh_str: str) -> Mesh:
        """The mesh that `str(mesh)` told of.

        Raises:
            ValueError: if it tells of none.

        >>> Mesh.from_str(str(Mesh([1, 0], (2,), ("x",))))
        Mesh(device_ids=[1, 0], mesh_shape=(2,), axis_names=('x',))
        """
        try:
            content = ast.literal_eval(mesh_str)
            arguments = [content[key] for key in ("device_ids", "mesh_shape", "axis_names")]
        except (SyntaxError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"no text of a mesh: {mesh_str!r}") from error
        return Mesh(*arguments)


class MeshAxes:
    """Some axes of a mesh: `mesh["model"]`. Along the others everything is the same."""

    device_type = "xla"

    def __init__(self, mesh: Mesh, axes: tuple[int, ...]) -> None:
        self.whole = mesh
        self.axes = axes  # by number

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of places along each."""
        return tuple(self.whole.mesh_shape[axis] for axis in self.axes)

    @property
    def mesh_dim_names(self) -> tuple[str | int, ...]:
        """Their names; numbers where axes have none."""
        return tuple(self.whole._name_of(axis) for axis in self.axes)

    def size(self) -> int:
        """Number of places along them."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        mesh = self.whole
        return (
            f"MeshAxes(axes={self.mesh_dim_names}, of Mesh({mesh.mesh_shape}, {mesh.axis_names}))"
        )


class HybridMesh(Mesh):
    """A mesh over several slices of a pod: fast links (ICI) inside, a slow network (DCN) between.

    Axis i has `ici_mesh_shape[i] * dcn_mesh_shape[i]` places; a step within a slice is a step to
    the next of them. An axis that is 1 in `dcn_mesh_shape` never leaves a slice.

    Args:
        ici_mesh_shape: the grid inside a slice.
        dcn_mesh_shape: the grid of slices; of one slice by default.
        axis_names: as for `Mesh`.

    Slices are those that the plugin tells of (attribute `slice_index`); else the processes that
    drive the devices (`process_index`), where there are several. Where neither tells them apart, as
    on CPU, devices are slices of equal size in the order of their numbers.

    Raises:
        ValueError: if the shapes do not fit together, or do not fit the devices.
    """

    def __init__(
        self,
        *,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
    ) -> None:
        inner = tuple(operator.index(size) for size in ici_mesh_shape)
        outer = (1,) * len(inner) if dcn_mesh_shape is None else tuple(dcn_mesh_shape)
        if len(inner) != len(outer):
            raise ValueError(
                f"HybridMesh: ici_mesh_shape {inner} and dcn_mesh_shape {outer} differ in length"
            )
        slices = _slices(math.prod(outer))
        for devices in slices:
            if len(devices) != math.prod(inner):
                raise ValueError(
                    f"HybridMesh: a slice has {len(devices)} devices, ici_mesh_shape {inner} has "
                    f"places for {math.prod(inner)}"
                )
        # [outer..., inner...], then each outer axis beside its inner one.
        grid = np.array(slices).reshape(*outer, *inner)
        rank = len(inner)
        grid = grid.transpose([axis for i in range(rank) for axis in (i, rank + i)])
        shape = [a * b for a, b in zip(outer, inner, strict=True)]
        super().__init__(grid.reshape(-1), shape, axis_names)


def _slices(count: int) -> list[list[int]]:
    """Numbers of the devices of each slice, neighbours next to each other."""
    attributes = runtime.global_runtime_device_attributes()
    slices: dict[int, list[int]] = {}
    for number, index in enumerate(_slice_indices(attributes)):
        slices.setdefault(index, []).append(number)
    if len(slices) == 1:
        # Nobody tells of slices, or there is one, which may be used as several.
        (devices,) = slices.values()
        size, rest = divmod(len(devices), count)
        if rest:
            raise ValueError(f"HybridMesh: {len(devices)} devices are not {count} equal slices")
        devices = _neighbours(devices, attributes)
        return [devices[i * size : (i + 1) * size] for i in range(count)]
    if len(slices) != count:
        raise ValueError(
            f"HybridMesh: there are {len(slices)} slices, dcn_mesh_shape has places for {count}"
        )

    return [_neighbours(slices[index], attributes) for index in sorted(slices)]


def _slice_indices(attributes: list[dict[str, Any]]) -> list[int]:
    """For each device the slice, or process, that it is of; 0 for all where nobody tells."""
    for name in ("slice_index", "process_index"):
        indices = [device.get(name) for device in attributes]
        if None not in indices and len(set(indices)) > 1:
            return indices
    return [0] * len(attributes)


def _neighbours(devices: list[int], attributes: list[dict[str, Any]]) -> list[int]:
    """The same, in the order of their places in the grid of chips, the last axis slowest."""

    def place(number: int) -> tuple[Any, ...]:
        device = attributes[number]
        coordinates = tuple(device.get("coords", ()))
        return (*reversed(coordinates), device.get("core_on_chip", 0), number)

    return sorted(devices, key=place)


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """All devices in one row.

    Args:
        axis_name: of its only axis; without one it is spoken of by its number, 0.
    """
    count = runtime.global_runtime_device_count()
    return Mesh(np.arange(count), (count,), None if axis_name is None else (axis_name,))


_global_mesh: Mesh | None = None


def set_global_mesh(mesh: Mesh | None) -> None:
    """Sets the mesh that is meant where none is said, as in `SpmdFullyShardedDataParallel`."""
    global _global_mesh
    if mesh is not None and not isinstance(mesh, Mesh):
        raise TypeError(f"set_global_mesh: a Mesh, not {type(mesh).__name__}")
    _global_mesh = mesh


def get_global_mesh() -> Mesh | None:
    """The mesh of `set_global_mesh`, or None."""
    return _global_mesh
