"""Compiled programs on disk: who gets them, when they are refused, and when they leave."""

import os
import stat
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import torch_xla
import torch_xla.runtime as xr
from torch_xla._internal import persistent_cache

# Prints what it computed, and how often the cache knew the program and did not.
STEP = """
    import torch, torch_xla
    import torch_xla.debug.metrics as met
    x = torch.arange(6.0).reshape(2, 3).to("xla")
    print(torch.tanh(x @ x.T).sum().item())
    print(met.counter_value("PersistentCacheHit") or 0)
    print(met.counter_value("PersistentCacheMiss") or 0)
    """


class Lookups(NamedTuple):
    hits: int
    misses: int


class Process(NamedTuple):
    value: str
    lookups: Lookups
    stderr: str


@pytest.fixture
def run_step(run_python, tmp_path) -> Callable[..., Process]:
    """Runs STEP, or another program that prints the same three lines, as a user would.

    The user's cache folder is `tmp_path`, and programs are kept however fast they compile.
    """

    def run(source: str = STEP, **environment: str | None) -> Process:
        user = {
            "TORCH_XLA_PERSISTENT_CACHE": None,
            "TORCH_XLA_PERSISTENT_CACHE_MIN_SECONDS": "0",
            "XDG_CACHE_HOME": str(tmp_path),
            "XLA_PERSISTENT_CACHE_PATH": None,
        }
        done = run_python(source, **{**user, **environment})
        assert done.returncode == 0, done.stderr
        value, hits, misses = done.stdout.splitlines()
        return Process(value, Lookups(int(hits), int(misses)), done.stderr)

    return run


@pytest.fixture
def lookups(metrics, monkeypatch) -> Callable[[Callable[[], torch.Tensor]], Lookups]:
    """What the disk knew of the program that computes a function's result.

    Caches are allowed in this process, without limits; programs in memory are forgotten first.
    """
    monkeypatch.setattr(persistent_cache, "_enabled", True)
    monkeypatch.setattr(persistent_cache, "_limits", {})

    def look(function: Callable[[], torch.Tensor]) -> Lookups:
        torch_xla.sync()
        torch_xla._XLAC._clear_cache()
        metrics.clear_all()
        function().cpu()
        names = ("PersistentCacheHit", "PersistentCacheMiss")
        return Lookups(*(metrics.counter_value(name) or 0 for name in names))

    yield look
    torch_xla._XLAC._set_persistent_cache("")


HIT, MISS, NEITHER = Lookups(1, 0), Lookups(0, 1), Lookups(0, 0)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.xla"))


@pytest.fixture
def x(device) -> torch.Tensor:
    x = torch.arange(4.0).to(device)
    torch_xla.sync()
    return x


# --- The user's own folder ---


