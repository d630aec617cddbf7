"""torch.compile(backend="openxla"): which programs there are, when one is compiled, what stays."""

from __future__ import annotations

import threading

import torch
from compiling import MODELS, assert_same, batch, compilations, launches, mutate

import torch_xla
import torch_xla.debug.metrics as met


def test_a_compiled_call_launches_one_program_and_traces_nothing(device, metrics):
    model = MODELS["batch_norm"]().to(device)
    compiled = torch.compile(model, backend="openxla")
    x = batch(0, 6, 8).to(device)
    with torch.no_grad():
        compiled(x)
        torch_xla.sync()
        met.clear_all()
        for _ in range(5):
            compiled(x)
            assert not torch_xla._XLAC._check_tensor_need_materialization(list(model.buffers()))[0]
    assert launches() == 5
    assert compilations() == 0
    assert met.metric_data("ExecuteTime")[0] == 5
    assert met.metric_data("TensorsGraphSize") is None


def test_no_op_leaves_the_device(device, no_fallback):
    model = MODELS["convolution"]().to(device)
    compiled = torch.compile(model, backend="openxla")
    for seed in range(2):
        compiled(batch(seed, 6, 8).to(device)).sum().backward()


def test_a_host_op_is_the_only_thing_on_the_host(device, metrics):
    def f(x):
        y = (x * 2 + 1).sin()
        mask = torch.nonzero(y > 0)
        return y.cos() + 1, mask

    compiled = torch.compile(f, backend="openxla_eval")
    for seed in range(3):
        x = batch(seed)
        assert_same(compiled(x.to(device)), f(x))
    assert launches() >= 3


def test_shapes_seen_before_compile_nothing(device, metrics):
    compiled = torch.compile(lambda x: (x * 2).sum(0), backend="openxla", dynamic=True)
    for rows in (3, 4, 5):
        compiled(batch(0, rows, 4).to(device))
    before = compilations()
    for rows in (5, 3, 4):
        compiled(batch(0, rows, 4).to(device))
    assert compilations() == before


def test_the_oldest_of_many_programs_go(device, monkeypatch):
    from torch_xla._dynamo import config

    monkeypatch.setattr(config, "most_programs", 2)
    compiled = torch.compile(lambda x: x * 2, backend="openxla", dynamic=True)
    for rows in (2, 3, 4, 5, 2, 3):
        x = batch(0, rows, 4)
        assert_same(compiled(x.to(device)), x * 2)


def test_updates_in_place_keep_one_copy(device):
    """The memory of an input that the graph overwrites is given to the program."""
    compiled = torch.compile(mutate, backend="openxla")
    x = batch().to(device)
    compiled(x)
    torch_xla.sync(wait=True)
    before = torch_xla._XLAC._unsafe_buffer_pointer(x)
    compiled(x)
    assert torch_xla._XLAC._unsafe_buffer_pointer(x) == before


def test_what_others_hold_is_not_given_away(device):
    compiled = torch.compile(mutate, backend="openxla")
    x = torch.ones(3, device=device)
    compiled(x)
    old = x.clone()  # holds the same memory
    pending = x * 10
    compiled(x)
    assert old.tolist() == [3, 3, 3]
    assert pending.tolist() == [30, 30, 30]
    assert x.tolist() == [7, 7, 7]


def test_pending_inputs(device):
    compiled = torch.compile(lambda x: x + 1, backend="openxla")
    x = batch()
    for _ in range(3):
        y = x.to(device) * 2
        assert_same(compiled(compiled(y) * 3), (x * 2 + 1) * 3 + 1)


def test_matmul_precision_takes_effect(device, metrics):
    compiled = torch.compile(lambda x: x @ x.t(), backend="openxla")
    x = batch().to(device)
    compiled(x)
    before = torch_xla._XLAC._xla_get_mat_mul_precision()
    try:
        torch_xla._XLAC._xla_set_mat_mul_precision("highest")
        met.clear_all()
        compiled(x)
        assert compilations() == 1
    finally:
        torch_xla._XLAC._xla_set_mat_mul_precision(before)


def test_a_cache_that_is_written_at_a_position(device, metrics):
    def f(cache, x, position):
        cache[:, position] = x
        return (cache * x.unsqueeze(1)).sum()

    compiled = torch.compile(f, backend="openxla")
    cache = torch.zeros(2, 8, 4)
    on_device = cache.to(device)
    for position in range(5):
        x = batch(position, 2, 4)
        wanted = f(cache, x, torch.tensor(position))
        assert_same(
            compiled(on_device, x.to(device), torch.tensor(position, device=device)), wanted
        )
    assert_same(on_device, cache)
    assert launches() == 5


def test_sizes_that_depend_on_data_inside_one_graph(device):
    def f(x):
        return (x * 2)[x > 0] + 1

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(f, backend="openxla", fullgraph=True)
        for seed in range(3):
            assert_same(compiled(batch(seed).to(device)), f(batch(seed)))


def test_numbers_read_inside_one_graph(device):
    def f(x):
        return x * x.sum().item()

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(f, backend="openxla", fullgraph=True)
        for seed in range(3):
            assert_same(compiled(batch(seed).to(device)), f(batch(seed)))


def test_threads(device):
    compiled = torch.compile(lambda x: (x * 2).sin() + 1, backend="openxla")
    wrong = []

    def work(index):
        for k in range(10):
            x = torch.full((4,), float(index + k))
            pending = x.to(device) * 3
            if not torch.allclose(compiled(x.to(device)).cpu(), (x * 2).sin() + 1):
                wrong.append(x)
            if k % 3 == 0:
                torch_xla.sync()
            if not torch.equal(pending.cpu(), x * 3):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_several_devices(run_python):
    done = run_python(
        """
        import torch, torch_xla
        double = torch.compile(lambda x: x * 2 + 1, backend="openxla")
        there_and_back = torch.compile(
            lambda x: (x.to("xla:1") * 2).to("xla:0") + x, backend="openxla"
        )
        for name in ("xla:1", "xla:0", "xla:1"):
            y = double(torch.ones(2, device=name))
            assert str(y.device) == name and y.tolist() == [3, 3]
            assert there_and_back(torch.ones(2, device="xla:0")).tolist() == [3, 3]
        """,
        CPU_NUM_DEVICES="2",
    )
    assert done.returncode == 0, done.stderr


def test_recompilations_are_counted_by_graph(device, metrics, recwarn):
    """Many graphs that one line calls are no reason to warn of that line."""
    torch_xla._XLAC._clear_recompiles()

    def f(x):
        for i in range(10):
            x = x * (i + 2)
            torch._dynamo.graph_break()
            x = x + torch.ones(i + 1, 1, device=x.device).sum()
        return x

    x = batch().to(device).requires_grad_()
    torch.compile(f, backend="openxla")(x).sum().backward()
    assert not [w for w in recwarn if "compiled its program" in str(w.message)]
