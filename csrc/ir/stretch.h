#pragma once

#include "ir/node.h"

namespace torch_xla::ir {

// `value`, which repeats itself along `dim`, with `size` repetitions instead. Empty when it is not
// what read_view() made of an expanded tensor.
Value stretch_view(const Value& value, size_t dim, int64_t size);

}  // namespace torch_xla::ir
