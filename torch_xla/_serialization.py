"""Saving, loading and deep copies: xla tensors go through torch's own code for storages.

torch saves tensors of device types it knows by name as separate copies. An xla tensor has a real
storage, so it can be saved as on CPU instead: tensors that share memory share it in the file and
after loading, and `map_location` takes all its forms. Files load where there is no torch_xla, too
(with `map_location="cpu"`). In the same way what `copy.deepcopy` copies shares what it shared.
"""

from __future__ import annotations

import copy
import functools
import re
from collections import OrderedDict
from typing import Any

import torch
from torch.utils.hooks import warn_if_has_hooks

_PRIORITY = 40  # behind the device types that torch registers itself


def register() -> None:
    """Makes storages on xla known to `torch.save` and `torch.load`."""
    if getattr(torch.Tensor._reduce_ex_internal, "_knows_xla", False):
        return
    torch.serialization.register_package(_PRIORITY, _tag, _restore)
    torch.Tensor._reduce_ex_internal = _with_xla(torch.Tensor._reduce_ex_internal)
    torch.Tensor.__deepcopy__ = _with_storage(torch.Tensor.__deepcopy__)
    torch.UntypedStorage._write_file = _from_host(torch.UntypedStorage._write_file)
    torch.UntypedStorage._set_from_file = _through_host(torch.UntypedStorage._set_from_file)


def _tag(storage: Any) -> str | None:
    return str(storage.device) if storage.device.type == "xla" else None


def _restore(storage: Any, location: str) -> Any:
    if not re.fullmatch(r"xla(:\d+)?", location):
        return None
    # UntypedStorage(n, device="xla") is beyond torch, a tensor of bytes is not.
    return _bytes_of(storage).to(location).untyped_storage()


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _with_xla(reduce: Any) -> Any:
    @functools.wraps(reduce)
    def reduce_ex(self: torch.Tensor, protocol: int) -> tuple:
        if self.device.type != "xla":
            return reduce(self, protocol)
        warn_if_has_hooks(self)
        if self.layout != torch.strided:
            return torch._utils._rebuild_sparse_tensor, (self.layout, _parts_of(self))
        # Types that never had a storage class of their own are stored as bytes.
        as_bytes = self.dtype in torch.storage._new_dtypes()
        storage = torch.storage.TypedStorage(
            wrap_storage=self.untyped_storage(),
            dtype=torch.uint8 if as_bytes else self.dtype,
            _internal=True,
        )
        geometry = (self.storage_offset(), tuple(self.shape), self.stride())
        arguments = (storage, *geometry, self.requires_grad, OrderedDict())
        metadata = torch._utils.get_tensor_metadata(self)
        if as_bytes:
            return torch._utils._rebuild_tensor_v3, (*arguments, self.dtype, metadata)
        return torch._utils._rebuild_tensor_v2, (*arguments, metadata)

    reduce_ex._knows_xla = True
    return reduce_ex


def _parts_of(sparse: torch.Tensor) -> tuple:
    """What torch rebuilds a sparse tensor of: its indices, values and size."""
    if sparse.layout == torch.sparse_coo:
        return sparse._indices(), sparse._values(), sparse.size(), sparse.is_coalesced()
    by_rows = sparse.layout in (torch.sparse_csr, torch.sparse_bsr)
    compressed = sparse.crow_indices() if by_rows else sparse.ccol_indices()
    plain = sparse.col_indices() if by_rows else sparse.row_indices()
    return compressed, plain, sparse.values(), sparse.size()


def _with_storage(deepcopy: Any) -> Any:
    """torch copies tensors of device types it knows by name one by one, without their storage."""

    @functools.wraps(deepcopy)
    def copied(self: torch.Tensor, memo: dict) -> torch.Tensor:
        whole = type(self) is torch.Tensor and self.layout == torch.strided and self.is_leaf
        if self.device.type != "xla" or not whole or id(self) in memo:
            return deepcopy(self, memo)
        with torch.no_grad():
            result = _in_storage(self, _copy_of_storage(self, memo.setdefault("torch", {})))
        result.requires_grad_(self.requires_grad)
        if self.grad is not None:
            result.grad = copy.deepcopy(self.grad, memo)
        result.__dict__ = copy.deepcopy(self.__dict__, memo)
        memo[id(self)] = result
        return result

    return copied


def _copy_of_storage(tensor: torch.Tensor, known: dict) -> torch.UntypedStorage:
    storage = tensor.untyped_storage()
    if storage._cdata not in known:
        fills = tensor.numel() * tensor.element_size() == storage.nbytes()
        if fills and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            known[storage._cdata] = tensor.detach().clone().untyped_storage()
        else:
            count = storage.nbytes() // tensor.element_size()
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            known[storage._cdata] = flat.set_(storage, 0, (count,)).clone().untyped_storage()
    return known[storage._cdata]


def _in_storage(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """A tensor in `storage` as `tensor` is in its own; its bits applied, as on CPU."""
    result = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    result.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    if tensor.is_conj():
        result = result.conj_physical()
    return result.neg() if tensor.is_neg() else result


def _from_host(write_file: Any) -> Any:
    """The format before zip files writes storages by their address; xla memory has none."""

    @functools.wraps(write_file)
    def write(self: torch.UntypedStorage, *args: Any) -> Any:
        return write_file(self.cpu() if self.device.type == "xla" else self, *args)

    return write


def _through_host(set_from_file: Any) -> Any:
    """The same for reading: the bytes come into a storage that is there already."""

    @functools.wraps(set_from_file)
    def read(self: torch.UntypedStorage, *args: Any) -> Any:
        if self.device.type != "xla":
            return set_from_file(self, *args)
        host = torch.UntypedStorage(self.nbytes())
        set_from_file(host, *args)
        _bytes_of(self).copy_(_bytes_of(host))
        return self

    return read
