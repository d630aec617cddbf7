#pragma once

#include <ATen/core/stack.h>

#include <cstdint>

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

// How calls of an operator with dense xla tensors run, in the order in which the ways are tried.
enum class Route : uint8_t {
  kKernel,         // a kernel of our own
  kComposite,      // torch's own composite of other operators
  kDerived,        // the in-place or out= form of an operator that has one of these
  kDecomposition,  // torch's decomposition in Python
  kHostCall,       // torch's CPU kernel, called from within the program (host_call.h)
  kHost,           // torch's CPU kernel, with copies to the host and back
  kNone,           // refused: no kernel for dense CPU tensors either
};

// `decomposes`: whether there is a decomposition for the operator.
Route route_of(const c10::OperatorHandle& op, bool decomposes);

// Counts a call that the host computes, with copies there and back, under the operator's name, and
// warns of the first.
void note_host_trip(const c10::OperatorHandle& op);

}  // namespace torch_xla::aten
