// Tensors: their graphs as text, their identity, transfers of many at a time.

#include <algorithm>
#include <cstring>
#include <sstream>

#include "aten/barrier.h"
#include "ir/dump.h"
#include "lazy/data.h"
#include "lazy/executor.h"
#include "lazy/metrics.h"
#include "lazy/storage.h"
#include "lazy/tensor.h"
#include "lazy/transfer.h"
#include "lazy/untold.h"
#include "python/bindings.h"

namespace torch_xla::python {
namespace {

using Tensors = std::vector<at::Tensor>;

std::atomic<bool> g_show_locations{false};

std::vector<ir::Value> values_of(const Tensors& tensors) {
  std::vector<ir::Value> values;
  values.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) values.push_back(lazy::read(tensor));
  return values;
}

std::string tensors_text(const Tensors& tensors) {
  return ir::to_text(values_of(tensors), g_show_locations);
}

// The program that would compute these tensors. Without tensors: everything pending on a device.
std::string stablehlo_of(const Tensors& tensors, const std::string& device) {
  std::vector<ir::Value> roots = values_of(tensors);
  if (tensors.empty()) {
    for (const auto& storage : lazy::LazyStorage::all_pending(parse_device(device).index())) {
      roots.push_back(storage->value());
    }
  }
  return lazy::stablehlo_text(roots);
}

py::bytes graph_hash(const Tensors& tensors) {
  ir::Hash128 key;
  {
    py::gil_scoped_release no_gil;
    key = lazy::graph_key(values_of(tensors));
  }
  char bytes[16];
  std::memcpy(bytes, &key.high, 8);
  std::memcpy(bytes + 8, &key.low, 8);
  return py::bytes(bytes, sizeof bytes);
}

// What identifies a tensor's memory: equal for tensors that share it, whatever part they see.
int64_t tensor_id(const at::Tensor& tensor) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(&lazy::storage_of(tensor)));
}

std::vector<bool> need_materialization(const Tensors& tensors) {
  std::vector<bool> result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(lazy::is_xla(tensor) && lazy::storage_of(tensor).pending());
  }
  return result;
}

bool any_failed(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    if (!lazy::is_xla(tensor)) return false;
    const ir::Value value = lazy::storage_of(tensor).value_or_empty();
    lazy::DeviceData* data = lazy::DeviceData::of(value);
    if (!data) return false;
    data->settle();
    return data->failed();
  });
}

std::string debug_info(const at::Tensor& tensor) {
  const ir::Value value = lazy::read(tensor);
  std::ostringstream out;
  out << "XLATensor {\n"
      << "TensorID: " << tensor_id(tensor) << "\n"
      << "Device: " << device_name(tensor.device()) << "\n"
      << "XLA Shape: " << value.shape().to_string() << "\n";
  if (const lazy::DeviceData* data = lazy::DeviceData::of(value)) {
    const char* state = data->failed()      ? "failed"
                        : data->has_array() ? "on the device"
                                            : "being computed";
    out << "IR: None\nXLAData: " << state << "\n";
  } else {
    out << "IR: " << value.node->op().name << "\n";
    const std::string location = ir::describe(value.node->location());
    if (!location.empty()) out << "Location: " << location << "\n";
    out << "XLAData: None\n";
  }
  out << "}\n";
  return out.str();
}

std::string tensors_report(const std::string& device) {
  std::ostringstream out;
  for (const auto& storage : lazy::LazyStorage::all_pending(parse_device(device).index())) {
    const ir::Value value = storage->value();
    out << "Tensor: id=" << reinterpret_cast<intptr_t>(storage.get())
        << ", shape=" << value.shape().to_string() << ", device=" << device_name(storage->device())
        << "\n"
        << ir::to_text(std::span(&value, 1), g_show_locations) << "\n";
  }
  return out.str();
}

