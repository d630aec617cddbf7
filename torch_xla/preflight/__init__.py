"""Says, on any machine, whether the first step of a training script fits hardware that is not here.

    python -m torch_xla.preflight script.py --topology v5p:4x8x8

The script runs as it is, on devices that compute nothing: its first step is traced, in SPMD mode
over all of them if the script says so, and compiled for the topology. Parameters that modules make
on the CPU are never materialised, so that a model may be far larger than this machine's memory. The
report says whether the step compiles, what it needs of each chip's memory, flops, an estimate of
the time, and the collectives that XLA put in.

What is the step: what the script syncs (or reads) first after an optimizer's step. A script that
has no optimizer, or that needs the value of a tensor before (`loss.item()`), is judged by the
largest program until then.
"""

from torch_xla.preflight.report import Report, Step
from torch_xla.preflight.runner import PreflightError, run

__all__ = ["PreflightError", "Report", "Step", "run"]
