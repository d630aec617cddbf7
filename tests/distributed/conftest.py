"""Runs each `test_spmd_*.py` of this folder in a process of its own, with many devices.

SPMD mode is for good once it is on, and the number of devices is decided before the first use of
one: neither can be in the process of the other tests. The first test of such a file starts another
pytest for all tests of the file that were picked, and each test reports what that one said of it.

The number of devices is the file's `DEVICES`, or 8. To debug, be that other pytest:

    CPU_NUM_DEVICES=8 TORCH_XLA_TEST_REPORTS=/dev/null python -m pytest --pdb tests/distributed/...
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPORTS = "TORCH_XLA_TEST_REPORTS"  # where the other pytest writes, a line of JSON a report
IS_APART = REPORTS in os.environ

sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "models"))


def belongs_apart(item: pytest.Item) -> bool:
    return item.path.parent == HERE and item.path.name.startswith("test_spmd_")


# --- In the process of all tests ------------------------------------------------------------------


class Apart:
    """The run of one file's tests in a process of its own."""

    def __init__(self, first: pytest.Item) -> None:
        config = first.config
        picked = [item.nodeid for item in first.session.items if item.path == first.path]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "reports")
            file.touch()
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
                    f"--rootdir={config.rootpath}",
                    f"--maxfail={config.getoption('maxfail') or 0}",
                    *picked,
                ],
                cwd=config.rootpath,
                env={
                    **os.environ,
                    REPORTS: str(file),
                    "CPU_NUM_DEVICES": str(getattr(first.module, "DEVICES", 8)),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            lines = file.read_text().splitlines()
        # What to say of the first test that it does not report on.
        self.ended = f"the process ended before this test did: {done.returncode}\n{done.stdout}"
        self.reports: dict[str, list[pytest.TestReport]] = {}
        for line in lines:
            report = config.hook.pytest_report_from_serializable(
                config=config, data=json.loads(line)
            )
            self.reports.setdefault(report.nodeid, []).append(report)

    def of(self, item: pytest.Item) -> list[pytest.TestReport]:
        reports = self.reports.get(item.nodeid, [])
        if any(report.when == "teardown" for report in reports):
            return reports
        # It, or one before it, ended the process.
        lost = pytest.TestReport(
            item.nodeid,
            item.location,
            dict.fromkeys(item.keywords, 1),
            outcome="failed",
            longrepr=self.ended,
            when="call",
        )
        self.ended = "the process ended before this test"
        return [*reports, lost]


_runs: dict[Path, Apart] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if IS_APART or not belongs_apart(item):
        return None
    if item.path not in _runs:
        _runs[item.path] = Apart(item)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _runs[item.path].of(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # Fixtures of a test before may have been kept for this one's sake, if not for the next one's.
    item.session._setupstate.teardown_exact(nextitem)
    return True


# --- In the process of one file -------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    if IS_APART and belongs_apart(item):
        data = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
        with Path(os.environ[REPORTS]).open("a") as file:
            file.write(json.dumps(data) + "\n")
    return report


@pytest.fixture(autouse=True)
def _in_spmd_mode(request: pytest.FixtureRequest) -> None:
    if belongs_apart(request.node):
        import torch_xla.runtime as xr

        xr.use_spmd()
