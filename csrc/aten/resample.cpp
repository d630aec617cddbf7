#include "aten/resample.h"

#include <algorithm>

namespace torch_xla::aten {
namespace {

// More taps than this become one reduction instead of a chain of additions.
constexpr size_t kUnrolledTaps = 16;

// n when indices are 0 (n times), 1 (n times), ... and cover the dimension; else 0.
int64_t repeats(const std::vector<int64_t>& indices, int64_t size) {
  const auto count = static_cast<int64_t>(indices.size());
  if (size == 0 || count % size != 0) return 0;
  const int64_t n = count / size;
  for (int64_t i = 0; i < count; ++i) {
    if (indices[static_cast<size_t>(i)] != i / n) return 0;
  }
  return n;
}

// The step of an increasing arithmetic progression, or 0.
int64_t progression(const std::vector<int64_t>& indices) {
  if (indices.size() == 1) return 1;
  const int64_t step = indices[1] - indices[0];
  for (size_t i = 1; i < indices.size(); ++i) {
    if (indices[i] - indices[i - 1] != step) return 0;
  }
  return std::max<int64_t>(step, 0);
}

XlaValue sum_of_taps(Builder& b, const XlaValue& x, int64_t dimension, const Taps& taps,
                     size_t width) {
  XlaValue sum;
  for (size_t k = 0; k < width; ++k) {
    std::vector<int64_t> indices;
    std::vector<double> weights;
    bool weighted = false, complete = true;
    for (const auto& row : taps.rows) {
      const bool present = k < row.size();
      // What an absent tap reads does not matter: a step on from its neighbour keeps slices whole.
      const int64_t step = indices.size() > 1 ? indices.back() - indices[indices.size() - 2] : 1;
      const int64_t beside = indices.empty() ? 0 : indices.back() + step;
      indices.push_back(present ? row[k].input
                                : std::clamp<int64_t>(beside, 0, x.dim(dimension) - 1));
      weights.push_back(present ? row[k].weight : 0);
      complete &= present;
      weighted |= present && row[k].weight != 1;
    }
    XlaValue term = take(b, x, dimension, indices);
    const XlaValue weight = along(b, weights, dimension, term.dims(), x.element_type());
    if (!complete) term = b.select(b.ne(weight, b.zeros_like(weight)), term, b.zeros_like(term));
    if (weighted) term = b.multiply(term, weight);
    sum = sum ? b.add(sum, term) : term;
  }
  return sum;
}

// The same for many taps: all of them side by side in a dimension of their own.
XlaValue reduction_of_taps(Builder& b, const XlaValue& x, int64_t dimension, const Taps& taps,
                           size_t width) {
  std::vector<int64_t> indices;
  std::vector<double> weights;
  for (const auto& row : taps.rows) {
    for (size_t k = 0; k < width; ++k) {
      indices.push_back(k < row.size() ? row[k].input : 0);
      weights.push_back(k < row.size() ? row[k].weight : 0);
    }
  }
  XlaValue terms = take(b, x, dimension, indices);
  const XlaValue weight = along(b, weights, dimension, terms.dims(), x.element_type());
  const XlaValue zeros = b.zeros_like(terms);
  terms = b.select(b.ne(weight, zeros), b.multiply(terms, weight), zeros);
  Dims split = terms.dims();
  split[dimension] = static_cast<int64_t>(taps.rows.size());
  split.insert(static_cast<size_t>(dimension) + 1, static_cast<int64_t>(width));
  return b.reduce_sum(b.reshape(terms, split), {dimension + 1});
}

}  // namespace

Taps Taps::transposed(int64_t inputs) const {
  Taps result(inputs);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const Tap& tap : rows[i]) result.add(tap.input, static_cast<int64_t>(i), tap.weight);
  }
  return result;
}

XlaValue along(Builder& b, const std::vector<double>& values, int64_t dimension, const Dims& dims,
               ElementType type) {
  if (std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; })) {
    return b.constant(type, dims, values.empty() ? 0 : values[0]);
  }
  const auto size = static_cast<int64_t>(values.size());
  const XlaValue vector = b.dense({ElementType::kF64, {size}}, std::as_bytes(std::span(values)));
  return b.broadcast_in_dim(b.convert(vector, type), dims, {dimension});
}

XlaValue take(Builder& b, const XlaValue& x, int64_t dimension,
              const std::vector<int64_t>& indices) {
  const auto count = static_cast<int64_t>(indices.size());
  Dims dims = x.dims();
  dims[dimension] = count;
  if (count == 0 || x.num_elements() == 0) return b.constant(x.element_type(), dims, 0);
  if (const int64_t step = progression(indices)) {
    return b.slice_in_dim(x, indices.front(), indices.back() + 1, step, dimension);
  }
  if (const int64_t n = repeats(indices, x.dim(dimension))) {
    Dims repeated = x.dims(), kept = stablehlo::iota_dims(x.dims().size());
    repeated.insert(static_cast<size_t>(dimension) + 1, n);
    for (int64_t i = dimension + 1; i < x.rank(); ++i) kept[i] = i + 1;
    return b.reshape(b.broadcast_in_dim(x, repeated, kept), dims);
  }
  stablehlo::GatherDimensions g;
  Dims sizes = x.dims();
  sizes[dimension] = 1;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dimension) g.offset_dims.push_back(i);
  }
  g.collapsed_slice_dims = {dimension};
  g.start_index_map = {dimension};
  g.index_vector_dim = 1;
  return b.gather(x, b.vector(indices, ElementType::kS32), g, sizes);
}

XlaValue resample(Builder& b, const XlaValue& x, int64_t dimension, const Taps& taps) {
  size_t width = 0;
  for (const auto& row : taps.rows) width = std::max(width, row.size());
  if (width == 0) {
    Dims dims = x.dims();
    dims[dimension] = static_cast<int64_t>(taps.rows.size());
    return b.constant(x.element_type(), dims, 0);
  }
  return width <= kUnrolledTaps ? sum_of_taps(b, x, dimension, taps, width)
                                : reduction_of_taps(b, x, dimension, taps, width);
}

}  // namespace torch_xla::aten
