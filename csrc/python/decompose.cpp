// Operators that torch decomposes in Python (torch._decomp, torch._refs), run over our kernels.

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <mutex>
#include <unordered_map>

#include "aten/fallback.h"
#include "python/bindings.h"

namespace torch_xla::python {
namespace {

namespace py = pybind11;

// torch_xla._decompositions.lookup(name, overload): a callable, or None.
py::object look_up(const c10::OperatorName& name) {
  static auto* known = new std::unordered_map<c10::OperatorName, py::object>;  // under the GIL
  const auto entry = known->find(name);
  if (entry != known->end()) return entry->second;
  py::object found = py::module_::import("torch_xla._decompositions")
                         .attr("lookup")(name.name, name.overload_name);
  return known->emplace(name, std::move(found)).first->second;
}

// An argument as Python knows it. Schemas keep dtypes, layouts and memory formats as numbers.
py::object to_python(const c10::IValue& value, const c10::Argument& argument) {
  if (value.isInt()) {
    c10::TypePtr type = argument.real_type();
    if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    switch (type->kind()) {
      case c10::TypeKind::ScalarTypeType:
        return py::cast(value.toScalarType());
      case c10::TypeKind::LayoutType:
        return py::cast(value.toLayout());
      case c10::TypeKind::MemoryFormatType:
        return py::cast(value.toMemoryFormat());
      default:
        break;
    }
  }
  return torch::jit::toPyObject(value);
}

// Calls `function` with the operator's arguments as its schema names them.
py::object call(const py::object& function, const c10::FunctionSchema& schema,
                torch::jit::Stack* stack) {
  const auto values = torch::jit::last(*stack, schema.arguments().size());
  py::list positional;
  py::dict keywords;
  for (size_t i = 0; i < values.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    py::object value = to_python(values[i], argument);
    if (argument.kwarg_only()) {
      keywords[argument.name().c_str()] = value;
    } else {
      positional.append(value);
    }
  }
  return function(*positional, **keywords);
}

void push_results(const py::object& result, const c10::FunctionSchema& schema,
                  torch::jit::Stack* stack) {
  const auto& returns = schema.returns();
  if (returns.size() == 1) {
    stack->push_back(torch::jit::toIValue(result, returns[0].type()));
    return;
  }
  const auto results = py::cast<py::sequence>(result);
  for (size_t i = 0; i < returns.size(); ++i) {
    stack->push_back(torch::jit::toIValue(results[i], returns[i].type()));
  }
}

bool decompose(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  py::gil_scoped_acquire gil;
  const py::object function = look_up(op.operator_name());
  if (function.is_none()) return false;
  try {
    const py::object result = call(function, op.schema(), stack);
    if (result.is(py::handle(Py_NotImplemented))) return false;
    torch::jit::drop(*stack, op.schema().arguments().size());
    push_results(result, op.schema(), stack);
  } catch (py::error_already_set& error) {
    // The original exception, type and all.
    python_error rethrown;
    error.restore();
    rethrown.persist();
    throw rethrown;
  }
  return true;
}

// How calls of "aten::add", overload "Tensor" run, as docs/operators.md names it.
std::string route(const std::string& name, const std::string& overload) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  TORCH_CHECK(op, "there is no operator ", name, overload.empty() ? "" : ".", overload);
  switch (aten::route_of(*op, !look_up(op->operator_name()).is_none())) {
    case aten::Route::kKernel:
      return "kernel";
    case aten::Route::kComposite:
      return "composite";
    case aten::Route::kDerived:
      return "derived";
    case aten::Route::kDecomposition:
      return "decomposition";
    case aten::Route::kHostCall:
      return "host call";
    case aten::Route::kHost:
      return "host";
    case aten::Route::kNone:
      return "none";
  }
  return "none";
}

}  // namespace

void bind_decompositions(py::module_& m) {
  aten::set_decomposer(&decompose);
  m.def("_operator_route", route, py::arg("name"), py::arg("overload"));
}

}  // namespace torch_xla::python
