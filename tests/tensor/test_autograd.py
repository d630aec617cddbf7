"""Autograd in all its forms, against CPU."""

import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import torch_xla


def both(device, program):
    want, got = program(torch.device("cpu")), program(device)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if isinstance(b, torch.Tensor):
            assert a.device.type == device.type
            torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=1e-5, atol=1e-6)
        else:
            assert a == b


def values(device, *shape):
    count = torch.Size(shape).numel()
    return torch.linspace(-1, 1, count).view(shape).to(device).requires_grad_()


def test_leaves_accumulate(device):
    def program(d):
        x = values(d, 3)
        for _ in range(3):
            (x * x).sum().backward()
        first = x.grad.clone()
        x.grad.zero_()
        (2 * x).sum().backward()
        return [first, x.grad, x.grad_fn, (x * 1).is_leaf, x.is_leaf]

    both(device, program)


def test_a_graph_can_be_kept_or_is_gone(device):
    x = values(device, 3)
    y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    torch.testing.assert_close(x.grad.cpu(), 2 * x.detach().cpu().exp())
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_grad_of_several_outputs(device):
    def program(d):
        x, unused = values(d, 4), values(d, 2)
        y = x.sin()
        first = torch.autograd.grad([y, y * x], x, [torch.ones_like(y), y.detach()])
        second = torch.autograd.grad(x.sum(), [x, unused], allow_unused=True)
        return [*first, *second]

    both(device, program)


def test_double_backward(device):
    def program(d):
        x = values(d, 2, 3)
        y = (x.tanh() @ x.t()).pow(3).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), x, create_graph=True)
        second.sum().backward()
        return [first, second, x.grad]

    both(device, program)


def test_a_gradient_penalty(device):
    def program(d):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        model.to(d)
        x = values(d, 5, 3)
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        ((grad.norm(dim=1) - 1) ** 2).mean().backward()
        return [p.grad for p in list(model.parameters())[:3]]

    both(device, program)


def test_views_and_in_place(device):
    def program(d):
        x = values(d, 4, 3)
        y = x * 2
        y[1] = y[0] * 3
        y.t()[2].mul_(x[:, 0].detach())
        y[2:, :2] += x[:2, 1:]
        base = torch.zeros(2, 4, 3, device=d)
        base[1] = y
        base.select(0, 0).copy_(x.exp())
        base.sum(0).pow(2).sum().backward()
        return [x.grad, base, y]

    both(device, program)


def test_split_and_chunk_views(device):
    def program(d):
        x = values(d, 6)
        a, b, c = (x * 2).split(2)
        q, r = torch.cat([c, a, b]).chunk(2)
        (q * r).sum().backward()
        return [x.grad]

    both(device, program)
    with pytest.raises(RuntimeError, match=r"inplace|in-place|modified"):
        first, _ = (values(device, 4) * 1).split(2)
        first.add_(1)


def test_as_strided_and_unfold(device):
    def program(d):
        x, y = values(d, 8), values(d, 8)
        x.as_strided((3, 2), (2, 1), 1).pow(2).sum().backward()
        y.unfold(0, 4, 2).pow(2).sum().backward()
        z = values(d, 6)
        w = z * 1
        w.as_strided((2, 2), (3, 1), 1).mul_(5)
        w.sum().backward()
        return [x.grad, y.grad, z.grad]

    both(device, program)


def test_expanded_and_indexed(device):
    def program(d):
        x = values(d, 3, 1)
        (x.expand(3, 4) * torch.arange(4.0, device=d)).sum().backward()
        y = values(d, 5, 2)
        y[torch.tensor([0, 0, 3], device=d)].sum().backward()
        z = values(d, 4)
        z[1:3].sum().backward()
        z[2].backward()
        return [x.grad, y.grad, z.grad]

    both(device, program)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x**3 * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x * ctx.scale, None


class AddInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_custom_functions(device):
    def program(d):
        x = values(d, 4)
        y = Cube.apply(x, 2.0)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        first.sum().backward()
        z = values(d, 3)
        AddInPlace.apply(z * 1).sum().backward()
        return [y, first, x.grad, z.grad]

    both(device, program)


