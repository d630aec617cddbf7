"""The Python line that a node remembers."""

import inspect
import threading

import pytest
import torch

import torch_xla


def text_of(tensor):
    torch_xla._XLAC._set_ir_debug(True)
    try:
        return torch_xla._XLAC._get_xla_tensors_text([tensor])
    finally:
        torch_xla._XLAC._set_ir_debug(False)


def line():
    return inspect.currentframe().f_back.f_lineno


def add_one(x):
    return x + 1, line()


def test_the_innermost_frame_of_the_user(device):
    x = torch.ones(2, device=device)
    y, number = add_one(x)
    assert f"location=add_one@test_locations.py:{number}" in text_of(y)


def test_frames_of_torch_are_skipped(device):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Sequential(torch.nn.ReLU())

        def forward(self, x):
            self.number = line() + 1
            return self.layer(x)

    model = Model()
    y = model(torch.ones(2, device=device) * 3)
    assert f"location=forward@test_locations.py:{model.number}" in text_of(y)


def test_lines_of_one_function_are_told_apart(device):
    x = torch.ones(2, device=device)
    y = x + 1
    first = line() - 1
    z = y * 2.5
    text = text_of(z)
    assert f":{first}" in text and f":{first + 2}" in text


def test_backward_points_at_the_users_code(device):
    x = torch.ones(2, device=device, requires_grad=True)
    y = (x * 2.5).sum()
    y.backward()
    assert "location=test_backward_points_at_the_users_code@" in text_of(x.grad)


def test_code_made_at_run_time(device):
    scope = {"x": torch.ones(2, device=device)}
    for i in range(50):
        exec(compile(f"\n\ny{i} = x + {i}.5", f"made_{i}.py", "exec"), scope)
    for i in range(50):
        assert f"location=<module>@made_{i}.py:3" in text_of(scope[f"y{i}"])


def test_generators_and_threads(device):
    def numbers():
        for i in range(3):
            yield torch.ones(2, device=device) * (i + 0.5)

    assert all("location=numbers@test_locations.py" in text_of(x) for x in numbers())
    seen = {}

    def work(i):
        for _ in range(200):
            seen[i] = torch.ones(2, device=device) + 1.5

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("location=work@test_locations.py" in text_of(x) for x in seen.values())


def test_more_places_than_the_table_begins_with(device):
    x = torch.ones(1, device=device)
    count = 3000
    source = "def many(x):\n" + "".join("    y = -x\n" for _ in range(count)) + "    return y\n"
    scope = {}
    exec(compile(source, "many.py", "exec"), scope)
    before = torch_xla._XLAC._location_count()
    y = scope["many"](x)
    assert torch_xla._XLAC._location_count() == before + count
    assert f"location=many@many.py:{count + 1}" in text_of(y)
    scope["many"](x)
    assert torch_xla._XLAC._location_count() == before + count


def test_switching_off(device):
    x = torch.ones(2, device=device)
    torch_xla._XLAC._set_record_locations(False)
    try:
        y = -x
    finally:
        torch_xla._XLAC._set_record_locations(True)
    assert text_of(y).count("location=") == 1, "that of x"
    assert text_of(-x).count("location=") == 2


@pytest.mark.parametrize("value", ["0", "1"])
def test_switching_off_by_the_environment(run_python, value):
    result = run_python(
        "import torch_xla; print(int(torch_xla._XLAC._record_locations()))",
        TORCH_XLA_LOCATIONS=value,
    )
    assert result.stdout.strip() == value, result.stderr
