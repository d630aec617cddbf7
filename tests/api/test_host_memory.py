"""csrc/lazy/host_memory.cpp: what glibc does with the memory of the CPU plugin's programs."""

from __future__ import annotations

import json
import platform

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="limits of glibc")

# Pages of 4 KiB that 20 steps fault in, once the first ones have found their memory. Each has 100
# MB of temporaries, 26,000 pages.
STEPS = """
    import json, resource
    import torch, torch_xla

    x = torch.rand(12 << 10, 1024, device="xla")
    total = torch.rand((), device="xla")

    def step():
        total.add_(x.cumsum(1).amax() * 1e-6)
        torch_xla.sync(wait=True)

    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    for _ in range(20):
        step()
    before = faults()
    for _ in range(20):
        step()
    print(json.dumps(faults() - before))
"""


def test_temporaries_are_kept(run_python):
    done = run_python(STEPS, PJRT_DEVICE="CPU")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) < 60_000


def test_limits_of_the_user_stay(run_python):
    done = run_python(STEPS, PJRT_DEVICE="CPU", MALLOC_MMAP_THRESHOLD_=str(1 << 20))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) > 100_000


def test_large_blocks_return(run_python):
    done = run_python(
        """
        import gc, json, os
        import torch, torch_xla

        def resident():
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

        one = torch.ones((), device="xla")
        torch_xla.sync(wait=True)
        before = resident()
        blocks = [torch.rand(25 << 20, device="xla") for _ in range(8)]
        for _ in range(2):
            for block in blocks:
                block.add_(one)
            torch_xla.sync(wait=True)
        full = resident()
        del blocks, block
        gc.collect()
        print(json.dumps([full - before, resident() - before]))
        """,
        PJRT_DEVICE="CPU",
    )
    assert done.returncode == 0, done.stderr
    full, after = json.loads(done.stdout)
    assert full > 700
    assert after < 450
