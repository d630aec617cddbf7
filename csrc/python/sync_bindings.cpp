// Running what was traced: syncs, the program cache, and settings of later compilations.

#include "lazy/executor.h"

#include "aten/checks.h"
#include "aten/cpu_kernels.h"
#include "lazy/metrics.h"
#include "lazy/persistent_cache.h"
#include "lazy/program.h"
#include "lazy/recompiles.h"
#include "lazy/replay.h"
#include "lazy/runtime.h"
#include "lazy/settings.h"
#include "lazy/storage.h"
#include "python/bindings.h"
#include "python/syncing.h"
#include "python/text.h"

namespace torch_xla::python {
namespace {

void step_marker(const std::string& device, const std::vector<std::string>& devices, bool wait,
                 bool reset_scope) {
  static lazy::metrics::Counter steps("MarkStep");
  syncing([&] { lazy::sync(parse_device(device), wait); });
  if (reset_scope) steps.add();
}

// Everything pending on the tensors' devices is computed, as one program for each device.
void sync_multi(const std::vector<at::Tensor>& tensors, const std::vector<std::string>& devices,
                bool wait, bool sync_xla_data) {
  std::vector<c10::Device> pending;
  for (const at::Tensor& tensor : tensors) {
    const c10::Device device = lazy::normalize(tensor.device());
    if (std::find(pending.begin(), pending.end(), device) == pending.end()) {
      pending.push_back(device);
    }
  }
  syncing([&] {
    for (const c10::Device device : pending) lazy::sync(device, wait);
  });
}

// The key of what a sync would run now.
std::string pending_graph_hash(const std::string& device) {
  std::vector<ir::Value> roots;
  for (const auto& storage : lazy::LazyStorage::all_pending(parse_device(device).index())) {
    roots.push_back(storage->value());
  }
  return hex(lazy::graph_key(roots));
}

void call_compile_listener(const py::function& listener, const lazy::CompileReport& report) {
  py::gil_scoped_acquire gil;
  try {
    py::dict program(py::arg("key") = hex(report.key), py::arg("name") = report.name,
                     py::arg("nodes") = report.nodes, py::arg("parameters") = report.parameters,
                     py::arg("outputs") = report.outputs, py::arg("seconds") = report.seconds);
    if (const auto& memory = report.memory) {
      program["memory"] = py::dict(
          py::arg("arguments") = memory->argument_size, py::arg("outputs") = memory->output_size,
          py::arg("aliased") = memory->alias_size, py::arg("temporaries") = memory->temp_size);
    }
    program["difference"] = report.difference;
    listener(program);
  } catch (py::error_already_set& error) {
    // A report that fails must not fail the step it reports on.
    error.discard_as_unraisable("torch_xla's compile listener");
  }
}

void set_compile_listener(const py::object& listener) {
  std::function<void(const lazy::CompileReport&)> call;
  if (!listener.is_none()) {
    auto* kept = new py::function(listener);  // leaked: it may be called while the process ends
    call = [kept](const lazy::CompileReport& report) { call_compile_listener(*kept, report); };
  }
  py::gil_scoped_release no_gil;
  lazy::set_compile_listener(std::move(call));
}

// XLA's parser of options takes booleans as True and False only.
void set_compile_options(const py::dict& options) {
  std::map<std::string, pjrt::Option> overrides;
  for (const auto& [name, value] : options) {
    const std::string key = name.cast<std::string>();
    if (py::isinstance<py::bool_>(value)) {
      overrides[key] = value.cast<bool>();
    } else if (py::isinstance<py::int_>(value)) {
      overrides[key] = value.cast<int64_t>();
    } else if (py::isinstance<py::float_>(value)) {
      overrides[key] = value.cast<float>();
    } else {
      const std::string text = py::str(value);
      overrides[key] = text;
    }
  }
  py::gil_scoped_release no_gil;
  lazy::set_compile_overrides(std::move(overrides));
}

void set_cpu_kernels(const std::string& use) {
  using aten::CpuKernels;
  static const std::map<std::string, CpuKernels> uses{{"never", CpuKernels::kNever},
                                                      {"faster", CpuKernels::kWhereFaster},
                                                      {"always", CpuKernels::kAlways}};
  const auto entry = uses.find(use);
  if (entry == uses.end()) {
    throw py::value_error("expected 'never', 'faster' or 'always', got '" + use + "'");
  }
  aten::set_cpu_kernels(entry->second);
}

// (results, None) of a replayed call, or (None, why it must be traced).
py::tuple run_replay(lazy::Replay& replay, const std::vector<at::Tensor>& arguments) {
  std::string reason;
  std::optional<std::vector<at::Tensor>> results;
  syncing([&] { results = replay.run(arguments, reason); });
  if (!results) return py::make_tuple(py::none(), reason);
  return py::make_tuple(*results, py::none());
}

// (replay, None), or (None, why these calls cannot be replayed).
py::tuple make_replay(const lazy::RecordedCall& before, const lazy::RecordedCall& now) {
  std::string reason;
  auto replay = lazy::Replay::make(before, now, reason);
  if (!replay) return py::make_tuple(py::none(), reason);
  return py::make_tuple(replay, py::none());
}

void set_persistent_cache(const std::string& folder, bool readonly, bool is_private,
                          int64_t max_bytes, double min_seconds, const std::string& version) {
  lazy::set_persistent_cache(
      lazy::PersistentCacheOptions{folder, readonly, is_private, max_bytes, min_seconds, version});
}

}  // namespace

void bind_sync(py::module_& m) {
  py::class_<lazy::RecordedCall>(m, "_RecordedCall",
                                 "Records a call of a step from here to `finish(results)`.")
      .def(py::init([](const std::string& device, std::vector<at::Tensor> arguments) {
             return std::make_unique<lazy::RecordedCall>(parse_device(device),
                                                         std::move(arguments));
           }),
           py::arg("device"), py::arg("arguments"), WithoutGil())
      .def("finish", &lazy::RecordedCall::finish, py::arg("results"), WithoutGil());
  py::class_<lazy::Replay, std::shared_ptr<lazy::Replay>>(m, "_Replay")
      .def("run", run_replay, py::arg("arguments"));
  m.def("_make_replay", make_replay, py::arg("before"), py::arg("now"));

  m.def("_xla_step_marker", step_marker, py::arg("device") = "",
        py::arg("devices") = std::vector<std::string>(), py::arg("wait") = true,
        py::arg("reset_scope") = true);
  m.def(
      "_xla_sync_live_tensors",
      [](const std::string& device, const std::vector<std::string>&, bool wait) {
        syncing([&] { lazy::sync(parse_device(device), wait); });
      },
      py::arg("device") = "", py::arg("devices") = std::vector<std::string>(),
      py::arg("wait") = true);
  m.def("_xla_sync_multi", sync_multi, py::arg("tensors"),
        py::arg("devices") = std::vector<std::string>(), py::arg("wait") = true,
        py::arg("sync_xla_data") = true);

  m.def("_pending_graph_hash", pending_graph_hash, py::arg("device") = "", WithoutGil());
  m.def("_xla_get_num_cached_compilation_graph", lazy::cached_program_count, WithoutGil());
  m.def("_set_cache_capacity", lazy::set_cache_capacity, WithoutGil());
  m.def("_clear_cache", lazy::clear_cache, WithoutGil());
  m.def("_set_persistent_cache", set_persistent_cache, py::arg("folder"),
        py::arg("readonly") = false, py::arg("is_private") = false,
        py::arg("max_bytes") = int64_t{2} << 30, py::arg("min_seconds") = 0.0,
        py::arg("version") = "", WithoutGil());

  m.def("_set_custom_compile_options", set_compile_options);
  m.def("_set_compile_listener", set_compile_listener,
        "Sets what is called with a dict after each compilation, or None. It must not use xla "
        "tensors: the syncing thread holds the graph meanwhile.");
  m.def("_set_recompile_warning", lazy::set_recompile_warning, py::arg("programs"));
  m.def("_recompile_report", lazy::recompile_report);
  m.def("_clear_recompiles", lazy::clear_recompiles);
  m.def("_xla_set_mat_mul_precision", lazy::set_matmul_precision, WithoutGil());
  m.def("_xla_get_mat_mul_precision", lazy::matmul_precision, WithoutGil());
  m.def("_set_cpu_kernels", set_cpu_kernels, py::arg("use"),
        "When operators that XLA knows too run torch's own kernels in programs for CPU: 'never', "
        "'faster' (the default: where measured so) or 'always' (even tiny ones, for tests).");
  m.def("_set_check_values", aten::set_check_values, py::arg("check"),
        "Whether programs for CPU fail when indices, classes or probabilities that the device "
        "computed are out of range.");
  m.def("_set_current_graph_name", lazy::set_graph_name, WithoutGil());
  m.def("_get_current_graph_name", lazy::graph_name, WithoutGil());
  m.def("_set_allow_execution", lazy::set_allow_execution, WithoutGil());
  m.def("_get_allow_execution", lazy::allow_execution, WithoutGil());
}

}  // namespace torch_xla::python
