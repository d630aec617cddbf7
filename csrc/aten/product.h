#pragma once

// The one way this package multiplies matrices: shared by the families that contract dimensions.

#include "aten/kernel.h"

namespace torch_xla::aten {

// dot_general in the accumulation type of its operands (f32 for 16-bit floats) at the precision
// the user chose. The result has that type: convert it once, at the end.
XlaValue contract(Lowering& l, const XlaValue& a, const XlaValue& b,
                  const stablehlo::DotDimensions& dimensions);

// The precision of f32 products and convolutions that the user chose.
stablehlo::Precision precision(const Lowering& l);

// a b as torch.matmul: the last dimension of `a` against the second to last (or only) of `b`,
// batch dimensions broadcast. In the accumulation type.
XlaValue matrix_product(Lowering& l, XlaValue a, XlaValue b);

// The matrices of the last two dimensions, transposed; no change to a vector.
XlaValue transpose_matrices(Builder& b, const XlaValue& x);

}  // namespace torch_xla::aten
