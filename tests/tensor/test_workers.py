"""Processes and threads beside a live XLA client."""

import threading

import pytest
import torch
import torch.utils.data

import torch_xla


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return torch.full((3,), float(i * i)), i


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_dataloader_workers(device, context):
    weight = torch.ones(3, device=device) * 2
    torch_xla.sync()
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=4, num_workers=2, multiprocessing_context=context
    )
    seen = []
    for x, i in loader:
        y = (x.to(device) * weight).sum(1)
        torch_xla.sync()
        assert y.tolist() == [6.0 * int(n) ** 2 for n in i]
        seen += i.tolist()
    assert seen == list(range(16))


def test_persistent_workers_over_epochs(device):
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=8, num_workers=1, persistent_workers=True
    )
    total = torch.zeros((), device=device)
    for _ in range(3):
        for x, _ in loader:
            total += x.to(device).sum()
            torch_xla.sync()
    assert total.item() == 3 * 3 * sum(i * i for i in range(16))


def run_threads(count, work):
    errors = []

    def guarded(i):
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_threads_with_models_of_their_own(device):
    def work(i):
        x = torch.full((4, 4), float(i + 1), device=device)
        for step in range(8):
            x = x * 0.5 + step
            if step % 2:
                torch_xla.sync()
        want = torch.full((4, 4), float(i + 1))
        for step in range(8):
            want = want * 0.5 + step
        assert torch.equal(x.cpu(), want)

    run_threads(4, work)


def test_threads_that_read_the_same_tensors(device):
    shared = torch.arange(64.0, device=device) + 1  # pending when the threads start
    views = shared.view(8, 8)
    want = sum(range(1, 65))

    def work(i):
        for step in range(10):
            assert (shared.sum() + step).item() == want + step
            assert views[i].sum().item() == sum(range(8 * i + 1, 8 * i + 9))

    run_threads(4, work)


def test_threads_that_write_their_own_tensors_while_others_sync(device):
    """No update is lost when another thread syncs in the middle of it."""

    def work(i):
        x = torch.zeros(16, device=device)
        for _ in range(60):
            x += 1
            if i == 0:
                torch_xla.sync()
        assert x.tolist() == [60.0] * 16

    run_threads(3, work)


def test_inference_in_threads_while_training(device):
    model = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    stop = threading.Event()

    def work(i):
        if i == 0:
            try:
                for _ in range(20):
                    optimizer.zero_grad()
                    model(torch.ones(2, 8, device=device)).pow(2).sum().backward()
                    optimizer.step()
                    torch_xla.sync()
            finally:
                stop.set()
            return
        while not stop.is_set():
            with torch.no_grad():
                assert torch.isfinite(model(torch.ones(2, 8, device=device)).cpu()).all()

    run_threads(3, work)
    assert torch.isfinite(model.weight.cpu()).all()


def test_tensors_that_die_while_others_sync(device):
    def work(i):
        for _ in range(150):
            if i == 0:
                torch_xla.sync()
            else:
                x = torch.ones(4, device=device)
                (x + 1).add_(x)

    run_threads(4, work)


def test_reads_in_one_thread_of_what_another_donates(device):
    """A value that is read stays computable, although a sync overwrites what it came from."""
    state = torch.zeros(64, device=device)
    stop = threading.Event()

    def work(i):
        if i == 0:
            try:
                for _ in range(40):
                    state.add_(1)
                    torch_xla.sync()
            finally:
                stop.set()
        while not stop.is_set():
            y = (state * 2).cpu()
            assert (y == y[0]).all()

    run_threads(3, work)
    assert state.tolist() == [40.0] * 64


def test_tensors_made_in_one_thread_and_freed_in_another(device):
    made = []
    run_threads(2, lambda i: made.extend(torch.ones(4, device=device) * k for k in range(50)))
    run_threads(1, lambda i: made.clear())
    torch_xla.sync()
    assert (torch.ones(2, device=device) + 1).tolist() == [2, 2]
