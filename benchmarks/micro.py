"""What single ops cost the host: recorded on xla, computed on CPU eager, on tiny tensors.

Nothing runs on the xla device. Both devices take turns in one process. Prints one JSON object,
{op: {"xla": microseconds, "cpu": microseconds, ratios of Times.over()}}.

No operand or result ever is subnormal: CPU eager takes ten times as long for those, which would
speak for us.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable

import torch
from torch.nn import functional as F

from benchmarks.measure import Device
from benchmarks.times import Run, interleaved

REPEAT = 200

Op = Callable[[torch.Tensor], object]


def chained(device: Device) -> dict[str, tuple[torch.Tensor, Op]]:
    """Ops whose result is the operand of the next call: a start and the op."""
    matrix, other = device.randn(4, 4), device.randn(4, 4)
    signs = other.sign()
    cube, row = device.randn(2, 4, 8), device.randn(8)
    large = matrix.abs() + 1000  # gelu leaves it as it is
    unit = torch.eye(4).to(device.torch)
    return {
        "add": (matrix, lambda v: v + other),
        "add a number": (matrix, lambda v: v + 1.5),
        "mul": (matrix, lambda v: v * signs),
        "mul by a number": (matrix, lambda v: v * -1.0),
        "relu": (matrix, torch.relu),
        "exp": (matrix, torch.exp),
        "gelu": (large, F.gelu),
        "mm": (matrix, lambda v: torch.mm(v, unit)),
        "softmax": (matrix, lambda v: torch.softmax(v, -1)),
        "layer_norm": (cube, lambda v: F.layer_norm(v, (8,), row, row)),
        "view of a view": (matrix, lambda v: v.view(16) if v.dim() == 2 else v.view(4, 4)),
        "clone": (matrix, torch.clone),
        "detach": (matrix, torch.detach),
    }


def in_place(device: Device) -> dict[str, tuple[torch.Tensor, Op]]:
    """Ops that change their operand: what it begins as, and the op."""
    matrix, other = device.randn(4, 4), device.randn(4, 4)
    return {
        "add_": (matrix, lambda v: v.add_(other)),
        "mul_ by a number": (matrix, lambda v: v.mul_(-1.0)),
        "addcdiv_": (matrix, lambda v: v.addcdiv_(matrix, other, value=-0.01)),
        "lerp_": (matrix, lambda v: v.lerp_(other, 0.1)),
        "add_ through a view": (matrix, lambda v: v[0].add_(1.0)),
        "row assignment": (matrix, lambda v: v.__setitem__(1, other[0])),
    }


def repeated(device: Device) -> dict[str, Callable[[], object]]:
    """Ops called again and again with the same operands."""
    matrix, other, weight = (device.randn(4, 4) for _ in range(3))
    cube, factor = device.randn(2, 4, 8), device.randn(2, 8, 4)
    image, kernel = device.randn(1, 2, 8, 8), device.randn(2, 2, 3, 3)
    heads = device.randn(1, 2, 4, 8)
    table, row = device.randn(10, 8), device.randn(8)
    labels = torch.arange(4).to(device.torch)
    tokens = labels[None]
    mask = (torch.randn(4, 4) > 0).to(device.torch)
    return {
        "bmm": lambda: torch.bmm(cube, factor),
        "linear": lambda: F.linear(matrix, weight, weight[0]),
        "sum along a dim": lambda: matrix.sum(1),
        "view": lambda: matrix.view(16),
        "transpose": lambda: matrix.transpose(0, 1),
        "reshape": lambda: cube.reshape(8, 8),
        "unsqueeze": lambda: matrix.unsqueeze(0),
        "t, mm": lambda: matrix.mm(weight.t()),
        "select": lambda: matrix[1],
        "slice": lambda: matrix[1:3],
        "expand": lambda: row.expand(4, 8),
        "permute, contiguous": lambda: cube.permute(0, 2, 1).contiguous(),
        "cat": lambda: torch.cat([matrix, other]),
        "split": lambda: table.split(4),
        "embedding": lambda: F.embedding(tokens, table),
        "index_select": lambda: table.index_select(0, labels),
        "index by a tensor": lambda: table[labels],
        "where": lambda: torch.where(mask, matrix, other),
        "eq": lambda: matrix == other,
        "to bfloat16": lambda: matrix.to(torch.bfloat16),
        "conv2d": lambda: F.conv2d(image, kernel, padding=1),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
        "attention": lambda: F.scaled_dot_product_attention(heads, heads, heads, is_causal=True),
        "cross_entropy": lambda: F.cross_entropy(matrix, labels),
        "zeros": lambda: torch.zeros(4, 4, device=device.torch),
        "arange": lambda: torch.arange(4, device=device.torch),
        "rand": lambda: torch.rand(4, 4, device=device.torch),
    }


def cases(device: Device) -> dict[str, Callable[[], object]]:
    """By name, a function that calls the op REPEAT times. Graphs are dropped unrun."""

    def chain(start: torch.Tensor, op: Op) -> Callable[[], object]:
        def run() -> object:
            value = start
            for _ in range(REPEAT):
                value = op(value)
            return value

        return run

    def change(start: torch.Tensor, op: Op) -> Callable[[], object]:
        def run() -> object:
            value = start.clone()
            for _ in range(REPEAT):
                op(value)
            return value

        return run

    def repeat(op: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            result = None
            for _ in range(REPEAT):
                result = op()
            return result

        return run

    return {
        **{name: chain(*case) for name, case in chained(device).items()},
        **{name: change(*case) for name, case in in_place(device).items()},
        **{name: repeat(op) for name, op in repeated(device).items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    devices = {name: Device(name) for name in ("xla", "cpu")}
    by_device = {name: cases(device) for name, device in devices.items()}
    devices["xla"].finish()
    result = {}
    with torch.no_grad():
        for op in by_device["cpu"]:
            times = interleaved(
                {name: Run(by_device[name][op]) for name in devices}, arguments.rounds
            )
            result[op] = {
                **{name: statistics.median(times[name].wall) / REPEAT * 1e6 for name in devices},
                **times["xla"].over(times["cpu"]),
            }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
