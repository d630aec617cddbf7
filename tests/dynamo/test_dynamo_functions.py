"""torch.compile(backend="openxla") of functions of tensors: what eager PyTorch gives on CPU."""

from __future__ import annotations

import pytest
import torch
from compiling import assert_same, batch, mutate, views_of_new


def mutate_view(x):
    x[1:, ::2] = 7
    x.t().mul_(3)
    return x + 1


def mutate_and_return(x):
    return x.add_(1), x


def views(x):
    return x.t(), x[1:], x.view(-1)[3:5], x.unsqueeze(0).expand(2, -1, -1)


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
