"""torch_xla.sync, step, compile, closures, launch."""

import threading
from pathlib import Path

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm


def pending(tensor: torch.Tensor) -> bool:
    return torch_xla._XLAC._check_tensor_need_materialization([tensor])[0]


@pytest.mark.parametrize("wait", [False, True])
def test_sync_computes_what_is_pending(device, metrics, wait):
    x = torch.ones(3, device=device) * 2
    assert pending(x)
    torch_xla.sync(wait=wait)
    assert not pending(x)
    assert metrics.counter_value("MarkStep") == 1
    assert x.tolist() == [2.0, 2.0, 2.0]


def test_a_graph_seen_before_is_not_compiled_again(device, metrics):
    for _ in range(3):
        x = torch.ones(5, device=device) + 1.5
        torch_xla.sync()
    assert x.tolist() == [2.5] * 5
    assert (metrics.counter_value("UncachedCompile") or 0) <= 1
    assert metrics.counter_value("CachedCompile") >= 2


def test_mark_step_is_a_sync(device, metrics):
    x = torch.ones(3, device=device) + 2
    xm.mark_step()
    assert not pending(x)
    assert metrics.counter_value("MarkStep") == 1
    torch_xla.sync(reset_scope=False)
    assert metrics.counter_value("MarkStep") == 1


def test_step_is_a_program_of_its_own(device):
    before = torch.ones(2, device=device) + 1
    with torch_xla.step():
        assert not pending(before)
        inside = before * 2
        assert pending(inside)
    assert not pending(inside)


def test_step_syncs_on_the_way_out_of_an_error(device):
    with pytest.raises(KeyError), torch_xla.step():
        inside = torch.ones(2, device=device) + 1
        raise KeyError
    assert not pending(inside)


def double(x):
    return x * 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch_xla.compile(double),
        lambda: torch_xla.compile()(double),
        lambda: torch_xla.compile(double, full_graph=True, name="twice"),
        lambda: torch_xla.compile(full_graph=True)(double),
    ],
    ids=["call", "decorator", "full graph", "decorator with arguments"],
)
def test_compile(device, make):
    compiled = make()
    y = compiled(torch.ones(2, device=device))
    assert not pending(y)
    assert y.tolist() == [2.0, 2.0]
    assert compiled.__name__ == "double"


def test_compile_as_context(device):
    x = torch.ones(2, device=device)
    with torch_xla.compile(name="block"):
        assert torch_xla._XLAC._get_current_graph_name() == "block"
        y = x + 1
    assert torch_xla._XLAC._get_current_graph_name() != "block"
    assert not pending(y)


def test_compile_of_methods_and_modules(device):
    class Thing:
        factor = 3

        @torch_xla.compile
        def scale(self, x):
            return x * self.factor

    x = torch.ones(2, device=device)
    assert Thing().scale(x).tolist() == [3.0, 3.0]
    model = torch.nn.Linear(2, 1).to(device)
    expected = model(x).tolist()
    compiled = torch_xla.compile(model)
    assert list(compiled.parameters()) == list(model.parameters())
    assert model(x).tolist() == expected
    y = compiled(x)
    assert not pending(y)
    assert y.tolist() == expected


def test_compiled_functions_nest(device):
    inner = torch_xla.compile(double, name="inner")

    def outer(x):
        y = inner(x) + 1
        assert torch_xla._XLAC._get_current_graph_name() == "outer"
        return y

    x = torch.ones(2, device=device)
    assert torch_xla.compile(outer)(x).tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match="full_graph"):
        torch_xla.compile(outer, full_graph=True)(x)
    assert torch_xla._XLAC._get_allow_execution()
    assert torch_xla._XLAC._get_current_graph_name() not in ("inner", "outer")


def test_full_graph_refuses_to_be_cut(device):
    @torch_xla.compile(full_graph=True)
    def reads(x):
        return x + (x + 1).sum().item()

    x = torch.ones(2, device=device)
    with pytest.raises(RuntimeError, match="full_graph"):
        reads(x)
    assert torch_xla._XLAC._get_allow_execution()
    assert (x + 1).tolist() == [2.0, 2.0]


