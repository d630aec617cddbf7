"""Compiling for devices that are not here; the CPU plugin's topologies stand for the rest."""

import pytest
from compilers import needs_compiler

from torch_xla._internal import gpu_targets
from torch_xla.debug.flops import matmul_flops
from torch_xla.experimental import topology

PRODUCT = """
module @product {
  sdy.mesh @mesh = <["x"=8]>
  func.func @main(%a: tensor<64x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
                  %b: tensor<32x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
      -> (tensor<64x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<64x32xf32>, tensor<32x16xf32>) -> tensor<64x16xf32>
    return %c : tensor<64x16xf32>
  }
}
"""


@pytest.fixture(scope="module")
def eight():
    return topology.describe("cpu:8")


def test_description(eight):
    assert (eight.platform, eight.num_devices, eight.num_processes) == ("CPU", 8, 1)
    assert eight.memory is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v5p", "a kind of device, a colon and how many"),
        ("cpu:0", "a kind of device, a colon and how many"),
        ("cpu:2*4", "a kind of device, a colon and how many"),
        ("cuda:8", "needs a target_config"),
        ("h100:12", "12 GPUs do not fill hosts of 8"),
        ("h100:1x1x1x8", "slices x hosts x GPUs at most"),
    ],
)
def test_names_that_are_none(name, message):
    with pytest.raises(ValueError, match=message):
        topology.describe(name)


def test_target_config_is_for_gpus():
    with pytest.raises(ValueError, match="'cpu:8' is none"):
        topology.describe("cpu:8", target_config="gpu_device_info {}")


def test_missing_library():
    with pytest.raises(ValueError, match="no/such/plugin"):
        topology.describe("cpu:8", library="/no/such/plugin.so")


@needs_compiler
def test_a_partitioned_program(eight):
    compiled = topology.compile(PRODUCT, eight)
    assert compiled.arguments == 64 * 32 * 4 // 8 + 32 * 16 * 4 // 8
    assert compiled.argument_data == compiled.arguments  # no gaps in a CPU's layouts
    assert compiled.results == 64 * 16 * 4
    assert compiled.needed >= compiled.arguments + compiled.results
    assert [found.kind for found in compiled.collectives] == ["all-reduce"]
    assert compiled.largest[0].shape == "f32[64,16]"
    assert compiled.largest[0].bytes == 64 * 16 * 4


@needs_compiler
def test_programs_that_do_not_compile(eight):
    with pytest.raises(topology.CompileError) as error:
        topology.compile("module { func.func @main() { no } }", eight)
    assert not error.value.out_of_memory
    for partitions in (0, 9):
        with pytest.raises(ValueError, match=f"{partitions} partitions for cpu:8"):
            topology.compile(PRODUCT, eight, num_partitions=partitions)


def test_a_plugin_that_ends_its_process(eight, monkeypatch):
    # XLA ends the process that has an unknown flag.
    environment = {**topology._environment("CPU"), "XLA_FLAGS": "--no_such_flag=1"}
    monkeypatch.setattr(topology, "_environment", lambda platform: environment)
    with pytest.raises(RuntimeError, match=r"(?s)ended its process \(.*no_such_flag"):
        topology.compile(PRODUCT, eight)


def test_flops():
    dot = (
        '%2 = "stablehlo.dot_general"(%0, %1) {dot_dimension_numbers = #stablehlo.dot<'
        "lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], "
        "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>} : "
        "(tensor<4x8x16xf32>, tensor<4x16x5xf32>) -> tensor<4x8x5xf32>"
    )
    convolution = (
        '%3 = "stablehlo.convolution"(%0, %1) {dimension_numbers = '
        "#stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, feature_group_count = 2 : i64} "
        ": (tensor<2x6x9x9xf32>, tensor<8x3x3x3xf32>) -> tensor<2x8x7x7xf32>"
    )
    assert matmul_flops(dot) == 2 * 4 * 8 * 5 * 16
    assert matmul_flops(convolution) == 2 * 2 * 8 * 7 * 7 * 3 * 3 * 3
    assert matmul_flops(f"{dot}\n%4 = stablehlo.add %2, %2\n{convolution}") == (
        matmul_flops(dot) + matmul_flops(convolution)
    )


@pytest.mark.parametrize(
    ("sizes", "text"), [([8], "1x1x8"), ([4], "1x1x4"), ([16], "1x2x8"), ([2, 4], "1x2x4")]
)
def test_gpus_of_hosts(sizes, text):
    assert gpu_targets.slices(sizes) == text


@pytest.mark.parametrize("kind", sorted(gpu_targets.KINDS))
def test_gpu_descriptions_say_their_memory(kind):
    assert gpu_targets.memory_of(gpu_targets.description(kind)) >= 80 * 10**9
