"""A folder of checkpoints, one a step."""

from __future__ import annotations

import contextlib
import operator
import os
import queue
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException

import torch_xla.runtime as xr
from torch_xla._extension import _XLAC
from torch_xla.experimental.distributed_checkpoint._helpers import on_host, settle
from torch_xla.experimental.distributed_checkpoint.planners import SPMDLoadPlanner, SPMDSavePlanner

# A checkpoint is complete when this is there: torch writes it last.
_METADATA = ".metadata"


class CheckpointManager:
    """Saves every so many steps, keeps the newest checkpoints, and finds them again.

    One process tree writes to a folder at a time; others may read it.

    A checkpoint is a folder named after its step. It is written under another name and renamed once
    it is complete: whatever ends the process, each folder with a number for a name can be loaded.

    Args:
        path: the folder; made if need be. All processes must see it.
        save_interval: steps from one checkpoint to the next.
        max_to_keep: the newest that stay; 0 keeps all.
        async_queue_size: checkpoints of `save_async()` that may wait to be written. Each holds the
            state on the host.
        process_group: of the processes that save together; by default all of `torch.distributed`
            where that is in use.
        chkpt_on_preemption: whether the first SIGTERM, the notice that a machine is about to be
            taken away, asks for a checkpoint (see `reached_preemption`) instead of ending the
            process, from the first `should_save` on. The second ends it as ever.

    Raises:
        ValueError: an interval below one, or a negative number of checkpoints.

    Example:
        manager = CheckpointManager(folder, save_interval=100, max_to_keep=3)
        if steps := manager.all_steps():
            manager.restore(max(steps), state_dict)
        for step in range(...):
            ...
            manager.save_async(step, state_dict)
            if manager.reached_preemption(step):
                break
        manager.join()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        save_interval: int,
        max_to_keep: int = 0,
        async_queue_size: int = 1,
        process_group: dist.ProcessGroup | None = None,
        chkpt_on_preemption: bool = True,
    ) -> None:
        if save_interval < 1:
            raise ValueError(
                f"CheckpointManager: save_interval must be at least 1: {save_interval}"
            )
        if max_to_keep < 0 or async_queue_size < 1:
            raise ValueError(
                "CheckpointManager: max_to_keep may not be negative and async_queue_size not below "
                f"1: {max_to_keep}, {async_queue_size}"
            )
        self._path = Path(path)
        self._interval = save_interval
        self._max_to_keep = max_to_keep
        self._group = process_group
        self._errors: list[Exception] = []  # of saves in the background, for the next call
        self._waiting: queue.Queue[tuple[int, Any]] = queue.Queue(async_queue_size)
        self._thread: threading.Thread | None = None
        self._is_writer = False
        self._on_preemption = chkpt_on_preemption
        if self._is_chief():
            self._path.mkdir(parents=True, exist_ok=True)
            self._publish_complete()

    def should_save(self, step: int) -> bool:
        """Whether `save(step, ...)` writes: at each interval, and when told to give way.

        Raises:
            ValueError: `step` is no whole number from 0 on.
        """
        step = _number_of_step(step)
        return step % self._interval == 0 or self._preempted()

    def save(self, step: int, state_dict: Mapping[str, Any], force: bool = False) -> bool:
        """Writes a checkpoint, and returns when it is complete.

        Args:
            step: its number. One that is there already is replaced.
            state_dict: nested dicts and lists of tensors and whatever can be pickled.
            force: whether to save whatever the step.

        Returns:
            Whether it was saved.

        Raises:
            ValueError: `step` is no whole number from 0 on.
            RuntimeError: it could not be written, or an asynchronous one before it.
        """
        step = _number_of_step(step)
        if not (force or self.should_save(step)):
            return False
        self.join()
        self._write(step, dict(state_dict))
        return True

    def save_async(self, step: int, state_dict: Mapping[str, Any], force: bool = False) -> bool:
        """The same in the background: returns once the state is copied to the host.

        Blocks while more checkpoints than `async_queue_size` wait. Errors of writing come with the
        next save or `join()`.
        """
        step = _number_of_step(step)
        if not (force or self.should_save(step)):
            return False
        self._raise_errors()
        settle()
        snapshot = on_host(dict(state_dict))
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_waiting, daemon=True)
            self._thread.start()
        self._waiting.put((step, snapshot))
        return True

    def restore(self, step: int, state_dict: dict[str, Any]) -> None:
        """Loads a checkpoint into the tensors of a state dict, in place and as they are sharded.

        Args:
            step: one of `all_steps()`.
            state_dict: of the structure that was saved. An optimizer's state must exist
                (`prime_optimizer`); give what is no tensor back to it by `load_state_dict`.

        Raises:
            ValueError: there is no such checkpoint, or a tensor has another shape.
            RuntimeError: it cannot be read, or lacks what the state dict has.
        """
        self.join()
        folder = self._path / str(step)
        if not (folder / _METADATA).exists():
            steps = ", ".join(map(str, self.all_steps())) or "none"
            raise ValueError(f"no checkpoint of step {step} in '{self._path}': there are {steps}")
        with _plain_errors(f"the checkpoint of step {step} was not loaded"):
            dcp.load(
                state_dict,
                storage_reader=dcp.FileSystemReader(folder),
                planner=SPMDLoadPlanner(),
                process_group=self._group,
                no_dist=not self._is_distributed(),
            )

    def all_steps(self) -> list[int]:
        """The steps with a complete checkpoint, in order."""
        if not self._path.is_dir():
            return []
        return sorted(
            int(folder.name)
            for folder in self._path.iterdir()
            if folder.name.isdecimal() and (folder / _METADATA).exists()
        )

    def join(self) -> None:
        """Waits for all asynchronous saves. Raises the first error of one."""
        self._waiting.join()
        self._raise_errors()

    def reached_preemption(self, step: int) -> bool:
        """Whether the machine is about to be taken away: save (`should_save` says so) and end."""
        del step  # one process: the notice counts for whatever step it meets
        return self._preempted()

    # --- Writing ---

    def _write(self, step: int, state_dict: dict[str, Any]) -> None:
        partial = self._path / f".partial-{step}"
        if self._is_chief():
            if not self._is_writer:
                self._remove_leftovers()
                self._is_writer = True
            shutil.rmtree(partial, ignore_errors=True)
        self._barrier()
        with _plain_errors(f"the checkpoint of step {step} was not saved"):
            dcp.save(
                state_dict,
                storage_writer=dcp.FileSystemWriter(partial),
                planner=SPMDSavePlanner(),
                process_group=self._group,
                no_dist=not self._is_distributed(),
            )
        if self._is_chief():
            self._publish(partial, self._path / str(step))
            self._remove_old(step)
        self._barrier()

    def _publish(self, partial: Path, folder: Path) -> None:
        self._remove(folder)
        partial.rename(folder)
        # The name must last as the contents do.
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _remove_old(self, newest: int) -> None:
        """By when they were written: a run that went back has smaller steps than those before."""
        if not self._max_to_keep:
            return

        def written(step: int) -> tuple[bool, int, int]:
            time = (self._path / str(step) / _METADATA).stat().st_mtime_ns
            return step == newest, time, step

        for step in sorted(self.all_steps(), key=written)[: -self._max_to_keep]:
            self._remove(self._path / str(step))

    def _remove(self, folder: Path) -> None:
        """Out of sight first: half a checkpoint must not have a step's name."""
        if not folder.exists():
            return
        old = self._path / f".old-{folder.name}"
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        shutil.rmtree(old)

    def _publish_complete(self) -> None:
        """What was written by a process that ended before it could give it its name."""
        for partial in self._path.glob(".partial-*"):
            folder = self._path / partial.name.removeprefix(".partial-")
            if (partial / _METADATA).exists() and not folder.exists():
                self._publish(partial, folder)

    def _remove_leftovers(self) -> None:
        """Of writers that were killed: there is one writer at a time."""
        for pattern in (".partial-*", ".old-*"):
            for folder in self._path.glob(pattern):
                shutil.rmtree(folder, ignore_errors=True)

    def _write_waiting(self) -> None:
        while True:
            step, snapshot = self._waiting.get()
            try:
                self._write(step, snapshot)
            except Exception as error:
                self._errors.append(error)
            finally:
                del snapshot
                self._waiting.task_done()

    def _raise_errors(self) -> None:
        if self._errors:
            error, self._errors = self._errors[0], []
            raise error

    # --- Processes and signals ---

    def _is_distributed(self) -> bool:
        return dist.is_available() and dist.is_initialized()

    def _is_chief(self) -> bool:
        if self._is_distributed():
            return dist.get_rank(self._group) == 0
        return not _XLAC._xla_runtime_is_initialized() or xr.process_index() == 0

    def _barrier(self) -> None:
        if self._is_distributed():
            dist.barrier(self._group)

    def _preempted(self) -> bool:
        if self._on_preemption:
            _listen()
        return self._on_preemption and _notice.is_set()


def _number_of_step(step: Any) -> int:
    """What names a folder that is found again."""
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"CheckpointManager: a step is a whole number from 0 on, got {step!r}")
    return number


# One a process: whichever managers there are, all hear of it.
_notice = threading.Event()
_handler_before: Any = None


def _on_signal(number: int, frame: Any) -> None:
    del number, frame
    _notice.set()
    signal.signal(signal.SIGTERM, _handler_before or signal.SIG_DFL)


def _listen() -> None:
    global _handler_before
    before = signal.getsignal(signal.SIGTERM)
    if before is _on_signal or _notice.is_set():
        return
    # Outside the main thread nobody may set handlers.
    with contextlib.suppress(ValueError):
        _handler_before = before
        signal.signal(signal.SIGTERM, _on_signal)


@contextlib.contextmanager
def _plain_errors(what: str) -> Iterator[None]:
    """torch's exception for checkpoints is no Exception, and names no cause in its text."""
    try:
        yield
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        first = causes[0] if causes else error
        text = f"{what}: {type(first).__name__}: {first}"
        raise (ValueError if isinstance(first, ValueError) else RuntimeError)(text) from error
