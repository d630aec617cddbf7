"""The table: what must be reached, and what was measured.

Each row is made from what some jobs measured (__main__.py runs them). A row may have several
figures; all of them must reach the target.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable

from benchmarks.cached import ADDS, CHAIN
from benchmarks.times import Times

LARGE = "gpt2"  # memory and first steps are measured with this model


@dataclasses.dataclass(frozen=True)
class Figure:
    """One number. `wall` and `cpu` say the same by two clocks; `judged` is the one that counts."""

    of: str
    wall: float | None
    cpu: float | None
    target: float
    judged: str = "wall"
    digits: int = 2

    @property
    def value(self) -> float:
        return self.wall if self.judged == "wall" else self.cpu

    @property
    def reached(self) -> bool:
        # As printed: a figure is as good as its last digit.
        return round(self.value, self.digits) <= self.target


@dataclasses.dataclass(frozen=True)
class Row:
    measure: str
    jobs: tuple[str, ...]
    figures: Callable[[dict], list[Figure]]


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def micro(measured: dict) -> list[Figure]:
    ops = measured["micro"]

    def mean(key: str) -> float:
        return geometric_mean([row[key] for row in ops.values()])

    worst = max(ops, key=lambda op: ops[op]["cpu_middle"])
    return [
        Figure("geometric mean", mean("wall_middle"), mean("cpu_middle"), 0.65, "cpu"),
        Figure(f"worst ({worst})", ops[worst]["wall_middle"], ops[worst]["cpu_middle"], 1.5, "cpu"),
    ]


def traced(name: str, target: float) -> Callable[[dict], list[Figure]]:
    def figures(measured: dict) -> list[Figure]:
        row = measured["trace"][name]
        return [Figure("median", row["wall_middle"], row["cpu_middle"], target, "cpu")]

    return figures


def cached(
    case: str, reference: str, target: float, count: int = 1, reference_count: int = 1
) -> Callable[[dict], list[Figure]]:
    def figures(measured: dict) -> list[Figure]:
        mine, other = (
            Times(measured["cached"][name]["wall"], measured["cached"][name]["cpu"])
            for name in (case, reference)
        )
        ratios = mine.over(other, count, reference_count)
        return [
            Figure(label, ratios[f"wall_{key}"], ratios[f"cpu_{key}"], target, "cpu", digits=3)
            for label, key in (("smallest", "least"), ("median", "middle"))
        ]

    return figures


def eight_devices(measured: dict) -> list[Figure]:
    eight, one = (
        Times(measured["devices"][count]["wall"], measured["devices"][count]["cpu"])
        for count in ("8", "1")
    )
    ratios = eight.over(one)
    return [Figure("median", ratios["wall_middle"], ratios["cpu_middle"], 1.5, "cpu")]


def steady(reference: str, targets: dict[str, float]) -> Callable[[dict], list[Figure]]:
    """Steps on xla over those of a reference; the smallest of all rounds."""

    def figures(measured: dict) -> list[Figure]:
        result = []
        for model, target in targets.items():
            runs = measured["train"].get(model, {})
            if "xla" in runs and reference in runs:
                wall, cpu = (
                    min(runs["xla"][clock]) / min(runs[reference][clock])
                    for clock in ("wall", "cpu")
                )
                result.append(Figure(model, wall, cpu, target))
        return result

    return figures


def memory(measured: dict) -> list[Figure]:
    runs = measured["train"].get(LARGE, {})
    if "xla" not in runs or "jax" not in runs:
        return []
    return [Figure("resident set", runs["xla"]["peak"] / runs["jax"]["peak"], None, 1.1)]


def first_step(measured: dict) -> list[Figure]:
    runs = measured["train"].get(LARGE, {})
    if "xla" not in runs:
        return []
    compiles = runs["xla"]["compiles"] + runs["xla"]["late_compiles"]
    result = [Figure("compiles", compiles, None, 1, digits=0)]
    if "jax" in runs:
        ratio = runs["xla"]["first_step"] / runs["jax"]["first_step"]
        result.insert(0, Figure("over JAX's trace + compile + step", ratio, None, 1.1))
    return result


def second_process(measured: dict) -> list[Figure]:
    row = measured["second process"]
    launch, step = (row[f"second_{end}"] / row[f"first_{end}"] for end in ("launch", "step"))
    return [
        Figure("compiles", row["compiles"], None, 0, digits=0),
        Figure("until the first step is launched, over the first process's", launch, None, 0.25),
        Figure("until it ends, the plugin's execution included", step, None, 0.25),
    ]


def imports(measured: dict) -> list[Figure]:
    row = measured["import"]
    return [Figure("seconds, median", row["wall_middle"], row["cpu_middle"], 0.3)]


EAGER_STEP = "over CPU eager's step, tiny tensors"
ROWS = {
    "chain": Row("trace: add in a chain of 2000, over CPU eager", ("trace",), traced("chain", 0.8)),
    "micro": Row("trace: 46 ops, over CPU eager", ("micro",), micro),
    "gpt-trace": Row(
        f"trace: GPT-12 AdamW step, {EAGER_STEP}", ("trace",), traced("GPT-12, AdamW", 0.6)
    ),
    "mlp-trace": Row(
        f"trace: MLP-8 AdamW step, {EAGER_STEP}", ("trace",), traced("MLP-8, AdamW", 0.8)
    ),
    "chain-sync": Row(
        "cached sync(): chain of 5000, a node over CPU eager's add",
        ("cached",),
        cached("chain", "adds", 0.16, CHAIN, ADDS),
    ),
    "gpt-sync": Row(
        f"cached sync(): GPT-12 AdamW step, {EAGER_STEP}",
        ("cached",),
        cached("step", "eager step", 0.085),
    ),
    "gpt-replay": Row(
        f"replayed call: GPT-12 AdamW step, {EAGER_STEP}",
        ("cached",),
        cached("replay", "eager step", 0.035),
    ),
    "spmd": Row(
        "SPMD: trace and sync() of an FSDP step, on 8 devices over 1", ("devices",), eight_devices
    ),
    "steady-jax": Row(
        "steady step over JAX's", ("train",), steady("jax", {"mlp": 1.05, "gpt2": 1.05})
    ),
    "steady-cpu": Row(
        "steady step over CPU eager's",
        ("train",),
        steady("cpu", {"mlp": 0.75, "gpt-12x256": 1.0, "gpt2": 1.0, "resnet18": 1.0}),
    ),
    "memory": Row("peak memory, GPT-2 small step, over JAX's", ("train",), memory),
    "first-step": Row("time to the first step's end, GPT-2 small", ("train",), first_step),
    "second-process": Row(
        "second process with the persistent cache, GPT-2 small",
        ("second process",),
        second_process,
    ),
    "import": Row("import torch_xla, beyond import torch", ("import",), imports),
}

# The training processes that rows need: (model, device).
PROCESSES = {
    "steady-jax": [(model, device) for model in ("mlp", "gpt2") for device in ("xla", "jax")],
    "steady-cpu": [
        (model, device)
        for model in ("mlp", "gpt-12x256", "gpt2", "resnet18")
        for device in ("xla", "cpu")
    ],
    "memory": [(LARGE, "xla"), (LARGE, "jax")],
    "first-step": [(LARGE, "xla"), (LARGE, "jax")],
}
