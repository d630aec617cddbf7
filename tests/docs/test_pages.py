"""Every ```python block of README.md and docs/ runs as it stands.

The blocks of one page are one program, read from top to bottom, in an interpreter and a folder of
their own. A block that only illustrates is marked ```py and is not run.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def python_blocks(page: Path) -> str:
    """The page's program, each line where the page has it, so that a traceback points there."""
    program, inside = [], False
    for line in page.read_text().splitlines():
        if line.strip() == "```python":
            inside, kept = True, ""
        elif line.strip() == "```":
            inside, kept = False, ""
        else:
            kept = line if inside else ""
        program.append(kept)
    return "\n".join(program)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if python_blocks(page).strip()],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_page_runs(page, tmp_path):
    program = tmp_path / f"{page.stem}.py"
    program.write_text(python_blocks(page))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{page.relative_to(ROOT)}\n{done.stdout}\n{done.stderr}"
