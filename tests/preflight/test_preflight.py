"""A script's first step, traced on devices that are not here and compiled for them."""

import collections
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from compilers import needs_compiler

from torch_xla import preflight
from torch_xla._internal import plugins
from torch_xla.experimental import topology

SCRIPT = Path(__file__).parent / "gpt_step.py"


def line_of(text):
    (number,) = [i for i, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line]
    return number


needs_tpu_compiler = pytest.mark.skipif(
    not (os.environ.get("TPU_LIBRARY_PATH") or plugins.TpuPlugin().find()),
    reason="libtpu is not installed (extra tpu)",
)
needs_gpu_compiler = pytest.mark.skipif(
    not plugins.CudaPlugin().find(), reason="no CUDA plugin is installed (extra cuda)"
)


@pytest.fixture(scope="module")
def one():
    return topology.describe("cpu:1")


@pytest.fixture(scope="module")
def eight():
    return topology.describe("cpu:8")


@pytest.fixture(scope="module")
def report(eight):
    return preflight.run(SCRIPT, topology=eight)


@needs_compiler
def test_the_step_of_a_sharded_gpt(report):
    assert report.fits
    assert report.step.note == ""
    assert report.step.num_partitions == 8
    assert report.compiled.arguments == report.step.argument_bytes
    # Parameters, both moments, step counts, tokens, targets: AdamW's first step is the whole step.
    shapes = [array["shape"] for array in report.step.arguments]
    assert shapes.count("f32[192,64]") == 3
    assert shapes.count("s64[16,64]") == 2


@needs_compiler
def test_arguments_of_a_chip_are_its_shards(report):
    weights = [a for a in report.step.arguments if a["shape"] == "f32[256,64]"]
    assert len(weights) == 3  # and both moments
    for weight in weights:
        assert weight["bytes_on_device"] == 256 * 64 * 4 // 8
        assert weight["donated"]


@needs_compiler
def test_the_report_reads(report):
    text = str(report)
    assert text.startswith("cpu:8: 8 x cpu\nthe step fits\nmemory of each chip:\n")
    assert any(line.split()[:1] == ["all-reduce"] and " tp " in line for line in text.splitlines())
    assert "flops (matmuls and convolutions)" in text
    told = json.loads(json.dumps(report.to_dict()))
    assert told["fits"]
    assert told["compiled"]["arguments"] == report.compiled.arguments


@needs_compiler
def test_a_step_too_large_for_a_chip(report):
    small = dataclasses.replace(report, topology=dataclasses.replace(report.topology, memory=1000))
    assert not small.fits
    text = str(small)
    assert "the step is too large for a chip" in text
    largest = max(array["bytes_on_device"] for array in report.step.arguments)
    assert f"{largest / 1024:.2f} KiB" in text.split("largest arguments")[1].splitlines()[1]
    assert "largest arrays made on the way" in text


@needs_compiler
def test_one_device(one):
    report = preflight.run(SCRIPT, ["--one"], topology=one)
    assert report.step.num_partitions == 1
    assert report.compiled.arguments == report.step.argument_bytes
    assert report.compiled.collectives == ()


@needs_compiler
def test_parameters_are_never_materialised(one, tmp_path):
    script = tmp_path / "huge.py"
    script.write_text(
        "import torch, torch_xla\n"
        "model = torch.nn.Sequential(*(torch.nn.Linear(2**16, 2**16) for _ in range(12)))\n"
        "shared = model[0].weight\n"
        "model[1].weight = shared\n"
        "assert model[1].weight is model[0].weight\n"
        "model = model.to('xla')\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model(torch.ones(2, 2**16, device='xla')).sum().backward()\n"
        "optimizer.step()\n"
        "torch_xla.sync()\n"
    )
    report = preflight.run(script, topology=one)
    weights = [a for a in report.step.arguments if a["shape"] == "f32[65536,65536]"]
    assert len(weights) == 11
    assert report.compiled.arguments > 11 * 2**34


