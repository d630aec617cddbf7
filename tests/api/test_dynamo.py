"""torch.compile(backend="openxla"): what eager PyTorch gives on CPU, and nothing traced twice."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
import torch_xla.debug.metrics as met


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def launches() -> int:
    return met.counter_value("CompiledGraph") or 0


def compilations() -> int:
    data = met.metric_data("CompileTime")
    return data[0] if data else 0


def host(value):
    """The same on CPU, gradients of leaves included."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, (list, tuple)):
        return type(value)(map(host, value))
    if isinstance(value, dict):
        return {key: host(item) for key, item in value.items()}
    return value


def layout(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), value.storage_offset()
    if isinstance(value, (list, tuple)):
        return list(map(layout, value))
    if isinstance(value, dict):
        return {key: layout(item) for key, item in value.items()}
    return type(value)


def assert_same(got, wanted):
    assert layout(got) == layout(wanted)
    torch.testing.assert_close(host(got), wanted)


# --- Functions of tensors ---


def mutate(x):
    x.mul_(2).add_(1)
    return x.sum()


def mutate_view(x):
    x[1:, ::2] = 7
    x.t().mul_(3)
    return x + 1


def mutate_and_return(x):
    return x.add_(1), x


def views(x):
    return x.t(), x[1:], x.view(-1)[3:5], x.unsqueeze(0).expand(2, -1, -1)


def views_of_new(x):
    y = x * 2
    return y, y.t(), y[1], y.view(-1)


def inputs_and_constants(x):
    return x, 3, None, x.shape[0], 2.5


def containers(x):
    return {"a": [x + 1, (x * 2,)], "b": x.mean()}


def host_ops(x):
    y = x * 2
    z = torch.median(y, dim=1).values
    return z + y.sum(1)


def round_trip(x):
    y = (x + 1).cpu()
    return y * 2, (y.sin() + 1).to(x.device) * x, x - 1


def boolean_index(x):
    y = x[x > 0]
    return y * 2, y.numel()


def item(x):
    if x.sum().item() > 0:
        return x * 2
    return x - 1


def data_dependent(x):
    values, inverse = torch.unique((x * 2).long(), return_inverse=True)
    return values.float() + 1, inverse.view(x.shape) * 2


def constants(x):
    index = torch.tensor([1, 0], device=x.device)
    return x[index] + torch.tensor(3.0) + torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)


def new_tensors(x):
    kind = x.device.type  # without an index
    return torch.zeros(3, device=kind), torch.arange(4, device=kind) + x[0], x.new_ones(2)


def several_dtypes(x):
    return x.long(), x.to(torch.bfloat16) * 2, x > 0, x.double() / 3, torch.complex(x, x).conj()


def breaks(x):
    y = x * 2
    torch._dynamo.graph_break()
    y.add_(1)
    torch._dynamo.graph_break()
    return y.sin(), x


def linear_algebra(x):
    square = x @ x.t() + torch.eye(x.shape[0], device=x.device)
    return torch.linalg.inv(square), torch.linalg.cholesky(square)


def nothing(x):
    return ()


def same_twice(x):
    y = x + 1
    return y, y, y.clone()


def copy_of_input(x):
    y = x.clone()
    x.add_(1)
    return y


def loop(x):
    for i in range(x.shape[0]):
        x = x + x[i] * i
    return x


def cond(x):
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


def while_loop(x):
    def go_on(i, x):
        return i < 3

    def body(i, x):
        return i + 1, x * 2

    return torch._higher_order_ops.while_loop(go_on, body, (torch.tensor(0, device=x.device), x))


def transforms(x):
    return torch.func.vmap(torch.func.grad(lambda row: (row**3).sum()))(x)


FUNCTIONS = [
    mutate,
    mutate_view,
    mutate_and_return,
    views,
    views_of_new,
    inputs_and_constants,
    containers,
    host_ops,
    round_trip,
    boolean_index,
    item,
    data_dependent,
    constants,
    new_tensors,
    several_dtypes,
    breaks,
    linear_algebra,
    nothing,
    same_twice,
    copy_of_input,
    loop,
    cond,
    while_loop,
    transforms,
]


