#pragma once

#include <torch/csrc/utils/pybind.h>

#include "pjrt/option.h"

namespace torch_xla::python {

// Named values of a plugin as Python has them: str, int, bool, float or list of int.

// Throws py::type_error for any other value.
pjrt::Option to_option(const py::handle& value);
pjrt::Options to_options(const py::dict& values);
py::object from_option(const pjrt::Option& option);
py::dict to_dict(const pjrt::Attributes& attributes);

}  // namespace torch_xla::python
