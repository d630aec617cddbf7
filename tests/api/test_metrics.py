"""torch_xla.debug: metrics, their report, comparisons, scopes, compile reports."""

import json
import re

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.profiler as xp
from torch_xla.debug import metrics_compare_utils, metrics_saver

PERCENTILES = "; ".join(rf"{p}%=\S+" for p in (1, 5, 10, 20, 50, 80, 90, 95, 99))
GOLDEN = rf"""Metric: \w+
  TotalSamples: \d+
  Accumulator: \S+
  ValueRate: \S+ / second
  Rate: \S+ / second
  Percentiles: {PERCENTILES}
"""


def run_a_step(device):
    x = torch.ones(2, device=device) + 1
    torch_xla.sync()
    return x.tolist()


def test_names_and_data(device, metrics):
    run_a_step(device)
    assert {"ExecuteTime", "TransferFromDeviceTime"} <= set(metrics.metric_names())
    count, total, samples = metrics.metric_data("ExecuteTime")
    assert count == len(samples) == 1
    (stamp, value), *_ = samples
    assert value == total > 0
    assert stamp > 1.7e9, "seconds since 1970"
    assert metrics.metric_data("NoSuchMetric") is None


def test_counters(device, metrics):
    assert metrics.counter_names() == []
    assert metrics.counter_value("Anything") is None
    torch_xla._XLAC._xla_increment_counter("Anything", 3)
    torch_xla._XLAC._xla_increment_counter("Anything")
    assert metrics.counter_value("Anything") == 4
    assert metrics.counter_names() == ["Anything"]
    metrics.clear_counters()
    assert metrics.counter_value("Anything") is None
    run_a_step(device)
    assert metrics.counter_value("MarkStep") == 1
    metrics.clear_all()
    assert metrics.counter_names() == metrics.metric_names() == []
    assert metrics.metrics_report() == ""


def test_fallbacks_are_the_foreign_names(metrics):
    for name in ("aten::something", "torchvision::nms", "xla::add", "MarkStep"):
        torch_xla._XLAC._xla_increment_counter(name)
    assert metrics.executed_fallback_ops() == ["aten::something", "torchvision::nms"]


def test_report(device, metrics):
    for _ in range(3):
        run_a_step(device)
    report = metrics.metrics_report()
    entry = re.search(r"Metric: ExecuteTime\n(  .*\n)+", report).group(0)
    assert re.fullmatch(GOLDEN, entry), entry
    assert "ValueRate" in entry
    assert "Counter: MarkStep\n  Value: 3\n" in report


def test_short_report(device, metrics):
    run_a_step(device)
    torch_xla._XLAC._xla_increment_counter("aten::something")
    report = metrics.short_metrics_report()
    names = re.findall(r"(?:Metric|Counter): (\S+)", report)
    assert "TensorsGraphSize" not in names
    assert names[-2:] == ["MarkStep", "aten::something"]
    assert "ExecuteTime" in names
    chosen = metrics.short_metrics_report(counter_names=["MarkStep"], metric_names=[])
    assert chosen == "Counter: MarkStep\n  Value: 1\n"


def test_only_the_last_samples_are_kept(device, metrics):
    from torch_xla._XLAC import _xla_get_cpu_tensors

    x = torch.ones(1, device=device)
    torch_xla.sync()
    for _ in range(1100):
        _xla_get_cpu_tensors([x])
    count, _, samples = metrics.metric_data("TransferFromDeviceTime")
    assert count == 1100
    assert len(samples) == 1024
    stamps = [stamp for stamp, _ in samples]
    assert stamps == sorted(stamps)


