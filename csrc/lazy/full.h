#pragma once

#include <c10/core/Scalar.h>

#include <optional>
#include <span>

#include "ir/node.h"

namespace torch_xla::lazy {

// A rank-0 value of `type` holding `number`, as data: it may differ from step to step without a
// recompile.
ir::Value scalar(const c10::Scalar& number, ir::ElementType type);

// `number` in every element. 0 and 1 are constants of the program, anything else is data.
ir::Value full(const c10::Scalar& number, ir::ElementType type, std::span<const int64_t> sizes);

// The number in every element of a value that full() made; nothing for any other value.
std::optional<c10::Scalar> number_of_full(const ir::Value& value);
bool is_full(const ir::Value& value);

}  // namespace torch_xla::lazy
