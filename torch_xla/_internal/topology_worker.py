"""The process behind `torch_xla.experimental.topology`: one request on standard input, as JSON, and
one answer on the last line of standard output."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from torch_xla._extension import _XLAC


def answer(request: dict[str, Any]) -> dict[str, Any]:
    where = (request["library"], request["topology"], request["options"])
    if request["do"] == "describe":
        return _XLAC._xla_describe_topology(*where)
    made = _XLAC._xla_compile_for_topology(
        *where,
        Path(request["module"]).read_text(),
        request["devices"],
        request["overrides"],
    )
    Path(request["program"]).write_bytes(made.pop("program"))
    return made


def main() -> None:
    try:
        result = answer(json.load(sys.stdin))
    except RuntimeError as error:
        result = {"error": str(error)}
    print("\n" + json.dumps(result), flush=True)
    # Unloading a compiler may take longer than its work, or fail.
    os._exit(0)


if __name__ == "__main__":
    main()