def test_compile_counts_different_graphs(device):
    @torch_xla.compile(max_different_graphs=2)
    def increase(x):
        return x + 1

    for _ in range(2):
        for n in (1, 2):
            increase(torch.zeros(n, device=device))
    with pytest.raises(RuntimeError, match="max_different_graphs"):
        increase(torch.zeros(3, device=device))
    with pytest.raises(ValueError, match="at least 1"):
        torch_xla.compile(double, max_different_graphs=0)


def test_compile_options_reach_xla(device):
    try:
        torch_xla.set_custom_compile_options({"xla_no_such_flag": True})
        x = torch.ones(17, device=device) + 0.25
        with pytest.raises(RuntimeError, match="xla_no_such_flag"):
            torch_xla.sync()
    finally:
        torch_xla.set_custom_compile_options({})
    del x
    y = torch.ones(17, device=device) + 0.25
    assert y.tolist() == [1.25] * 17


def test_closures_run_after_the_step(device):
    seen = []
    x = torch.ones(2, device=device) + 1
    xm.add_step_closure(lambda t: seen.append(t.tolist()), args=(x,))
    xm.add_step_closure(seen.append, args=("second",))
    assert seen == []
    xm.mark_step()
    assert seen == [[2.0, 2.0], "second"]
    xm.mark_step()
    assert len(seen) == 2


def test_asynchronous_closures_run_in_order_elsewhere(device):
    seen, done = [], threading.Event()
    for i in range(5):
        xm.add_step_closure(
            lambda i: seen.append((i, threading.current_thread().name)), args=(i,), run_async=True
        )
    xm.add_step_closure(done.set, run_async=True)
    xm.mark_step()
    assert done.wait(60)
    assert [i for i, _ in seen] == list(range(5))
    assert all(name != threading.current_thread().name for _, name in seen)


def test_an_error_in_an_asynchronous_closure_is_raised_later(device):
    from torch_xla.utils.closures import AsyncClosureHandler

    def fail():
        raise KeyError("lost")

    handler = AsyncClosureHandler()
    handler.run(fail)
    with pytest.raises(RuntimeError, match="closure") as raised:
        handler.join()
    assert isinstance(raised.value.__cause__, KeyError)
    handler.run(lambda: None)
    handler.join()


def test_unlazy_and_waiting(device):
    x, y = torch.ones(2, device=device) + 1, torch.ones(2, device=device) + 2
    xm.unlazy([x, y])
    assert not pending(x) and not pending(y)
    xm.wait_device_ops()
    xm.wait_device_ops([device])


def test_launch_on_one_device(device):
    seen = []
    torch_xla.launch(lambda index, a: seen.append((index, a)), args=("x",))
    assert seen == [(0, "x")]


def test_optimizer_step(device):
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    weight = model.weight.detach().clone()
    model(torch.ones(2, 4, device=device)).sum().backward()
    grad = model.weight.grad.clone()
    assert xm.optimizer_step(optimizer, barrier=True) is None
    assert not pending(model.weight)
    torch.testing.assert_close(model.weight.detach().cpu(), (weight - 0.5 * grad).cpu())
    loss = xm.optimizer_step(optimizer, optimizer_args={"closure": lambda: 7})
    assert loss == 7


def test_custom_matmul_precision(device):
    from torch_xla import backends

    assert backends.get_mat_mul_precision() == "default"
    try:
        backends.set_mat_mul_precision("highest")
        assert "HIGHEST" in xm.get_stablehlo(
            [torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)]
        )
    finally:
        backends.set_mat_mul_precision("default")
    with pytest.raises(RuntimeError, match="'highest'"):
        backends.set_mat_mul_precision("exact")


