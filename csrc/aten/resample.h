#pragma once

// Linear maps along one dimension that touch few elements each: interpolation, padding by
// reflection, averages over uneven windows, and all their gradients.

#include <vector>

#include "aten/kernel.h"

namespace torch_xla::aten {

// Output i of the map is the sum over taps (j, w) of row i of w * input[j]. Made while lowering,
// from sizes only.
struct Taps {
  struct Tap {
    int64_t input;
    double weight;
  };
  std::vector<std::vector<Tap>> rows;

  explicit Taps(int64_t outputs) : rows(static_cast<size_t>(outputs)) {}
  void add(int64_t output, int64_t input, double weight = 1) {
    rows[static_cast<size_t>(output)].push_back({input, weight});
  }
  // The map of the gradient: from outputs to `inputs` elements.
  Taps transposed(int64_t inputs) const;
};

// Applies the map along `dimension` of x, in the element type of x.
XlaValue resample(Builder& b, const XlaValue& x, int64_t dimension, const Taps& taps);

// x[indices] along `dimension`; a slice or a broadcast where the indices allow.
XlaValue take(Builder& b, const XlaValue& x, int64_t dimension,
              const std::vector<int64_t>& indices);

// `values` along `dimension` of an array of these dims.
XlaValue along(Builder& b, const std::vector<double>& values, int64_t dimension, const Dims& dims,
               ElementType type);

}  // namespace torch_xla::aten