def test_comparing_reports(device, metrics):
    reports = []
    for _ in range(3):
        run_a_step(device)
        reports.append(metrics.metrics_report())
    parsed = metrics_compare_utils.parse_metrics_report(reports[0])
    assert parsed["MarkStep__Value"] == 1.0
    assert parsed["ExecuteTime__Accumulator"] > 0
    raw = metrics_compare_utils.parse_metrics_report(reports[0], dehumanize=False)
    assert raw["ExecuteTime__Accumulator"].endswith("us")
    points = metrics_compare_utils.get_data_points_from_metrics_reports(reports)
    assert points["MarkStep__Value"] == [1.0, 2.0, 3.0]
    config = {"base_expression": "v <= 1e300", "MarkStep__Value": "v < mean"}
    complaint = metrics_compare_utils.compare_metrics(points, reports[2], config)
    assert complaint.startswith("MarkStep__Value: 3.0 fails 'v < mean'")
    config["metrics_exclude"] = ["MarkStep__Value"]
    assert metrics_compare_utils.compare_metrics(points, reports[2], config) == ""


def test_saving_metrics(device, metrics, tmp_path, monkeypatch):
    run_a_step(device)
    path = tmp_path / "metrics.txt"
    metrics_saver.save_metrics(path)
    monkeypatch.setenv("XLA_METRICS_FILE", str(path))
    metrics_saver.save_metrics()
    assert path.read_text().count("[1]\nMetric:") == 2
    monkeypatch.delenv("XLA_METRICS_FILE")
    metrics_saver.save_metrics()


def test_scopes_show_in_a_trace(device, tmp_path):
    xp.start_trace(tmp_path / "profile")
    with pytest.raises(RuntimeError, match="already"):
        xp.start_trace(tmp_path)
    with xp.StepTrace("train", step_num=3):
        assert xp.get_tracer_marked_step()
        with xp.Trace("forward"):
            torch.ones(2, device=device) + 1

    @xp.trace_me("called")
    def call():
        return 5

    assert call() == 5
    xp.stop_trace()
    events = json.loads((tmp_path / "profile" / "trace.json").read_text())["traceEvents"]
    assert {"train(step_num=3)", "forward", "called"} <= {event.get("name") for event in events}
    with pytest.raises(RuntimeError, match="start_trace"):
        xp.stop_trace()


def test_serving_profiles_is_refused():
    for call in (lambda: xp.start_server(9012), lambda: xp.trace("localhost:9012", "folder")):
        with pytest.raises(NotImplementedError, match="no profiler"):
            call()


def test_compile_report(run_python, tmp_path):
    path = tmp_path / "report.txt"
    result = run_python(
        """
        import torch, torch_xla
        import torch_xla.core.xla_model as xm

        def train(n):
            x = torch.ones(n, device="xla") + 1
            xm.mark_step()
            return x

        train(2)
        train(2)
        with torch_xla.step():
            torch.ones(3, device="xla") * 2.5
            y = torch.ones(3, device="xla") * 3.5

        @torch_xla.compile(name="named")
        def f(x):
            return x - 1

        f(y)
        (y * 7).sum().item()
        """,
        PT_XLA_DEBUG="1",
        PT_XLA_DEBUG_FILE=str(path),
    )
    assert result.returncode == 0, result.stderr
    text = path.read_text()
    causes = re.findall(r"Compilation Cause\n.*?:   (.*)\n", text)
    assert causes == [
        "user xm.mark_step",
        "torch_xla.step",
        "torch_xla.compile",
        "a tensor's value was read before the step's end",
    ]
    assert "Graph Name: named" in text
    assert re.search(r"Compilation Analysis:   train \(.*<string>:\d+\)", text), text
    assert re.search(r"Graph Hash: [0-9a-f]{32}", text)


def test_a_failing_listener_fails_no_step(device, capfd):
    def fail(program):
        raise ValueError("listener")

    torch_xla._XLAC._set_compile_listener(fail)
    try:
        x = torch.ones(23, device=device) * 1.25
        xm.mark_step()
    finally:
        torch_xla._XLAC._set_compile_listener(None)
    assert x.sum().item() == 23 * 1.25
