"""The API reference can be made, and has a page for each public module."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    subprocess.run([sys.executable, str(ROOT / "docs" / "generate_api.py"), folder], check=True)
    return folder


def test_pages(reference):
    pages = {str(page.relative_to(reference)) for page in reference.rglob("*.html")}
    assert {"index.html", "torch_xla.html", "torch_xla/core/xla_model.html"} <= pages
    assert {"torch_xla/preflight.html", "torch_xla/runtime.html"} <= pages
    assert not [page for page in pages if "/_" in page]


def test_every_module_says_what_it_is(reference):
    silent = [
        page.name
        for page in (reference / "torch_xla").rglob("*.html")
        if 'class="docstring"' not in page.read_text().split("<h1", 1)[1].split("<section", 1)[0]
    ]
    assert silent == []


def test_arguments_are_described(reference):
    page = (reference / "torch_xla" / "runtime.html").read_text()
    assert "initialize_cache" in page
    assert "Raises" in page
