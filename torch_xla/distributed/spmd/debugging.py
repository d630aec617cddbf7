"""Pictures of how tensors lie over the devices, in the terminal and as images.

`visualize_tensor_sharding(weight)` prints, in colours where rich is installed;
`plot_tensor_sharding(weight)` draws with matplotlib.
"""

from __future__ import annotations

import importlib.util
import math
import re
import textwrap
from typing import Any

import numpy as np
import torch

from torch_xla import runtime
from torch_xla._extension import _XLAC

__all__ = [
    "RICH_ENABLED",
    "construct_v1_sharding_str",
    "parse_sharding",
    "plot_sharding",
    "plot_tensor_sharding",
    "visualize_sharding",
    "visualize_tensor_sharding",
]

RICH_ENABLED = importlib.util.find_spec("rich") is not None

_COLORS = ("blue", "green", "red", "yellow", "magenta", "cyan", "bright_blue", "bright_green")


def construct_v1_sharding_str(t: torch.Tensor) -> str:
    """XLA's text of a tensor's sharding with its devices listed; empty where none is known."""
    return _XLAC._get_xla_sharding_spec(t)


def parse_sharding(sharding: str) -> np.ndarray | None:
    """Reads XLA's text of a sharding (OpenXLA, hlo_sharding.cc).

    Args:
        sharding: `{replicated}`, `{maximal device=1}`, `{devices=[2,1,2]0,1,2,3
            last_tile_dim_replicate}`, or with devices in short form, `{devices=[2,2]<=[4]}` and
            `{devices=[2,2]<=[2,2]T(1,0)}`.

    Returns:
        devices' numbers, of shape [tiles along dimension 0, tiles along dimension 1, ..., devices
        that hold the same tile]; None for `{replicated}`, which names no devices.

    Raises:
        ValueError: if it is none of these.

    >>> parse_sharding("{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}").tolist()
    [[[0, 1]], [[2, 3]]]
    """
    text = sharding.strip()
    if text == "{replicated}":
        return None
    if found := re.fullmatch(r"\{maximal device=(\d+)\}", text):
        return np.array([int(found[1])])
    found = re.fullmatch(
        r"\{devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))"
        r"( last_tile_dim_replicate)?\}",
        text,
    )
    if not found:
        raise ValueError(f"no sharding that can be drawn: {sharding!r}")
    tiles = _numbers(found[1])
    if found[2]:
        grid = np.arange(math.prod(_numbers(found[2]))).reshape(_numbers(found[2]))
        devices = (grid.transpose(_numbers(found[3])) if found[3] else grid).reshape(-1)
    else:
        devices = np.array(_numbers(found[4]))
    if math.prod(tiles) != devices.size:
        raise ValueError(f"a sharding of {math.prod(tiles)} tiles and {devices.size} devices")
    return devices.reshape(tiles if found[5] else [*tiles, 1])


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _grid(sharding: str) -> tuple[np.ndarray, list[int]]:
    """Devices of each tile as an array of lists [rows, columns], and the dimensions that are cut.

    With more than two of these, each tile is a row of its own.
    """
    devices = parse_sharding(sharding)
    if devices is None:
        devices = np.arange(runtime.global_runtime_device_count())[None, :]
    tiles = devices.shape[:-1]
    cut = [dim for dim, count in enumerate(tiles) if count > 1]
    # A tensor of two dimensions keeps them as rows and columns; of others, what is cut.
    shown = [0, 1] if len(tiles) == 2 else cut
    if len(shown) > 2:
        shape = (math.prod(tiles), 1)
    else:
        shape = tuple(tiles[dim] for dim in shown) + (1,) * (2 - len(shown))
        # A vector is a row.
        shape = (1, shape[0]) if len(shown) == 1 and len(tiles) == 1 else shape
    lists = np.empty(math.prod(shape), dtype=object)
    lists[:] = [sorted(group) for group in devices.reshape(-1, devices.shape[-1]).tolist()]
    return lists.reshape(shape), cut


def _label(devices: list[int]) -> str:
    return f"{runtime.device_type()} {','.join(map(str, devices))}"


