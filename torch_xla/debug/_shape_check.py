"""Compares what the kernels say about their results with what torch's meta functions say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# Operators whose further results are notes to their own gradient, which every backend takes in a
# way of its own: only the first ones are compared.
_PUBLIC_RESULTS = {"aten.log_sigmoid_forward.default": 1, "aten._embedding_bag.default": 1}

# Results whose size is made of data: a meta function cannot know it.
_BY_DATA = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


class ShapeMismatch(RuntimeError):
    """A kernel and torch disagree about a result's sizes, dtype, strides or offset."""


class check_shapes(TorchDispatchMode):
    """Checks every operator on xla tensors against torch's own rule for its results.

    Within the context, each operator also runs on the meta device with tensors of the same sizes,
    strides and dtypes. Where sizes, dtype, strides or storage offset of a result differ, the
    operator runs once more on CPU, on zeros, and stock PyTorch there has the last word. Costs some
    0.2 ms an operator and no device time. `TORCH_XLA_CHECK_SHAPES=1` does the same for a whole
    process.

    Attributes:
        compared: calls that were compared, by operator.
        skipped: calls that could not be, by operator: torch has no meta function for it, or its
            results' sizes depend on data.
        disputed: calls in which the meta function said something else than CPU and the kernel.

    Raises:
        ShapeMismatch: at the operator's call; names it, its arguments and both results.

    Example:
        >>> from torch_xla.debug import check_shapes
        >>> x = torch.randn(2, 3, device="xla")
        >>> with check_shapes() as checked:
        ...     y = (x + 1).transpose(0, 1)
        >>> sorted(checked.compared)
        ['aten.add.Tensor', 'aten.transpose.int']
    """

    def __init__(self) -> None:
        super().__init__()
        self.compared: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.disputed: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not _on_xla(args, kwargs):
            return func(*args, **kwargs)
        name = str(func)
        call = _Call(func, args, kwargs)  # taken now: the operator may write to its arguments
        result = func(*args, **kwargs)
        wanted = call.on("meta")
        if wanted is None:
            self.skipped[name] += 1
            return result
        self.compared[name] += 1
        got = _describe(result)
        if _differ(name, got, wanted):
            stock = call.on("cpu")
            if stock is None or _differ(name, got, stock):
                raise ShapeMismatch(
                    f"{name}{call}: the xla kernel gives {got}, torch's meta function {wanted}, "
                    f"CPU {'refuses zeros' if stock is None else stock}"
                )
            self.disputed[name] += 1
        return result


def _differ(name: str, first: Any, second: Any) -> bool:
    public = _PUBLIC_RESULTS.get(name)
    return first[:public] != second[:public] if public else first != second


def _on_xla(args: tuple, kwargs: dict) -> bool:
    device = kwargs.get("device")
    if device is not None and torch.device(device).type == "xla":
        return True
    return any(
        isinstance(leaf, torch.Tensor) and leaf.device.type == "xla"
        for leaf in tree_leaves((args, kwargs))
    )


class _Tensor:
    """What a tensor is, but for its contents. Strides count where an element has a neighbour."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype = tensor.dtype
        self.size, self.stride = tensor.size(), tensor.stride()
        self.offset = tensor.storage_offset()
        storage = tensor.untyped_storage()
        self.storage, self.nbytes = storage._cdata, storage.nbytes()
        self.conj, self.neg = tensor.is_conj(), tensor.is_neg()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tensor) and self._key() == other._key()

    def _key(self) -> tuple:
        if 0 in self.size:
            return self.dtype, self.size
        steps = [s for n, s in zip(self.size, self.stride, strict=True) if n > 1]
        return self.dtype, self.size, steps, self.offset

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        offset = f" offset {self.offset}" if self.offset else ""
        return f"{dtype}{list(self.size)} strides {list(self.stride)}{offset}"

    def make(self, device: str, storages: dict[int, torch.UntypedStorage]) -> torch.Tensor:
        """A tensor of this geometry; those of one storage share one."""
        if self.storage not in storages:
            # Ones where they may be LAPACK's pivots, which it does not check.
            kind, fill = (torch.int32, 1) if self.dtype == torch.int32 else (torch.uint8, 0)
            count = self.nbytes // kind.itemsize
            memory = torch.full((count,), fill, dtype=kind, device=device)
            storages[self.storage] = memory.untyped_storage()
        tensor = torch.empty(0, dtype=self.dtype, device=device)
        tensor.set_(storages[self.storage], self.offset, self.size, self.stride)
        tensor = tensor.conj() if self.conj else tensor
        return torch._neg_view(tensor) if self.neg else tensor


class _Call:
    """An operator with arguments that are known but for the contents of tensors."""

    def __init__(self, func: Callable, args: tuple, kwargs: dict) -> None:
        self._func = func
        self._arguments = tree_map(self._keep, (args, kwargs))

    @staticmethod
    def _keep(leaf: Any) -> Any:
        # A number that torch wrapped stays one.
        is_number = isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and leaf.dim() == 0
        return _Tensor(leaf) if isinstance(leaf, torch.Tensor) and not is_number else leaf

    def on(self, device: str) -> Any:
        """A description of the results on `device`, or None where it refuses the call."""
        if any(tag in self._func.tags for tag in _BY_DATA):
            return None
        storages: dict[int, torch.UntypedStorage] = {}

        def make(leaf: Any) -> Any:
            if isinstance(leaf, _Tensor):
                return leaf.make(device, storages)
            if isinstance(leaf, torch.device):
                return torch.device(device)
            return None if isinstance(leaf, torch.Generator) else leaf

        args, kwargs = tree_map(make, self._arguments)
        try:
            return _describe(self._func(*args, **kwargs))
        except (RuntimeError, IndexError, TypeError, ValueError):
            return None

    def __str__(self) -> str:
        args, kwargs = self._arguments
        texts = [repr(a) for a in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
        return f"({', '.join(texts)})"


def _describe(tree: Any) -> Any:
    return tree_map(lambda leaf: _Tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)
