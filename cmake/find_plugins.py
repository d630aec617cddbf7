"""Prints the PJRT CPU plugins that installed wheels carry, absolute paths separated by ':'.

Nothing is imported: a wheel's folder is found and searched for a library that names GetPjrtApi,
since wheels call that file as they please.
"""

import importlib.util
import mmap
from pathlib import Path

PLUGIN_WHEELS = ("lammps_jax_pjrt_cpu", "fastatomstruct_xla_cpu", "xla_cpu_pjrt")


def exports_pjrt(library: Path) -> bool:
    """True when the dynamic symbol table of `library` names `GetPjrtApi`."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"\0GetPjrtApi\0") >= 0


def find_plugins() -> list[Path]:
    found = []
    for wheel in PLUGIN_WHEELS:
        spec = importlib.util.find_spec(wheel)
        for folder in spec.submodule_search_locations or () if spec else ():
            found += [path for path in sorted(Path(folder).rglob("*.so*")) if exports_pjrt(path)]
    return found


if __name__ == "__main__":
    print(":".join(str(path) for path in find_plugins()))
