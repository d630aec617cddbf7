#pragma once

// Windows that slide along dimensions: what pooling is made of.

#include "aten/kernel.h"

namespace torch_xla::aten {

// How windows lie along one dimension of an array. Padding counts as outside.
struct WindowAxis {
  int64_t dimension;
  int64_t kernel, stride, padding, dilation;
  int64_t outputs;
};

// The largest element of each window and where it is: its row-major index (kS32) in the dimensions
// of the axes. NaN is larger than anything; of equals the first counts, of NaNs the last, as on
// CPU. Axes in order of dimension.
struct Maximum {
  XlaValue value, index;
};
Maximum window_maximum(Builder& b, const XlaValue& x, const std::vector<WindowAxis>& axes);

// Its steps: every element with its own index; the windows of one axis, the last axis first (each
// is then as in row-major order); the larger of two candidates of which `best` comes first.
Maximum elements(Builder& b, const XlaValue& x, const Dims& dimensions);
Maximum window_maximum(Builder& b, const Maximum& x, const WindowAxis& axis);
Maximum larger(Builder& b, const Maximum& best, const Maximum& next);

// Zeros of these dims plus each value at its index in its plane, the last `spatial` dimensions.
// `index` is as large as `values`; indices outside the plane add nothing.
XlaValue add_at(Builder& b, const XlaValue& values, const XlaValue& index, const Dims& dims,
                int64_t spatial);
// The same, but an element replaces what is there: of those that meet, any may stay.
XlaValue put_at(Builder& b, const XlaValue& values, const XlaValue& index, const Dims& dims,
                int64_t spatial);

// The sum of each window.
XlaValue window_sum(Builder& b, XlaValue x, const std::vector<WindowAxis>& axes);

// The gradient of window_sum: each element gets the sum over the windows that hold it. `dims` are
// those of the input.
XlaValue window_sum_gradient(Builder& b, XlaValue grad, const std::vector<WindowAxis>& axes,
                             const Dims& dims);

}  // namespace torch_xla::aten
