"""The functions of `torch_xla` itself: devices, syncing, compiling, seeding."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torch_xla._extension import _XLAC
from torch_xla._internal import steps
from torch_xla._internal.rehearsal import prepare
from torch_xla._internal.replay import Replayer


def device(index: int | None = None) -> torch.device:
    """An xla device of this process.

    Args:
        index: which one; by default the calling thread's current device.

    Raises:
        RuntimeError: if there is no such device, or no plugin for `PJRT_DEVICE`.

    >>> device()
    device(type='xla', index=0)
    """
    return torch.device(_XLAC._xla_get_default_device() if index is None else _checked(index))


def _checked(index: int) -> str:
    name = f"xla:{int(index)}"
    _XLAC._xla_get_device_ordinal(name)  # raises when there is none
    return name


def devices() -> list[torch.device]:
    """All devices of this process."""
    return [torch.device("xla", i) for i in range(_XLAC._xla_num_devices())]


def real_devices() -> list[str]:
    """What the devices of this process are: `["CPU:0"]`, `["TPU:0", "TPU:1"]`, ..."""
    return _XLAC._xla_real_devices()


def device_count() -> int:
    """Number of devices of this process."""
    return _XLAC._xla_num_devices()


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Runs everything that was traced on the current device, as one program.

    Work that depends on nothing new is compiled once and found again by its shape. Without `wait`
    this returns as soon as the program is launched.

    Args:
        wait: block until the results are there; errors of the computation are raised here then.
        reset_scope: whether this ends a step; one that does not is not counted as `MarkStep`.

    Raises:
        RuntimeError: if the program cannot be compiled or launched. Tensors to blame raise it again
            when they are read; those that were to be updated hold what they held, and all others
            keep their values. A program of 64 arrays and more is launched behind the caller unless
            `wait`: an error of that launch comes when a tensor to blame is read, or else once with
            the next sync. So does an IndexError for an index that the device computed.
    """
    steps.mark(wait=wait, reset_scope=reset_scope)


@contextlib.contextmanager
def step() -> Iterator[None]:
    """What is traced inside is run by itself: there is a sync before and one after.

    >>> x = torch.ones(2, device="xla")
    >>> with step():
    ...     y = x + 1
    >>> y.tolist()
    [2.0, 2.0]
    """
    sync()
    try:
        yield
    finally:
        # Also on the way out of an error: half a step must not leak into the next one.
        sync()


