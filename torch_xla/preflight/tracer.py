"""The process that traces: a script on devices that compute nothing, up to its first step."""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

import torch_xla
from torch_xla._extension import _XLAC
from torch_xla._internal import plugins


class Tracer:
    """Sees each program that the script would run, and ends the process when it was the step."""

    def __init__(self, result: Path) -> None:
        self._result = result
        self._largest: dict[str, Any] | None = None
        self._stepped = False

    def optimizer_stepped(self) -> None:
        self._stepped = True

    def program(self, program: dict[str, Any]) -> None:
        """The listener of the dry run."""
        if self._stepped:
            self._finish(program, note="")
        if self._largest is None or len(program["stablehlo"]) > len(self._largest["stablehlo"]):
            self._largest = program

    def script_ended(self, error: BaseException | None) -> None:
        """Judges by what there was until then."""
        if self._largest is None:
            return
        if error is None:
            note = "no optimizer made a step: this is the largest program of the script"
        else:
            line = str(error).splitlines()[0] if str(error) else ""
            note = (
                "the script ended before an optimizer's step was synced, by "
                f"{type(error).__name__}: {line}\n  at {_line_of(error)}: this is the largest "
                "program until then"
            )
        self._finish(self._largest, note)

    def _finish(self, program: dict[str, Any], note: str) -> None:
        whole = self._result.with_suffix(".part")
        whole.write_text(json.dumps({**program, "note": note}))
        whole.rename(self._result)
        sys.stdout.flush()
        sys.stderr.flush()
        # The script may be in the middle of anything, on any thread.
        os._exit(0)


def _line_of(error: BaseException) -> str:
    """Of the user's code, as far as it is in the traceback."""
    package = str(Path(torch.__file__).parent)
    ours = str(Path(torch_xla.__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        frame
        for frame in frames
        if not frame.filename.startswith((package, ours, "<frozen")) and frame.name != "_run_code"
    ]
    last = (theirs or frames)[-1]
    return f"{last.filename}:{last.lineno}"


def _describe_parameters() -> None:
    """Modules' parameters are xla tensors without contents as soon as a module has them."""
    original = torch.nn.Module.register_parameter

    def register_parameter(
        self: torch.nn.Module, name: str, param: torch.nn.Parameter | None
    ) -> None:
        original(self, name, param)
        if type(param) is not torch.nn.Parameter or not (param.is_cpu or param.is_meta):
            return
        twin = getattr(param, "_torch_xla_described", None)
        if twin is None:
            twin = torch.nn.Parameter(
                _XLAC._xla_described_tensor(list(param.shape), param.dtype),
                requires_grad=param.requires_grad,
            )
            twin.__dict__.update(param.__dict__)
            param._torch_xla_described = twin  # what two modules share stays one
        self._parameters[name] = twin

    torch.nn.Module.register_parameter = register_parameter


def _settle_before_training() -> None:
    """What parameters begin with is forgotten before the first call of a module, and when an
    optimizer has been made."""

    def first_call(module: torch.nn.Module, args: tuple) -> None:
        handle.remove()
        _XLAC._xla_settle_dry_run()

    handle = register_module_forward_pre_hook(first_call)
    original = torch.optim.Optimizer.__init__

    def __init__(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _XLAC._xla_settle_dry_run()

    torch.optim.Optimizer.__init__ = __init__


def main() -> None:
    request = json.loads(sys.argv[1])
    plugins.pretend(request["devices"])
    tracer = Tracer(Path(request["result"]))
    _XLAC._xla_start_dry_run(tracer.program)
    _describe_parameters()
    _settle_before_training()
    register_optimizer_step_post_hook(lambda *_: tracer.optimizer_stepped())
    script = request["script"]
    sys.argv = [script, *request["arguments"]]
    try:
        if request["module"]:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(script).resolve().parent)
            runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        tracer.script_ended(None)
        sys.exit(error.code)
    except BaseException as error:
        traceback.print_exc()
        tracer.script_ended(error)
        sys.exit(1)
    tracer.script_ended(None)


if __name__ == "__main__":
    main()
