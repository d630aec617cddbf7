#pragma once

#include <ATen/core/Tensor.h>

#include "ir/view.h"

namespace torch_xla::lazy {

// Tensors of dtype complex32 (ComplexHalf), which XLA does not have. They are computed in c64, and
// their memory is what it is on CPU: pairs of f16, real and imaginary part. So a view of such a
// tensor is one of f16 with another dim, the last, of size 2.

inline bool is_complex_half(at::ScalarType type) { return type == at::ScalarType::ComplexHalf; }

// How pairs lie where complex elements of these sizes and strides do.
class PairGeometry {
 public:
  PairGeometry(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset);

  const stablehlo::Dims& sizes() const { return sizes_; }
  const stablehlo::Dims& strides() const { return strides_; }
  ir::Geometry geometry() const { return {ir::ElementType::kF16, sizes_, strides_, offset_}; }

 private:
  stablehlo::Dims sizes_, strides_;
  int64_t offset_;
};

// c64[...] from f16[..., 2], and back, rounded.
ir::Value complex_of_pairs(const ir::Value& pairs);
ir::Value pairs_of_complex(const ir::Value& complex);

}  // namespace torch_xla::lazy
