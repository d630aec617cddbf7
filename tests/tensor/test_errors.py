"""What goes wrong is said clearly, the process lives on, and the next step is right."""

import os
import re
import signal
import threading
import time

import pytest
import torch

import torch_xla


@pytest.fixture
def state(device):
    """A small training state: none of the errors may cost it its values."""
    weight = torch.arange(4.0, device=device)
    torch_xla.sync()
    return weight


def assert_alive(state, device):
    """The next steps compute what they should, also in place."""
    before = state.tolist()
    state.add_(1)
    torch_xla.sync(wait=True)
    assert state.tolist() == [x + 1 for x in before]
    assert (torch.ones(3, device=device) * 2).sum().item() == 6


# --- Programs that XLA refuses ---


def test_an_unknown_compiler_flag(device, state):
    state.mul_(2)
    torch_xla.set_custom_compile_options({"xla_no_such_flag": True})
    try:
        with pytest.raises(RuntimeError, match="xla_no_such_flag"):
            torch_xla.sync()
        with pytest.raises(RuntimeError, match="xla_no_such_flag"):
            (state + 1).tolist()
    finally:
        torch_xla.set_custom_compile_options({})
    assert state.tolist() == [0, 2, 4, 6]  # nothing was lost
    assert_alive(state, device)


def test_reading_a_tensor_that_could_not_be_computed(device, state):
    state.mul_(2)
    huge = torch.zeros(1 << 20, 1 << 17, device=device)  # 512 GiB
    with pytest.raises(torch.OutOfMemoryError, match=r"512.0 GiB .*results 512.0 GiB"):
        torch_xla.sync(wait=True)
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError, match=r"512.0 GiB"):
            huge[0, 0].item()
    with pytest.raises(torch.OutOfMemoryError):
        (huge + 1).sum().item()
    # What does not depend on it goes on, although it is still there.
    assert state.tolist() == [0, 2, 4, 6]
    assert_alive(state, device)
    del huge
    assert_alive(state, device)


def test_what_holds_the_memory_is_named(device):
    large = torch.full((300, 1000), 2.0, device=device)
    torch_xla.sync()
    uploaded = torch.ones(500, 1000).to(device)
    huge = torch.zeros(1 << 20, 1 << 17, device=device)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        torch_xla.sync()
    where = r"from test_what_holds_the_memory_is_named@test_errors.py:\d+"
    text = str(raised.value)
    assert "largest live tensors: " in text
    assert re.search(rf"1\.9 MiB f32\[500,1000\] {where}, 1\.1 MiB f32\[300,1000\] {where}", text)
    assert "smaller batch" in str(raised.value)
    del huge
    assert uploaded.sum() + large.sum() == 1_100_000


# --- Allocations that cannot be made ---


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.empty(1 << 50, device=d),
        lambda d: torch.zeros(1 << 50, device=d),
        lambda d: torch.ones(1 << 25, 1 << 25, device=d),
        lambda d: torch.zeros(1, device=d).expand(1 << 50).contiguous(),
        lambda d: torch.zeros(1 << 25, 1, device=d) + torch.zeros(1 << 25, device=d),
        lambda d: torch.empty_strided((2,), (1 << 50,), device=d),
        lambda d: torch.zeros(2, device=d).resize_(1 << 50),
    ],
)
def test_tensors_that_no_machine_holds(device, state, make):
    with pytest.raises(torch.OutOfMemoryError, match="tried to allocate"):
        make(device)
    assert_alive(state, device)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.empty(1 << 62, device=d),
        lambda d: torch.empty(1 << 40, 1 << 40, device=d),
        lambda d: torch.empty_strided((2,), (1 << 62,), device=d),
        lambda d: torch.empty(-1, device=d),
        lambda d: torch.empty(2, -3, device=d),
        lambda d: torch.empty_strided((2,), (-1,), device=d),
        lambda d: torch.empty_strided((2,), (1, 1), device=d),
    ],
)
def test_impossible_sizes_raise_what_cpu_raises(device, state, make):
    with pytest.raises(RuntimeError) as want:
        make("cpu")
    with pytest.raises(RuntimeError) as got:
        make(device)
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]
    assert_alive(state, device)


