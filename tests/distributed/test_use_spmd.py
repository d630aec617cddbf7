"""Turning SPMD mode on, each time in a process of its own."""

import pytest


def run_ok(run_python, source, **environment):
    done = run_python(source, **{"CPU_NUM_DEVICES": "4", **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_there_is_in_spmd_mode(run_python):
    out = run_ok(
        run_python,
        """
        import torch_xla, torch_xla.core.xla_model as xm, torch_xla.runtime as xr
        import torch_xla.distributed.spmd as xs
        assert not xr.is_spmd()
        xr.use_spmd()
        xr.use_spmd()  # again, which changes nothing
        assert xr.is_spmd()
        print(xr.global_runtime_device_count(), xr.addressable_runtime_device_count())
        print(xr.global_device_count(), xr.local_device_count(), xr.addressable_device_count())
        print(xr.world_size(), xr.global_ordinal(), xr.process_count(), xr.device_type())
        print(torch_xla.device(), torch_xla.devices(), torch_xla.device_count(), xm.xla_device())
        print(torch_xla._XLAC._xla_get_devices(), torch_xla.real_devices())
        print(xm.get_xla_supported_devices(), xm.xla_real_devices(["xla:0"]))
        print(len(xr.global_runtime_device_attributes()))
        print(xs.get_1d_mesh("data"))
        try:
            torch_xla.device(1)
        except RuntimeError:
            print("no xla:1")
        torch_xla.launch(lambda index: print("launched", index))
        """,
    )
    assert out.splitlines() == [
        "4 4",
        "1 1 1",
        "1 0 1 CPU",
        "xla:0 [device(type='xla', index=0)] 1 xla:0",
        "['CPU:0'] ['CPU:0', 'CPU:1', 'CPU:2', 'CPU:3']",
        "['xla:0'] ['CPU:0']",
        "4",
        "{'device_ids': [0, 1, 2, 3], 'mesh_shape': (4,), 'axis_names': ('data',)}",
        "no xla:1",
        "launched 0",
    ]


def test_tensors_from_before_stay(run_python):
    out = run_ok(
        run_python,
        """
        import torch, torch_xla, torch_xla.runtime as xr, torch_xla.distributed.spmd as xs
        kept = torch.arange(8.0).to("xla")
        pending = kept + 1
        xr.use_spmd()
        print(kept.tolist(), pending.tolist())
        xs.mark_sharding(kept, xs.get_1d_mesh("x"), ("x",))
        shards = xs.XLAShardedTensor(kept).local_shards
        print(kept.tolist(), [shard.data.tolist() for shard in shards])
        print((kept + pending).tolist())
        """,
    )
    values, shards, total = out.splitlines()
    assert values == f"{[float(i) for i in range(8)]} {[float(i) for i in range(1, 9)]}"
    assert shards.endswith("[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]")
    assert total == str([2.0 * i + 1 for i in range(8)])


def test_tensors_on_other_devices_are_in_the_way(run_python):
    out = run_ok(
        run_python,
        """
        import torch, torch_xla, torch_xla.runtime as xr
        there = torch.ones(2, device="xla:1") + 1
        torch_xla._XLAC._xla_sync_multi([there], [])
        try:
            xr.use_spmd()
        except RuntimeError as error:
            print(error)
        print(xr.is_spmd(), there.tolist())
        del there
        xr.use_spmd()
        print(xr.is_spmd())
        """,
    )
    message, kept, after = out.splitlines()[0], *out.splitlines()[-2:]
    assert "tensors on xla:1" in message
    assert kept == "False [2.0, 2.0]"
    assert after == "True"


def test_outside_spmd_mode(run_python):
    out = run_ok(
        run_python,
        """
        import torch, torch_xla, torch_xla.runtime as xr, torch_xla.distributed.spmd as xs
        import torch_xla.core.xla_model as xm
        from torch_xla.distributed.parallel_loader import MpDeviceLoader
        mesh, t = xs.Mesh(range(4), (4,), ("x",)), torch.ones(4, device="xla")
        spec = xs.ShardingSpec(mesh, ("x",))
        calls = {
            "mark": lambda: xs.mark_sharding(t, mesh, ("x",)),
            "annotate": lambda: xs.annotate_custom_sharding(t, mesh, ("x",)),
            "gradients": lambda: xs.mark_sharding_with_gradients(t, mesh, ("x",)),
            "distribute": lambda: xs.xla_distribute_tensor(t, mesh),
            "loader": lambda: list(MpDeviceLoader([t.cpu()], "xla:0", input_sharding=spec)),
            "send": lambda: xm.send_cpu_data_to_device(t.cpu(), "xla:0", spec),
            "enter": lambda: xs.enable_manual_sharding(t, ("x",), mesh),
            "leave": lambda: xs.disable_manual_sharding(t, ("x",), (16,), mesh),
            "piece": lambda: xs.annotate_manual_sharding(t),
            "reduce": lambda: xs.manual_all_reduce(t, "x", mesh),
        }
        for name, call in calls.items():
            try:
                call()
            except RuntimeError as error:
                print(name, "use_spmd() first" in str(error))
        """,
    )
    names = "mark annotate gradients distribute loader send enter leave piece reduce"
    assert out.splitlines() == [f"{name} True" for name in names.split()]


def test_automatic_sharding_is_refused(run_python):
    out = run_ok(
        run_python,
        """
        import torch_xla.runtime as xr
        try:
            xr.use_spmd(auto=True)
        except NotImplementedError as error:
            print(error)
        print(xr.is_spmd())
        """,
    )
    assert "auto_policy" in out and out.endswith("False\n")


@pytest.mark.parametrize("flag, on", [("1", True), ("0", False)])
def test_the_environment_turns_it_on(run_python, flag, on):
    out = run_ok(
        run_python,
        """
        import multiprocessing
        import torch_xla.runtime as xr

        print("here", xr.is_spmd(), flush=True)
        child = "import torch_xla._extension as e; print('child', e._XLAC._xla_is_spmd())"
        worker = multiprocessing.get_context("spawn").Process(target=exec, args=(child,))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
        """,
        XLA_USE_SPMD=flag,
    )
    assert out.splitlines() == [f"here {on}", "child False"]


def test_hybrid_meshes(run_python):
    """On CPU no device tells of slices; see test_mesh.py for those that do."""
    out = run_ok(
        run_python,
        """
        import torch_xla.distributed.spmd as xs
        for ici, dcn in [((2, 4), None), ((1, 4), (2, 1)), ((2, 2), (1, 2))]:
            mesh = xs.HybridMesh(ici_mesh_shape=ici, dcn_mesh_shape=dcn, axis_names=("d", "m"))
            print(mesh.get_logical_mesh().tolist())
        for bad in (dict(ici_mesh_shape=(3, 2)), dict(ici_mesh_shape=(8,), dcn_mesh_shape=(1, 1)),
                    dict(ici_mesh_shape=(2,), dcn_mesh_shape=(3,))):
            try:
                xs.HybridMesh(**bad)
            except ValueError as error:
                print("ValueError")
        """,
        CPU_NUM_DEVICES="8",
    )
    assert out.splitlines() == [
        "[[0, 1, 2, 3], [4, 5, 6, 7]]",
        "[[0, 1, 2, 3], [4, 5, 6, 7]]",
        "[[0, 1, 4, 5], [2, 3, 6, 7]]",
        *["ValueError"] * 3,
    ]


def test_one_device_is_a_mesh_too(run_python):
    out = run_ok(
        run_python,
        """
        import torch, torch_xla, torch_xla.runtime as xr, torch_xla.distributed.spmd as xs
        xr.use_spmd()
        mesh = xs.get_1d_mesh("x")

        t = xs.mark_sharding(torch.arange(3.0).to("xla"), mesh, ("x",))
        (shard,) = t.local_shards
        print((t * 2).tolist(), shard.data.tolist(), shard.indices, shard.replica_id)

        x = torch.arange(4.0).to("xla").requires_grad_()
        pending = x * 2
        xs.mark_sharding(pending, mesh, ("x",))
        y = xs.mark_sharding_with_gradients(pending, mesh, ("x",))
        y.sum().backward()
        print(y.tolist(), x.grad.tolist())

        x.grad = None
        piece = xs.manual_all_reduce(xs.enable_manual_sharding(x, ("x",), mesh), "x", mesh)
        piece = xs.manual_all_gather(xs.manual_reduce_scatter(piece, "x", 0, mesh), "x", 0, mesh)
        y = xs.disable_manual_sharding(piece * piece, ("x",), (4,), mesh)
        y.sum().backward()
        print(y.tolist(), x.grad.tolist())
        """,
        CPU_NUM_DEVICES="1",
    )
    assert out.splitlines() == [
        "[0.0, 2.0, 4.0] [0.0, 1.0, 2.0] Ellipsis 0",
        "[0.0, 2.0, 4.0, 6.0] [2.0, 2.0, 2.0, 2.0]",
        "[0.0, 1.0, 4.0, 9.0] [0.0, 2.0, 4.0, 6.0]",
    ]


def test_steps_recorded_before_are_traced_again(run_python):
    out = run_ok(
        run_python,
        """
        import torch, torch_xla, torch_xla.runtime as xr
        total = torch.zeros(2, device="xla")
        torch_xla.sync()

        @torch_xla.compile(replay=True)
        def step(x):
            total.add_(x)

        x = torch.ones(2).to("xla")
        for _ in range(4):
            step(x)
        assert step.traced_because == ""
        xr.use_spmd()
        for _ in range(4):
            step(x)
        print(total.tolist())
        """,
    )
    assert out.splitlines() == ["[8.0, 8.0]"]


def test_work_of_the_host_is_that_of_one_device(run_python):
    """Of a step with cut parameters: as many nodes, calls, and operations of the program."""
    source = """
        import sys
        import torch, torch_xla, torch_xla.runtime as xr, torch_xla.distributed.spmd as xs
        import torch_xla.debug.metrics as met
        xr.use_spmd()
        mesh = xs.get_1d_mesh("x")
        model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(4))).to("xla")
        for parameter in model.parameters():
            xs.mark_sharding(parameter, mesh, ("x", *[None] * (parameter.dim() - 1)))
        optimizer = torch.optim.AdamW(model.parameters())
        inputs = torch.ones(8, 16).to("xla")

        def step():
            optimizer.zero_grad()
            model(inputs).pow(2).mean().backward()
            optimizer.step()

        for _ in range(2):
            step()
            torch_xla.sync()
        met.clear_all()
        calls = 0

        def count(frame, event, argument):
            global calls
            calls += event == "c_call"

        sys.setprofile(count)
        step()
        parameters = [p.detach() for p in model.parameters()]
        sys.setprofile(None)
        nodes = torch_xla._XLAC._get_xla_tensors_text(parameters).count(" = ")
        module = torch_xla._XLAC._get_stablehlo(parameters)
        counters = {name: met.counter_value(name) for name in sorted(met.counter_names())}
        print(calls, nodes, module.count(" = stablehlo"), sorted(counters.items()))
        """
    one, eight = (run_ok(run_python, source, CPU_NUM_DEVICES=count) for count in ("1", "8"))
    assert one == eight
    assert int(one.split()[1]) > 100


def test_shardings_in_the_words_of_gspmd(run_python):
    """What a plugin that is too old for Shardy reads; new ones read both."""
    source = """
        import torch, torch_xla, torch_xla.runtime as xr, torch_xla.distributed.spmd as xs
        from torch_xla.debug import collectives
        xr.use_spmd()
        mesh = xs.Mesh(range(4), (2, 2), ("data", "model"))
        torch.manual_seed(0)
        up, down, x = torch.randn(16, 8), torch.randn(8, 16), torch.randn(5, 8)
        expected = torch.tanh(x @ up.t()) @ down.t()
        up, down, x = (t.to("xla").requires_grad_() for t in (up, down, x))
        xs.mark_sharding(up, mesh, ("model", None))
        xs.mark_sharding(down, mesh, (None, "model"))
        xs.mark_sharding(x, mesh, ("data", None))  # of five rows: padded
        y = torch.tanh(x @ up.t()) @ down.t()
        y = xs.mark_sharding_with_gradients(y, mesh, ("data", None))
        y.sum().backward()
        torch_xla.sync()
        torch.testing.assert_close(y.detach().cpu(), expected)
        print(sorted({c.axes(("data", "model"), (2, 2)) for c in collectives.collectives()}))

        rows = torch.arange(16.0).reshape(4, 4).to("xla")
        piece = xs.enable_manual_sharding(rows, ("data", "model"), mesh)
        total = xs.manual_all_reduce(piece * 2 + torch.ones(2, 2, device="xla"), "model", mesh)
        torch_xla.sync()  # pieces outlive a program
        whole = xs.disable_manual_sharding(total + piece, ("data", "model"), (4, 4), mesh)
        halves = torch.arange(16.0).reshape(4, 2, 2) * 2 + 1
        expected = halves.sum(1).repeat(1, 2) + torch.arange(16.0).reshape(4, 4)
        torch.testing.assert_close(whole.cpu(), expected)
        print(torch_xla._XLAC._uses_shardy())
        """
    axes, uses_shardy = run_ok(run_python, source, TORCH_XLA_SHARDY="0").splitlines()
    assert "('model',)" in axes and uses_shardy == "False"
