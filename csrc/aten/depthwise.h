#pragma once

// Convolutions in which every channel has a kernel of its own, as sums over the kernel's elements
// of shifted and scaled copies: one fused loop where a convolution of groups of one channel is
// tens of times slower on CPU.

#include "aten/kernel.h"

namespace torch_xla::aten {

struct ConvolutionGeometry {
  bool transposed;
  Dims stride, padding, dilation;
  int64_t groups;
};

// Whether x [batch, C, ...] and w [C, 1, kernel] are such a convolution, of a kernel small enough
// to be written out.
bool is_depthwise(int64_t channels, const Dims& w, const ConvolutionGeometry& g);

// y, x and w of the given dims from the other two, as in convolution.cpp, in the accumulation type.
XlaValue depthwise_correlate(Builder& b, const XlaValue& x, const XlaValue& w,
                             const ConvolutionGeometry& g, const Dims& y);
XlaValue depthwise_spread(Builder& b, const XlaValue& y, const XlaValue& w,
                          const ConvolutionGeometry& g, const Dims& x);
XlaValue depthwise_match(Builder& b, const XlaValue& x, const XlaValue& y,
                         const ConvolutionGeometry& g, const Dims& w);

}  // namespace torch_xla::aten