def batch(seed=0, *shape):
    return torch.randn(*(shape or (3, 4)), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("backend", ["openxla", "openxla_eval"])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_function(device, f, backend):
    compiled = torch.compile(f, backend=backend)
    for seed in range(4):
        x = batch(seed)
        on_device = x.to(device)
        wanted = f(x)
        assert_same(compiled(on_device), wanted)
        assert_same(on_device, x)


@pytest.mark.parametrize("f", [mutate, views, host_ops, boolean_index], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, False, True])
def test_shapes(device, f, dynamic):
    compiled = torch.compile(f, backend="openxla", dynamic=dynamic)
    for rows in (3, 5, 3, 7, 2):
        x = batch(rows, rows, 4)
        on_device = x.to(device)
        assert_same(compiled(on_device), f(x))
        assert_same(on_device, x)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[1:],
        lambda x: x[:, 1],
        lambda x: x.expand(2, 3, 4),
        lambda x: x.view(2, 6)[1],
        lambda x: x.to(memory_format=torch.contiguous_format).as_strided((2, 2), (1, 4), 1),
    ],
)
def test_inputs_that_are_views(device, view):
    def f(x):
        return x * 2, x

    compiled = torch.compile(f, backend="openxla")
    for seed in range(3):
        x = batch(seed)
        assert_same(compiled(view(x.to(device))), f(view(x)))


def test_results_alias_inputs(device):
    compiled = torch.compile(lambda x: (x.view(-1), x + 1), backend="openxla")
    for _ in range(3):
        x = torch.zeros(2, 2, device=device)
        view, other = compiled(x)
        view.add_(2)
        assert x.tolist() == [[2, 2], [2, 2]]
        assert other.tolist() == [[1, 1], [1, 1]]
        assert view.data_ptr() == x.data_ptr()


def test_results_alias_each_other(device):
    compiled = torch.compile(views_of_new, backend="openxla")
    for _ in range(3):
        y, transposed, row, _flat = compiled(torch.ones(2, 2, device=device))
        y.zero_()
        assert transposed.tolist() == [[0, 0], [0, 0]]
        row.fill_(5)
        assert y.tolist() == [[0, 0], [5, 5]]


@pytest.mark.parametrize("backend", ["openxla", "openxla_eval"])
def test_inputs_that_share_memory(device, backend):
    def f(x, y):
        x.add_(1)
        return y * 2

    compiled = torch.compile(f, backend=backend)

    def calls(function, make):
        x = make()
        yield function(x, x.clone()), x
        x = make()
        yield function(x, x[0]), x
        x = make()
        yield function(x, x), x

    for _ in range(2):
        wanted = list(calls(f, batch))
        assert_same(list(calls(compiled, lambda: batch().to(device))), wanted)


# --- Modules and training ---


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        return x + self.inner(self.norm(x))


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)),
    "batch_norm": lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)),
    "blocks": lambda: nn.Sequential(Block(), Block(), nn.Linear(8, 4)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)),
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        nn.Flatten(),
    ),
    "lstm": lambda: Recurrent(),
    "tied": lambda: Tied(),
}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x):
        return self.cell(x.view(-1, 2, 4))[0][:, -1]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(F.silu(self.first(x)))


def train(model, optimizer, inputs, compiled=None, steps=4):
    compiled = model if compiled is None else compiled
    losses = []
    for x in inputs[:steps]:
        optimizer.zero_grad()
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    gradients = [p.grad for p in model.parameters()]
    return losses, gradients, dict(model.state_dict())


