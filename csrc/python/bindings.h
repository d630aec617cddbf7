#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <vector>

// The extension module _XLAC, one function a topic. Names that upstream's module has keep their
// names, arguments and results; what they do is said here and not again in the package.
//
// Everything that may block, compile or take a lock of another layer runs without the GIL.
namespace torch_xla::python {

void bind_runtime(py::module_& module);
void bind_sync(py::module_& module);
void bind_tensors(py::module_& module);
void bind_metrics(py::module_& module);
void bind_random(py::module_& module);
void bind_locations(py::module_& module);
void bind_compiled_graphs(py::module_& module);
void bind_guards(py::module_& module);
void bind_spmd(py::module_& module);
void bind_topologies(py::module_& module);
void bind_decompositions(py::module_& module);

// "xla:1", "xla" (the thread's current device), "" (the same) or "CPU:1". Throws c10::Error for
// anything else and for a device that does not exist.
c10::Device parse_device(const std::string& name);
// "CPU:1": what a device is, in upstream's spelling.
std::string device_name(c10::Device device);

using WithoutGil = py::call_guard<py::gil_scoped_release>;

}  // namespace torch_xla::python
