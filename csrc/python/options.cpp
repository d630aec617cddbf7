#include "python/options.h"

#include <string>
#include <variant>
#include <vector>

namespace torch_xla::python {

pjrt::Option to_option(const py::handle& value) {
  // A bool is an int to Python, so it comes first.
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<float>();
  if (py::isinstance<py::str>(value)) return value.cast<std::string>();
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    return value.cast<std::vector<int64_t>>();
  }
  throw py::type_error("a plugin option is a str, int, bool, float or list of int, not " +
                       std::string(py::str(py::type::of(value))));
}

pjrt::Options to_options(const py::dict& values) {
  pjrt::Options options;
  for (const auto& [name, value] : values) {
    options.emplace_back(name.cast<std::string>(), to_option(value));
  }
  return options;
}

py::object from_option(const pjrt::Option& option) {
  return std::visit([](const auto& value) -> py::object { return py::cast(value); }, option);
}

py::dict to_dict(const pjrt::Attributes& attributes) {
  py::dict result;
  for (const auto& [name, value] : attributes) result[py::str(name)] = from_option(value);
  return result;
}

}  // namespace torch_xla::python
