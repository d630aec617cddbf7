"""Checkpoints of sharded models: saved on one mesh, loaded on another, and never half there."""

from __future__ import annotations

import json

import pytest
import torch

# Trains an MLP under FSDP x TP; argv: folder, mesh shape, what to do. Prints the losses.
TRAIN = """
import json, sys
import numpy as np
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.experimental.distributed_checkpoint import CheckpointManager, prime_optimizer

folder, mesh_shape, action = {folder!r}, {mesh_shape!r}, {action!r}
xr.use_spmd()
mesh = xs.Mesh(np.arange(np.prod(mesh_shape)), tuple(mesh_shape), ("fsdp", "tp"))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
inputs, targets = torch.randn(8, 16), torch.randn(8, 8)
model = model.to("xla")
xs.mark_sharding(model[0].weight, mesh, ("tp", "fsdp"))
xs.mark_sharding(model[0].bias, mesh, ("tp",))
xs.mark_sharding(model[2].weight, mesh, ("fsdp", "tp"))
inputs, targets = inputs.to("xla"), targets.to("xla")
xs.mark_sharding(inputs, mesh, ("fsdp", None))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
manager = CheckpointManager(folder, save_interval=3, max_to_keep=2)
first = 0
if action == "resume":
    prime_optimizer(optimizer)
    state = {{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}
    first = max(manager.all_steps())
    manager.restore(first, state)
    optimizer.load_state_dict(state["optimizer"])
losses = {{}}
for step in range(first + 1, 7):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    losses[step] = loss.item()
    if action != "resume":
        state = {{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}
        save = manager.save_async if action == "async" else manager.save
        assert save(step, state) == (step % 3 == 0)
        if step == 3:
            manager.join()
            import shutil
            shutil.copytree(folder + "/3", folder + "-3/3")
manager.join()
print(json.dumps(losses))
"""


def train(run_python, folder, mesh_shape, action, devices):
    source = TRAIN.format(folder=str(folder), mesh_shape=mesh_shape, action=action)
    done = run_python(source, CPU_NUM_DEVICES=str(devices))
    assert done.returncode == 0, done.stderr
    return {int(step): loss for step, loss in json.loads(done.stdout.splitlines()[-1]).items()}


@pytest.mark.parametrize("how", ["now", "async"])
def test_resumes_on_other_meshes(run_python, tmp_path, how) -> None:
    folder = tmp_path / "all"
    losses = train(run_python, folder, (2, 4), how, 8)
    assert sorted(p.name for p in folder.iterdir()) == ["3", "6"]
    assert losses[6] < losses[1]
    others = [((2, 2), 4), ((1, 1), 1)] if how == "now" else [((4, 2), 8)]
    for mesh_shape, devices in others:
        again = train(run_python, tmp_path / "all-3", mesh_shape, "resume", devices)
        assert sorted(again) == [4, 5, 6]
        for step, loss in again.items():
            assert loss == pytest.approx(losses[step], rel=1e-5), (mesh_shape, step)


