#pragma once

#include "aten/kernel.h"

namespace torch_xla::aten {

// `number` (rank 0, any type) where `mask` holds, else `self`; all broadcast to `sizes`.
Value masked_fill_node(const Value& self, const Value& mask, const Value& number,
                       at::IntArrayRef sizes);

// Throws c10::Error, in PyTorch's words, for a number that overflows `type`, as 1e6 does float16.
void check_number(const at::Scalar& number, at::ScalarType type);
// The same for what fills `elements` elements: a single 16-bit float may become infinite, on CPU
// too.
void check_filling(const at::Scalar& number, at::ScalarType type, int64_t elements);

// What PyTorch warns of when `op` writes to a tensor whose elements share their memory.
std::string expanded_warning(const char* op);

}  // namespace torch_xla::aten
