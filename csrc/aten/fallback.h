#pragma once

#include <ATen/core/stack.h>

namespace c10 {
class OperatorHandle;
}

namespace torch_xla::aten {

// Runs one call of an operator through a decomposition into others, replacing the arguments on the
// stack by the results. Returns false, the stack untouched, when there is none for the operator.
using Decomposer = bool (*)(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The decompositions are written in Python, so the bindings provide this; without one, operators
// go to the host.
void set_decomposer(Decomposer decomposer);

}  // namespace torch_xla::aten
