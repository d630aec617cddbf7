"""Data loaders that upload batches in the background while the device computes."""

from __future__ import annotations

import atexit
import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_xla import runtime
from torch_xla.core import xla_model as xm
from torch_xla.utils.keyd_queue import Queue
from torch_xla.utils.utils import run_in_thread

# Loaders and threads at work; they are ended before the interpreter is, since a thread that comes
# back to Python after that aborts the process. A dropped loader's threads may outlive it a little.
_open_loaders: weakref.WeakSet[ParallelLoader] = weakref.WeakSet()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
# The reader may be inside the user's loader, which nobody can interrupt.
_EXIT_PATIENCE_S = 10.0


class _Failure:
    """What the user's loader raised, on its way to whoever asks for the next batch."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Announcer:
    """Tells of batches that look like none before, while they are still on their way.

    The reader's thread sees them; whoever takes the batches tells, between two steps.
    """

    def __init__(self, tell: Callable[..., Any]) -> None:
        prepare = getattr(tell, "prepare", None)
        self._tell = tell if prepare is None else functools.partial(_prepare, prepare)
        self._seen: set[Any] = set()
        self._new: deque[tuple[int, Any]] = deque()  # by the number of the batch

    def look_at(self, number: int, batch: Any) -> None:
        """Notes batch `number` of an iteration."""
        like = pytree.tree_map_only(torch.Tensor, _on_meta, batch)
        leaves, spec = pytree.tree_flatten(like)
        look = (spec, *(_look(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)))
        if look not in self._seen:
            self._seen.add(look)
            self._new.append((number, like))

    def tell_before(self, number: int) -> None:
        """Tells of what comes after batch `number`, whose own turn it is now."""
        while self._new:
            later, like = self._new.popleft()
            if later > number:
                self._tell(like)


def _prepare(prepare: Callable[..., Any], batch: Any) -> None:
    if isinstance(batch, tuple | list):
        prepare(*batch)
    else:
        prepare(batch)


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _look(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride()


def _read_loop(loader: Iterable[Any], batches: Queue, announcer: _Announcer | None) -> None:
    """Reads the user's loader ahead of the uploads."""
    try:
        for number, batch in enumerate(loader):
            if announcer is not None:
                announcer.look_at(number, batch)
            batches.put(batch)
    except BaseException as error:
        if not batches.is_closed():
            batches.put(_Failure(error))
    finally:
        batches.close_write()


def _upload_loop(
    batches: Queue, uploads: Sequence[Queue], devices: Sequence[str], threads: int, sharding: Any
) -> None:
    """Gives batch i to device i modulo their number. Queues hold futures, which keeps the order."""
    with ThreadPoolExecutor(threads, thread_name_prefix="xla-upload") as pool:
        turn = 0
        try:
            while (batch := batches.get()) is not None:
                if isinstance(batch, _Failure):
                    for queue in uploads:
                        queue.put(_failed(batch.error))
                    break
                uploads[turn].put(
                    pool.submit(xm.send_cpu_data_to_device, batch, devices[turn], sharding)
                )
                turn = (turn + 1) % len(devices)
        except RuntimeError as error:
            # At exit Python shuts all pools down before it calls _close_all.
            ending = "cannot schedule new futures" in str(error)
            if not ending and not all(queue.is_closed() for queue in uploads):
                raise
        finally:
            for queue in uploads:
                queue.close_write()


def _failed(error: BaseException) -> Future:
    future: Future = Future()
    future.set_exception(error)
    return future


class PerDeviceLoader:
    """Iterates over the batches of one device, ending a step at each of them."""

    def __init__(self, loader: ParallelLoader, device: torch.device | str) -> None:
        self._loader = loader
        self._device = torch.device(device)
        self._batches = loader.batches_per_execution  # the first ends what came before the loop
        self._number = 0  # of the next batch

    def __iter__(self) -> PerDeviceLoader:
        return self

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    def __next__(self) -> Any:
        return self.next()

    def next(self) -> Any:
        """The next batch; every `batches_per_execution` of them, a `mark_step` comes first.

        Raises:
            StopIteration: after the last batch; a `mark_step` comes first.
        """
        starts_step = self._batches == self._loader.batches_per_execution
        if starts_step:
            xm.mark_step()
            self._batches = 0
        item = self._loader.next_item(self._device)
        if item is None:
            if self._batches > 0:
                xm.mark_step()
            raise StopIteration
        if starts_step and self._loader.announcer is not None:
            self._loader.announcer.tell_before(self._number)
        self._batches += 1
        self._number += 1
        return item

    def close(self) -> None:
        """Ends the background threads; batches not read yet are dropped."""
        self._loader.close()


