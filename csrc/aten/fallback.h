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

// Counts a call that the host computes, with copies there and back, under the operator's name, and
// warns of the first.
void note_host_trip(const c10::OperatorHandle& op);

}  // namespace torch_xla::aten
