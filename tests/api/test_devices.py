"""torch_xla, torch_xla.runtime and torch.xla: what devices there are."""

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


def test_device_names_are_consistent(device):
    assert torch_xla.device() == device == xm.xla_device() == torch.device("xla:0")
    assert torch_xla.device(0) == device
    assert torch_xla.devices() == [torch.device("xla", i) for i in range(torch_xla.device_count())]
    assert xm.get_xla_supported_devices() == [str(d) for d in torch_xla.devices()]
    assert torch_xla.real_devices()[0] == "CPU:0"
    assert xm.xla_real_devices([device]) == ["CPU:0"]
    assert xm.xla_device_hw(device) == "CPU" == xm.xla_device_hw("cpu")
    assert xm.xla_device_kind(device).lower() == "cpu"
    assert xm.get_xla_supported_devices(devkind="TPU") is None
    assert xm.get_xla_supported_devices(max_devices=0) == []


def test_both_names_of_the_extension_are_one_module(device):
    import _XLAC

    assert _XLAC is torch_xla._XLAC
    assert _XLAC._xla_get_default_device() == "xla:0"


def test_one_process_is_one_replica(device):
    assert xr.device_type() == "CPU"
    assert (xr.world_size(), xr.global_ordinal(), xr.local_ordinal()) == (1, 0, 0)
    assert (xr.process_count(), xr.process_index(), xr.host_index()) == (1, 0, 0)
    assert xr.global_device_count() == xr.addressable_device_count() == torch_xla.device_count()
    assert xr.global_runtime_device_count() == xr.addressable_runtime_device_count()
    assert xr.local_process_count() == 1
    assert xr.local_device_count() == torch_xla.device_count()
    assert not xr.is_spmd()
    assert (xm.get_ordinal(), xm.get_local_ordinal(), xm.xrt_world_size()) == (0, 0, 1)
    assert xm.is_master_ordinal() and xm.is_master_ordinal(local=False)


def test_device_attributes_have_a_name(device):
    assert xr.runtime_device_attributes(device)["name"] == "CPU:0"
    assert xr.runtime_device_attributes("CPU:0")["name"] == "CPU:0"
    names = [attributes["name"] for attributes in xr.global_runtime_device_attributes()]
    assert names == torch_xla.real_devices()


@pytest.mark.parametrize("name", ["xla:99", "TPU:0", "CPU:x", "CPU:99", "nonsense"])
def test_a_device_that_does_not_exist(name, device):
    with pytest.raises(RuntimeError, match="device"):
        torch_xla._XLAC._xla_get_device_ordinal(name)


def test_index_out_of_range(device):
    with pytest.raises(RuntimeError, match="no device xla:64"):
        torch_xla.device(64)
    with pytest.raises(RuntimeError, match="TPU"):
        xm.xla_device(devkind="TPU")


def test_master_address_is_a_matter_of_pods():
    with pytest.raises(RuntimeError, match="CPU"):
        xr.get_master_ip()


def test_changing_the_device_type_too_late(device):
    xr.set_device_type("CPU")
    with pytest.raises(RuntimeError, match="before the first use"):
        xr.set_device_type("TPU")


def test_torch_finds_the_device_module(device):
    module = torch.get_device_module("xla")
    assert module is torch.xla
    assert torch.xla.is_available()
    assert torch.xla.device_count() == torch_xla.device_count()
    assert torch.xla.current_device() == 0
    assert torch.xla.is_bf16_supported()
    assert torch.bfloat16 in torch.xla.get_amp_supported_dtype()
    assert torch.xla._initialized
    assert not torch.xla._is_in_bad_fork()
    assert torch.xla.get_device_properties()["name"] == "CPU:0"
    torch.xla.synchronize()
    with torch.xla.device(0), torch.xla.device(None):
        assert torch.xla.current_device() == 0
    with pytest.raises(ValueError, match="expected an xla device"):
        torch.xla.set_device("cuda:0")


def test_several_devices_are_independent(run_python):
    result = run_python(
        """
        import threading
        import torch, torch_xla
        import torch_xla.core.xla_model as xm

        assert torch_xla.device_count() == 3, torch_xla.devices()
        assert torch_xla.real_devices() == ["CPU:0", "CPU:1", "CPU:2"]
        tensors = [torch.full((2,), float(i), device=d) for i, d in enumerate(torch_xla.devices())]
        assert [t.sum().item() for t in tensors] == [0.0, 2.0, 4.0]

        def work(i, seen):
            torch.xla.set_device(i)
            seen[i] = torch.ones(2, device="xla").device.index

        seen = {}
        threads = [threading.Thread(target=work, args=(i, seen)) for i in range(3)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert seen == {0: 0, 1: 1, 2: 2}, seen
        assert torch.xla.current_device() == 0
        print("fine")
        """,
        CPU_NUM_DEVICES="3",
    )
    assert result.stdout == "fine\n", result.stderr


def test_memory_is_accounted_for(device):
    import gc

    before = xm.get_memory_info(device)
    x = torch.zeros(1 << 20, device=device)
    torch_xla.sync(wait=True)
    during = xm.get_memory_info(device)
    assert during["bytes_used"] - before["bytes_used"] >= x.nbytes
    assert during["peak_bytes_used"] >= during["bytes_used"]
    assert during["bytes_limit"] > during["bytes_used"]
    assert during["kb_total"] == during["bytes_limit"] // 1024
    del x
    gc.collect()
    assert xm.get_memory_info(device)["bytes_used"] <= before["bytes_used"]
    assert torch.xla.memory_allocated() == xm.get_memory_info(device)["bytes_used"]
    assert torch.xla.max_memory_allocated() >= 1 << 22
    free, total = torch.xla.mem_get_info()
    assert 0 < free <= total
