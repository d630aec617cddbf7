#include "aten/derived.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/copy.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "aten/host_call.h"
#include "aten/kernel.h"

namespace torch_xla::aten {
namespace {

using c10::FunctionSchema;
using c10::OperatorHandle;

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

// The form that `op` is derived from, and which arguments of `op` receive its results.
struct Derivation {
  OperatorHandle functional;
  std::vector<size_t> targets;
  bool out;  // targets are out= arguments, which the functional form does not take
};

// "aten::add_" and "aten::add" (from add.out) have the functional form "aten::add".
std::string functional_name(const FunctionSchema& schema, bool out) {
  std::string name = schema.name();
  if (!out && name.ends_with('_') && !name.ends_with("__")) name.pop_back();
  return name;
}

// The same arguments, but for out= ones and the marks of what is written.
bool same_inputs(const FunctionSchema& derived, const FunctionSchema& functional, bool out) {
  std::vector<const c10::Argument*> inputs;
  for (const c10::Argument& argument : derived.arguments()) {
    if (!out || !is_written(argument)) inputs.push_back(&argument);
  }
  const auto& wanted = functional.arguments();
  if (inputs.size() != wanted.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (inputs[i]->name() != wanted[i].name() || *inputs[i]->type() != *wanted[i].type()) {
      return false;
    }
  }
  return true;
}

const std::vector<c10::OperatorName>& overloads_of(const std::string& name) {
  static const auto* index = [] {
    auto* by_name = new std::unordered_map<std::string, std::vector<c10::OperatorName>>;
    for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
      (*by_name)[op.name].push_back(op);
    }
    return by_name;
  }();
  static const std::vector<c10::OperatorName> none;
  const auto entry = index->find(name);
  return entry == index->end() ? none : entry->second;
}

std::optional<Derivation> derive(const OperatorHandle& op) {
  const FunctionSchema& schema = op.schema();
  std::vector<size_t> targets;
  bool out = true;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (!is_written(argument)) continue;
    if (argument.type()->kind() != c10::TypeKind::TensorType) return std::nullopt;
    targets.push_back(i);
    out &= argument.is_out();
  }
  if (targets.empty() || (!out && targets != std::vector<size_t>{0})) return std::nullopt;
  const std::string name = functional_name(schema, out);
  for (const c10::OperatorName& candidate : overloads_of(name)) {
    const auto functional = c10::Dispatcher::singleton().findSchema(candidate);
    if (!functional || functional->operator_name() == op.operator_name() ||
        functional->schema().is_mutable() ||
        !(functional->hasKernelForDispatchKey(c10::DispatchKey::XLA) ||
          functional->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
          is_host_callable(*functional)) ||
        functional->schema().returns().size() != targets.size() ||
        !same_inputs(schema, functional->schema(), out)) {
      continue;
    }
    return Derivation{*functional, targets, out};
  }
  return std::nullopt;
}

// Looked for once an operator.
const std::optional<Derivation>& derivation_of(const OperatorHandle& op) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<c10::OperatorName, std::optional<Derivation>>;
  std::lock_guard lock(mutex);
  const auto entry = known->find(op.operator_name());
  if (entry != known->end()) return entry->second;
  return known->emplace(op.operator_name(), derive(op)).first->second;
}

// Operators whose out= takes no other dtype than the result's, in PyTorch's words.
void check_dtype(const c10::OperatorHandle& functional, const at::Tensor& target,
                 const at::Tensor& result) {
  if (target.scalar_type() == result.scalar_type()) return;
  const std::string_view name = functional.operator_name().name;
  TORCH_CHECK(name != "aten::nonzero", "nonzero: Expected out tensor to have scalar type ",
              result.scalar_type(), " but got scalar type", target.scalar_type());
  TORCH_CHECK(name != "aten::searchsorted" && name != "aten::bucketize",
              "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or "
              "Long(int64) depending on whether out_int32 flag is True, but we got output tensor's "
              "dtype ",
              target.scalar_type(), " and out_int32 flag is ",
              result.scalar_type() == at::kInt ? "True" : "False");
}

// `strides`: a target that has to be resized takes the result's.
void store(const at::Tensor& target, const at::Tensor& result, bool out, bool strides) {
  TORCH_CHECK(at::canCast(result.scalar_type(), target.scalar_type()), "result type ",
              result.scalar_type(), " can't be cast to the desired output type ",
              target.scalar_type());
  if (out) {
    if (at::native::resize_output(target, result.sizes()) && strides) {
      target.as_strided_(result.sizes(), result.strides());
    }
  } else {
    TORCH_CHECK(target.sizes() == result.sizes(), "output with shape ", target.sizes(),
                " doesn't match the broadcast shape ", result.sizes());
  }
  target.copy_(result);
}

// CPU's kernels with an out= argument write LAPACK's columns there, but FFTs row by row.
bool takes_strides(const OperatorHandle& functional) {
  const std::string& name = functional.schema().name();
  return name == "aten::cholesky_inverse" ||
         (is_host_callable(functional) && !name.starts_with("aten::_fft_"));
}

}  // namespace

bool is_derived(const OperatorHandle& op) { return derivation_of(op).has_value(); }

bool run_derived(const OperatorHandle& op, torch::jit::Stack* stack) {
  const std::optional<Derivation>& derivation = derivation_of(op);
  if (!derivation) return false;
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  std::vector<at::Tensor> targets;
  for (size_t i : derivation->targets) targets.push_back(arguments[i].toTensor());
  torch::jit::Stack inner;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (derivation->out && is_written(op.schema().arguments()[i])) continue;
    inner.push_back(arguments[i]);
  }
  derivation->functional.callBoxed(&inner);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (derivation->out) check_dtype(derivation->functional, targets[i], inner[i].toTensor());
    store(targets[i], inner[i].toTensor(), derivation->out, takes_strides(derivation->functional));
  }
  torch::jit::drop(*stack, arguments.size());
  for (const at::Tensor& target : targets) torch::jit::push(*stack, target);
  return true;
}

}  // namespace torch_xla::aten
