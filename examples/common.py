"""What the examples share: choosing a device, ending a step on it, and counting compiles.

With `--device cpu` an example runs on stock PyTorch alone and torch_xla is never imported: the same
loop, to compare with.
"""

from __future__ import annotations

import argparse

import torch


def parser(doc: str) -> argparse.ArgumentParser:
    """An argument parser that describes itself with the first line of `doc` and knows --device."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    made.add_argument("--device", choices=("xla", "cpu"), default="xla")
    made.add_argument("--seed", type=int, default=0)
    return made


def open_device(name: str) -> torch.device:
    """The device called `name`: the default xla device, or the CPU."""
    if name != "xla":
        return torch.device(name)
    import torch_xla

    return torch_xla.device()


def end_step(device: torch.device) -> None:
    """Hands what was traced since the last call to XLA; nothing to do where ops run at once."""
    if device.type == "xla":
        import torch_xla

        torch_xla.sync()


def wait(device: torch.device) -> None:
    """Returns when the device has finished everything it was given (for timing)."""
    if device.type == "xla":
        import torch_xla.core.xla_model as xm

        xm.wait_device_ops()


def compile_count(device: torch.device) -> int:
    """How many programs XLA has compiled in this process."""
    if device.type != "xla":
        return 0
    import torch_xla.debug.metrics as met

    data = met.metric_data("CompileTime")
    return data[0] if data else 0
