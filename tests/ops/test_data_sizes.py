"""Sizes that depend on data (csrc/aten/dynamic.cpp, csrc/lazy/trimmed.h): results as on CPU, and no
program of its own for another size."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import DEVICE, check_equal

import torch_xla

ROWS, COLUMNS = 40, 6
COUNTS = (3, 7, 11, 40, 25)


def gradients(loss, *inputs):
    return [loss, *torch.autograd.grad(loss, inputs, allow_unused=True)]


def unless_empty(rows, function):
    """CPU finds no largest of nothing."""
    return function(rows) if len(rows) > 1 else rows


# x [rows, columns] and w [columns, 3] require gradients; t like x; labels [rows]; mask [rows].
STEPS = {
    "select": lambda x, t, w, labels, mask: x[mask],
    "formula": lambda x, t, w, labels, mask: (x[mask] * 2 + t[mask]).tanh(),
    "sum": lambda x, t, w, labels, mask: gradients((x[mask] * 2).sum(), x),
    "mean": lambda x, t, w, labels, mask: gradients((x[mask] * 2).mean(), x),
    "mean of a dimension": lambda x, t, w, labels, mask: x[mask].mean(1),
    "means": lambda x, t, w, labels, mask: x[mask].bfloat16().mean(0),
    "extremes": lambda x, t, w, labels, mask: (x[mask].amax(1), x[mask].amin(1)),
    "variance": lambda x, t, w, labels, mask: (
        x[mask].var(),
        x[mask].std(0, correction=0),
        torch.var_mean(x[mask], 1),
        torch.std_mean(torch.complex(x[mask], t[mask]), 0),
    ),
    "truth": lambda x, t, w, labels, mask: ((x[mask] > 0).all(), (x[mask] > 0).any(0)),
    "product": lambda x, t, w, labels, mask: x[mask].prod(),
    "logsumexp": lambda x, t, w, labels, mask: x[mask].logsumexp((0, 1)),
    "views": lambda x, t, w, labels, mask: (x[mask][:, 1] * 2, x[mask].t() + 1, x[mask][:, 1:3]),
    "a batch of one": lambda x, t, w, labels, mask: (
        x[mask][None] + 1,
        x[mask].view(1, -1, COLUMNS) * 2,
    ),
    "columns": lambda x, t, w, labels, mask: x.t()[:, mask] * 2,
    "elements": lambda x, t, w, labels, mask: gradients(x[x > 0.3].sum() + mask.sum(), x),
    "squared loss": lambda x, t, w, labels, mask: gradients(F.mse_loss(x[mask], t[mask]), x),
    "entropy": lambda x, t, w, labels, mask: gradients(F.cross_entropy(x[mask], labels[mask]), x),
    "entropies": lambda x, t, w, labels, mask: F.cross_entropy(
        x[mask], labels[mask], reduction="none"
    ),
    "softmax": lambda x, t, w, labels, mask: x[mask].softmax(-1),
    "linear": lambda x, t, w, labels, mask: gradients(F.linear(x[mask], w.t()).relu().sum(), x, w),
    "product of matrices": lambda x, t, w, labels, mask: gradients(
        (x[mask] @ w).tanh().square().sum(), x, w
    ),
    "product with a vector": lambda x, t, w, labels, mask: gradients(
        (x[mask] @ w[:, 0]).square().sum(), x, w
    ),
    "product of vectors": lambda x, t, w, labels, mask: gradients(x[:, 0][mask] @ t[:, 1][mask], x),
    "product and sum": lambda x, t, w, labels, mask: gradients(
        torch.addmm(w[0], x[mask], w).square().sum(), x, w
    ),
    "matrices of rows": lambda x, t, w, labels, mask: gradients(
        (torch.stack([x, t], 1)[mask] @ w).square().sum(), x, w
    ),
    "normalized rows": lambda x, t, w, labels, mask: gradients(
        F.layer_norm(x[mask] * 2, (6,), w[:, 0], w[:, 1]).square().sum(), x, w
    ),
    "classes": lambda x, t, w, labels, mask: F.one_hot(labels[mask], 6).sum(0),
    "embedding": lambda x, t, w, labels, mask: gradients(
        (F.embedding(labels[mask], w) ** 2).sum(), w
    ),
    "rows of rows": lambda x, t, w, labels, mask: t[labels[mask]],
    "index_select": lambda x, t, w, labels, mask: t.index_select(0, labels[mask]),
    "put": lambda x, t, w, labels, mask: x.detach().index_put((mask,), t[mask]),
    "add at": lambda x, t, w, labels, mask: x.detach().index_put((mask,), t[mask] * 2, True),
    "put a number": lambda x, t, w, labels, mask: x.detach().index_put((mask,), t[0, 0]),
    "masked_select": lambda x, t, w, labels, mask: gradients(
        x.masked_select(mask[:, None]).square().sum(), x
    ),
    "masked_scatter": lambda x, t, w, labels, mask: t.masked_scatter(mask[:, None], t[mask] + 1),
    "nonzero": lambda x, t, w, labels, mask: mask.nonzero(),
    "nonzero of a matrix": lambda x, t, w, labels, mask: (mask[:, None] & (t > 0)).nonzero(),
    "where": lambda x, t, w, labels, mask: torch.where(mask),
    "unique": lambda x, t, w, labels, mask: torch.unique(
        labels * mask, return_inverse=True, return_counts=True
    ),
    "unique_consecutive": lambda x, t, w, labels, mask: torch.unique_consecutive(
        labels * mask, return_inverse=True, return_counts=True
    ),
    "unique rows": lambda x, t, w, labels, mask: torch.unique(
        (t > 0)[:, :3] & mask[:, None], dim=0, return_inverse=True, return_counts=True
    ),
    "repeat_interleave": lambda x, t, w, labels, mask: x.repeat_interleave(mask.long(), 0),
    "bincount": lambda x, t, w, labels, mask: torch.bincount(labels * mask),
    "columns of positions": lambda x, t, w, labels, mask: (
        (mask[:, None] & (t > 0)).nonzero()[:, 1],
        (mask[:, None] & (t > 0)).nonzero().t()[1:] * 2,
        torch.where(mask[:, None] & (t > 0))[1] + 1,
    ),
    "rows from the second on": lambda x, t, w, labels, mask: (x[mask][1:] * 2, x[mask][2:, 1:3]),
    "the first rows": lambda x, t, w, labels, mask: (x[mask][:2] * 2, x[mask][:1, 1]),
    "selected of what was selected": lambda x, t, w, labels, mask: (
        x[mask].masked_select(x[mask] > 0),
        (x[mask] > 0).nonzero(),
    ),
    "choice": lambda x, t, w, labels, mask: (
        gradients(torch.where(x[mask] > 0, x[mask], t[mask]).square().sum(), x),
        torch.where(x[mask] > 0, x[mask], 0.0),
    ),
    "running sums": lambda x, t, w, labels, mask: (
        x[mask].cumsum(0),
        x[mask].cumsum(1),
        x[mask].cumprod(-2),
    ),
    "parts": lambda x, t, w, labels, mask: (
        torch.cat([t[:2], x[mask], t[mask], t[3:]]) + 1,
        torch.cat([labels[mask], labels[mask] * 2.5]),
    ),
    "parts side by side": lambda x, t, w, labels, mask: (
        gradients(torch.cat([x[mask], t[mask] * 2], 1).square().sum(), x),
        torch.stack([x[mask], t[mask]]),
        torch.stack([x[mask], t[mask]], 1),
        torch.stack([x[mask], t[mask]], -1),
    ),
    "rows at positions": lambda x, t, w, labels, mask: (
        gradients(t.index_add(0, mask.nonzero()[:, 0], x[mask] * 2).square().sum(), x),
        t.index_add(0, torch.where(mask)[0], x[mask], alpha=0.5),
        t[:, 0].index_add(0, torch.where(mask)[0], x[mask][:, 1]),
        t.index_copy(0, mask.nonzero().squeeze(1), x[mask] * 2),
        t.index_fill(0, torch.where(mask)[0], 7.0),
        t.index_reduce(0, torch.where(mask)[0], x[mask], "amax", include_self=False),
        t.index_reduce(0, torch.where(mask)[0], x[mask], "mean"),
    ),
    "elements at positions": lambda x, t, w, labels, mask: (
        gradients(t[:, 0].scatter_add(0, torch.where(mask)[0], x[:, 1][mask]).square().sum(), x),
        t[:, 0].scatter(0, torch.where(mask)[0], x[mask][:, 1] * 2),
        t[:, 0].scatter(0, torch.where(mask)[0], 3.0),
        t[:, 0].scatter_reduce(0, torch.where(mask)[0], x[mask][:, 1], "prod"),
        t[:, 0].scatter_reduce(0, torch.where(mask)[0], x[mask][:, 1], "mean", include_self=False),
        gradients(x[:, 0].gather(0, torch.where(mask)[0]).square().sum(), x),
        gradients(x.take(torch.where(mask)[0]).square().sum(), x),
        t.clone().put_(torch.where(mask)[0], x.detach()[mask][:, 1] * 2),
        t.clone().put_(torch.where(mask)[0], x.detach()[mask][:, 1] * 2, accumulate=True),
    ),
    "largest and where": lambda x, t, w, labels, mask: (
        t[mask].argmax(1, keepdim=True),
        t[mask].min(1, keepdim=True),
        gradients(x[mask].max(1).values.square().sum(), x),
    ),
    "largest of all rows": lambda x, t, w, labels, mask: (
        unless_empty(t[mask], torch.argmax),
        unless_empty(t[mask], lambda rows: rows.argmin(0)),
        unless_empty(t[mask], lambda rows: rows.max(0)),
    ),
    "in order": lambda x, t, w, labels, mask: (
        t[mask].sort(0),
        t[mask].sort(1, descending=True),
        t[:, 0][mask].sort(stable=True, descending=True),
        labels[mask].sort(stable=True),
        (t[mask] > 0).sort(dim=0, stable=True),
        torch.where(t > 1, torch.nan, t)[mask].sort(dim=0, descending=True, stable=True),
        t[:, 1][mask].argsort(),
        torch.searchsorted(t[0].sort().values, t[mask]),
        torch.isin(labels[mask], labels[:2]),
    ),
    "the largest few": lambda x, t, w, labels, mask: (
        unless_empty(t[mask], lambda rows: rows.topk(2, 0)),
        t[mask].topk(2, 1, largest=False),
        gradients(x[mask].topk(2, 1).values.square().sum(), x),
    ),
    "gathered by row": lambda x, t, w, labels, mask: (
        gradients(x[mask].gather(1, labels[mask][:, None]).square().sum(), x),
        t.new_zeros(len(t[mask]), 6).scatter(1, labels[mask][:, None], 1.0),
        t[mask].scatter_add(1, labels[mask][:, None], t[mask][:, :1]),
    ),
    "turned around": lambda x, t, w, labels, mask: (
        t[mask].flip(0),
        t[mask].flip(1),
        t[mask].flip(0, 1),
        t[mask].repeat(1, 2),
        gradients(x[mask].cumsum(0).square().sum(), x),
    ),
    "norms": lambda x, t, w, labels, mask: (
        gradients(x[mask].norm(dim=1).sum(), x),
        gradients(F.normalize(x[mask]).square().sum(), x),
        gradients(F.cosine_similarity(x[mask], t[mask]).sum(), x),
        torch.linalg.vector_norm(t[mask], 3, 0),
        torch.linalg.vector_norm(t[mask], -1, 1),
        torch.linalg.vector_norm(t[mask], 0),
    ),
    "numbered": lambda x, t, w, labels, mask: (
        torch.arange(len(t[mask]), device=t.device) + labels[mask]
    ),
    "filled where": lambda x, t, w, labels, mask: (
        t[mask].masked_fill(t[mask] > 0, 0),
        gradients(x[mask].masked_fill(t[mask] > 0, 2.0).square().sum(), x),
    ),
    "small matrices": lambda x, t, w, labels, mask: (
        gradients(torch.bmm(x[mask][:, None], t[mask][:, :, None]).sum(), x),
        torch.einsum("nd,dk->nk", t[mask], w),
        torch.bmm(t[mask][None].mT, t[mask][None]),
    ),
    "counted": lambda x, t, w, labels, mask: (
        torch.bincount(labels[mask], minlength=COLUMNS),
        torch.bincount(labels[mask], t[:, 0][mask], minlength=COLUMNS),
    ),
    "experts": lambda x, t, w, labels, mask: gradients(experts(x, w, labels, mask).sum(), x, w),
}


def experts(x, w, labels, mask):
    """Each row goes to two of the experts, one a column of w, as in a mixture of experts."""
    weights, chosen = (x @ w).softmax(-1).topk(2, -1)
    routed = F.one_hot(chosen, w.shape[1]).permute(2, 1, 0) * mask
    result = torch.zeros_like(x)
    for expert in range(w.shape[1]):
        place, row = torch.where(routed[expert])
        rows = x[None, row].reshape(-1, COLUMNS)
        result.index_add_(0, row, torch.tanh(rows * w[:, expert]) * weights[row, place, None])
    return result


def arguments(count: int):
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(ROWS, COLUMNS, generator=generator)
    t = torch.randn(ROWS, COLUMNS, generator=generator)
    w = torch.randn(COLUMNS, 3, generator=generator)
    labels = torch.randint(0, COLUMNS, (ROWS,), generator=generator)
    mask = torch.zeros(ROWS, dtype=torch.bool)
    mask[torch.randperm(ROWS, generator=generator)[:count]] = True
    return x, t, w, labels, mask


def run(step, count: int, device):
    x, t, w, labels, mask = (each.to(device) for each in arguments(count))
    x.requires_grad_()
    w.requires_grad_()
    return step(x, t, w, labels, mask)


@pytest.mark.parametrize("name", STEPS)
def test_one_program_for_all_sizes(name, metrics):
    compiled = []
    for count in COUNTS:
        expected, got = run(STEPS[name], count, "cpu"), run(STEPS[name], count, DEVICE)
        torch_xla.sync()
        check_equal(
            expected, got, strides=False
        )  # which reads what is strided by a program of its own
        compiled.append(metrics.counter_value("UncachedCompile"))
    assert compiled[-1] == compiled[0], f"programs after each step: {compiled}"
    assert not metrics.executed_fallback_ops()


@pytest.mark.parametrize("count", COUNTS)
def test_selections_of_selections(count):
    def step(x, t, w, labels, mask):
        rows = x[mask].detach().requires_grad_()
        return (
            rows[rows[:, 0] > 0] * 2,
            rows[torch.where(rows[:, 1] > 0)[0] - count],  # from the end
            gradients(torch.cat([rows, x[~mask] * 2]).square().sum(), rows, x),
            gradients(rows[1:].square().sum() + rows[0].sum(), rows),
        )

    check_equal(run(step, count, "cpu"), run(step, count, DEVICE), strides=False)


def test_positions_beyond_what_was_selected():
    x, *_, mask = (each.to(DEVICE) for each in arguments(3))
    last = torch.arange(4, device=DEVICE).amax()  # of the device: known nowhere else
    with pytest.raises(IndexError, match="out of bounds"):
        x[mask][last[None]].cpu()


@pytest.mark.parametrize("count", COUNTS)
def test_no_columns(count):
    def step(x, t, w, labels, mask):
        nothing = x[mask][:, :0] + 1
        return nothing.t() + 1, nothing[None] + 1, x[mask] @ w[:, :0]

    check_equal(run(step, count, "cpu"), run(step, count, DEVICE), strides=False)


@pytest.mark.parametrize("name", STEPS)
def test_nothing_selected(name):
    check_equal(run(STEPS[name], 0, "cpu"), run(STEPS[name], 0, DEVICE), strides=False)


def test_large_masks_make_few_programs(metrics):
    x = torch.arange(20_000.0)
    expected = []
    got = []
    device_x = x.to(DEVICE)
    for count in range(100, 20_000, 1500):
        expected.append((x[x < count] + 1).sum().item())
        got.append((device_x[device_x < count] + 1).sum())
        torch_xla.sync()
    assert [total.item() for total in got] == pytest.approx(expected, rel=1e-6)
    # By powers of two, each with the program that waits for the count and the one that sums.
    assert metrics.counter_value("UncachedCompile") <= 13


def test_waits_are_counted_by_line(metrics):
    x = torch.arange(10.0, device=DEVICE)
    mask = x > 4
    assert x[mask].shape == (5,)
    assert (x * 2)[mask].shape == (5,)  # known by now
    assert metrics.counter_value("SizeRead") == 1
    names = [name for name in metrics.counter_names() if name.startswith("SizeRead ")]
    assert len(names) == 1
    assert names[0].startswith("SizeRead index at test_waits_are_counted_by_line@")


def test_a_mask_that_changes_is_looked_at_again():
    x = torch.arange(6.0, device=DEVICE)
    mask = x > 3
    assert x[mask].tolist() == [4.0, 5.0]
    mask[0] = True
    assert x[mask].tolist() == [0.0, 4.0, 5.0]
    assert x[~mask].tolist() == [1.0, 2.0, 3.0]


def test_assigning_numbers_needs_no_count(metrics):
    x = torch.arange(6.0, device=DEVICE).reshape(2, 3)
    x[x > 3] = -1.0
    x[x == 0] = x[1, 0]
    assert x.tolist() == [[3.0, 1.0, 2.0], [3.0, -1.0, -1.0]]
    assert metrics.counter_value("SizeRead") is None


def test_what_was_selected_is_a_tensor_like_any_other():
    x = torch.arange(12.0).reshape(4, 3)
    for device in ("cpu", DEVICE):
        rows = x.to(device)[torch.tensor([True, False, True, True], device=device)]
        torch_xla.sync()
        rows[1] += 10
        rows.t()[0] = 7
        rows.mul_(2)
        torch_xla.sync()
        pair = torch.stack([rows.flip(0), rows.cumsum(0)])
        results = (rows, pair, rows.sort(1).values, rows.view(-1)[4:], rows.var(0))
        if device == "cpu":
            expected = results
    check_equal(expected, results)
    rows.resize_(0)
    assert rows.shape == (0,)


def test_selections_of_different_masks_meet():
    x = torch.arange(8.0, device=DEVICE)
    assert (x[x > 4] + x[x < 3]).tolist() == [5.0, 7.0, 9.0]
    assert (x[x > 6] * x[x < 3]).tolist() == [0.0, 7.0, 14.0]  # one element, which broadcasts
    with pytest.raises(RuntimeError):
        x[x > 4] + x[x < 2]


def test_saving_what_was_selected(tmp_path):
    x = torch.arange(8.0, device=DEVICE)
    chosen = x[x > 4]
    torch.save(chosen, tmp_path / "chosen.pt")
    assert torch.load(tmp_path / "chosen.pt", map_location="cpu").tolist() == [5.0, 6.0, 7.0]


def test_an_error_reaches_what_was_selected():
    x = torch.zeros(3, device=DEVICE)
    with pytest.raises(IndexError, match="shape of the mask"):
        x[torch.ones(4, dtype=torch.bool, device=DEVICE)]
    with pytest.raises(RuntimeError, match="shape mismatch"):
        x[x == 0] = torch.ones(2, device=DEVICE)


def test_a_step_that_selects_is_not_launched_again_unlooked():
    x = torch.arange(6.0, device=DEVICE)

    @torch_xla.compile(replay=True)
    def step(mask):
        return x[mask].sum()

    for limit in (1, 2, 3, 4, 5):
        mask = x < limit
        torch_xla.sync()
        assert step(mask).item() == sum(range(limit))
        assert step(mask).item() == sum(range(limit))