class _Compiled:
    """What `compile` makes of a function: decorator, callable and context manager in one."""

    def __init__(
        self,
        f: Callable | None,
        full_graph: bool,
        name: str | None,
        limit: int | None,
        replay: bool = False,
    ) -> None:
        self._f = f
        self._replay = replay
        self._full_graph = full_graph
        self._name = name or getattr(f, "__name__", None if f is None else type(f).__name__)
        self._limit = limit
        self._keys: set[str] = set()
        self._before: list[tuple[str, bool]] = []  # nested calls restore what they found
        if f is not None:
            functools.update_wrapper(self, f, updated=())
        self._replayer = Replayer(f, self._trace) if replay and f is not None else None

    def __getattr__(self, attribute: str) -> Any:
        # A compiled module still has its parameters.
        if attribute.startswith("__") or self.__dict__.get("_f") is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}")
        return getattr(self._f, attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._f is None:  # used as @torch_xla.compile(...)
            return _Compiled(args[0], self._full_graph, self._name, self._limit, self._replay)
        if self._replayer is not None:
            return self._replayer(args, kwargs)
        return self._trace(*args, **kwargs)

    def _trace(self, *args: Any, **kwargs: Any) -> Any:
        with self:
            return self._f(*args, **kwargs)

    def prepare(self, *args: Any, **kwargs: Any) -> bool:
        """Compiles the program for such arguments in the background, before a call needs it.

        The function is traced once, between two steps, but nothing runs. What that did is undone:
        to tensors, to random state, and to everything that the function reaches by variables,
        attributes and items. A call that comes before the compilation is over waits for the rest
        of it. See docs/guide/compile_ahead.md.

        Args:
            *args: as the function takes them; tensors on `meta` stand for tensors on the device of
                that shape, dtype and layout. Others are what the call will be given.
            **kwargs: the same.

        Returns:
            whether it could. Where the function fails, or needs a value before its end, the
            logger `torch_xla.prepare` says so, and the call itself raises.

        >>> @compile
        ... def double(x):
        ...     return x * 2
        >>> double.prepare(torch.empty(4, device="meta"))
        True
        >>> double(torch.ones(4, device="xla")).tolist()
        [2.0, 2.0, 2.0, 2.0]
        """
        if self._f is None:
            raise TypeError("torch_xla.compile: only a function can be prepared")
        return prepare(self._f, self._name, args, kwargs)

    @property
    def traced_because(self) -> str:
        """With `replay`: why the last call was traced; "" when it was replayed."""
        return self._replayer.reason if self._replayer is not None else "replay is off"

    def __get__(self, instance: object, owner: type | None = None) -> Callable:
        return self if instance is None else _Method(self, instance)

    def __enter__(self) -> None:
        sync()
        self._before.append((_XLAC._get_current_graph_name(), _XLAC._get_allow_execution()))
        if self._name:
            _XLAC._set_current_graph_name(self._name)
        if self._full_graph:
            _XLAC._set_allow_execution(False)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        name, allowed = self._before.pop()
        _XLAC._set_allow_execution(allowed)
        try:
            if error is None and self._limit is not None:
                self._count_graph()
            sync()
        finally:
            _XLAC._set_current_graph_name(name)

    def _count_graph(self) -> None:
        self._keys.add(_XLAC._pending_graph_hash())
        if len(self._keys) > self._limit:
            raise RuntimeError(
                f"torch_xla.compile: {self._name or 'this function'} makes more than the "
                f"{self._limit} different graphs allowed by max_different_graphs. Shapes or Python "
                "values that change from call to call each need a program of their own."
            )


class _Method(functools.partial):
    """A compiled function as the method of an object."""

    def prepare(self, *args: Any, **kwargs: Any) -> bool:
        """See `_Compiled.prepare`."""
        return self.func.prepare(*self.args, *args, **kwargs)


def compile(
    f: Callable | None = None,
    full_graph: bool = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    custom_compile_options: dict[str, Any] | None = None,
    replay: bool = False,
) -> Any:
    """Runs what a function traces as one program: there is a sync before and one after it.

    It serves as `compile(f)`, as a decorator with or without arguments, and as a context manager
    (without `f`). The function is traced at every call; a graph seen before is not compiled again.

    Args:
        f: the function, or a module, whose attributes the result then has too.
        full_graph: raise when something inside needs a value before the end (`.item()`, `print`),
            which would cut the program in two.
        name: of the program, in reports and dumps.
        max_different_graphs: raise when the function has made more different graphs than this.
        custom_compile_options: flags of XLA for all later compilations, as
            `set_custom_compile_options` takes them.
        replay: after two calls in a row that launched one program, launch it again without
            running `f`, as long as nothing that is watched has changed: shapes, dtypes and numbers
            among the arguments, variables and attributes that `f` sees, training flags of modules,
            options of optimizers, grad mode, autocast, the seed. Everything else that `f` does in
            Python happens only when it is traced; results have no autograd history. See
            docs/guide/replay.md.

    The result's `prepare` compiles for other shapes in the background.

    Raises:
        RuntimeError: see `full_graph` and `max_different_graphs`.

    >>> @compile
    ... def double(x):
    ...     return x * 2
    >>> double(torch.ones(2, device="xla")).tolist()
    [2.0, 2.0]
    """
    if custom_compile_options:
        set_custom_compile_options(custom_compile_options)
    if max_different_graphs is not None and max_different_graphs < 1:
        raise ValueError(f"max_different_graphs must be at least 1, got {max_different_graphs}")
    return _Compiled(f, full_graph, name, max_different_graphs, replay)


def set_custom_compile_options(options: dict[str, Any]) -> None:
    """XLA flags for all later compilations, replacing those set before.

    Args:
        options: names without `--` to bool, int, float or str, for example
            `{"xla_cpu_enable_fast_math": True}`. A flag that XLA does not know makes the next
            compilation raise.
    """
    _XLAC._set_custom_compile_options(dict(options))


def manual_seed(seed: int, device: torch.device | str | None = None) -> None:
    """Seeds the random numbers of one device; `torch.manual_seed` seeds all of them.

    Args:
        seed: any integer that `torch.manual_seed` takes.
        device: by default the current device.
    """
    _XLAC._xla_set_rng_seed(int(seed) & (2**64 - 1), "" if device is None else str(device))


def launch(
    fn: Callable,
    args: tuple = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """Calls `fn(index, *args)` for each device; with a single device, in this process.

    Args:
        fn: the training function; its first argument is the index of its device.
        args: its other arguments.
        start_method: of the processes that several devices need.
        debug_single_process: use the first device only.

    Raises:
        NotImplementedError: if there are several devices. Each of them can be used by its name, or
            `CPU_NUM_DEVICES=1` asks for one.
    """
    if device_count() > 1 and not debug_single_process:
        raise NotImplementedError(
            f"torch_xla.launch: {device_count()} devices, but one program for each is not "
            "supported yet"
        )
    fn(0, *args)
