"""torch_xla.distributed.parallel_loader: batches uploaded in the background."""

import gc
import threading
import time

import pytest
import torch

import torch_xla.distributed.parallel_loader as pl


def batches(count):
    return [(torch.full((2,), float(i)), torch.tensor(i)) for i in range(count)]


def values(loader):
    return [int(label.item()) for _, label in loader]


def loader_threads():
    return [t for t in threading.enumerate() if t.name.startswith("xla-")]


def wait_for_threads_to_end():
    while loader_threads():
        gc.collect()
        time.sleep(0.01)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("threads", [1, 4])
def test_every_batch_once_and_in_order(device, count, threads):
    loader = pl.MpDeviceLoader(batches(count), device, host_to_device_transfer_threads=threads)
    assert len(loader) == count
    for _ in range(2):  # each iteration starts anew
        assert values(loader) == list(range(count))
    wait_for_threads_to_end()


def test_batches_are_on_the_device(device):
    for data, label in pl.MpDeviceLoader(batches(2), device):
        assert data.device == device == label.device


def test_each_batch_ends_a_step(device, metrics):
    loader = pl.MpDeviceLoader(batches(4), device)
    for data, _ in loader:
        data.sum()
    assert metrics.counter_value("MarkStep") == 5  # before each, and after the last


def test_several_batches_a_program(device, metrics):
    assert values(pl.MpDeviceLoader(batches(4), device, batches_per_execution=2)) == [0, 1, 2, 3]
    assert metrics.counter_value("MarkStep") == 3


def test_a_data_loader_with_workers(device):
    data = torch.utils.data.TensorDataset(torch.arange(12.0), torch.arange(12))
    loader = pl.MpDeviceLoader(
        torch.utils.data.DataLoader(data, batch_size=4, num_workers=2), device
    )
    assert len(loader) == 3
    assert [label.tolist() for _, label in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_what_the_loader_raises_reaches_the_consumer(device):
    def failing():
        yield from batches(2)
        raise KeyError("third")

    seen = []
    with pytest.raises(KeyError, match="third"):
        for _, label in pl.MpDeviceLoader(failing(), device):
            seen.append(label.item())
    assert seen == [0, 1]
    wait_for_threads_to_end()


def test_what_the_upload_raises_reaches_the_consumer(device):
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    with pytest.raises(TypeError, match="dtype"):
        list(pl.MpDeviceLoader([torch.ones(1), quantized], device))
    assert values(pl.MpDeviceLoader(batches(2), device)) == [0, 1]


def test_reading_ahead_is_bounded(device):
    read = []

    def counted():
        for i, batch in enumerate(batches(100)):
            read.append(i)
            yield batch

    iterator = iter(
        pl.MpDeviceLoader(counted(), device, loader_prefetch_size=3, device_prefetch_size=2)
    )
    next(iterator)
    time.sleep(0.3)
    # One is in use, 2 wait on the device, 3 on the host, and each thread may hold one.
    assert len(read) <= 1 + 2 + 3 + 2
    iterator.close()
    wait_for_threads_to_end()


def test_leaving_the_loop_early_ends_the_threads(device):
    def use():
        for _ in pl.MpDeviceLoader(batches(50), device):
            break

    use()
    wait_for_threads_to_end()


def test_several_consumers_of_one_loader(device):
    parallel = pl.ParallelLoader(batches(6), [device])
    assert parallel.batches_per_execution == 1
    assert parallel.per_device_samples() == 6
    assert values(parallel.per_device_loader(device)) == list(range(6))
    assert parallel.next_item(device) is None
    with pytest.raises(ValueError, match="not among"):
        parallel.per_device_loader("cpu")


def test_subclassing_as_accelerate_does(device):
    class Wrapper(pl.MpDeviceLoader):
        def __iter__(self):
            yield from super().__iter__()

        @property
        def total_batch_size(self):
            return len(self._loader)

    wrapper = Wrapper(batches(3), device)
    assert wrapper.total_batch_size == 3 == len(wrapper)
    assert wrapper._device == device
    assert values(wrapper) == [0, 1, 2]


@pytest.mark.parametrize(
    "argument",
    [
        "batches_per_execution",
        "loader_prefetch_size",
        "device_prefetch_size",
        "host_to_device_transfer_threads",
    ],
)
def test_sizes_must_be_positive(device, argument):
    with pytest.raises(ValueError, match=argument):
        iter(pl.MpDeviceLoader([], device, **{argument: 0}))


def test_sharded_input_is_refused_outside_spmd_mode(device):
    with pytest.raises(RuntimeError, match="use_spmd"):
        iter(pl.MpDeviceLoader([], device, input_sharding="anything"))
    with pytest.raises(ValueError, match="devices"):
        pl.ParallelLoader([], [])


def test_a_process_may_end_in_the_midst_of_a_loop(run_python):
    result = run_python(
        """
        import torch, torch_xla
        import torch_xla.distributed.parallel_loader as pl

        def forever():
            while True:
                yield torch.ones(1000)

        for batch in pl.MpDeviceLoader(forever(), torch_xla.device()):
            (batch * 2).sum()
            break
        iterator = iter(pl.MpDeviceLoader(forever(), torch_xla.device()))
        next(iterator)
        print("fine")
        """
    )
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr
