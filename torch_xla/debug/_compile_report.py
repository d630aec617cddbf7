"""`PT_XLA_DEBUG`: says of each compilation what made it necessary and where."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from torch_xla._extension import _XLAC

_PREFIX = "Compilation Analysis: "
_RULE = "=" * 80
_PACKAGE = str(Path(__file__).parent.parent)


def enable(file: str = "", max_frames: int = 8) -> None:
    """Reports every compilation from here on.

    Args:
        file: is appended to; standard error without it.
        max_frames: Python frames shown, from the innermost outwards.
    """

    def report(program: dict[str, Any]) -> None:
        stack = traceback.extract_stack()[:-1]
        text = format_report(program, stack, max_frames)
        if file:
            with Path(file).open("a") as out:
                out.write(text)
        else:
            sys.stderr.write(text)

    _XLAC._set_compile_listener(report)


def disable() -> None:
    """Ends the reports."""
    _XLAC._set_compile_listener(None)


def format_report(
    program: dict[str, Any], stack: list[traceback.FrameSummary], max_frames: int
) -> str:
    """The report of one compilation.

    Args:
        program: what the executor says: key, name, nodes, parameters, outputs, seconds and, where
            the plugin tells, memory (bytes of arguments, outputs, aliased, temporaries), and
            difference: what sets it apart from the nearest program of the same line.
        stack: of the thread that compiled, outermost frame first.
    """
    lines = [
        _RULE,
        "Compilation Cause",
        f"  {cause(stack)}",
        *([f"  {program['difference']}"] if program.get("difference") else []),
        "Graph Info: ",
        f"  Graph Name: {program['name']}",
        f"  Graph Hash: {program['key']}",
        f"  Number of Graph Nodes: {program['nodes']}",
        f"  Number of Graph Inputs: {program['parameters']}",
        f"  Number of Graph Outputs: {program['outputs']}",
        f"  Compile Time: {program['seconds']:.3f} s",
        *_memory_lines(program.get("memory")),
        "Python Frame Triggered Execution: ",
        *(f"  {_describe(frame)}" for frame in reversed(stack[-max_frames:])),
        "-" * 80,
        _RULE,
    ]
    return "\n" + "".join(f"{_PREFIX}{line}\n" for line in lines)


def _memory_lines(memory: dict[str, int] | None) -> list[str]:
    """What the program needs of the device while it runs, where the plugin says."""
    if memory is None:
        return []
    parts = ", ".join(f"{name} {count / 2**20:.1f}" for name, count in memory.items())
    return [f"  Memory (MiB): {parts}"]


def cause(stack: list[traceback.FrameSummary]) -> str:
    """What asked for the execution, by the functions of this package that are being called."""
    called = [frame.name for frame in stack if frame.filename.startswith(_PACKAGE)]
    if "_upload_loop" in called or "next" in called:
        return "mark_step in parallel loader at step end"
    if "optimizer_step" in called:
        return "mark_step in xm.optimizer_step"
    if "__enter__" in called or "__exit__" in called:
        return "torch_xla.compile"
    if "step" in called:
        return "torch_xla.step"
    if "mark_step" in called:
        return "user xm.mark_step"
    if "sync" in called:
        return "user torch_xla.sync"
    return "a tensor's value was read before the step's end"


def _describe(frame: traceback.FrameSummary) -> str:
    path = Path(frame.filename)
    return f"{frame.name} ({'/'.join(path.parts[-2:])}:{frame.lineno})"