@pytest.mark.parametrize("name", MODELS)
def test_training(device, name):
    model = MODELS[name]()
    twin = copy.deepcopy(model).to(device)
    inputs = [batch(seed, 6, 8) for seed in range(4)]
    wanted = train(model, torch.optim.SGD(model.parameters(), lr=0.1), inputs)
    compiled = torch.compile(twin, backend="openxla")
    got = train(
        twin,
        torch.optim.SGD(twin.parameters(), lr=0.1),
        [x.to(device) for x in inputs],
        compiled,
    )
    torch.testing.assert_close(host(got), host(wanted), rtol=1e-4, atol=1e-5)
    assert layout(got) == layout(wanted)
    # In evaluation, without gradients, with its buffers as they are.
    model.eval()
    compiled.eval()
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            for x in inputs[:2]:
                result = compiled(x.to(device))
                torch.testing.assert_close(result.cpu(), model(x), rtol=1e-4, atol=1e-5)
                assert result.is_inference() == torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, capturable=True),
        lambda p: torch.optim.RMSprop(p, lr=0.01),
        lambda p: torch.optim.Adagrad(p, lr=0.01),
    ],
    ids=["sgd", "momentum", "adam", "adamw-foreach", "adamw-capturable", "rmsprop", "adagrad"],
)
def test_optimizer_step(device, make, monkeypatch):
    def run(place, compiled):
        torch.manual_seed(3)
        model = MODELS["mlp"]().to(place)
        # A CPU optimizer has no capturable form.
        optimizer = make(model.parameters())
        if place == "cpu":
            for group in optimizer.param_groups:
                group["capturable"] = False
        step = torch.compile(optimizer.step, backend="openxla") if compiled else optimizer.step
        for seed in range(5):
            optimizer.zero_grad()
            model(batch(seed, 6, 8).to(place)).square().mean().backward()
            step()
        return [p.detach().cpu() for p in model.parameters()]

    wanted = run("cpu", False)
    torch.testing.assert_close(run(device, True), wanted, rtol=1e-4, atol=1e-6)


def test_whole_step_with_autocast_and_clipping(device):
    def run(place, backend):
        torch.manual_seed(3)
        model = MODELS["mlp"]().to(place)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def forward(x):
            with torch.autocast(place.type, dtype=torch.bfloat16):
                return model(x).float().square().mean()

        compiled = torch.compile(forward, backend=backend) if backend else forward
        for seed in range(3):
            optimizer.zero_grad()
            compiled(batch(seed, 6, 8).to(place)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    wanted = run(torch.device("cpu"), None)
    torch.testing.assert_close(run(device, "openxla"), wanted, rtol=1e-2, atol=1e-2)


def test_checkpoint(device):
    from torch.utils.checkpoint import checkpoint

    def run(place, compile):
        torch.manual_seed(1)
        model = MODELS["blocks"]().to(place)

        def forward(x):
            return checkpoint(model, x, use_reentrant=False).sum()

        forward = torch.compile(forward, backend="openxla") if compile else forward
        for seed in range(2):
            forward(batch(seed, 6, 8).to(place)).backward()
        return [p.grad.cpu() for p in model.parameters()]

    torch.testing.assert_close(
        run(device, True), run(torch.device("cpu"), False), rtol=1e-4, atol=1e-5
    )


def test_checkpoint_draws_the_same_numbers_twice(device, metrics):
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.3))
    model.to(device)

    def forward(x):
        return checkpoint(model, x, use_reentrant=False).square().sum()

    compiled = torch.compile(forward, backend="openxla")
    x = batch(0, 4, 8).to(device).requires_grad_()

    def gradient(f, seed):
        torch.manual_seed(seed)
        (result,) = torch.autograd.grad(f(x), x)
        return host([result, torch.rand(2, device=device)])

    gradient(compiled, 0)
    before = launches()
    for seed in range(3):
        wanted = gradient(forward, seed)
        torch.testing.assert_close(gradient(compiled, seed), wanted)
    assert launches() == before + 6  # one forward and one backward each: nothing is read back


def test_backward_twice(device):
    def gradient(f, x):
        loss = f(x)
        loss.backward(retain_graph=True)
        loss.backward()
        return x.grad

    def f(x):
        return (x.sin() * x).sum()

    compiled = torch.compile(f, backend="openxla")
    got = gradient(compiled, batch().to(device).requires_grad_())
    assert_same(got, gradient(f, batch().requires_grad_()))


@pytest.mark.parametrize("dynamic", [None, True])
def test_training_with_several_batch_sizes(device, dynamic):
    model = MODELS["blocks"]()
    twin = copy.deepcopy(model).to(device)
    compiled = torch.compile(twin, backend="openxla", dynamic=dynamic)
    for rows in (3, 5, 7, 3):
        for m, place in ((model, "cpu"), (twin, device)):
            f = model if m is model else compiled
            m.zero_grad()
            f(batch(rows, rows, 8).to(place)).square().sum().backward()
        for got, wanted in zip(twin.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(got.grad.cpu(), wanted.grad, rtol=1e-4, atol=1e-4)


def test_double_backward_through_a_break(device):
    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return (y * x).sum()

    def gradients(function, x):
        (first,) = torch.autograd.grad(function(x), x)
        return first

    x = batch().requires_grad_()
    y = batch().to(device).requires_grad_()
    compiled = torch.compile(f, backend="openxla")
    assert_same(gradients(compiled, y), gradients(f, x))


# --- Random numbers ---


def test_random_numbers_are_those_of_tracing(device):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.5))
    model.to(device)
    compiled = torch.compile(model, backend="openxla")
    x = batch(0, 6, 8).to(device)

    def run(f):
        torch.manual_seed(5)
        results = [f(x) for _ in range(3)]
        for result in results:
            result.sum().backward()
        return host([*results, torch.rand(3, device=device)])

    wanted = run(model)
    got = run(compiled)
    torch.testing.assert_close(got, wanted)
    assert not torch.equal(got[0], got[1])


