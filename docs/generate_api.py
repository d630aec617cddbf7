"""Writes the API reference: a page for each module of torch_xla that has no underscore.

python docs/generate_api.py FOLDER
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pdoc

import torch_xla


def modules() -> Iterator[str]:
    """Names, in order."""
    yield "torch_xla"
    for module in pkgutil.walk_packages(torch_xla.__path__, "torch_xla."):
        if not any(part.startswith("_") for part in module.name.split(".")):
            yield module.name


def main(folder: Path) -> None:
    pdoc.render.configure(docformat="google")
    pages = {name: pdoc.doc.Module(importlib.import_module(name)) for name in modules()}
    for name, page in pages.items():
        file = folder.joinpath(*name.split(".")).with_suffix(".html")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(pdoc.render.html_module(page, pages))
    (folder / "index.html").write_text(pdoc.render.html_index(pages))
    (folder / "search.js").write_text(pdoc.render.search_index(pages))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