def test_gradcheck(device):
    x = torch.linspace(0.5, 1.5, 4, dtype=torch.float64).to(device).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: (x * x).log(), x)
    assert torch.autograd.gradgradcheck(lambda x: x**3, x)


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("preserve_rng_state", [True, False])
def test_checkpoint(device, use_reentrant, preserve_rng_state):
    def program(d):
        torch.manual_seed(0)
        first, second = torch.nn.Linear(3, 8).to(d), torch.nn.Linear(8, 2).to(d)
        x = values(d, 4, 3)
        h = checkpoint(
            lambda x: first(x).tanh(),
            x,
            use_reentrant=use_reentrant,
            preserve_rng_state=preserve_rng_state,
        )
        checkpoint(second, h, use_reentrant=use_reentrant).pow(2).sum().backward()
        return [x.grad, first.weight.grad, second.bias.grad]

    both(device, program)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_draws_the_same_dropout_again(device, use_reentrant):
    x = torch.ones(1000, device=device, requires_grad=True)
    y = checkpoint(torch.nn.Dropout(0.5), x, use_reentrant=use_reentrant)
    y.sum().backward()
    # The gradient is the mask times 2, and so is the output.
    assert torch.equal(x.grad, y)


def test_no_grad_and_inference_mode(device):
    x = values(device, 3)
    with torch.no_grad():
        y = x * 2
    assert not y.requires_grad
    with torch.inference_mode():
        z = x * 2
        z.add_(1)
    assert z.is_inference()
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        z.add_(0)
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        (x * z).sum().backward()
    torch.testing.assert_close(z.cpu(), x.detach().cpu() * 2 + 1)
    with torch.no_grad(), torch.enable_grad():
        assert (x * 2).requires_grad
    with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="nan"):
        ((x - x).sqrt() * 0).sum().backward()


def test_detach_aliases(device):
    x = values(device, 3)
    y = x * 1
    alias = y.detach()
    alias.mul_(0)
    assert y.tolist() == [0, 0, 0]
    assert not alias.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        alias.sum().backward()
    y.detach_()
    assert y.is_leaf


def test_across_devices(device):
    x = torch.arange(3.0, requires_grad=True)
    (x.to(device) * 2).cpu().pow(2).sum().backward()
    assert x.grad.tolist() == [0, 8, 16]
    y = torch.ones(2, device=device, requires_grad=True)
    (y.cpu() * torch.tensor([3.0, 4.0])).sum().backward()
    assert y.grad.device == device
    assert y.grad.tolist() == [3, 4]


def test_saved_tensor_hooks(device):
    def program(d):
        x = values(d, 4)
        with torch.autograd.graph.save_on_cpu():
            y = x.exp() * x
        y.sum().backward()
        return [x.grad]

    both(device, program)


def test_forward_mode(device):
    def program(d):
        x = torch.linspace(0.1, 1, 3).to(d)
        out, tangent = torch.func.jvp(lambda x: x.sin() * x, (x,), (torch.ones_like(x),))
        return [out, tangent]

    both(device, program)


def test_functional_transforms(device):
    def program(d):
        x = torch.linspace(0.1, 1, 3).to(d)
        loss = lambda x: (x**3).sum()  # noqa: E731
        grads = torch.func.vmap(torch.func.grad(loss))(torch.stack([x, x + 1]))
        return [torch.func.grad(loss)(x), torch.func.jacrev(torch.sin)(x), grads]

    both(device, program)


def test_backward_in_several_threads(device):
    results = {}

    def work(i):
        x = torch.full((4,), float(i), device=device, requires_grad=True)
        for _ in range(5):
            (x * x).sum().backward()
            torch_xla.sync()
        results[i] = x.grad.tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: [10.0 * i] * 4 for i in range(4)}


def test_gradients_of_every_floating_type(device):
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64):
        x = torch.ones(3, dtype=dtype, device=device, requires_grad=True)
        (x * 3).sum().abs().backward()
        assert x.grad.dtype == dtype
        assert x.grad.tolist() == [3, 3, 3]


def test_errors_of_backward(device):
    x = values(device, 3)
    with pytest.raises(RuntimeError, match="scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match=r"[Mm]ismatch in shape"):
        (x * 2).backward(torch.ones(2, device=device))
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1, device=device).backward()