def test_keeps_a_good_checkpoint_when_killed(run_python, tmp_path) -> None:
    done = run_python(
        f"""
        import os, random, signal, time
        import torch
        import torch.distributed.checkpoint as dcp
        from torch_xla.experimental.distributed_checkpoint import CheckpointManager

        folder = {str(tmp_path / "killed")!r}
        random.seed(0)
        torch.set_num_threads(1)

        def save_for_ever():
            manager = CheckpointManager(folder, 1, max_to_keep=2, chkpt_on_preemption=False)
            step = max(manager.all_steps(), default=0)
            while True:
                step += 1
                state = {{"a": torch.full((300, 1000), float(step)), "b": [torch.tensor(step)]}}
                manager.save(step, state)

        newest = 0
        for kill in range(20):
            child = os.fork()
            if child == 0:
                save_for_ever()
            while not newest and not os.path.exists(folder + "/1"):
                time.sleep(0.01)
            time.sleep(random.uniform(0.0, 0.15))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            manager = CheckpointManager(folder, 1, chkpt_on_preemption=False)
            steps = manager.all_steps()
            assert steps and max(steps) >= newest, (kill, steps, newest)
            newest = max(steps)
            state = {{"a": torch.zeros(300, 1000), "b": [torch.tensor(0)]}}
            manager.restore(newest, state)
            assert (state["a"] == newest).all() and state["b"][0] == newest, kill
        print("newest", newest)
        """
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= 5


def test_errors_of_a_save_in_the_background_come_later(run_python, tmp_path) -> None:
    done = run_python(
        f"""
        import torch
        from torch_xla.experimental.distributed_checkpoint import CheckpointManager

        manager = CheckpointManager({str(tmp_path / "c")!r}, 1, chkpt_on_preemption=False)
        manager.save_async(1, {{"a": torch.ones(2), "b": lambda: 0}})
        try:
            manager.join()
        except Exception as error:
            print("raised", type(error).__name__)
        assert manager.all_steps() == []
        manager.save(2, {{"a": torch.ones(2)}})
        assert manager.all_steps() == [2]
        try:
            manager.restore(7, {{"a": torch.ones(2)}})
        except ValueError as error:
            print(error)
        """
    )
    assert done.returncode == 0, done.stderr
    assert "raised" in done.stdout
    assert "no checkpoint of step 7" in done.stdout


def test_a_notice_to_give_way_asks_for_a_checkpoint(run_python, tmp_path) -> None:
    done = run_python(
        f"""
        import os, signal
        import torch
        from torch_xla.experimental.distributed_checkpoint import CheckpointManager

        manager = CheckpointManager({str(tmp_path / "c")!r}, 100)
        assert not manager.should_save(7) and not manager.reached_preemption(7)
        os.kill(os.getpid(), signal.SIGTERM)
        assert manager.should_save(7) and manager.reached_preemption(7)
        assert manager.save(7, {{"a": torch.ones(2)}}) and manager.all_steps() == [7]
        print("saved", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        """
    )
    assert done.returncode == -15
    assert done.stdout == "saved\n"


def test_exports_the_whole_model(run_python, tmp_path) -> None:
    pytest.importorskip("safetensors")
    done = run_python(
        f"""
        import numpy as np
        import torch
        import torch_xla
        import torch_xla.distributed.spmd as xs
        import torch_xla.runtime as xr
        from safetensors.torch import load_file
        from torch_xla.experimental.distributed_checkpoint import export_safetensors

        xr.use_spmd()
        mesh = xs.Mesh(np.arange(4), (4,), ("x",))
        model = torch.nn.Linear(6, 10)
        before = {{name: value.clone() for name, value in model.state_dict().items()}}
        model = model.to("xla")
        xs.mark_sharding(model.weight, mesh, ("x", None))
        export_safetensors(model, {str(tmp_path / "model.safetensors")!r})
        after = load_file({str(tmp_path / "model.safetensors")!r})
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], before[name]) for name in before)
        """,
        CPU_NUM_DEVICES="4",
    )
    assert done.returncode == 0, done.stderr


def test_bad_arguments(tmp_path) -> None:
    from torch_xla.experimental.distributed_checkpoint import CheckpointManager

    with pytest.raises(ValueError, match="save_interval"):
        CheckpointManager(tmp_path, 0, chkpt_on_preemption=False)
    with pytest.raises(ValueError, match="max_to_keep"):
        CheckpointManager(tmp_path, 1, max_to_keep=-1, chkpt_on_preemption=False)
    manager = CheckpointManager(tmp_path, 1, chkpt_on_preemption=False)
    for step in (-1, 1.0, "1", None):
        for save in (manager.save, manager.save_async):
            with pytest.raises(ValueError, match="a step is a whole number"):
                save(step, {"a": 1}, force=True)
    assert not list(tmp_path.iterdir())


def test_keeps_what_was_written_last(tmp_path) -> None:
    """Also by a run that went back to an earlier step."""
    from torch_xla.experimental.distributed_checkpoint import CheckpointManager

    manager = CheckpointManager(tmp_path, 50, chkpt_on_preemption=False)
    for step in (100, 200, 300):
        manager.save(step, {"a": torch.full((2,), float(step))})
    manager = CheckpointManager(tmp_path, 50, max_to_keep=2, chkpt_on_preemption=False)
    assert manager.save(150, {"a": torch.ones(2)})
    assert manager.all_steps() == [150, 300]
    state = {"a": torch.zeros(2)}
    manager.restore(150, state)
    assert state["a"].tolist() == [1.0, 1.0]


def test_a_save_in_the_background_ends_no_step(tmp_path, device) -> None:
    """What is traced while it is written stays pending, for the step's own sync."""
    import torch_xla
    from torch_xla.experimental.distributed_checkpoint import CheckpointManager

    weight = torch.ones(4, device=device)
    manager = CheckpointManager(tmp_path, 1, chkpt_on_preemption=False)
    manager.save_async(1, {"weight": weight})
    traced = weight + 1
    manager.join()
    assert torch_xla._XLAC._check_tensor_need_materialization([traced]) == [True]
