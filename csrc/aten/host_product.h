#pragma once

#include "aten/kernel.h"

namespace torch_xla::aten {

// Products over the rows of both operands, as gradients of weights are: the CPU plugin's programs
// compute large ones by the sgemm that torch itself uses (MKL), where XLA's own loops are slower.
// docs/performance.md has the measurements.

// Whether such a product of so many multiply-adds is to be computed so.
bool prefers_host_product(ElementType type, int64_t multiply_adds);

// a^T b as [m, n], of f32 a [..., m] and b [..., n] with the same leading dimensions.
XlaValue host_product(Lowering& l, const XlaValue& a, const XlaValue& b);

}  // namespace torch_xla::aten
