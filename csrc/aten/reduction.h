#pragma once

// What the families that reduce dims share: which dims, and the sizes that remain.

#include "aten/kernel.h"

namespace torch_xla::aten {

// Dims to reduce over and the sizes of the result.
struct Reduced {
  Dims dims;
  Dims sizes;

  // How many elements become one.
  int64_t count(const at::Tensor& self) const;
};

// `dim` as PyTorch reads it: absent or empty means all of them (an empty list means none with
// `allow_empty`), negative ones count from the end. Throws c10::IndexError for a dim out of range
// and c10::Error for one given twice.
Reduced reduced(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                bool allow_empty = false);
inline Reduced reduced_along(const at::Tensor& self, int64_t dim, bool keepdim) {
  return reduced(self, at::IntArrayRef(dim), keepdim);
}

// Lowering: `value`, a reduction with or without its dims kept, as the node's output.
Results as_output(Lowering& l, const Node& node, XlaValue value, size_t output = 0);

// Lowering: rank 0 as one element, so that it has a dim 0.
inline XlaValue at_least_one_dim(XlaValue x) { return x.rank() ? x : x.builder().reshape(x, {1}); }

// Lowering: `value` without `dims`, stretched over them again to the sizes `full`.
XlaValue spread(Builder& b, XlaValue value, const Dims& full, const Dims& dims);

// Lowering: the largest (or smallest) element over `dims`, NaN if there is one. Complex numbers
// have none.
XlaValue extreme(Builder& b, XlaValue x, const Dims& dims, bool largest);

}  // namespace torch_xla::aten
