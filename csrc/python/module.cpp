#include <torch/csrc/Exceptions.h>

#include "lazy/program_error.h"
#include "python/bindings.h"

namespace {

// Errors become what they become everywhere in torch: c10::IndexError an IndexError, and so on,
// with the message only.
void translate(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const py::builtin_exception&) {
    throw;
  } catch (py::error_already_set&) {
    throw;
  } catch (const torch_xla::pjrt::Error& program) {
    try {
      torch_xla::lazy::throw_as_cpu_does(program);
    } catch (...) {
      torch::translate_exception_to_python(std::current_exception());
    }
  } catch (...) {
    torch::translate_exception_to_python(error);
  }
}

}  // namespace

PYBIND11_MODULE(_XLAC, module) {
  module.doc() = "The compiled half of torch_xla. Use the torch_xla package.";
  py::register_local_exception_translator([](std::exception_ptr error) {
    if (error) translate(error);
  });
  torch_xla::python::bind_runtime(module);
  torch_xla::python::bind_sync(module);
  torch_xla::python::bind_tensors(module);
  torch_xla::python::bind_metrics(module);
  torch_xla::python::bind_random(module);
  torch_xla::python::bind_locations(module);
  torch_xla::python::bind_compiled_graphs(module);
  torch_xla::python::bind_guards(module);
  torch_xla::python::bind_spmd(module);
  torch_xla::python::bind_topologies(module);
  torch_xla::python::bind_decompositions(module);
}
