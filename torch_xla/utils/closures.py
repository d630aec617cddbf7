"""Runs functions at the end of a step, in the training thread or behind it."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any


class ClosureHandler:
    """Runs closures at once."""

    def run(self, closure: Callable[[], Any]) -> None:
        closure()

    def run_all(self, closures: Iterable[Callable[[], Any]]) -> None:
        """Runs them in order. An error of one is raised, and the rest do not run."""
        for closure in closures:
            self.run(closure)


class AsyncClosureHandler(ClosureHandler):
    """Runs closures in order on one thread of its own.

    Args:
        max_queue_size: closures that may wait; adding one more blocks. By default
            `XLA_MAX_ASYNC_QUEUE`, else 100.

    What a closure raises is raised again by the next `run`, in the thread that calls it.
    """

    def __init__(self, max_queue_size: int | None = None) -> None:
        if max_queue_size is None:
            max_queue_size = int(os.environ.get("XLA_MAX_ASYNC_QUEUE", "100"))
        self._queue: queue.Queue[Callable[[], Any]] = queue.Queue(max_queue_size)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start_event_loop(self) -> None:
        """Starts the thread when it does not run. It ends when the queue is empty."""
        with self._lock:
            if self._thread is None:
                # Not a daemon: the interpreter waits for it, so that no closure is lost at the end.
                self._thread = threading.Thread(target=self._loop, name="xla-closures")
                self._thread.start()

    def _loop(self) -> None:
        while True:
            try:
                closure = self._queue.get(timeout=0.1)
            except queue.Empty:
                with self._lock:
                    if self._queue.empty():
                        self._thread = None
                        return
                continue
            try:
                closure()
            except BaseException as error:  # handed to whoever adds the next one
                self._error = error
            finally:
                self._queue.task_done()

    def run(self, closure: Callable[[], Any]) -> None:
        self._raise_pending()
        self._queue.put(closure)
        self.start_event_loop()

    def join(self) -> None:
        """Waits until everything added has run; raises what one of them raised."""
        self._queue.join()
        self._raise_pending()

    def _raise_pending(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise RuntimeError("a step closure failed in the background") from error
