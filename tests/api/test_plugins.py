"""Choosing a plugin, and what goes wrong on the way: each in a process of its own."""

import importlib.metadata
import os
import signal
from pathlib import Path

import pytest

from torch_xla._internal import plugins

USE = """
import torch, torch_xla
try:
    print((torch.ones(3, device="xla") * 2).tolist(), torch_xla.real_devices())
except Exception as error:
    print(type(error).__name__, error)
"""


def use(run_python, **environment):
    result = run_python(USE, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def wheel_library(name):
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    return plugins._library_in_wheel(name)


def test_the_cpu_plugin(run_python):
    assert use(run_python, PJRT_DEVICE="CPU") == "[2.0, 2.0, 2.0] ['CPU:0']"
    assert use(run_python, PJRT_DEVICE="cpu") == "[2.0, 2.0, 2.0] ['CPU:0']"


def test_without_pjrt_device(run_python):
    assert "[2.0, 2.0, 2.0]" in use(run_python, PJRT_DEVICE=None)


@pytest.mark.parametrize("wheel", ["fastatomstruct-xla-cpu", "lammps-jax-pjrt-cpu", "xla-cpu-pjrt"])
def test_a_library_by_its_path(run_python, wheel):
    path = wheel_library(wheel)
    for kind in ("LIBRARY", "CPU"):
        assert use(run_python, PJRT_DEVICE=kind, PJRT_LIBRARY_PATH=path).startswith(
            f"[2.0, 2.0, 2.0] ['{kind}:0'"
        )


def test_the_default_wheel_needs_no_jax(run_python):
    result = run_python(
        """
        import importlib.metadata, sys
        found = importlib.metadata.files
        def files(name):
            if name == "lammps-jax-pjrt-cpu":
                raise importlib.metadata.PackageNotFoundError(name)
            return found(name)
        importlib.metadata.files = files
        import torch, torch_xla
        torch.ones(1, device="xla").tolist()
        assert "fastatomstruct" in torch_xla._XLAC._plugin_path()
        """
    )
    assert result.returncode == 0, result.stderr


def test_jax_is_never_imported(run_python):
    result = run_python(
        """
        import sys, torch, torch_xla, torch_xla.core.xla_model, torch_xla.amp
        import torch_xla.distributed.parallel_loader, torch_xla.experimental.plugins
        assert not torch_xla._XLAC._xla_runtime_is_initialized(), "importing loads no plugin"
        torch.ones(1, device="xla").tolist()
        print(sorted(m for m in sys.modules if m.startswith(("jax", "lammps"))))
        """
    )
    assert result.stdout == "[]\n", result.stderr


def test_nothing_is_printed(run_python):
    result = run_python("import torch, torch_xla\ntorch.ones(1, device='xla').tolist()")
    assert (result.stdout, result.stderr) == ("", "")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"PJRT_DEVICE": "GAMEBOY"}, ["GAMEBOY", "CPU", "CUDA", "TPU"]),
        ({"PJRT_DEVICE": "LIBRARY", "PJRT_LIBRARY_PATH": None}, ["PJRT_LIBRARY_PATH"]),
        ({"PJRT_DEVICE": "LIBRARY", "PJRT_LIBRARY_PATH": "/no/such/file.so"}, ["/no/such/file.so"]),
        ({"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "0"}, ["CPU_NUM_DEVICES", "'0'"]),
        ({"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "many"}, ["CPU_NUM_DEVICES", "'many'"]),
    ],
    ids=["unknown device", "no path", "no file", "no devices", "no number"],
)
def test_bad_choices(run_python, environment, words):
    message = use(run_python, **environment)
    assert message.startswith("RuntimeError ")
    assert all(word in message for word in words), message


@pytest.mark.parametrize("kind", ["TPU", "CUDA"])
def test_a_plugin_that_is_not_installed(run_python, kind):
    wheel = {"TPU": "libtpu", "CUDA": "jax-cuda13-pjrt"}[kind]
    try:
        importlib.metadata.distribution(wheel)
        pytest.skip(f"{wheel} is installed")
    except importlib.metadata.PackageNotFoundError:
        pass
    message = use(run_python, PJRT_DEVICE=kind)
    assert message.startswith("RuntimeError ") and f"pip install {wheel}" in message


def test_a_library_that_is_no_plugin(run_python, tmp_path):
    import torch

    library = next((Path(torch.__file__).parent / "lib").glob("libc10.*"))
    text = tmp_path / "text.so"
    text.write_text("not a library")
    for path in (str(library), str(text)):
        message = use(run_python, PJRT_DEVICE="LIBRARY", PJRT_LIBRARY_PATH=path)
        assert message.startswith("RuntimeError ") and path in message


def test_an_error_leaves_the_process_able_to_go_on(run_python):
    result = run_python(
        """
        import os, torch, torch_xla
        os.environ["PJRT_DEVICE"] = "GAMEBOY"
        for _ in range(2):
            try:
                torch.ones(1, device="xla")
                torch_xla.device()
                raise SystemExit("no error")
            except RuntimeError as error:
                assert "GAMEBOY" in str(error), error
        os.environ["PJRT_DEVICE"] = "CPU"
        print(torch.ones(2, device="xla").tolist())
        """
    )
    assert result.stdout == "[1.0, 1.0]\n", result.stderr


def test_a_plugin_of_ones_own(run_python):
    path = wheel_library("fastatomstruct-xla-cpu")
    result = run_python(
        f"""
        import os, torch, torch_xla
        from torch_xla.experimental import plugins

        class Mine(plugins.DevicePlugin):
            configured = False
            def library_path(self):
                return {path!r}
            def configure_single_process(self):
                Mine.configured = True
            def client_create_options(self):
                return {{"cpu_device_count": 2}}

        plugins.register_plugin("mine", Mine())
        os.environ["PJRT_DEVICE"] = "MINE"
        print(torch_xla.real_devices(), Mine.configured, type(plugins.default()).__name__)
        """
    )
    assert result.stdout == "['MINE:0', 'MINE:1'] True Mine\n", result.stderr


def test_a_plugin_of_an_installed_package(run_python, tmp_path):
    path = wheel_library("fastatomstruct-xla-cpu")
    (tmp_path / "vendor.py").write_text(
        "from torch_xla.experimental.plugins import DevicePlugin\n"
        "class Chip(DevicePlugin):\n"
        f"    def library_path(self):\n        return {path!r}\n"
    )
    info = tmp_path / "vendor-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[torch_xla.plugins]\nchip = vendor:Chip\n")
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    assert "['CHIP:0'" in use(run_python, PJRT_DEVICE="chip", PYTHONPATH=paths)
    message = use(run_python, PJRT_DEVICE="GAMEBOY", PYTHONPATH=paths)
    assert "CHIP" in message, "what is installed is offered"


def test_options_are_checked(run_python):
    result = run_python(
        """
        import torch_xla
        torch_xla._XLAC._set_runtime_configurator(lambda: ("CPU", "x.so", {"option": object()}))
        try:
            torch_xla.device()
        except TypeError as error:
            print(error)
        """
    )
    assert "plugin option" in result.stdout, result.stderr


def test_a_forked_child_gets_an_error(run_python):
    result = run_python(
        """
        import os, sys, torch, torch_xla
        x = torch.ones(2, device="xla")
        torch_xla.sync(wait=True)
        pid = os.fork()
        if pid == 0:
            try:
                (x + 1).tolist()
            except RuntimeError as error:
                print("child:", error, flush=True)
                assert torch.xla._is_in_bad_fork()
                torch.manual_seed(0)
                assert (torch.ones(2) + 1).tolist() == [2.0, 2.0]
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        print("parent:", (x + 1).tolist())
        """
    )
    assert "child: " in result.stdout and "fork" in result.stdout, result.stderr
    assert result.stdout.endswith("parent: [2.0, 2.0]\n")


def test_a_child_that_exits_normally_does_not_hang(run_python):
    result = run_python(
        """
        import os, sys, torch, torch_xla
        torch.ones(2, device="xla").tolist()
        pid = os.fork()
        if pid == 0:
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert result.stdout == "3\n", result.stderr


def test_fork_before_the_first_use(run_python):
    result = run_python(
        """
        import os, torch, torch_xla
        pid = os.fork()
        value = (torch.ones(2, device="xla") + 1).tolist()
        if pid == 0:
            os._exit(0 if value == [2.0, 2.0] else 1)
        print(value, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert result.stdout == "[2.0, 2.0] 0\n", result.stderr


def test_interrupt_during_a_step(run_python):
    result = run_python(
        f"""
        import os, threading, torch, torch_xla

        def program(n):
            x = torch.ones(600, 600, device="xla")
            for _ in range(n):
                x = torch.tanh(x @ x)
            return x

        program(40)
        torch_xla.sync(wait=True)  # compiled
        x = program(40)
        try:
            threading.Timer(0.02, os.kill, (os.getpid(), {int(signal.SIGINT)})).start()
            for _ in range(2000):
                x = program(40)
                torch_xla.sync(wait=True)
        except KeyboardInterrupt:
            print("interrupted")
        print((torch.ones(2, device="xla") + 1).tolist(), program(3).sum().item() > 0)
        """
    )
    assert result.stdout == "interrupted\n[2.0, 2.0] True\n", result.stderr


def test_version_metadata():
    import torch_xla

    assert importlib.metadata.version("torch_xla") == torch_xla.__version__
    assert torch_xla.version.__version__ == torch_xla.__version__
    assert torch_xla.version.__xla_gitrev__ is not None
