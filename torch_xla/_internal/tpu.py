"""TPU hardware of this machine, found without any TPU software."""

from __future__ import annotations

from pathlib import Path

# PCI ids of Google's TPU chips, as /sys/bus/pci/devices/*/{vendor,device} spell them.
_GOOGLE_PCI_VENDOR_ID = "0x1ae0"
_TPU_PCI_DEVICE_IDS = {
    "0x0027": 3,  # v2 and v3
    "0x005e": 4,
    "0x0056": 4,
    "0x0062": 5,  # v5p
    "0x0063": 5,  # v5e
    "0x006f": 6,  # v6e
    "0x0076": 7,
}
_PCI_DEVICES = Path("/sys/bus/pci/devices")


def _chip_versions() -> list[int]:
    versions = []
    for vendor in sorted(_PCI_DEVICES.glob("*/vendor")):
        try:
            if vendor.read_text().strip() != _GOOGLE_PCI_VENDOR_ID:
                continue
            version = _TPU_PCI_DEVICE_IDS.get((vendor.parent / "device").read_text().strip())
        except OSError:  # a device that was unplugged meanwhile
            continue
        if version is not None:
            versions.append(version)
    return versions


def num_available_chips() -> int:
    """TPU chips of this host; 0 when it has none."""
    return len(_chip_versions())


def num_available_devices() -> int:
    """Devices that these chips make: two a chip up to v3, one from v4 on."""
    return sum(2 if version <= 3 else 1 for version in _chip_versions())


def version() -> int:
    """Generation of this host's chips (3 for v2 and v3).

    Raises:
        RuntimeError: if the host has none.
    """
    versions = _chip_versions()
    if not versions:
        raise RuntimeError("this host has no TPU")
    return versions[0]
