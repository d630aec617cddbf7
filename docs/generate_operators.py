"""Writes docs/operators.md: how each aten operator of the installed torch runs on xla.

    python docs/generate_operators.py           # writes the file
    python docs/generate_operators.py --check   # fails if it would change

What an operator does is asked of the dispatcher, through the function that stands beside the
fallback (csrc/aten/fallback.h). The reasons for round trips are below: one that is missing, or that
nothing needs any more, is an error.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
from pathlib import Path

import torch

import torch_xla  # registers the kernels
from torch_xla._extension import _XLAC

PAGE = Path(__file__).with_name("operators.md")

# Column, what it means.
ROUTES = {
    "kernel": "a kernel of our own",
    "composite": "torch's own composite of other operators, traced",
    "derived": "in-place or out= form, made from the operator that has one of the other ways",
    "decomposition": "a decomposition in Python, torch's or ours, traced",
    "host call": "torch's CPU kernel, called inside the compiled program (CPU plugins)",
    "host": "a round trip through the host, counted and warned of",
}

# Round trips: pattern of the name, reason.
REASONS = [
    (r"_assert_async.*", "Raise, or not, by what a tensor holds"),
    (r"_validate_compressed_sparse_indices", "Raises by what index tensors hold"),
    (
        r"_fused_moving_avg_obs_fq_helper",
        "Reads switches from tensors, as on CPU, to decide what is computed and updated",
    ),
    (
        r"_(make|empty)_per_.*_quantized.*|_empty_affine_quantized|_make_per_.*|quantize_per_.*"
        r"|dequantize\..*|quantized_.*",
        "Make or take quantized tensors, which are the CPU's own",
    ),
    (r"to_mkldnn|mkldnn_.*", "Make or take tensors in oneDNN's layouts, which are the CPU's own"),
    (
        r"_to_sparse.*|_spdiags|sspaddmm\.out",
        "Make sparse tensors: the number of their elements depends on data, and their indices come "
        "from the host",
    ),
    (
        r"_?(values|indices)_copy|(ccol|col|crow|row)_indices_copy|_sparse_broadcast_to_copy",
        "Parts of sparse tensors, which have ways of their own; dense ones are refused, as on CPU",
    ),
    (
        r"_nested_.*|_padded_dense_to_jagged_forward",
        "Make nested tensors, whose sizes depend on data, or are called by those only",
    ),
    (r"_fused_sdp_choice", "Gives a number: which of CPU's kernels for attention to call"),
    (r"from_file", "Reads a file"),
    (r"_test_.*|_foobar", "Torch's own tests"),
]


def operators() -> list[str]:
    names = torch._C._dispatch_get_all_op_names()
    return sorted(name.removeprefix("aten::") for name in names if name.startswith("aten::"))


def route_of(name: str) -> str:
    base, _, overload = name.partition(".")
    return _XLAC._operator_route(f"aten::{base}", overload)


def reasons_for(names: list[str]) -> dict[str, list[str]]:
    """The names under each reason; each has exactly one, and each reason is some name's."""
    grouped: dict[str, list[str]] = {reason: [] for _, reason in REASONS}
    for name in names:
        fitting = [reason for pattern, reason in REASONS if re.fullmatch(pattern, name)]
        if not fitting:
            raise SystemExit(f"aten::{name} goes through the host: give its reason in {__file__}")
        grouped[fitting[0]].append(name)
    unused = [reason for reason, members in grouped.items() if not members]
    if unused:
        raise SystemExit(f"no operator needs these reasons any more: {unused}")
    return grouped


def table(rows: list[list[str]]) -> list[str]:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return ["| " + " | ".join(line) + " |" for line in lines]


def page() -> str:
    """The text of docs/operators.md."""
    by_route: dict[str, list[str]] = collections.defaultdict(list)
    for name in operators():
        by_route[route_of(name)].append(name)
    reached = [name for route in ROUTES for name in by_route[route]]

    lines = [
        "# How each operator runs",
        "",
        f"Written by `docs/generate_operators.py` for torch {torch.__version__.partition('+')[0]}",
        "with a CPU plugin; do not edit. The ways are tried from top to bottom",
        "([architecture](architecture.md#7-the-long-tail-never-leaves-the-device-in-silence)).",
        "",
        *table(
            [
                ["way", "overloads", ""],
                *([route, str(len(by_route[route])), text] for route, text in ROUTES.items()),
                ["together", str(len(reached)), ""],
            ]
        ),
        "",
        f"The other {len(by_route['none'])} operators of `aten` have no kernel for dense CPU",
        "tensors, as cuDNN's, MPS's and those of nested tensors, and raise as they do there. On",
        "plugins without host calls, the operators that need one go through the host.",
        "",
        "Some results have sizes that depend on data: those of `nonzero`, `masked_select`,",
        "`unique`, `bincount`, `repeat_interleave` and indexing with masks. They are computed on",
        "the device and wait for one number, counted as `SizeRead`. `item`, `equal`, `allclose`,",
        "and printing, read what they ask for.",
        "",
        "## Round trips through the host",
        "",
    ]
    for reason, names in reasons_for(by_route["host"]).items():
        lines += [f"- {reason}: " + ", ".join(f"`{name}`" for name in names), ""]
    lines += [
        "## All operators",
        "",
        "Overloads by the way that they go; `·` is the overload without a name.",
        "",
    ]
    overloads: dict[str, dict[str, list[str]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for route in ROUTES:
        for name in by_route[route]:
            base, _, overload = name.partition(".")
            overloads[base][route].append(overload or "·")
    rows = [["operator", *ROUTES]]
    for base in sorted(overloads):
        rows.append([f"`{base}`", *(" ".join(overloads[base][route]) for route in ROUTES)])
    lines += table(rows)
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes docs/operators.md.")
    parser.add_argument("--check", action="store_true", help="only compare with what is there")
    check = parser.parse_args().check
    text = page()
    if not check:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        print(f"{PAGE} is not what {__file__} writes now: run it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    torch_xla.device()  # decides what the plugin can do
    sys.exit(main())
