"""What an op costs the host: recorded on xla, computed on CPU eager, on tiny tensors.

Nothing is run on the xla device within the timed part. Both devices take turns in one process.
Prints one JSON object: {"ops": {name: {"xla": us, "cpu": us, "ratio": r}}, "steps": {...}}.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable

import torch
from torch.nn import functional as F

from benchmarks.measure import Device, interleaved, median_ratio
from benchmarks.models import TRACING

CHAIN = 2000
REPEAT = 200
ROUNDS = 11

Case = tuple[Callable[[], object], int]  # what to time, and how many ops it is


def cases(device: Device) -> dict[str, Case]:
    """Cases by name. A chain feeds each result to the next call; others repeat one call."""
    x, y, w = device.randn(4, 4), device.randn(4, 4), device.randn(4, 4)
    cube, row = device.randn(2, 4, 8), device.randn(8)
    image, kernel = device.randn(1, 2, 8, 8), device.randn(2, 2, 3, 3)
    heads = device.randn(1, 2, 4, 8)
    table = device.randn(10, 8)
    index = torch.arange(4).to(device.torch)
    leaf = device.randn(4, 4).requires_grad_()

    def chain(f: Callable, start: torch.Tensor, count: int) -> Case:
        def run() -> torch.Tensor:
            value = start
            for _ in range(count):
                value = f(value)
            return value

        return run, count

    def no_grad(case: Case) -> Case:
        return torch.no_grad()(case[0]), case[1]

    def repeat(f: Callable) -> Case:
        return no_grad(chain(lambda _: f(), x, REPEAT))

    def in_place(f: Callable) -> Case:
        @torch.no_grad()
        def run() -> torch.Tensor:
            value = x.clone()
            for _ in range(REPEAT):
                f(value)
            return value

        return run, REPEAT

    return {
        f"add, chain of {CHAIN}": no_grad(chain(lambda v: v + y, x, CHAIN)),
        f"add, chain of {CHAIN}, grad": chain(lambda v: v + y, leaf, CHAIN),
        "mul by scalar": repeat(lambda: x * 0.5),
        "relu": repeat(lambda: torch.relu(x)),
        "gelu": repeat(lambda: F.gelu(x)),
        "mm": repeat(lambda: torch.mm(x, w)),
        "linear": repeat(lambda: F.linear(x, w, w[0])),
        "sum over a dim": repeat(lambda: x.sum(1)),
        "softmax": repeat(lambda: torch.softmax(x, -1)),
        "layer_norm": repeat(lambda: F.layer_norm(cube, (8,), row, row)),
        "conv2d": repeat(lambda: F.conv2d(image, kernel, padding=1)),
        "max_pool2d": repeat(lambda: F.max_pool2d(image, 2)),
        "attention": repeat(
            lambda: F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        ),
        "embedding": repeat(lambda: F.embedding(index, table)),
        "cross_entropy": repeat(lambda: F.cross_entropy(x, index)),
        "index by tensor": repeat(lambda: table[index]),
        "where": repeat(lambda: torch.where(x > y, x, y)),
        "cat": repeat(lambda: torch.cat([x, y])),
        "view": repeat(lambda: x.view(16)),
        "view, chain": no_grad(
            chain(lambda v: v.view(16) if v.dim() == 2 else v.view(4, 4), x, REPEAT)
        ),
        "transpose, mm": repeat(lambda: x.mm(w.t())),
        "add_": in_place(lambda v: v.add_(y)),
        "addcdiv_": in_place(lambda v: v.addcdiv_(x, y, value=-0.01)),
        "lerp_": in_place(lambda v: v.lerp_(y, 0.1)),
        "add_ through a view": in_place(lambda v: v[0].add_(1.0)),
        "rand": repeat(lambda: torch.rand(4, 4, device=device.torch)),
    }


def compare(
    runs: dict[str, Callable[[], object]], count: int, rounds: int, after: Callable
) -> dict:
    seconds = interleaved(runs, rounds, after)
    row = {name: statistics.median(taken) / count * 1e6 for name, taken in seconds.items()}
    row["ratio"] = median_ratio(seconds["xla"], seconds["cpu"])
    return row


def main() -> None:
    torch.set_num_threads(1)
    devices = {name: Device(name) for name in ("xla", "cpu")}
    result: dict[str, dict] = {"ops": {}, "steps": {}}

    by_device = {name: cases(device) for name, device in devices.items()}
    devices["xla"].finish()
    for case, (_, count) in by_device["cpu"].items():
        runs = {name: by_device[name][case][0] for name in devices}
        # The recorded graph is dropped unrun: only making it is measured.
        result["ops"][case] = compare(runs, count, lambda _: None)

    for case, job in TRACING.items():
        runs = {name: job.training_step(device.torch) for name, device in devices.items()}
        # A step's results feed the next one, so it has to be run, outside the timed part.
        result["steps"][case] = compare(runs, 1, lambda name: devices[name].finish())
    result["fallbacks"] = devices["xla"].fallbacks()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
