"""Queues with an end: after `close_write`, readers get what is left and then None."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any


class QueueBase:
    """What both queues have: a greatest size, and two ways to close.

    Args:
        maxsize: items that may wait; putting one more blocks.
    """

    def __init__(self, maxsize: int = 4) -> None:
        self._maxsize = maxsize
        self._cv = threading.Condition()
        self._closed = False
        self._close_write = False

    def max_size(self) -> int:
        return self._maxsize

    def close(self) -> None:
        """Ends the queue: whoever waits wakes up, readers get None, writers an error."""
        with self._cv:
            self._closed = True
            self._cv.notify_all()

    def close_write(self) -> None:
        """No more will be put; what is in the queue can still be read."""
        with self._cv:
            self._close_write = True
            self._cv.notify_all()

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def _check_open(self) -> None:
        if self._closed or self._close_write:
            raise RuntimeError("put on a queue that is closed")


class Queue(QueueBase):
    """First in, first out.

    >>> queue = Queue()
    >>> queue.put(1), queue.close_write()
    (None, None)
    >>> queue.get(), queue.get()
    (1, None)
    """

    def __init__(self, maxsize: int = 4) -> None:
        super().__init__(maxsize)
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        """Waits for room.

        Raises:
            RuntimeError: if the queue is closed.
        """
        with self._cv:
            self._cv.wait_for(lambda: self._closed or len(self._items) < self._maxsize)
            self._check_open()
            self._items.append(item)
            self._cv.notify_all()

    def get(self) -> Any:
        """The oldest item, or None when there will be none."""
        with self._cv:
            self._cv.wait_for(lambda: self._closed or self._close_write or self._items)
            if self._closed or not self._items:
                return None
            item = self._items.popleft()
            self._cv.notify_all()
            return item

    def __len__(self) -> int:
        with self._cv:
            return len(self._items)


class KeydQueue(QueueBase):
    """Items are taken by their keys, in any order.

    >>> queue = KeydQueue()
    >>> queue.put("b", 2), queue.put("a", 1)
    (None, None)
    >>> queue.get("a"), queue.get("b")
    (1, 2)
    """

    def __init__(self, maxsize: int = 4) -> None:
        super().__init__(maxsize)
        self._items: dict[Any, Any] = {}

    def put(self, key: Any, item: Any) -> None:
        """Waits for room.

        Raises:
            RuntimeError: if the queue is closed.
        """
        with self._cv:
            self._cv.wait_for(lambda: self._closed or len(self._items) < self._maxsize)
            self._check_open()
            self._items[key] = item
            self._cv.notify_all()

    def get(self, key: Any) -> Any:
        """The item of this key, waiting until it is put; None when it never will be."""
        with self._cv:
            self._cv.wait_for(lambda: self._closed or self._close_write or key in self._items)
            if self._closed or key not in self._items:
                return None
            item = self._items.pop(key)
            self._cv.notify_all()
            return item
