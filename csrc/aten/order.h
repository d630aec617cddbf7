#pragma once

#include "aten/kernel.h"

namespace torch_xla::aten {

// Whether elements of `left` come before those of `right` (one real type, one shape) when sorted: a
// NaN is greater than any number. Gives kPred.
XlaValue comes_before(Builder& b, XlaValue left, XlaValue right, bool descending);

}  // namespace torch_xla::aten
