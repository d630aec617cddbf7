#include "aten/windows.h"

#include <algorithm>

namespace torch_xla::aten {
namespace {

using stablehlo::Values;

// Windows up to this size are written out as a chain over strided slices, which fuses and
// vectorises: on CPU three times as fast as reduce_window, and unused indices cost nothing.
constexpr int64_t kUnrolledKernel = 32;

// Elements the windows reach, from the first element of the first one.
int64_t reach(const WindowAxis& a) {
  return (a.outputs - 1) * a.stride + (a.kernel - 1) * a.dilation + 1;
}

XlaValue pad_axis(Builder& b, const XlaValue& x, const XlaValue& value, int64_t dimension,
                  int64_t low, int64_t high, int64_t interior = 0) {
  if (low == 0 && high == 0 && interior == 0) return x;
  const auto rank = static_cast<size_t>(x.rank());
  Dims lows(rank, 0), highs(rank, 0), interiors(rank, 0);
  lows[dimension] = low;
  highs[dimension] = high;
  interiors[dimension] = interior;
  return b.pad(x, value, lows, highs, interiors);
}

XlaValue pad_axis(Builder& b, const XlaValue& x, const XlaValue& value, const WindowAxis& a) {
  const int64_t missing = reach(a) - a.padding - x.dim(a.dimension);
  return pad_axis(b, x, value, a.dimension, a.padding, std::max<int64_t>(missing, 0));
}

// Element i of every window of a padded array.
XlaValue tap(Builder& b, const XlaValue& x, const WindowAxis& a, int64_t i) {
  const int64_t start = i * a.dilation;
  return b.slice_in_dim(x, start, start + (a.outputs - 1) * a.stride + 1, a.stride, a.dimension);
}

stablehlo::Window window_of(const XlaValue& x, const WindowAxis& a) {
  const auto rank = static_cast<size_t>(x.rank());
  stablehlo::Window w{Dims(rank, 1), Dims(rank, 1), {},
                      Dims(rank, 1), Dims(rank, 0), Dims(rank, 0)};
  w.size[a.dimension] = a.kernel;
  w.strides[a.dimension] = a.stride;
  w.window_dilations[a.dimension] = a.dilation;
  w.padding_low[a.dimension] = a.padding;
  w.padding_high[a.dimension] = reach(a) - a.padding - x.dim(a.dimension);
  return w;
}

// Whether `next` replaces `best`, which comes before it.
XlaValue is_larger(Builder& b, const XlaValue& next, const XlaValue& best) {
  const XlaValue larger = b.gt(next, best);
  return stablehlo::is_float(next.element_type()) ? b.or_(larger, b.ne(next, next)) : larger;
}

Maximum choose(Builder& b, const XlaValue& take_next, const Maximum& next, const Maximum& best) {
  return {b.select(take_next, next.value, best.value), b.select(take_next, next.index, best.index)};
}

// A chain over the elements of the windows.
Maximum unrolled_maximum(Builder& b, const Maximum& x, const WindowAxis& a,
                         const XlaValue& lowest) {
  const XlaValue values = pad_axis(b, x.value, lowest, a);
  const XlaValue indices = pad_axis(b, x.index, b.scalar(-1, ElementType::kS32), a);
  Maximum best{tap(b, values, a, 0), tap(b, indices, a, 0)};
  for (int64_t i = 1; i < a.kernel; ++i) {
    const Maximum next{tap(b, values, a, i), tap(b, indices, a, i)};
    XlaValue take_next = is_larger(b, next.value, best.value);
    if (a.padding > (i - 1) * a.dilation) {
      // A window may so far have seen only padding.
      take_next = b.or_(take_next, b.lt(best.index, b.zeros_like(best.index)));
    }
    best = choose(b, take_next, next, best);
  }
  return best;
}

Maximum reduced_maximum(Builder& b, const Maximum& x, const WindowAxis& a, const XlaValue& lowest) {
  const XlaValue none = b.scalar(-1, ElementType::kS32);
  const XlaValue value = b.reduce_window(x.value, lowest, window_of(x.value, a),
                                         [&](auto m, auto n) { return b.maximum(m, n); });
  const Values both = b.reduce_window(
      {x.value, x.index}, {lowest, none}, window_of(x.value, a),
      [&](const Values& best, const Values& next) -> Values {
        const XlaValue take_next =
            b.or_(is_larger(b, next[0], best[0]), b.lt(best[1], b.scalar(0, ElementType::kS32)));
        return {b.select(take_next, next[0], best[0]), b.select(take_next, next[1], best[1])};
      });
  return {value, both[1]};
}

XlaValue scatter_planes(Builder& b, const XlaValue& values, const XlaValue& index, const Dims& dims,
                        int64_t spatial, const stablehlo::BinaryRegion& combine) {
  const int64_t count = values.num_elements();
  const int64_t total = c10::multiply_integers(dims.begin(), dims.end());
  const XlaValue zeros = b.constant(values.element_type(), {total}, 0);
  if (count == 0 || total == 0) return b.reshape(zeros, dims);
  // All planes in one line: a scatter of one dimension.
  const int64_t plane = c10::multiply_integers(dims.end() - spatial, dims.end());
  const int64_t planes = total / plane;
  const ElementType type = total < (int64_t{1} << 31) ? ElementType::kS32 : ElementType::kS64;
  const Dims lines{planes, count / planes};
  const XlaValue inside = b.reshape(b.convert(index, type), lines);
  const XlaValue start = b.multiply(b.iota(type, lines, 0), b.constant(type, lines, plane));
  const XlaValue in_plane =
      b.and_(b.ge(inside, b.zeros_like(inside)), b.lt(inside, b.full_like(inside, plane)));
  const XlaValue position = b.select(in_plane, b.add(start, inside), b.full_like(inside, -1));
  stablehlo::ScatterDimensions d;
  d.inserted_window_dims = {0};
  d.scatter_dims_to_operand_dims = {0};
  d.index_vector_dim = 1;
  const XlaValue sums =
      b.scatter(zeros, b.reshape(position, {count, 1}), b.reshape(values, {count}), d, combine);
  return b.reshape(sums, dims);
}

XlaValue sum_along(Builder& b, const XlaValue& x, const WindowAxis& a) {
  const XlaValue zero = b.scalar(0, x.element_type());
  if (a.kernel > kUnrolledKernel) {
    return b.reduce_window(x, zero, window_of(x, a), [&](auto m, auto n) { return b.add(m, n); });
  }
  const XlaValue padded = pad_axis(b, x, zero, a);
  XlaValue sum = tap(b, padded, a, 0);
  for (int64_t i = 1; i < a.kernel; ++i) sum = b.add(sum, tap(b, padded, a, i));
  return sum;
}

}  // namespace

Maximum elements(Builder& b, const XlaValue& x, const Dims& dimensions) {
  Dims plane;
  for (int64_t dimension : dimensions) plane.push_back(x.dim(dimension));
  const int64_t size = c10::multiply_integers(plane.begin(), plane.end());
  const XlaValue index = b.reshape(b.iota(ElementType::kS32, {size}, 0), plane);
  return {x, b.broadcast_in_dim(index, x.dims(), dimensions)};
}

Maximum larger(Builder& b, const Maximum& best, const Maximum& next) {
  return choose(b, is_larger(b, next.value, best.value), next, best);
}

Maximum window_maximum(Builder& b, const Maximum& x, const WindowAxis& axis) {
  const XlaValue lowest = b.min_value(x.value.element_type());
  return axis.kernel > kUnrolledKernel ? reduced_maximum(b, x, axis, lowest)
                                       : unrolled_maximum(b, x, axis, lowest);
}

Maximum window_maximum(Builder& b, const XlaValue& x, const std::vector<WindowAxis>& axes) {
  Dims dimensions;
  for (const WindowAxis& axis : axes) dimensions.push_back(axis.dimension);
  Maximum best = elements(b, x, dimensions);
  for (size_t i = axes.size(); i-- > 0;) best = window_maximum(b, best, axes[i]);
  return best;
}

XlaValue add_at(Builder& b, const XlaValue& values, const XlaValue& index, const Dims& dims,
                int64_t spatial) {
  return scatter_planes(b, values, index, dims, spatial,
                        [&](auto old, auto update) { return b.add(old, update); });
}

XlaValue put_at(Builder& b, const XlaValue& values, const XlaValue& index, const Dims& dims,
                int64_t spatial) {
  return scatter_planes(b, values, index, dims, spatial, [](auto, auto update) { return update; });
}

XlaValue window_sum(Builder& b, XlaValue x, const std::vector<WindowAxis>& axes) {
  for (const WindowAxis& axis : axes) x = sum_along(b, x, axis);
  return x;
}

XlaValue window_sum_gradient(Builder& b, XlaValue grad, const std::vector<WindowAxis>& axes,
                             const Dims& dims) {
  for (const WindowAxis& a : axes) {
    // Spread by the stride, windows run over it one by one.
    const int64_t low = (a.kernel - 1) * a.dilation - a.padding;
    const int64_t spread = (a.outputs - 1) * a.stride + 1;
    const int64_t size = dims[a.dimension];
    const int64_t needed = size + (a.kernel - 1) * a.dilation;
    const XlaValue padded = pad_axis(b, grad, b.scalar(0, grad.element_type()), a.dimension, low,
                                     needed - low - spread, a.stride - 1);
    grad = sum_along(b, padded, {a.dimension, a.kernel, 1, 0, a.dilation, size});
  }
  return grad;
}

}  // namespace torch_xla::aten
