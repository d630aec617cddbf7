"""Which compilers for devices that are not here are installed."""

import pytest

from torch_xla._internal import plugins

needs_compiler = pytest.mark.skipif(
    "lammps" not in str(plugins.CpuPlugin().find()),
    reason="the CPU plugin that is installed compiles for its own client only",
)