// CPU copies of xla tensors, after one sync; other tensors as they are.
Tensors cpu_tensors(const Tensors& tensors) {
  Tensors on_device;
  for (const at::Tensor& tensor : tensors) {
    if (lazy::is_xla(tensor)) on_device.push_back(tensor);
  }
  Tensors fetched = lazy::download(on_device);
  Tensors result;
  size_t next = 0;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(lazy::is_xla(tensor) ? std::move(fetched[next++]) : tensor);
  }
  return result;
}

// Copies of CPU tensors, each on the device of the same position (or all on the only one).
Tensors tensors_from_aten(const Tensors& tensors, const std::vector<std::string>& devices) {
  TORCH_CHECK(devices.size() == 1 || devices.size() == tensors.size(), "got ", tensors.size(),
              " tensors for ", devices.size(), " devices");
  Tensors result;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const c10::Device device = parse_device(devices.size() == 1 ? devices[0] : devices[i]);
    TORCH_CHECK(tensors[i].device().is_cpu(), "expected CPU tensors, got one on ",
                tensors[i].device());
    at::Tensor copy =
        lazy::make(lazy::upload(tensors[i], device), tensors[i].scalar_type(), device);
    if (tensors[i].requires_grad()) copy.set_requires_grad(true);
    result.push_back(std::move(copy));
  }
  return result;
}

uintptr_t unsafe_buffer_pointer(const at::Tensor& tensor) {
  lazy::DeviceData* data = lazy::DeviceData::of(lazy::read(tensor));
  TORCH_CHECK(data,
              "the tensor has no buffer of its own: it is a view, or was not computed yet "
              "(torch_xla.sync())");
  return data->array().buffer().unsafe_pointer();
}

}  // namespace

void bind_tensors(py::module_& m) {
  m.def("_get_xla_tensors_text", tensors_text, WithoutGil());
  m.def(
      "_get_xla_tensors_dot", [](const Tensors& tensors) { return ir::to_dot(values_of(tensors)); },
      WithoutGil());
  m.def("_get_stablehlo", stablehlo_of, py::arg("tensors") = Tensors(), py::arg("device") = "",
        WithoutGil());
  m.def("_get_graph_hash", graph_hash);
  m.def(
      "_any_failed", any_failed, py::arg("tensors"), WithoutGil(),
      "Whether any of the tensors is known to have failed to be computed. Waits for programs whose "
      "checks decide about that.");
  m.def("_num_failures", lazy::num_failures,
        "How many arrays are known to have failed to be computed since the process began.");
  m.def("_get_xla_tensor_debug_info", debug_info, WithoutGil());
  m.def("_xla_tensors_report", tensors_report, py::arg("device") = "", WithoutGil());
  m.def(
      "_set_ir_debug", [](bool show) { g_show_locations = show; },
      "With true, graphs printed from here on show each node's Python line.");
  m.def("_get_ir_debug", [] { return g_show_locations.load(); });

  m.def("_xla_get_tensor_id", tensor_id, WithoutGil());
  m.def("_xla_get_tensor_view_alias_id", tensor_id, WithoutGil());
  m.def("_check_tensor_need_materialization", need_materialization, WithoutGil());
  m.def(
      "_get_xla_tensor_shape_type",
      [](const at::Tensor& tensor) { return lazy::read(tensor).shape().to_string(); },
      WithoutGil());
  m.def(
      "_get_xla_tensor_dimension_size",
      [](const at::Tensor& tensor, int64_t dim) { return tensor.size(dim); }, WithoutGil());
  m.def("_unsafe_buffer_pointer", unsafe_buffer_pointer, WithoutGil());

  m.def("_xla_get_cpu_tensors", cpu_tensors, WithoutGil());
  m.def("_xla_tensors_from_aten", tensors_from_aten, py::arg("tensors"), py::arg("devices"),
        WithoutGil());
  m.def("_xla_optimization_barrier_", aten::optimization_barrier_, WithoutGil());
}

}  // namespace torch_xla::python
