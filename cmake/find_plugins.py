"""Prints the PJRT CPU plugins that installed wheels carry, absolute paths separated by ':'.

Nothing is imported: the files of each wheel are searched for a library that names GetPjrtApi, since
wheels put and call that file as they please.
"""

import mmap
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

PLUGIN_WHEELS = ("lammps-jax-pjrt-cpu", "fastatomstruct-xla-cpu", "xla-cpu-pjrt")


def exports_pjrt(library: Path) -> bool:
    """True when the symbol table of `library` names `GetPjrtApi`."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"\0GetPjrtApi\0") >= 0


def find_plugins() -> list[Path]:
    found = []
    for wheel in PLUGIN_WHEELS:
        try:
            libraries = [file for file in files(wheel) or () if ".so" in file.suffixes]
        except PackageNotFoundError:
            continue
        paths = (Path(library.locate()) for library in libraries)
        found += [path for path in paths if path.is_file() and exports_pjrt(path)]
    return found


if __name__ == "__main__":
    print(":".join(str(path) for path in find_plugins()))