@needs_compiler
@pytest.mark.parametrize(
    ("argument", "note"),
    [
        ("--no-optimizer", "no optimizer made a step"),
        ("--read-early", f"gpt_step.py:{line_of('loss.item()')}: this is the largest"),
    ],
)
def test_scripts_without_a_step_are_judged_by_their_largest_program(argument, note, eight, capfd):
    report = preflight.run(SCRIPT, [argument], topology=eight)
    assert note in report.step.note
    assert f"note: {report.step.note.splitlines()[0]}" in str(report)
    assert report.compiled.arguments == report.step.argument_bytes
    assert "devices 8 CPU" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("print('no tensors')", "before it computed anything on an xla device$"),
        ("1 / 0", r"\(exit status 1\)"),
    ],
)
def test_scripts_that_compute_nothing(program, message, one, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(program)
    with pytest.raises(preflight.PreflightError, match=message):
        preflight.run(script, topology=one)


def test_no_such_script(one):
    with pytest.raises(FileNotFoundError, match=r"no script 'nowhere\.py'"):
        preflight.run("nowhere.py", topology=one)


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "torch_xla.preflight", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@needs_compiler
def test_the_command(tmp_path):
    told = tmp_path / "report.json"
    done = command(str(SCRIPT), "--topology", "cpu:4", "--json", str(told), "--", "--width", "32")
    assert done.returncode == 0, done.stderr
    assert "devices 4 CPU" in done.stdout
    assert "the step fits" in done.stdout
    shapes = [array["shape"] for array in json.loads(told.read_text())["step"]["arguments"]]
    assert "f32[128,32]" in shapes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py", "--topology", "cpu:2"], "preflight: no script 'nowhere.py'"),
        ([str(SCRIPT), "--topology", "cpu"], "preflight: no topology 'cpu'"),
        ([str(SCRIPT)], "--topology"),
        ([str(SCRIPT), "--topology", "cpu:2", "--width", "8"], "--width 8; those of the script"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, message):
    done = command(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@needs_tpu_compiler
@pytest.mark.parametrize(
    ("name", "arguments"), [("v5e:2x4", []), ("v5p:4x8x8", ["--width", "256", "--batch", "128"])]
)
def test_for_tpus(name, arguments):
    report = preflight.run(SCRIPT, arguments, topology=name)
    assert report.fits
    assert report.step.num_partitions == topology.describe(name).num_devices
    # A chip's layouts may leave gaps; what is in them is the shards.
    assert report.compiled.argument_data == report.step.argument_bytes
    assert report.compiled.arguments >= report.compiled.argument_data
    assert report.topology.memory > 10 * 2**30
    assert report.seconds > 0


@needs_tpu_compiler
@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("data", {("all-reduce", ("x", "y")): 1}),
        ("fsdp", {("all-gather", ("x",)): 2, ("reduce-scatter", ("x",)): 2}),
        ("tensor", {("all-reduce", ("y",)): 1}),
        (
            "fsdp_tensor",
            {
                ("all-gather", ("x",)): 2,
                ("reduce-scatter", ("x",)): 2,
                ("all-reduce", ("y",)): 1,
            },
        ),
    ],
)
def test_tpus_transfer_what_the_layout_calls_for(layout, expected):
    """Of two weights: each is gathered once, and its gradient goes to the parts."""
    report = preflight.run(SCRIPT.with_name("mlp_step.py"), [layout], topology="v5e:2x4")
    found = collections.Counter(
        (one.kind, one.axes(("x", "y"), (4, 2))) for one in report.compiled.collectives
    )
    assert found == expected
    assert all(one.operation for one in report.compiled.collectives)


@needs_tpu_compiler
def test_fully_shard_on_tpus():
    """Weights are gathered in bfloat16, for backward again, and gradients are added up in f32."""
    report = preflight.run(SCRIPT.with_name("fully_shard_step.py"), topology="v5e:2x4")
    found = collections.Counter((one.kind, one.bytes) for one in report.compiled.collectives)
    elements = 1024 * 4096
    # Backward needs no first weight: the input is data.
    assert found == {
        ("all-gather", elements * 2): 6 + 5,
        ("reduce-scatter", elements * 4 // 8): 6,
    }


@needs_tpu_compiler
def test_too_large_for_a_tpu(tmp_path):
    report = preflight.run(
        SCRIPT, ["--one", "--width", "16384", "--layers", "2"], topology="v5e:2x4"
    )
    assert not report.fits
    assert "the step is too large for a chip" in str(report)
    assert "largest arguments" in str(report)


@needs_tpu_compiler
def test_no_such_tpu():
    with pytest.raises(ValueError, match="no topology 'v99:2x2'"):
        topology.describe("v99:2x2")


@needs_gpu_compiler
def test_for_gpus():
    report = preflight.run(SCRIPT, topology="h100:8")
    assert report.fits
    assert report.compiled.argument_data == report.step.argument_bytes
    assert report.topology.memory == 80 * 10**9


@needs_compiler
@pytest.mark.parametrize("devices", [1, 8])
def test_what_the_host_knows_may_be_looked_at(devices, one, eight, tmp_path):
    script = tmp_path / "looks.py"
    script.write_text(
        "import torch, torch_xla, torch_xla.runtime as xr\n"
        f"if {devices} > 1: xr.use_spmd()\n"
        "mask = torch.ones(4, 6, dtype=torch.bool).to('xla')\n"
        "assert mask.all().item() and not (~mask).any()\n"
        "assert mask.sum(-1).tolist() == [6] * 4\n"
        "assert torch.arange(3.).to('xla').tolist() == [0, 1, 2]\n"
        "model = torch.nn.Linear(6, 2).to('xla')\n"
        "loss = model(mask.float()).sum()\n"
        "try:\n"
        "    loss.item()\n"
        "except RuntimeError as error:\n"
        "    assert 'dry run' in str(error), error\n"
        "else:\n"
        "    raise AssertionError\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "loss.backward()\n"
        "optimizer.step()\n"
        "torch_xla.sync()\n"
    )
    report = preflight.run(script, topology=one if devices == 1 else eight)
    assert report.step.note == ""
    assert report.fits