def test_graphs_as_text(device, tmp_path):
    from torch_xla.debug.graph_saver import save_tensors_graph

    x = torch.ones(2, 3, device=device) * 2.5
    y = x.relu()
    text = torch_xla._XLAC._get_xla_tensors_text([y])
    assert text.startswith("IR {") and "aten::relu" in text and "ROOT=0" in text
    assert "digraph" in torch_xla._XLAC._get_xla_tensors_dot([y])
    assert "stablehlo.select" in xm.get_stablehlo([y])
    assert xm.get_stablehlo_bytecode([y]).decode() == xm.get_stablehlo([y])
    assert "stablehlo.select" in xm.get_stablehlo()
    assert len(torch_xla._XLAC._get_graph_hash([y])) == 16
    assert "aten::relu" in torch_xla._XLAC._get_xla_tensor_debug_info(y)
    for fmt in ("text", "dot", "stablehlo"):
        path = save_tensors_graph(tmp_path / "graphs", "relu", [y], fmt)
        assert path.read_text()
    with pytest.raises(ValueError, match="fmt"):
        save_tensors_graph(tmp_path, "relu", [y], "png")
    assert pending(y), "looking at a graph must not run it"


def test_an_optimization_barrier_changes_no_value(device):
    x, y = torch.ones(2, device=device) + 1, torch.ones(3, device=device) + 2
    xm.optimization_barrier_([x, y])
    assert "optimization_barrier" in xm.get_stablehlo([x, y])
    assert (x.tolist(), y.tolist()) == ([2.0] * 2, [3.0] * 3)
    with pytest.raises(RuntimeError, match="one xla device"):
        xm.optimization_barrier_([x, torch.ones(2)])


@pytest.mark.parametrize("count", [3, 100], ids=["in the sync", "behind it"])
def test_launches_that_fail(run_python, count):
    """A sync throws at once, and the step can be tried again. Behind the caller, tensors throw when
    they are read: where nothing of a step could be computed, it is given up as a whole."""
    process = run_python(
        """
        import os
        import torch
        import torch_xla
        import torch_xla.core.xla_model as xm
        from refusing_plugin import Refusals, outcome

        weights = [torch.zeros(4, device="xla") for _ in range(int(os.environ["COUNT"]))]

        def step():
            for weight in weights:
                weight.add_(1)

        for _ in range(3):
            step()
            torch_xla.sync()
        xm.wait_device_ops()
        refusals = Refusals()

        refusals.left = 1000  # nothing can be launched
        step()
        print(outcome(torch_xla.sync), outcome(weights[0].tolist))
        outcome(xm.wait_device_ops)  # each value is tried before any is given back
        refusals.left = 0
        print(weights[0].tolist(), weights[-1].tolist())
        step()
        torch_xla.sync()
        print(weights[0].tolist(), weights[-1].tolist())

        refusals.left = 1  # each value can be computed by itself
        step()
        print(outcome(torch_xla.sync))
        xm.wait_device_ops()
        print(weights[0].tolist(), weights[-1].tolist())
        """,
        COUNT=str(count),
        PYTHONPATH=str(Path(__file__).parent),
    )
    assert process.returncode == 0, process.stderr
    at_once = "refused" if count == 3 else "None"
    first = 4.0 if count == 3 else 3.0
    states = [f"{[first + step] * 4} {[first + step] * 4}" for step in range(3)]
    expected = [f"{at_once} refused", states[0], states[1], at_once, states[2]]
    assert process.stdout.splitlines() == expected


def test_steps_on_top_of_a_launch_that_failed(run_python):
    """A step that is traced before the launch behind has failed goes on from what it computes."""
    process = run_python(
        """
        import torch
        import torch_xla
        from refusing_plugin import Refusals

        weights = [torch.zeros(4, device="xla") for _ in range(100)]

        def step():
            for weight in weights:
                weight.add_(1)
            torch_xla.sync()

        for _ in range(3):
            step()
        Refusals().left = 1
        step()
        for _ in range(3):
            step()
        print({tuple(weight.tolist()) for weight in weights})
        """,
        PYTHONPATH=str(Path(__file__).parent),
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == "{(7.0, 7.0, 7.0, 7.0)}\n"