def test_the_second_process_compiles_nothing(run_step, tmp_path):
    first, second = run_step(), run_step()
    assert first.lookups.hits == 0 and first.lookups.misses > 0
    assert second.lookups == Lookups(first.lookups.misses, 0)
    assert second.value == first.value
    folder = tmp_path / "torch_xla" / "programs"
    assert len(entries(folder)) == first.lookups.misses
    assert first.stderr == second.stderr == ""
    for made in (folder, folder.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_training_from_loaded_programs(run_step):
    """Donation and packed numbers work in a program that was loaded."""
    source = """
        import torch, torch_xla
        import torch_xla.debug.metrics as met
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3).to("xla")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        x = torch.randn(8, 4).to("xla")
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            torch_xla.sync()
        print(loss.item())
        print(met.counter_value("PersistentCacheHit") or 0)
        print(met.counter_value("PersistentCacheMiss") or 0)
        """
    first, second = run_step(source), run_step(source)
    assert second.lookups == Lookups(first.lookups.misses, 0)
    assert second.value == first.value


def test_a_home_without_a_cache_folder(run_step, tmp_path):
    process = run_step(HOME=str(tmp_path), XDG_CACHE_HOME="not/absolute")
    assert process.stderr == ""
    assert entries(tmp_path / ".cache" / "torch_xla" / "programs")


def test_an_unwritable_home_costs_one_warning(run_step, tmp_path):
    file = tmp_path / "file"
    file.touch()
    process = run_step(XDG_CACHE_HOME=str(file))
    assert process.lookups == NEITHER
    assert process.stderr.count("keeps no compiled programs") == 1
    assert "Not a directory" in process.stderr


def test_a_folder_that_others_may_write(run_step, tmp_path):
    folder = tmp_path / "torch_xla" / "programs"
    folder.mkdir(parents=True)
    folder.chmod(0o770)
    process = run_step()
    assert process.lookups == NEITHER
    assert process.stderr.count("other users may write to it") == 1
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("which", ["torch_xla/programs", "."])
def test_a_folder_of_another_user(run_step, tmp_path, which):
    given = tmp_path / which
    given.mkdir(parents=True, exist_ok=True)
    os.chown(given, 54321, -1)
    process = run_step()
    assert process.lookups == NEITHER
    assert process.stderr.count("belongs to another user") == 1


def test_the_off_switch(run_step, tmp_path):
    source = textwrap.dedent(STEP)
    named = f"import torch_xla.runtime as xr; xr.initialize_cache({str(tmp_path / 'named')!r})\n"
    process = run_step(
        named + source,
        TORCH_XLA_PERSISTENT_CACHE="0",
        XLA_PERSISTENT_CACHE_PATH=str(tmp_path / "path"),
    )
    assert process.lookups == NEITHER
    assert list(tmp_path.iterdir()) == []


def test_the_default_folder_keeps_only_slow_compilations(run_step, tmp_path):
    run_step(TORCH_XLA_PERSISTENT_CACHE_MIN_SECONDS="1e9")
    assert entries(tmp_path / "torch_xla" / "programs") == []
    assert persistent_cache._MIN_SECONDS > 0


def test_this_suite_has_no_cache_of_its_own(metrics, x):
    torch_xla._XLAC._clear_cache()
    (x * 3).cpu()
    assert metrics.counter_value("PersistentCacheMiss") is None


# --- A folder that the user names ---


def test_loading_is_no_compilation(lookups, metrics, x, tmp_path):
    xr.initialize_cache(tmp_path)
    for found, samples in ((MISS, 1), (HIT, 0)):
        assert lookups(lambda: x.tanh()) == found
        assert (metrics.metric_data("CompileTime") or (0,))[0] == samples
        assert (metrics.counter_value("UncachedCompile") or 0) == samples


def test_programs_are_found_by_what_they_compute(lookups, x, tmp_path):
    xr.initialize_cache(tmp_path)
    assert lookups(lambda: x.tanh() * 2) == MISS
    assert lookups(lambda: x.tanh() * 2) == HIT
    assert lookups(lambda: x.tanh() * 3) == HIT, "numbers are data"
    assert lookups(lambda: x.sinh() * 2) == MISS
    assert lookups(lambda: x[:2].tanh() * 2) == MISS


# The second is a host call, which carries its line for its errors.
@pytest.mark.parametrize("source", ["y = (x.cosh() + x.sin()).sqrt()", "y = x.mode().values"])
def test_a_line_that_moved(lookups, x, tmp_path, source):
    xr.initialize_cache(tmp_path)
    seen = []

    def at(line):
        names = {"x": x}
        exec(compile("\n" * line + source, "model.py", "exec"), names)
        torch_xla._XLAC._set_ir_debug(True)
        seen.append(torch_xla._XLAC._get_xla_tensors_text([names["y"]]))
        torch_xla._XLAC._set_ir_debug(False)
        return names["y"]

    assert lookups(lambda: at(1)) == MISS
    assert lookups(lambda: at(20)) == HIT
    assert "model.py:2" in seen[0] and "model.py:21" in seen[1]


def test_other_options_are_other_programs(lookups, x, tmp_path):
    xr.initialize_cache(tmp_path)
    assert lookups(lambda: x.tanh()) == MISS
    torch_xla.set_custom_compile_options({"xla_cpu_enable_fast_math": True})
    try:
        assert lookups(lambda: x.tanh()) == MISS
        assert lookups(lambda: x.tanh()) == HIT
    finally:
        torch_xla.set_custom_compile_options({})
    assert lookups(lambda: x.tanh()) == HIT


def test_another_version_of_ours(lookups, x, tmp_path, monkeypatch):
    xr.initialize_cache(tmp_path)
    assert lookups(lambda: x.tanh()) == MISS
    monkeypatch.setattr(persistent_cache, "__version__", "0.0")
    xr.initialize_cache(tmp_path)
    assert lookups(lambda: x.tanh()) == MISS


def test_the_environment_of_the_compiler(run_step, tmp_path):
    misses = run_step().lookups.misses
    flags = "--xla_cpu_enable_fast_math=true"
    assert run_step(XLA_FLAGS=flags).lookups == Lookups(0, misses)
    assert run_step(CPU_NUM_DEVICES="2").lookups == Lookups(0, misses)


def test_a_loaded_program_runs_on_any_device(run_step):
    source = """
        import torch, torch_xla
        import torch_xla.debug.metrics as met
        for index in range(2):
            x = torch.arange(3.0).to(f"xla:{index}")
            torch_xla._XLAC._clear_cache()
            met.clear_all()
            total = x.cosh().sum().item()
        print(total)
        print(met.counter_value("PersistentCacheHit") or 0)
        print(met.counter_value("PersistentCacheMiss") or 0)
        """
    process = run_step(source, CPU_NUM_DEVICES="2")
    assert process.lookups == HIT
    assert float(process.value) == pytest.approx(torch.arange(3.0).cosh().sum().item())


@pytest.mark.parametrize("damage", ["torn", "empty", "changed", "foreign"])
def test_a_damaged_file_is_replaced(lookups, x, tmp_path, damage):
    xr.initialize_cache(tmp_path)
    lookups(lambda: x.tanh())
    (entry,) = entries(tmp_path)
    whole = entry.read_bytes()
    middle = len(whole) // 2
    entry.write_bytes(
        {
            "torn": whole[:middle],
            "empty": b"",
            "changed": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "foreign": b"something else" * 100,
        }[damage]
    )
    assert lookups(lambda: x.tanh()) == MISS
    assert entry.read_bytes() != b"" and lookups(lambda: x.tanh()) == HIT


def test_a_damaged_file_is_removed_even_if_its_program_is_not_kept(
    lookups, x, tmp_path, monkeypatch
):
    xr.initialize_cache(tmp_path)
    lookups(lambda: x.tanh())
    (entry,) = entries(tmp_path)
    entry.write_bytes(b"?")
    monkeypatch.setattr(persistent_cache, "_limits", {"min_seconds": 1e9})
    xr.initialize_cache(tmp_path)
    assert lookups(lambda: x.tanh()) == MISS
    assert not entry.exists()


def test_read_only(lookups, x, tmp_path):
    xr.initialize_cache(tmp_path)
    lookups(lambda: x.tanh())
    lookups(lambda: x.sinh())
    known, damaged = entries(tmp_path)
    damaged.write_bytes(b"?")
    os.utime(known, (1, 1))
    before = {path: (path.read_bytes(), path.stat().st_mtime) for path in entries(tmp_path)}
    xr.initialize_cache(tmp_path, readonly=True)
    found = [lookups(lambda: x.tanh()), lookups(lambda: x.sinh()), lookups(lambda: x.cosh())]
    assert sorted(found) == [MISS, MISS, HIT]
    after = {path: (path.read_bytes(), path.stat().st_mtime) for path in entries(tmp_path)}
    assert after == before


def test_a_read_only_folder_need_not_exist(lookups, x, tmp_path):
    xr.initialize_cache(tmp_path / "none", readonly=True)
    assert lookups(lambda: x.tanh()) == MISS
    assert not (tmp_path / "none").exists()


def test_the_least_recently_used_leave(lookups, x, tmp_path, monkeypatch):
    xr.initialize_cache(tmp_path)
    (tmp_path / "notes.txt").write_text("not ours" * 1000)
    named = {}
    for age, name in enumerate(["tanh", "sinh", "cosh"]):
        before = set(entries(tmp_path))
        lookups(getattr(x, name))
        (named[name],) = set(entries(tmp_path)) - before
        os.utime(named[name], (1000 + age, 1000 + age))
    assert lookups(x.tanh) == HIT, "and now it is the last one used"
    size = sum(entry.stat().st_size for entry in entries(tmp_path))
    monkeypatch.setattr(persistent_cache, "_limits", {"max_bytes": size})
    xr.initialize_cache(tmp_path)
    lookups(x.atan)
    assert not named["sinh"].exists()
    assert named["tanh"].exists()
    assert len(entries(tmp_path)) >= 2
    assert sum(entry.stat().st_size for entry in entries(tmp_path)) <= size
    assert (tmp_path / "notes.txt").exists()
    assert lookups(x.tanh) == lookups(x.atan) == HIT


def test_what_is_larger_than_the_limit_is_not_written(lookups, x, tmp_path, monkeypatch):
    xr.initialize_cache(tmp_path)
    lookups(x.tanh)
    monkeypatch.setattr(persistent_cache, "_limits", {"max_bytes": 100})
    xr.initialize_cache(tmp_path)
    lookups(x.sinh)
    assert len(entries(tmp_path)) == 1


def test_leftovers_of_killed_processes(lookups, x, tmp_path):
    old, new = tmp_path / "a.xla.1.part", tmp_path / "b.xla.2.part"
    for path in (old, new):
        path.touch()
    os.utime(old, (1000, 1000))
    xr.initialize_cache(tmp_path)
    lookups(x.tanh)
    assert not old.exists() and new.exists()


def test_many_processes_at_once(run_step, tmp_path):
    """They compile, write, load and, as the folder is too small for all, evict."""
    source = """
        import torch, torch_xla
        import torch_xla.debug.metrics as met
        torch_xla._XLAC._set_recompile_warning(0)
        x = torch.arange(1.0, 5.0).to("xla")
        names = ("tanh", "sinh", "cosh", "atan", "exp", "log")
        for _ in range(3):
            results = []
            for name in names:
                results.append(getattr(x, name)().sum().item())
            torch_xla._XLAC._clear_cache()
        print(results)
        print(met.counter_value("PersistentCacheHit") or 0)
        print(met.counter_value("PersistentCacheMiss") or 0)
        """
    folder = tmp_path / "programs"
    mib = 0.03

    def run(_):
        return run_step(
            source,
            XLA_PERSISTENT_CACHE_PATH=str(folder),
            TORCH_XLA_PERSISTENT_CACHE_MIB=str(mib),
        )

    with ThreadPoolExecutor() as pool:
        processes = list(pool.map(run, range(3)))
    assert len({process.value for process in processes}) == 1
    assert [process.stderr for process in processes] == [""] * 3
    assert {sum(process.lookups) for process in processes} == {18}
    assert not list(folder.glob("*.part"))
    assert 0 < sum(entry.stat().st_size for entry in entries(folder)) <= mib * 2**20


def test_a_folder_that_cannot_be_written(run_step, tmp_path):
    """The first step loses its folder, the second finds a file in its place."""
    source = f"""
        import shutil, torch, torch_xla
        import torch_xla.debug.metrics as met
        folder = {str(tmp_path / "named")!r}
        torch_xla.runtime.initialize_cache(folder)
        x = torch.arange(3.0).to("xla")
        shutil.rmtree(folder)
        values = [x.tanh().sum().item()]
        open(folder, "w").close()
        values.append(x.sinh().sum().item())
        print(values)
        print(met.counter_value("PersistentCacheHit") or 0)
        print(met.counter_value("PersistentCacheMiss") or 0)
        """
    process = run_step(source)
    x = torch.arange(3.0)
    assert eval(process.value) == pytest.approx([x.tanh().sum().item(), x.sinh().sum().item()])
    assert process.stderr.count("cannot write to the compilation cache") == 1


def test_a_folder_that_cannot_be_made(lookups, tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RuntimeError, match="cannot make the folder of the compilation cache"):
            xr.initialize_cache(path)


def test_limits_that_make_no_sense(lookups):
    for mib, seconds in ((-1, None), (1, -0.5), (1, float("nan"))):
        with pytest.raises(ValueError, match="must not be negative"):
            persistent_cache.configure(True, "", False, mib, seconds)
