// Counters and metrics: torch_xla.debug.metrics.

#include "lazy/metrics.h"

#include "python/bindings.h"

namespace torch_xla::python {
namespace {

namespace metrics = lazy::metrics;

// (number of samples, their sum, ((time stamp in seconds, value), ...)), or None.
py::object metric_data(const std::string& name) {
  const auto data = metrics::metric_data(name);
  if (!data) return py::none();
  py::tuple samples(data->samples.size());
  for (size_t i = 0; i < data->samples.size(); ++i) {
    samples[i] = py::make_tuple(data->samples[i].timestamp, data->samples[i].value);
  }
  return py::make_tuple(data->count, data->total, samples);
}

// Ops that ran on the host are counted under their own names, which have another namespace than
// those of kernels (xla::) and of events (none).
std::vector<std::string> executed_fallback_ops() {
  std::vector<std::string> names;
  for (std::string& name : metrics::counter_names()) {
    const size_t colons = name.find("::");
    if (colons != std::string::npos && name.substr(0, colons) != "xla") {
      names.push_back(std::move(name));
    }
  }
  return names;
}

}  // namespace

void bind_metrics(py::module_& m) {
  m.def("_xla_counter_names", metrics::counter_names);
  m.def("_xla_counter_value", metrics::counter_value);
  m.def("_xla_increment_counter", metrics::count, py::arg("name"), py::arg("amount") = 1);
  m.def("_clear_xla_counters", metrics::clear_counters);
  m.def("_xla_metric_names", metrics::metric_names);
  m.def("_xla_metric_data", metric_data);
  m.def("_clear_xla_metrics", metrics::clear_metrics);
  m.def("_xla_metrics_report", [] { return metrics::report(); });
  m.def(
      "_short_xla_metrics_report",
      [](const std::vector<std::string>& counters, const std::vector<std::string>& names) {
        return metrics::report(counters, names);
      },
      py::arg("counter_names"), py::arg("metric_names"));
  m.def("_get_executed_fallback_ops", executed_fallback_ops);
}

}  // namespace torch_xla::python
