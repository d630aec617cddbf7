#pragma once

#include <ATen/core/stack.h>

namespace c10 {
class OperatorHandle;
}

namespace torch_xla::aten {

// Whether `op` is an in-place or out= form of an operator that has an XLA kernel or a host call.
bool is_derived(const c10::OperatorHandle& op);

// In-place and out= forms of operators whose functional form has an XLA kernel: run that and copy
// the result, with torch's checks. Returns false, the stack untouched, when `op` is no such form.
bool run_derived(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace torch_xla::aten