def test_random_functions(device):
    def f(x):
        return (
            torch.rand_like(x),
            torch.randn(3, device=x.device) + 1,
            torch.bernoulli(x.sigmoid()),
            torch.randperm(5, device=x.device),
            torch.rand(2),  # on the host
        )

    compiled = torch.compile(f, backend="openxla")
    x = batch().to(device)

    def run(function):
        torch.manual_seed(11)
        return host([function(x) for _ in range(3)])

    wanted = run(f)
    assert not torch.equal(wanted[0][4], wanted[1][4])
    torch.testing.assert_close(run(compiled), wanted)
    torch.testing.assert_close(run(compiled), wanted)


def test_seeding_inside(device):
    def f(x):
        torch.manual_seed(3)
        return x + torch.rand_like(x)

    compiled = torch.compile(f, backend="openxla")
    x = batch().to(device)
    assert_same(compiled(x), host(f(x)))
    assert_same(compiled(x), host(f(x)))


# --- Numbers and CPU tensors ---


def test_numbers_among_the_arguments(device, metrics):
    def f(x, scale, count, flag):
        y = x * scale + count
        return (y if flag else -y), count + 1

    compiled = torch.compile(f, backend="openxla")
    for scale, count, flag in [(2.0, 3, True), (0.5, 4, True), (0.25, 5, False), (1.5, 6, True)]:
        x = batch()
        assert_same(compiled(x.to(device), scale, count, flag), f(x, scale, count, flag))


def test_number_tensors_on_the_host(device, metrics):
    """A learning rate on CPU is an input of the program, not a part of it."""
    torch_xla._XLAC._clear_cache()
    compiled = torch.compile(lambda x, rate: x * rate, backend="openxla")
    x = batch()
    for rate in (0.1, 0.2, 0.3):
        got = compiled(x.to(device), torch.tensor(rate))
        torch.testing.assert_close(got.cpu(), x * torch.tensor(rate))
    assert compilations() == 1
    assert launches() == 3


def test_host_sums_between_device_ops(device):
    def f(x, steps):
        steps += 1
        correction = 1 - 0.9**steps
        return x / correction, steps

    compiled = torch.compile(f, backend="openxla")
    on_host, beside_device = torch.tensor(0.0), torch.tensor(0.0)
    for seed in range(3):
        x = batch(seed)
        assert_same(compiled(x.to(device), beside_device), f(x, on_host))
        assert beside_device == on_host


def test_functions_of_cpu_tensors_run_there():
    compiled = torch.compile(views_of_new, backend="openxla")
    x = batch()
    got = compiled(x)
    assert got[0].device.type == "cpu"
    assert_same(got, views_of_new(x))
    model = MODELS["batch_norm"]()
    twin = copy.deepcopy(model)
    wanted = train(model, torch.optim.SGD(model.parameters(), lr=0.1), [batch(1, 6, 8)])
    got = train(
        twin,
        torch.optim.SGD(twin.parameters(), lr=0.1),
        [batch(1, 6, 8)],
        torch.compile(twin, backend="openxla"),
    )
    torch.testing.assert_close(host(got), host(wanted))


def test_cpu_input_of_a_device_model_raises(device):
    compiled = torch.compile(nn.Linear(4, 4).to(device), backend="openxla")
    with pytest.raises(Exception, match="device"):
        compiled(batch())


def test_transfers_inside(device):
    def f(x):
        return (x.to(device) * 2).cpu() + 1

    compiled = torch.compile(f, backend="openxla")
    for seed in range(3):
        x = batch(seed)
        assert_same(compiled(x), x * 2 + 1)


# --- Programs ---


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


# --- Errors ---


