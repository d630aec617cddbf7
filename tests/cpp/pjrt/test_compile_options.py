"""The bytes of csrc/pjrt/compile_options.cpp, read and written again by jaxlib's own message."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[3] / "csrc"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))

jaxlib = pytest.importorskip("jaxlib._jax")
numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")

# One line of hexadecimal for each of these options.
PROGRAM = """
#include <cstdio>
#include "pjrt/compile_options.h"
using namespace torch_xla::pjrt;
void print(const CompileOptions& options) {
  for (unsigned char c : encode(options)) std::printf("%02x", c);
  std::printf("\\n");
}
int main() {
  print({});
  print({.num_replicas = 2, .num_partitions = 3, .use_spmd_partitioning = true,
         .use_shardy = true, .parameter_is_tupled = true,
         .device_assignment = {5, 4, 3, 2, 1, 300},
         .env_overrides = {{"text", "x"}, {"no", false}, {"yes", true}, {"zero", int64_t{0}},
                           {"minus", int64_t{-7}}, {"half", 0.5f}}});
  print({.portable = true});
}
"""


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("compile_options")
    (folder / "main.cpp").write_text(PROGRAM)
    names = ("compile_options", "option", "error", "fork_guard")
    sources = [folder / "main.cpp", *(CSRC / "pjrt" / f"{name}.cpp" for name in names)]
    options = ["-std=c++20", "-pthread", f"-I{CSRC}"]
    subprocess.run([COMPILER, *options, *sources, "-o", folder / "main"], check=True)
    output = subprocess.run([folder / "main"], check=True, capture_output=True, text=True).stdout
    return [bytes.fromhex(line) for line in output.split()]


def parse(data: bytes):
    return jaxlib.CompileOptions.ParseFromString(data)


def test_defaults(encoded: list[bytes]) -> None:
    options = parse(encoded[0])
    assert (options.num_replicas, options.num_partitions) == (1, 1)
    assert options.parameter_is_tupled_arguments is False
    assert options.compile_portable_executable is False
    assert options.executable_build_options.use_spmd_partitioning is False
    assert options.executable_build_options.use_shardy_partitioner is False


def test_everything_set(encoded: list[bytes]) -> None:
    options = parse(encoded[1])
    build = options.executable_build_options
    assert (options.num_replicas, options.num_partitions) == (2, 3)
    assert build.use_spmd_partitioning is True
    assert build.use_shardy_partitioner is True
    assert list(build.allow_spmd_sharding_propagation_to_output) == [True]
    assert options.parameter_is_tupled_arguments is True
    assignment = build.device_assignment
    assert (assignment.replica_count(), assignment.computation_count()) == (2, 3)
    # Replica major: computation c of replica r is device_assignment[3 * r + c].
    assert (
        assignment.serialize()
        == jaxlib.DeviceAssignment.create(
            __import__("numpy").array([[5, 4, 3], [2, 1, 300]])
        ).serialize()
    )
    assert dict(options.env_option_overrides) == {
        "text": "x", "no": False, "yes": True, "zero": 0, "minus": -7, "half": 0.5
    }  # fmt: skip


def test_portable(encoded: list[bytes]) -> None:
    assert parse(encoded[2]).compile_portable_executable is True
