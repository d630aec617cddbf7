"""python -m torch_xla.preflight SCRIPT --topology NAME [-- ARGUMENTS OF THE SCRIPT]"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from torch_xla.preflight import PreflightError, run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m torch_xla.preflight",
        description="Runs a training script up to its first step on devices that are not here, and "
        "says what the step needs of them.",
        epilog="Arguments after -- are the script's.",
    )
    parser.add_argument("script", help="a Python file, or with -m a module")
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument(
        "--topology", required=True, help="v5p:4x8x8, h100:8, cpu:8, ... (experimental.topology)"
    )
    parser.add_argument(
        "--target-config", type=Path, help="file that describes a GPU (GpuTargetConfigProto)"
    )
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    ours, theirs = _split(sys.argv[1:])
    arguments, unknown = parser.parse_known_args(ours)
    if unknown:
        parser.error(
            f"unknown arguments: {' '.join(unknown)}; those of the script come last, after --"
        )
    try:
        report = run(
            arguments.script,
            theirs,
            topology=arguments.topology,
            module=arguments.module,
            target_config=arguments.target_config and arguments.target_config.read_text(),
        )
    except (PreflightError, ValueError, RuntimeError, OSError) as error:
        print(f"preflight: {error}", file=sys.stderr)
        return 2
    print(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report.to_dict(), indent=2) + "\n")
    return 0 if report.fits else 1


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())