def visualize_sharding(
    sharding: str,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
) -> str:
    """Prints which devices hold which part of a tensor.

    Args:
        sharding: XLA's text of it; see `parse_sharding`.
        use_color: give the parts colours of their own, where rich is installed.
        scale: of the width that the text needs.
        min_width: of a column, in characters.
        max_width: of the whole, in characters.

    Returns:
        what is printed, without colours.

    Raises:
        ValueError: if `sharding` is none.

    >>> _ = visualize_sharding("{devices=[2,2]0,1,2,3}", use_color=False, min_width=5)
    ┌───────┬───────┐
    │ CPU 0 │ CPU 1 │
    ├───────┼───────┤
    │ CPU 2 │ CPU 3 │
    └───────┴───────┘
    """
    grid, cut = _grid(sharding)
    share = (max_width - 1) // grid.shape[1] - 1
    labels = [[_label(devices) for devices in row] for row in grid]
    if max(len(label) for row in labels for label in row) > share - 2:
        labels = [[",".join(map(str, devices)) for devices in row] for row in grid]
    if len(cut) > 2:
        shape = parse_sharding(sharding).shape[:-1]
        for i, row in enumerate(labels):
            row[0] = f"{tuple(int(k) for k in np.unravel_index(i, shape))}: {row[0]}"
    needed = max(len(label) for row in labels for label in row)
    padding = 1 if needed <= share - 2 else 0
    width = min(max(round(needed * scale), min_width), max(share - 2 * padding, 1))
    text = _table(labels, width, padding)
    if use_color and RICH_ENABLED:
        _print_in_color(labels, width, padding)
    else:
        print(text)
    return text


def visualize_tensor_sharding(t: torch.Tensor, **kwargs: Any) -> str:
    """`visualize_sharding` of a tensor on xla, whose keyword arguments it takes.

    Raises:
        ValueError: if it is not known how the tensor lies.
    """
    return visualize_sharding(_spec_of(t), **kwargs)


def _spec_of(t: torch.Tensor) -> str:
    sharding = construct_v1_sharding_str(t)
    if not sharding:
        raise ValueError("the tensor has no sharding yet: mark it, or run torch_xla.sync()")
    return sharding


def _table(labels: list[list[str]], width: int, padding: int) -> str:
    def line(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2 * padding) for _ in labels[0]) + right

    space = " " * padding

    lines = [line("┌", "┬", "┐")]
    for i, row in enumerate(labels):
        if i > 0:
            lines.append(line("├", "┼", "┤"))
        cells = [textwrap.wrap(label, width) for label in row]
        for k in range(max(map(len, cells))):
            texts = [cell[k] if k < len(cell) else "" for cell in cells]
            lines.append("│" + "│".join(f"{space}{text:^{width}}{space}" for text in texts) + "│")
    return "\n".join([*lines, line("└", "┴", "┘")])


def _print_in_color(labels: list[list[str]], width: int, padding: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, show_lines=True, padding=(0, padding))
    for _ in labels[0]:
        table.add_column(width=width, justify="center")
    number = 0
    for row in labels:
        cells = []
        for label in row:
            cells.append(Text(label, style=f"white on {_COLORS[number % len(_COLORS)]}"))
            number += 1
        table.add_row(*cells)
    Console().print(table)


def plot_sharding(sharding: str, ax: Any = None) -> Any:
    """Draws which devices hold which part of a tensor, with matplotlib.

    Args:
        sharding: XLA's text of it; see `parse_sharding`.
        ax: `matplotlib.axes.Axes` to draw on; by default those of a new figure.

    Returns:
        the axes; `ax.figure.savefig("sharding.png")` makes an image.

    Raises:
        ImportError: without matplotlib.
        ValueError: if `sharding` is none.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    grid, _ = _grid(sharding)
    if ax is None:
        _, ax = plt.subplots(figsize=(1.6 * grid.shape[1] + 0.5, 0.9 * grid.shape[0] + 0.5))
    colors = plt.get_cmap("tab20").colors
    rows, columns = grid.shape
    for number, (i, j) in enumerate(np.ndindex(rows, columns)):
        corner = (j, rows - 1 - i)
        ax.add_patch(
            Rectangle(corner, 1, 1, facecolor=colors[number % len(colors)], edgecolor="white")
        )
        label = textwrap.fill(_label(grid[i, j]), 16)
        ax.text(corner[0] + 0.5, corner[1] + 0.5, label, ha="center", va="center")
    ax.set_xlim(0, columns)
    ax.set_ylim(0, rows)
    ax.set_axis_off()
    ax.set_title(sharding if len(sharding) < 60 else "", fontsize="small")
    return ax


def plot_tensor_sharding(t: torch.Tensor, ax: Any = None) -> Any:
    """`plot_sharding` of a tensor on xla.

    Raises:
        ImportError: without matplotlib.
        ValueError: if it is not known how the tensor lies.
    """
    return plot_sharding(_spec_of(t), ax)
