"""Small helpers that clients of the package use too."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def getenv_as(name: str, type: Callable[[str], T], defval: T | None = None) -> T | None:
    """The environment variable as a `type`, or `defval` when it is not set.

    Booleans are read as numbers, as `FLAG=0` and `FLAG=1` are usual.

    Raises:
        ValueError: if its text is no such value; the message names the variable.

    >>> os.environ["EXAMPLE"] = "12"
    >>> getenv_as("EXAMPLE", int)
    12
    >>> getenv_as("NO_EXAMPLE", int, 3)
    3
    """
    text = os.environ.get(name)
    if text is None:
        return defval
    try:
        return bool(int(text)) if type is bool else type(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is no {type.__name__}") from None


def check_env_flag(name: str, default: str = "") -> bool:
    """Whether a variable says yes: 1, ON, YES, TRUE or Y, in any case."""
    return os.environ.get(name, default).upper() in ("1", "ON", "YES", "TRUE", "Y")


class Cleaner:
    """Calls `func` once, when it is garbage collected."""

    def __init__(self, func: Callable[[], Any]) -> None:
        self.func = func

    def __del__(self) -> None:
        self.func()


class LazyProperty:
    """A value that is computed at its first use.

    >>> LazyProperty(lambda: 6 * 7).value
    42
    """

    def __init__(self, gen_fn: Callable[[], Any]) -> None:
        self._gen_fn = gen_fn
        self._has_value = False
        self._value: Any = None

    @property
    def value(self) -> Any:
        if not self._has_value:
            self._value = self._gen_fn()
            self._has_value = True
        return self._value


class TmpFolder:
    """A folder that is gone when this object is; `.name` is its path."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.name = self._folder.name


class SampleGenerator:
    """An iterator that gives the same data `sample_count` times: a stand-in for a data loader.

    >>> list(SampleGenerator("batch", 2))
    ['batch', 'batch']
    """

    def __init__(self, data: Any, sample_count: int) -> None:
        self._data = data
        self._sample_count = sample_count
        self._count = 0

    def __iter__(self) -> SampleGenerator:
        return SampleGenerator(self._data, self._sample_count)

    def __len__(self) -> int:
        return self._sample_count

    def __next__(self) -> Any:
        return self.next()

    def next(self) -> Any:
        if self._count >= self._sample_count:
            raise StopIteration
        self._count += 1
        return self._data


