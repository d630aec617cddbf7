#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include "ir/location.h"

namespace torch_xla::python {

// Runs what may sync without the GIL. The Python line that asked is noted first, for which the GIL
// is needed; warnings on the way become Python's.
template <class Function>
void syncing(const Function& function) {
  ir::current_location();
  torch::PyWarningHandler warnings;
  try {
    py::gil_scoped_release no_gil;
    function();
  } catch (...) {
    warnings.set_in_exception();
    throw;
  }
}

}  // namespace torch_xla::python
