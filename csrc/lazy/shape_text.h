#pragma once

#include <span>
#include <string>

#include "ir/node.h"

namespace torch_xla::lazy {

// In HLO's spelling: f32[128,64].
std::string shape_text(ir::ElementType type, std::span<const int64_t> dims);

}  // namespace torch_xla::lazy