class FnDataGenerator:
    """An iterator over `func(i, batch_size, dims...)`-made tensors; see `FnDataGenerator.next`."""

    def __init__(
        self,
        func: Callable[..., torch.Tensor],
        batch_size: int,
        gen_tensor: Callable[..., torch.Tensor],
        dims: Iterable[int] | None = None,
        count: int = 1,
    ) -> None:
        self._func = func
        self._batch_size = batch_size
        self._gen_tensor = gen_tensor
        self._dims = list(dims) if dims else [1]
        self._count = count
        self._emitted = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> FnDataGenerator:
        return FnDataGenerator(
            self._func, self._batch_size, self._gen_tensor, dims=self._dims, count=self._count
        )

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.next()

    def next(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A pair (data, target): `gen_tensor(batch_size, *dims)` and `func` of it."""
        if self._emitted >= self._count:
            raise StopIteration
        data = self._gen_tensor(self._batch_size, *self._dims)
        self._emitted += 1
        return data, self._func(data)


class DataWrapper:
    """Lets `for_each_instance_rewrite` reach tensors inside an object of your own.

    Subclasses say which tensors they hold and how one of them is made from others.
    """

    def get_tensors(self) -> list[torch.Tensor]:
        raise NotImplementedError(f"{type(self).__name__}.get_tensors")

    def from_tensors(self, tensors: list[torch.Tensor]) -> DataWrapper:
        raise NotImplementedError(f"{type(self).__name__}.from_tensors")


def as_list(t: Any) -> Any:
    """`t` itself when it is a tuple or list, else a list of it."""
    return t if isinstance(t, (tuple, list)) else [t]


def for_each_instance(
    value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]
) -> None:
    """Calls `fn` on everything in nested tuples, lists, sets, dicts and objects that is selected.

    >>> for_each_instance({"a": [1, "x"], "b": (2,)}, lambda v: isinstance(v, int), print)
    1
    2
    """
    for_each_instance_rewrite(value, select_fn, lambda v: (fn(v), v)[1])


def for_each_instance_rewrite(
    value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]
) -> Any:
    """The same structure with `fn(v)` for every `v` in it that is selected.

    Containers that hold such a value are made anew; named tuples and dict subclasses keep their
    type. Attributes of other objects are replaced in the objects themselves. Cycles are fine.

    >>> for_each_instance_rewrite([1, (2, "x")], lambda v: isinstance(v, int), lambda v: -v)
    [-1, (-2, 'x')]
    """
    return _rewrite(value, select_fn, fn, {})


def _rewrite(
    value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any], seen: dict[int, Any]
) -> Any:
    if select_fn(value):
        return fn(value)
    if isinstance(value, (str, bytes, int, float, complex, type, torch.Tensor)) or value is None:
        return value
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = value

    def again(item: Any) -> Any:
        return _rewrite(item, select_fn, fn, seen)

    if isinstance(value, tuple) and hasattr(value, "_fields"):
        result = type(value)(*(again(item) for item in value))
    elif isinstance(value, (list, tuple, set, frozenset)):
        result = type(value)(again(item) for item in value)
    elif isinstance(value, dict):
        try:
            result = type(value)((key, again(item)) for key, item in value.items())
        except TypeError:  # a subclass with a constructor of its own
            for key, item in list(value.items()):
                value[key] = again(item)
            result = value
    elif hasattr(value, "__dict__"):
        for name, item in list(vars(value).items()):
            rewritten = again(item)
            if rewritten is not item:
                setattr(value, name, rewritten)
        result = value
    else:
        result = value
    seen[id(value)] = result
    return result


def shape(inputs: Any) -> tuple[int, ...]:
    """Sizes of nested sequences, taking the first of each.

    >>> shape([[1, 2, 3], [4, 5, 6]])
    (2, 3)
    """
    sizes = []
    while isinstance(inputs, (list, tuple)):
        sizes.append(len(inputs))
        if not inputs:
            break
        inputs = inputs[0]
    return tuple(sizes)


def flatten_nested_tuple(inputs: Any) -> tuple:
    """The leaves of nested tuples, in order.

    >>> flatten_nested_tuple((1, (2, (3,)), 4))
    (1, 2, 3, 4)
    """
    if not isinstance(inputs, tuple):
        return (inputs,)
    return tuple(leaf for item in inputs for leaf in flatten_nested_tuple(item))


def list_copy_append(ilist: Iterable[T], item: T) -> list[T]:
    """A copy of the list with `item` behind it."""
    return [*ilist, item]


def null_print(*args: Any, **kwargs: Any) -> None:
    """Takes what `print` takes and does nothing."""


def eprint(*args: Any, **kwargs: Any) -> None:
    """Prints to standard error."""
    print(*args, file=sys.stderr, **kwargs)


def get_print_fn(debug: bool | None = None) -> Callable[..., None]:
    """`eprint` when asked for, else `null_print`; by default `DEBUG` in the environment decides."""
    if debug is None:
        debug = check_env_flag("DEBUG")
    return eprint if debug else null_print


def timed(fn: Callable[[], T], msg: str = "", printfn: Callable[..., None] = eprint) -> T:
    """Calls `fn` and prints how long it took, in milliseconds."""
    start = time.perf_counter()
    result = fn()
    printfn(f"{msg}{(time.perf_counter() - start) * 1e3:.3f}ms")
    return result


def get_free_tcp_ports(n: int = 1) -> list[int]:
    """Different ports of this host that nothing listened on a moment ago."""
    sockets = [socket.socket() for _ in range(n)]
    try:
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def parallel_work(num_workers: int, fn: Callable[..., T], *args: Iterable[Any]) -> Iterator[T]:
    """`map(fn, *args)` on a number of threads.

    >>> list(parallel_work(2, pow, [2, 3], [3, 2]))
    [8, 9]
    """
    with ThreadPoolExecutor(max_workers=num_workers) as executor:
        return executor.map(fn, *args)


class TimedScope:
    """Prints how long a `with` block took, unless an error ended it."""

    def __init__(self, msg: str = "", printfn: Callable[..., None] = eprint) -> None:
        self._message = msg
        self._print = printfn
        self._error: BaseException | None = None

    def set_error(self, error: BaseException | None) -> None:
        """Marks the block as failed without an exception leaving it."""
        self._error = error

    def __enter__(self) -> TimedScope:
        self._start = time.perf_counter()
        return self

    def __exit__(self, type: Any, value: BaseException | None, traceback: Any) -> None:
        if value is None and self._error is None:
            self._print(f"{self._message}{(time.perf_counter() - self._start) * 1e3:.3f}ms")


def run_in_thread(fn: Callable[..., Any], *args: Any, name: str) -> threading.Thread:
    """Starts a daemon thread."""
    thread = threading.Thread(target=fn, args=args, name=name, daemon=True)
    thread.start()
    return thread
