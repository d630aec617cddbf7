#pragma once

// Operators that torch puts together from others, kept whole here: one node instead of many. Their
// kernels stand on the autograd key, above torch's own composition.

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "aten/kernel.h"

namespace torch_xla::aten {

// Whether an operator may be kept whole: nobody looks at the parts. Python modes, wrapped tensors
// and function transforms want them, and so does forward-mode differentiation.
inline bool keep_whole(c10::DispatchKeySet keys,
                       std::initializer_list<std::reference_wrapper<const at::Tensor>> operands) {
  constexpr c10::DispatchKeySet observers({c10::DispatchKey::Python,
                                           c10::DispatchKey::FuncTorchGradWrapper,
                                           c10::DispatchKey::FuncTorchDynamicLayerBackMode});
  if (keys.has_any(observers) ||
      c10::impl::TorchDispatchModeTLS::any_modes_set(/*skip_infra_modes=*/false)) {
    return false;
  }
  for (const at::Tensor& operand : operands) {
    if (!operand.defined()) continue;
    const c10::TensorImpl* impl = operand.unsafeGetTensorImpl();
    if (!impl->is_xla()) return false;
    if (impl->autograd_meta() && operand._fw_grad(/*level=*/0).defined()) return false;
  }
  return true;
}

inline bool needs_gradient(
    std::initializer_list<std::reference_wrapper<const at::Tensor>> operands) {
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor& operand : operands) {
    if (operand.defined() && operand.requires_grad()) return true;
  }
  return false;
}

// An operator that torch has a derivative for and composes nevertheless. Its generated autograd
// kernel saves what it needs and runs what comes after it on the key set given; with a kernel of
// our own on the same key it can be reached under the key of nested tensors only.
template <class Signature>
class GeneratedAutograd {
 public:
  explicit GeneratedAutograd(const char* name)
      : op_(c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>()),
        exists_(op_.hasKernelForDispatchKey(c10::DispatchKey::Autograd)) {}

  bool exists() const { return exists_; }
  template <class... Args>
  decltype(auto) operator()(c10::DispatchKeySet keys, Args&&... args) const {
    return op_.redispatch((keys & c10::after_autograd_keyset) |
                              c10::DispatchKeySet(c10::DispatchKey::AutogradNestedTensor),
                          std::forward<Args>(args)...);
  }

 private:
  c10::TypedOperatorHandle<Signature> op_;
  bool exists_;
};

}  // namespace torch_xla::aten
