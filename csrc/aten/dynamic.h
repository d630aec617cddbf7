#pragma once

#include "aten/trimmed.h"

namespace torch_xla::aten {

// The elements of a tensor that are not zero. The values below are those of programs for any number
// of them (lazy/trimmed.h).
struct Kept {
  Value flat;   // their positions in row-major order, i32[bound], ascending; zeros behind them
  Value count;  // how many, i64[]
  int64_t size = 0;

  // A value [bound, ...] made of `flat`, cut to what counts.
  Value trimmed(Value whole) const { return lazy::trim(std::move(whole), count, 0, size); }
};

// Computes what is pending and waits for the number; not again for the same contents. Counts the
// wait, as "SizeRead" and for the Python line that `op` was called from. Not for a tensor without
// elements.
Kept kept_by(const at::Tensor& tensor, const char* op);

// Tensors of kLong, one for each dim of `tensor` (of any dtype): where its nonzero elements are.
std::vector<at::Tensor> coordinates_of(const at::Tensor& tensor, const char* op);

// Where a vector is not zero, [count] of kLong.
at::Tensor positions_of(const at::Tensor& vector, const char* op);

}  // namespace torch_xla::aten
