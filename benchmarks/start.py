"""What starting a process costs: imports, and the first step from the persistent cache."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

IMPORT = """
import time, torch
begin = time.perf_counter(), time.process_time()
import torch_xla
print(time.perf_counter() - begin[0], time.process_time() - begin[1])
"""


def imports(times: int) -> dict[str, float]:
    """Seconds that `import torch_xla` takes after `import torch`: the least and the middle one."""
    taken = []
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
        )
        taken.append([float(word) for word in done.stdout.split()])
    wall, cpu = zip(*taken, strict=True)
    return {
        "wall_least": min(wall),
        "wall_middle": statistics.median(wall),
        "cpu_least": min(cpu),
        "cpu_middle": statistics.median(cpu),
    }


def second_process(train: Callable[[dict[str, str]], dict]) -> dict[str, float]:
    """Two processes after another that share an empty cache: the first step of each, until it is
    launched and until its end.

    `train` runs one in an environment and returns what it measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {"TORCH_XLA_PERSISTENT_CACHE": "1", "XLA_PERSISTENT_CACHE_PATH": folder}
        first, second = train(environment), train(environment)
    return {
        "compiles": second["compiles"] + second["late_compiles"],
        "first_launch": first["first_launch"],
        "second_launch": second["first_launch"],
        "first_step": first["first_step"],
        "second_step": second["first_step"],
    }
