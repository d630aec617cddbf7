// The plugin, its devices and their memory.

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include "lazy/data.h"
#include "lazy/executor.h"
#include "lazy/interrupt.h"
#include "lazy/launch.h"
#include "lazy/runtime.h"
#include "pjrt/fork_guard.h"
#include "python/bindings.h"
#include "python/options.h"

namespace torch_xla::python {
namespace {

using lazy::Runtime;
using lazy::RuntimeConfig;

// The configurator may be asked for from inside any op. Its exception keeps its Python type on the
// way out, which takes torch's own carrier.
[[noreturn]] void throw_python_error(py::error_already_set& error) {
  error.restore();
  python_error carrier;
  carrier.persist();
  throw carrier;
}

// Python runs handlers of signals in its main thread only, and when that asks.
unsigned long main_thread() {
  static const auto id =
      py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  return id;
}

void check_signals() {
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  python_error carrier;
  carrier.persist();
  throw carrier;
}

RuntimeConfig call_configurator(const py::function& configurator) {
  py::gil_scoped_acquire gil;
  try {
    const py::tuple chosen = configurator();
    return {chosen[0].cast<std::string>(), chosen[1].cast<std::string>(),
            to_options(chosen[2].cast<py::dict>())};
  } catch (py::error_already_set& error) {
    throw_python_error(error);
  }
}

void set_configurator(py::function configurator) {
  // Leaked: it may be asked for after the interpreter has begun to end.
  auto* kept = new py::function(std::move(configurator));
  lazy::set_runtime_configurator([kept] { return call_configurator(*kept); });
}

std::string name_of(const pjrt::Device& device) {
  return Runtime::get().device_type() + ":" + std::to_string(device.id());
}

std::vector<std::string> names_of(const std::vector<pjrt::Device*>& devices) {
  std::vector<std::string> names;
  for (const pjrt::Device* device : devices) names.push_back(name_of(*device));
  return names;
}

std::vector<std::string> local_devices() {
  return names_of(Runtime::get().client().addressable_devices());
}

// As torch sees them: in SPMD mode the first stands for all.
std::vector<std::string> torch_devices() {
  std::vector<std::string> names = local_devices();
  if (lazy::is_spmd()) names.resize(1);
  return names;
}

std::vector<std::string> all_devices() { return names_of(Runtime::get().client().devices()); }

py::dict attributes_of(const std::string& name) {
  pjrt::Device* device = nullptr;
  std::string given;
  {
    py::gil_scoped_release no_gil;
    device = Runtime::get().device(parse_device(name));
    given = name_of(*device);
  }
  py::dict result = to_dict(device->attributes());
  result["name"] = given;
  return result;
}

py::list all_attributes() {
  std::vector<pjrt::Device*> devices;
  {
    py::gil_scoped_release no_gil;
    devices = Runtime::get().client().devices();
  }
  py::list result;
  for (const pjrt::Device* device : devices) {
    py::dict entry = to_dict(device->attributes());
    entry["name"] = name_of(*device);
    entry["process_index"] = device->process_index();
    result.append(entry);
  }
  return result;
}

int num_processes() {
  int last = 0;
  for (const pjrt::Device* device : Runtime::get().client().devices()) {
    last = std::max(last, device->process_index());
  }
  return last + 1;
}

// Bytes. From the plugin, or where it keeps no account (CPU) from our own: what tensors hold, out
// of the memory of the machine.
std::map<std::string, int64_t> memory_info(const std::string& name) {
  const c10::Device device = parse_device(name);
  if (const auto stats = Runtime::get().device(device)->memory_stats()) {
    return {{"bytes_used", stats->bytes_in_use},
            {"bytes_limit", stats->bytes_limit.value_or(0)},
            {"peak_bytes_used", stats->peak_bytes_in_use.value_or(stats->bytes_in_use)}};
  }
  const lazy::LiveBytes live = lazy::live_bytes(device.index());
  return {{"bytes_used", live.now},
          {"bytes_limit", lazy::memory_limit(device.index())},
          {"peak_bytes_used", live.peak}};
}

void wait_device_ops(const std::vector<std::string>& names) {
  if (!Runtime::is_initialized()) return;
  if (!names.empty()) {
    for (const std::string& name : names) lazy::wait_device(parse_device(name));
    return;
  }
  for (int i = 0; i < Runtime::get().device_count(); ++i) {
    lazy::wait_device({c10::kXLA, static_cast<c10::DeviceIndex>(i)});
  }
}

}  // namespace

c10::Device parse_device(const std::string& name) {
  c10::Device device(c10::kXLA, lazy::current_device());
  const size_t colon = name.find(':');
  if (name.starts_with("xla")) {
    device = lazy::normalize(c10::Device(name));
  } else if (!name.empty()) {
    const std::string kind = name.substr(0, colon);
    TORCH_CHECK(kind == Runtime::get().device_type(), "no device '", name, "': this process has ",
                Runtime::get().device_type(), " devices");
    const std::string number = colon == std::string::npos ? "0" : name.substr(colon + 1);
    TORCH_CHECK(!number.empty() && number.size() < 4 &&
                    number.find_first_not_of("0123456789") == std::string::npos &&
                    std::stoi(number) < 128,
                "'", name, "' is no device: the part after ':' must be a number");
    // Names carry the plugin's own numbers, which differ from ours where processes share devices.
    const auto& devices = Runtime::get().client().addressable_devices();
    const auto found = std::find_if(devices.begin(), devices.end(), [&](const auto* candidate) {
      return candidate->id() == std::stoi(number);
    });
    TORCH_CHECK(found != devices.end(), "no device '", name, "' in this process");
    device = {c10::kXLA, static_cast<c10::DeviceIndex>(found - devices.begin())};
  }
  Runtime::get().device(device);
  return device;
}

std::string device_name(c10::Device device) {
  return name_of(*Runtime::get().device(lazy::normalize(device)));
}

void bind_runtime(py::module_& m) {
  main_thread();
  lazy::set_interrupts(
      {[] { return PyThread_get_thread_ident() == main_thread(); }, check_signals});
  m.def("_set_runtime_configurator", set_configurator,
        "Sets what chooses the plugin at the first use of a device: () -> (device type, path of "
        "the plugin, its options).");
  m.def("_init_computation_client", [] { Runtime::get(); }, WithoutGil());
  m.def("_xla_runtime_is_initialized", [] { return Runtime::is_initialized(); });
  m.def("_forked_with_client", [] { return pjrt::forked_with_client(); });

  m.def("_xla_get_devices", torch_devices, WithoutGil());
  m.def("_xla_get_all_devices", all_devices, WithoutGil());
  m.def("_xla_get_runtime_devices", local_devices, WithoutGil());
  m.def("_xla_get_all_runtime_devices", all_devices, WithoutGil());
  m.def(
      "_xla_real_devices",
      [](const std::vector<std::string>& names) {
        if (names.empty()) return local_devices();
        std::vector<std::string> result;
        for (const std::string& name : names) result.push_back(device_name(parse_device(name)));
        return result;
      },
      py::arg("devices") = std::vector<std::string>(), WithoutGil());
  m.def("_xla_num_devices", [] { return Runtime::get().device_count(); }, WithoutGil());
  m.def("_xla_num_runtime_devices", [] { return local_devices().size(); }, WithoutGil());
  m.def(
      "_xla_num_global_devices", [] { return Runtime::get().client().devices().size(); },
      WithoutGil());

  m.def("_xla_get_default_device", [] { return parse_device("").str(); }, WithoutGil());
  m.def("_xla_get_default_device_ordinal", [] { return int{lazy::current_device()}; });
  m.def(
      "_xla_set_default_device",
      [](const std::string& name) {
        const std::string before = c10::Device(c10::kXLA, lazy::current_device()).str();
        lazy::set_current_device(parse_device(name).index());
        return before;
      },
      WithoutGil(), "Sets the calling thread's default device; returns the one before.");
  m.def(
      "_xla_get_device_ordinal",
      [](const std::string& name) { return int{parse_device(name).index()}; }, WithoutGil());
  m.def(
      "_xla_get_device_hw_type", [](const std::string&) { return Runtime::get().device_type(); },
      WithoutGil());
  m.def(
      "_xla_device_kind",
      [](const std::string& name) { return Runtime::get().device(parse_device(name))->kind(); },
      WithoutGil());
  m.def("_xla_get_device_attributes", attributes_of);
  m.def("_xla_get_all_device_attributes", all_attributes);

  m.def(
      "_xla_get_process_index", [] { return Runtime::get().client().process_index(); },
      WithoutGil());
  m.def("_xla_get_num_processes", num_processes, WithoutGil());
  m.def(
      "_xla_get_platform_version", [] { return Runtime::get().client().platform_version(); },
      WithoutGil());
  m.def("_plugin_path", [] { return Runtime::get().config().plugin_path; }, WithoutGil());
  m.def(
      "_plugin_api_version",
      [] {
        const auto version = Runtime::get().client().plugin()->api_version();
        return std::pair(version.major, version.minor);
      },
      WithoutGil());

  m.def("_xla_memory_info", memory_info, WithoutGil());
  m.def("_xla_wait_device_ops", wait_device_ops, py::arg("devices") = std::vector<std::string>(),
        WithoutGil());
}

}  // namespace torch_xla::python
