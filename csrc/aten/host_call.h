#pragma once

#include <ATen/core/stack.h>

#include <span>

#include "ir/node.h"

namespace c10 {
class OperatorHandle;
}

namespace torch_xla::aten {

// Operators that the CPU plugin's programs compute by calling torch's own CPU kernel, as a custom
// call: nothing is read back, and the program stays whole.

// Whether calls of `op` may be made so: on the CPU plugin; an operator of aten that writes to no
// argument, gives tensors only, draws no random numbers, and has a CPU kernel and a meta function
// but no composite one.
bool is_host_callable(const c10::OperatorHandle& op);

// Whether that is better than torch's decomposition: where it rounds otherwise than the kernel.
bool prefers_host_call(const c10::OperatorHandle& op);

// Records one call, replacing the arguments on the stack by the results. Returns false, the stack
// untouched, where `op` or these arguments do not allow it: then the host computes it at once, and
// raises CPU's errors. Errors of the kernel while the program runs name the operator and the Python
// line, and surface at the next read of what the program computes.
bool run_host_call(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The same for kernels that know their results' shapes and may do otherwise: a node whose outputs
// are the defined results of the operator `name` ("aten::linalg_cholesky_ex"), or null where the
// plugin cannot. Arguments are tensors on the device, numbers and lists.
ir::NodePtr host_node(const char* name, const torch::jit::Stack& arguments,
                      std::span<const ir::ShapeRef> shapes);

}  // namespace torch_xla::aten
