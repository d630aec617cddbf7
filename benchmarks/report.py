"""What was measured, printed as Markdown tables."""

from __future__ import annotations

from statistics import median

from benchmarks.rows import Row


def table(rows: list[Row], measured: dict) -> None:
    """The targets beside the ratios. Of a ratio's two clocks the one that counts is in brackets."""
    cells = []
    for row in rows:
        if not all(job in measured for job in row.jobs):
            cells.append([row.measure, "could not be measured", "", "", "", "no"])
            continue
        for figure in row.figures(measured):

            def shown(clock: str, value: float | None, figure: object = figure) -> str:
                if value is None:
                    return ""
                text = f"{value:.{figure.digits}f}"
                return f"[{text}]" if figure.judged == clock else text

            cells.append(
                [
                    row.measure,
                    figure.of,
                    f"{figure.target:g}",
                    shown("wall", figure.wall),
                    shown("cpu", figure.cpu),
                    "yes" if figure.reached else "no",
                ]
            )
    columns = ["measure", "of", "at most", "by the clock", "by CPU time", "reached"]
    _print("Targets", columns, cells, left=2)


def details(measured: dict) -> None:
    """What the ratios are made of."""
    for job, title in (("micro", "One op"), ("trace", "Tracing")):
        rows = [
            [name, *(f"{row[key]:.2f}" for key in ("xla", "cpu", "wall_middle", "cpu_middle"))]
            for name, row in measured.get(job, {}).items()
        ]
        columns = ["of", "xla", "cpu eager", "ratio", "by CPU time"]
        _print(f"{title}, microseconds", columns, rows)
    rows = [
        [
            case,
            *(f"{f(run[clock]) * 1e6:.0f}" for clock in ("wall", "cpu") for f in (min, median)),
            str(run["late_compiles"]),
        ]
        for case, run in measured.get("cached", {}).items()
    ]
    columns = ["of", "least", "median", "least CPU time", "median CPU time", "late compiles"]
    _print("Calls on compiled graphs, microseconds", columns, rows)
    rows = [
        [
            f"{model}, {device}",
            f"{run['first_step']:.2f}",
            f"{run.get('compile', 0):.2f}",
            f"{min(run['wall']) * 1e3:.1f}",
            f"{median(run['wall']) * 1e3:.1f}",
            f"{median(run['cpu']) * 1e3:.1f}",
            f"{run['peak']:.0f}",
            f"{run['compiling_peak']:.0f}",
            ", ".join(run.get("fallbacks", [])),
        ]
        for model, runs in measured.get("train", {}).items()
        for device, run in runs.items()
    ]
    columns = [
        "model, device",
        "first step s",
        "compile s",
        "least ms",
        "median ms",
        "CPU ms",
        "peak MB",
        "peak MB, compiling",
        "on the host",
    ]
    _print("Training", columns, rows)


def _print(title: str, columns: list[str], rows: list[list[str]], left: int = 1) -> None:
    if not rows:
        return
    print(f"\n## {title}\n")
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    print(line(columns))
    print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print("\n".join(map(line, rows)))
