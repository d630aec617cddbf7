#pragma once

#include <span>
#include <string>

#include "ir/node.h"

namespace torch_xla::ir {

// The graph below `roots`, one line a node:
//   IR {
//     %0 = f32[3,2]{1,0} xla::device_data(), xla_shape=f32[3,2]{1,0}
//     %1 = f32[3,2]{1,0} aten::relu(%0), xla_shape=f32[3,2]{1,0}, ROOT=0
//   }
// With `locations`, each line also has location=function@file:line where it is known.
std::string to_text(std::span<const Value> roots, bool locations = false);

// The same graph for Graphviz.
std::string to_dot(std::span<const Value> roots);

}  // namespace torch_xla::ir