# --- Interrupts ---


def test_ctrl_c_during_a_step(device, state):
    """The step that was under way is finished, then KeyboardInterrupt comes; nothing is lost."""
    started = threading.Event()

    def interrupt():
        started.wait()
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    x = torch.linspace(0, 1, 500, device=device).diag()
    steps = 0
    with pytest.raises(KeyboardInterrupt):
        started.set()
        while True:
            x = torch.tanh(x @ x) + steps
            torch_xla.sync(wait=True)
            steps += 1
    thread.join()
    assert torch.isfinite(x.cpu()).all()
    assert_alive(state, device)


def test_ctrl_c_ends_a_program_with_the_usual_status(run_python):
    done = run_python(
        """
        import os, signal, torch, torch_xla
        x = torch.ones(4, device="xla")
        torch_xla.sync()
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(10**9):
            x = x + 1
            torch_xla.sync()
        """
    )
    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT), done.stderr
    assert "KeyboardInterrupt" in done.stderr


LONG = """
    import os, signal, threading, time, torch, torch_xla
    import torch_xla.core.xla_model as xm

    weight = torch.linspace(-1, 1, 600 * 600, device="xla").view(600, 600) / 600
    x = torch.eye(600, device="xla")
    steps = torch.zeros(1, device="xla")
    torch_xla.sync(wait=True)

    def work():
        global x
        for _ in range(80):
            x = torch.tanh(x @ weight + x)
        steps.add_(1)

    for _ in range(2):  # once to compile
        start = time.time()
        work()
        torch_xla.sync(wait=True)
    whole = time.time() - start

    def interrupt():
        time.sleep(whole / 10)
        os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("wait", ["torch_xla.sync(wait=True)", "xm.wait_device_ops()", "x.cpu()"])
def test_ctrl_c_while_the_host_waits(run_python, wait):
    """It comes at once; the program goes on, and so can the user."""
    done = run_python(
        LONG
        + f"""
    work()
    torch_xla.sync()
    threading.Thread(target=interrupt).start()
    start = time.time()
    try:
        {wait}
        print("no interrupt")
    except KeyboardInterrupt:
        print((time.time() - start) / whole < 0.7)
    print(steps.item(), torch.isfinite(x).all().item())
    work()
    torch_xla.sync(wait=True)
    print(steps.item())
    """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "3.0", "True", "4.0"]


def test_a_handler_of_a_signal_may_use_the_device(run_python):
    done = run_python(
        LONG
        + """
    def on_signal(number, frame):
        print(torch.ones(3, device="xla").sum().item(), steps.item())

    signal.signal(signal.SIGINT, on_signal)
    work()
    torch_xla.sync()
    threading.Thread(target=interrupt).start()
    torch_xla.sync(wait=True)
    print(steps.item())
    """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3.0", "3.0", "3.0"]


# --- Forks ---


def test_forks_in_the_middle_of_steps(run_python):
    """Children let go of tensors and end; the parent is not disturbed."""
    done = run_python(
        """
        import os, threading, torch, torch_xla
        weights = [torch.zeros(8, device="xla") for _ in range(200)]
        steps = 0
        going = True

        def churn():
            while going:
                kept = [torch.ones(2).to("xla") for _ in range(50)]

        thread = threading.Thread(target=churn)
        thread.start()
        for _ in range(15):
            for weight in weights:
                weight.add_(1)
            steps += 1
            torch_xla.sync()
            child = os.fork()
            if child == 0:
                caught = 0
                try:
                    torch_xla.sync()
                except RuntimeError as error:
                    caught = "spawn" in str(error)
                del weights, weight
                os._exit(caught)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        going = False
        thread.join()
        print(steps, weights[0].tolist()[0], weights[-1].tolist()[0])
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["15", "15.0", "15.0"]


