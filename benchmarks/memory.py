"""Resident memory of this process, as Linux counts it. Imports nothing, to add nothing."""

from __future__ import annotations


def peak_memory() -> float:
    """Most resident memory of this process since the last reset, in MB."""
    return _status("VmHWM")


def resident_memory() -> float:
    """Resident memory of this process now, in MB."""
    return _status("VmRSS")


def reset_peak_memory() -> None:
    """Starts a new peak, where the kernel lets a process do so."""
    try:
        with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123 (not a regular file)
            file.write("5")
    except OSError:
        pass  # the peak then covers the whole life of the process: too high, never too low


def _status(key: str) -> float:
    with open("/proc/self/status") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {key}")