def test_errors_are_those_of_torch(device):
    def f(x):
        return torch.linalg.cholesky(x - 100 * torch.eye(3, device=x.device))

    x = torch.eye(3)
    with pytest.raises(Exception) as wanted:
        f(x)
    compiled = torch.compile(f, backend="openxla")
    for _ in range(2):
        with pytest.raises(type(wanted.value)):
            compiled(x.to(device)).cpu()
    # Nothing is left behind.
    torch_xla.sync()
    assert (x.to(device) + 1).sum().item() == 12


OUT_OF_RANGE = [
    (lambda table, i: table[i], 3),
    (lambda table, i: F.embedding(i, table), 3),
    (lambda table, i: F.cross_entropy(table[:2], i), 4),
    (lambda table, i: table.gather(0, i.unsqueeze(1)), -1),
]


@pytest.mark.parametrize("f, wrong", OUT_OF_RANGE, ids=["index", "embedding", "label", "gather"])
def test_indices_out_of_range_raise_at_the_call(device, metrics, f, wrong):
    compiled = torch.compile(f, backend="openxla")
    table = batch()
    good, bad = torch.tensor([0, 2]), torch.tensor([1, wrong])
    with pytest.raises((IndexError, RuntimeError)) as expected:
        f(table, bad)
    for index in (good, good.flip(0)):
        assert_same(compiled(table.to(device), index.to(device)), f(table, index))
    with pytest.raises(type(expected.value)):
        compiled(table.to(device), bad.to(device))
    assert launches() == 2
    assert_same(compiled(table.to(device), good.to(device)), f(table, good))
    assert launches() == 3


def test_user_exceptions(device):
    def f(x):
        y = x + 1
        if x.shape[0] == 3:
            raise ValueError("three rows")
        return y

    compiled = torch.compile(f, backend="openxla")
    with pytest.raises(ValueError, match="three rows"):
        compiled(batch(0, 3, 4).to(device))
    assert compiled(batch(0, 2, 4).to(device)).shape == (2, 4)


def test_a_failed_input_raises(device):
    compiled = torch.compile(lambda x: x + 1, backend="openxla")
    x = torch.linalg.cholesky_ex(-torch.eye(2, device=device), check_errors=False)[0]
    assert compiled(x).shape == (2, 2)


# --- What is registered ---


def test_backends_are_listed():
    from torch._dynamo import list_backends

    assert "openxla" in list_backends()
    assert "openxla_eval" in list_backends(exclude_tags=())


@pytest.mark.parametrize("order", ["torch_xla first", "torch._dynamo first"])
def test_registered_whatever_is_imported_first(run_python, order):
    first, second = "torch_xla", "torch._dynamo.backends.torchxla, torch._dynamo.device_interface"
    if order == "torch._dynamo first":
        first, second = second, first
    done = run_python(f"""
        import torch
        import {first}
        import {second}
        import torch_xla
        from torch._dynamo.backends.registry import lookup_backend
        from torch._dynamo.device_interface import get_interface_for_device
        assert lookup_backend("openxla").kwargs["keep_inference_input_mutations"]
        assert lookup_backend("openxla_eval").__module__ == "torch_xla._dynamo.backends"
        assert get_interface_for_device("xla").device_count() >= 1
        x = torch.ones(2, device="xla")
        assert torch.compile(lambda x: x + 1, backend="openxla")(x).tolist() == [2, 2]
    """)
    assert done.returncode == 0, done.stderr


def test_importing_torch_xla_does_not_import_dynamo(run_python):
    done = run_python("""
        import sys, torch
        before = set(sys.modules)
        import torch_xla
        new = set(sys.modules) - before
        assert not [name for name in new if name.startswith("torch._dynamo")], new
    """)
    assert done.returncode == 0, done.stderr


def test_graphs_of_ones_own(device):
    from torch_xla.core.dynamo_bridge import extract_compiled_graph

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x):
            y = x * 2
            self.total.add_(y)
            return y + 1, y.view(1, 2)

    model = Model()
    graph = torch.fx.symbolic_trace(copy.deepcopy(model).to(device))
    compiled = extract_compiled_graph(graph, (torch.ones(2, device=device),))
    for _ in range(3):
        assert_same(compiled(torch.ones(2, device=device)), list(model(torch.ones(2))))
        assert_same(graph.total, model.total)