class ParallelLoader:
    """Reads a loader on one thread and uploads its batches on others.

    Args:
        cpu_loader: gives batches: tensors, or anything that holds some.
        devices: who gets them, in turns.
        batchdim: the dimension of a batch's samples.
        batches_per_execution: batches that one program computes.
        loader_prefetch_size: batches read ahead of their upload.
        device_prefetch_size: batches uploaded, or on their way, ahead of their use; each device
            holds that many.
        host_to_device_transfer_threads: that upload.
        input_sharding: in SPMD mode, how batches are cut over the devices; see
            `torch_xla.core.xla_model.send_cpu_data_to_device`.
        announce: is told of batches, read ahead, whose shapes are new, so that what computes them
            can be compiled before they come (docs/guide/compile_ahead.md). What `torch_xla.compile`
            made of a step is prepared for such a batch (its arguments, if it is a tuple or list);
            any other function is called with the batch, its tensors being on `meta`. For a single
            device.

    Raises:
        ValueError: if a size is not positive, there is no device, or there are several for
            `announce`, or `input_sharding` besides.
        RuntimeError: if `input_sharding` is given outside SPMD mode.
        TypeError: if it is neither a ShardingSpec nor a dict of them.
    """

    def __init__(
        self,
        cpu_loader: Iterable[Any],
        devices: Sequence[torch.device | str],
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 4,
        device_prefetch_size: int = 2,
        host_to_device_transfer_threads: int = 1,
        input_sharding: Any = None,
        announce: Callable[..., Any] | None = None,
    ) -> None:
        for name, value in (
            ("batches_per_execution", batches_per_execution),
            ("loader_prefetch_size", loader_prefetch_size),
            ("device_prefetch_size", device_prefetch_size),
            ("host_to_device_transfer_threads", host_to_device_transfer_threads),
            ("the number of devices", len(devices)),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        xm.check_input_sharding(input_sharding)
        if input_sharding is not None and announce is not None:
            raise ValueError("announce: batches that input_sharding cuts are not announced")
        if announce is not None and len(devices) > 1:
            raise ValueError("announce: a step runs on one device, not on several")
        self._cpu_loader = cpu_loader
        self._devices = [torch.device(device) for device in devices]
        self._batchdim = batchdim
        self._batches_per_execution = batches_per_execution
        self.announcer = (
            announce
            if announce is None or isinstance(announce, _Announcer)
            else _Announcer(announce)
        )
        self._batches = Queue(loader_prefetch_size)
        self._uploads = [Queue(device_prefetch_size) for _ in devices]
        # The threads know the queues but not this object, so that dropping it ends them.
        reader = run_in_thread(
            _read_loop, cpu_loader, self._batches, self.announcer, name="xla-loader"
        )
        uploader = run_in_thread(
            _upload_loop,
            self._batches,
            self._uploads,
            [str(device) for device in devices],
            host_to_device_transfer_threads,
            input_sharding,
            name="xla-uploader",
        )
        _threads.update((reader, uploader))
        _open_loaders.add(self)

    @property
    def batches_per_execution(self) -> int:
        """Batches that one program computes."""
        return self._batches_per_execution

    def per_device_loader(self, device: torch.device | str) -> PerDeviceLoader:
        """Iterates over the batches of `device`, which must be among the `devices`."""
        self._queue(torch.device(device))
        return PerDeviceLoader(self, device)

    def per_device_samples(self) -> int:
        """Batches of each device, where the loader has a length."""
        return len(self._cpu_loader) // len(self._devices)

    def next_item(self, device: torch.device | str) -> Any:
        """The next batch of a device, or None after the last.

        Raises:
            Exception: whatever the user's loader, or the upload, raised.
        """
        upload = self._queue(torch.device(device)).get()
        return None if upload is None else upload.result()

    def close(self) -> None:
        """Ends the background threads; batches not read yet are dropped."""
        for queue in (self._batches, *self._uploads):
            queue.close()

    def _queue(self, device: torch.device) -> Queue:
        for candidate, queue in zip(self._devices, self._uploads, strict=True):
            if candidate == device:
                return queue
        raise ValueError(f"{device} is not among the devices {[str(d) for d in self._devices]}")

    def __del__(self) -> None:
        if hasattr(self, "_uploads"):
            self.close()


class MpDeviceLoader:
    """A loader of CPU batches as one of batches on a device.

    Each iteration over it reads the whole loader again, in the background; the end of each batch
    ends a step (`mark_step`). The loader itself is `_loader`, the device `_device`.

    Args:
        loader: gives batches; anything that can be iterated over.
        device: where to.
        **kwargs: those of `ParallelLoader`.

    >>> loader = MpDeviceLoader([torch.ones(2), torch.zeros(2)], torch.device("xla:0"))
    >>> [batch.sum().item() for batch in loader]
    [2.0, 0.0]
    """

    def __init__(self, loader: Iterable[Any], device: torch.device | str, **kwargs: Any) -> None:
        self._loader = loader
        self._device = device
        if runtime.is_spmd():  # it may be called before the first batch
            xm.check_input_sharding(kwargs.get("input_sharding"))
        if (announce := kwargs.get("announce")) is not None:
            kwargs["announce"] = _Announcer(announce)  # knows the shapes of earlier iterations
        self._parallel_loader_kwargs = kwargs

    def __iter__(self) -> Iterator[Any]:
        parallel = ParallelLoader(self._loader, [self._device], **self._parallel_loader_kwargs)
        return parallel.per_device_loader(self._device)

    def __len__(self) -> int:
        return len(self._loader)


@atexit.register
def _close_all() -> None:
    for loader in list(_open_loaders):
        loader.close()
    for thread in list(_threads):
        thread.join(_EXIT_PATIENCE_S)
