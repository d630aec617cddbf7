#pragma once

#include "aten/kernel.h"

namespace torch_xla::aten {

// `number` (rank 0, any type) where `mask` holds, else `self`; all broadcast to `sizes`.
Value masked_fill_node(const Value& self, const Value& mask, const Value& number,
                       at::IntArrayRef sizes);

}  // namespace torch_xla::aten