def test_a_fork_after_the_client_exists(run_python):
    """The child gets an error that says what to do; the parent is not disturbed."""
    done = run_python(
        """
        import os, torch, torch_xla
        x = torch.ones(4, device="xla")
        torch_xla.sync(wait=True)
        pending = x * 2
        child = os.fork()
        if child == 0:
            caught = 0
            for use in (
                lambda: x.tolist(),
                lambda: pending.sum().item(),
                lambda: torch.ones(2, device="xla").cpu(),
                lambda: torch_xla.sync(),
                lambda: torch.ones(2).to("xla"),
                lambda: x.cpu(),
                lambda: print(x),
            ):
                try:
                    use()
                except RuntimeError as error:
                    caught += "spawn" in str(error)
            # Work on the CPU goes on, and xla tensors can be let go of.
            del x, pending
            assert torch.ones(2).sum() == 2
            os._exit(caught)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        print(pending.tolist())
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["7", "[2.0, 2.0, 2.0, 2.0]"]


def test_a_fork_before_the_client_exists(run_python):
    done = run_python(
        """
        import os, torch, torch_xla
        child = os.fork()
        value = (torch.ones(4, device="xla") * 3).sum().item()
        if child == 0:
            os._exit(int(value))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), value)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["12", "12.0"]


# --- Errors at the call ---


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: a + torch.ones(4, device=a.device),
        lambda a, b: a @ torch.ones(4, device=a.device),
        lambda a, b: a.view(7),
        lambda a, b: torch.cat([a, torch.ones(2, device=a.device)]),
        lambda a, b: a[7],
        lambda a, b: a.add_(1j),
        lambda a, b: a.to(torch.int64).add_(0.5),
        lambda a, b: torch.mm(a, a),
        lambda a, b: a.sum(dim=5),
        lambda a, b: a.copy_(torch.ones(9, device=a.device)),
    ],
)
def test_mistakes_raise_what_cpu_raises_at_the_call(device, state, call):
    a = torch.arange(6.0).view(2, 3)
    b = torch.ones(3)
    with pytest.raises(Exception) as want:
        call(a, b)
    with pytest.raises(type(want.value)) as got:
        call(a.to(device), b.to(device))
    first = str(want.value).splitlines()[0]
    assert str(got.value).splitlines()[0] == first
    assert_alive(state, device)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + torch.ones(4),
        lambda x: torch.ones(4) * x,
        lambda x: torch.cat([x, torch.ones(4)]),
        lambda x: torch.mm(x[None], torch.ones(4, 1)),
        lambda x: torch.nn.functional.linear(x, torch.ones(2, 4)),
        lambda x: torch.where(x > 0, x, torch.ones(4)),
    ],
)
def test_tensors_of_two_devices(device, state, call):
    with pytest.raises(RuntimeError, match="device"):
        call(torch.ones(4, device=device))
    assert_alive(state, device)


def test_a_device_that_is_not_there(device, state):
    with pytest.raises(RuntimeError, match="no device xla:99"):
        torch.ones(2, device="xla:99").cpu()
    with pytest.raises(RuntimeError, match="no device xla:99"):
        torch.ones(2).to("xla:99")
    assert_alive(state, device)


def test_a_dtype_that_xla_has_not(device, state):
    with pytest.raises((TypeError, RuntimeError)):
        torch.empty(2, dtype=torch.quint8, device=device)
    assert_alive(state, device)


def test_an_error_in_the_middle_of_a_step(device, state):
    with pytest.raises(ZeroDivisionError), torch_xla.step():
        state.add_(1)
        _ = 1 // 0
    assert state.tolist() == [1, 2, 3, 4]
    assert_alive(state, device)
