#pragma once

#include <string>

#include "ir/hash.h"

namespace torch_xla::python {

// 32 hexadecimal digits.
std::string hex(const ir::Hash128& hash);

}  // namespace torch_xla::python
