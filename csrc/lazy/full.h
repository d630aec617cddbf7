#pragma once

#include <c10/core/Scalar.h>

#include <span>

#include "ir/node.h"

namespace torch_xla::lazy {

// A rank-0 value of `type` holding `number`, as data: it may differ from step to step without a
// recompile.
ir::Value scalar(const c10::Scalar& number, ir::ElementType type);

// `number` in every element. 0 and 1 are constants of the program, anything else is data.
ir::Value full(const c10::Scalar& number, ir::ElementType type, std::span<const int64_t> sizes);

}  // namespace torch_xla::lazy
