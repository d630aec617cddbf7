// Programs for devices that are not here: traced by a dry run, compiled for a topology.

#include <map>
#include <memory>
#include <optional>

#include "lazy/dry_run.h"
#include "lazy/dtype.h"
#include "lazy/runtime.h"
#include "lazy/tensor.h"
#include "pjrt/topology.h"
#include "python/bindings.h"
#include "python/options.h"

namespace torch_xla::python {
namespace {

py::list arrays_of(const std::vector<lazy::DryArray>& arrays) {
  py::list result;
  for (const lazy::DryArray& array : arrays) {
    result.append(py::dict(py::arg("shape") = array.shape,
                           py::arg("bytes_on_device") = array.bytes_on_device,
                           py::arg("where") = array.where, py::arg("sharding") = array.sharding,
                           py::arg("donated") = array.donated));
  }
  return result;
}

void start_dry_run(py::function listener) {
  // Leaked: it may be called while the process ends.
  auto* kept = new py::function(std::move(listener));
  py::gil_scoped_release no_gil;
  lazy::start_dry_run([kept](const lazy::DryProgram& program) {
    py::gil_scoped_acquire gil;
    py::dict overrides;
    for (const auto& [name, value] : program.overrides) {
      overrides[py::str(name)] = from_option(value);
    }
    (*kept)(py::dict(py::arg("name") = program.name, py::arg("stablehlo") = program.stablehlo,
                     py::arg("overrides") = overrides, py::arg("axes") = program.axes,
                     py::arg("mesh_shape") = program.mesh_shape,
                     py::arg("devices") = program.devices,
                     py::arg("arguments") = arrays_of(program.arguments),
                     py::arg("results") = arrays_of(program.results)));
  });
}

// A tensor without contents, for dry runs.
at::Tensor described(const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  TORCH_CHECK(lazy::is_dry_run(), "a tensor without contents can only be in a dry run");
  const c10::Device device(c10::kXLA, lazy::current_device());
  return lazy::make(lazy::described({lazy::element_type(dtype), sizes}, device), dtype, device);
}

void settle() { lazy::settle({c10::kXLA, lazy::current_device()}); }

// The topology of a name, or where there is none that of a client with the options.
std::shared_ptr<pjrt::Topology> open(const std::string& library, const std::string& name,
                                     const pjrt::Options& options) {
  auto plugin = pjrt::Plugin::load(library);
  if (!name.empty()) return pjrt::Topology::create(std::move(plugin), name, options);
  return pjrt::Topology::from_client(pjrt::Client::create(std::move(plugin), options));
}

py::dict describe_topology(const std::string& library, const std::string& name,
                           const py::dict& options) {
  const pjrt::Options given = to_options(options);
  std::shared_ptr<pjrt::Topology> topology;
  {
    py::gil_scoped_release no_gil;
    topology = open(library, name, given);
  }
  py::list devices;
  for (const pjrt::DeviceDescription& device : topology->devices()) {
    devices.append(py::dict(
        py::arg("id") = device.id, py::arg("process_index") = device.process_index,
        py::arg("kind") = device.kind, py::arg("attributes") = to_dict(device.attributes)));
  }
  return py::dict(py::arg("platform") = topology->platform_name(),
                  py::arg("version") = topology->platform_version(),
                  py::arg("attributes") = to_dict(topology->attributes()),
                  py::arg("devices") = devices);
}

py::dict compile_for_topology(const std::string& library, const std::string& name,
                              const py::dict& options, const std::string& stablehlo,
                              const std::vector<size_t>& partitions, const py::dict& overrides) {
  const pjrt::Options given = to_options(options);
  pjrt::CompileOptions compile;
  const bool is_cut = partitions.size() > 1;
  compile.num_partitions = static_cast<int>(partitions.size());
  compile.use_spmd_partitioning = is_cut;
  compile.use_shardy = is_cut && stablehlo.find("mhlo.sharding") == std::string::npos;
  for (auto& [flag, value] : to_options(overrides)) compile.env_overrides[flag] = value;

  std::shared_ptr<pjrt::CompiledProgram> program;
  pjrt::OptimizedProgram optimized;
  std::optional<pjrt::CompiledMemoryStats> memory;
  std::optional<pjrt::Attributes> costs;
  {
    py::gil_scoped_release no_gil;
    const auto topology = open(library, name, given);
    const auto& devices = topology->devices();
    for (const size_t device : partitions) {
      compile.device_assignment.push_back(devices.at(device).id);
    }
    program = topology->compile(stablehlo, compile);
    memory = program->memory_stats();
    costs = program->cost_analysis();
    optimized = program->optimized_program();
  }
  py::dict result(py::arg("format") = optimized.format,
                  py::arg("program") = py::bytes(optimized.code));
  if (memory) {
    result["memory"] = py::dict(
        py::arg("arguments") = memory->argument_size, py::arg("results") = memory->output_size,
        py::arg("shared") = memory->alias_size, py::arg("temporaries") = memory->temp_size,
        py::arg("code") = memory->generated_code_size, py::arg("peak") = memory->peak_memory);
  }
  if (costs) result["costs"] = to_dict(*costs);
  return result;
}

}  // namespace

void bind_topologies(py::module_& m) {
  m.def("_xla_start_dry_run", start_dry_run);
  m.def("_xla_is_dry_run", lazy::is_dry_run);
  m.def("_xla_described_tensor", described, WithoutGil());
  m.def("_xla_settle_dry_run", settle, WithoutGil());
  m.def("_xla_describe_topology", describe_topology);
  m.def("_xla_compile_for_topology", compile_for_topology);
}

}  // namespace torch_xla::python
