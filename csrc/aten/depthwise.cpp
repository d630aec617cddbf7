#include "aten/depthwise.h"

namespace torch_xla::aten {
namespace {

constexpr int64_t kLargestKernel = 64;

// Calls visit(k) for every index k into the spatial dimensions of a kernel, row-major.
template <class Visit>
void for_each_tap(const Dims& w, Visit visit) {
  Dims k(w.size() - 2, 0);
  while (true) {
    visit(k);
    size_t i = k.size();
    while (i > 0 && ++k[i - 1] == w[i + 1]) k[--i] = 0;
    if (i == 0) return;
  }
}

XlaValue widened(Builder& b, const XlaValue& x) {
  return b.convert(x, stablehlo::opmath_type(x.element_type()));
}

// The element k of every channel's kernel, as large as `dims`.
XlaValue weight_at(Builder& b, const XlaValue& w, const Dims& k, const Dims& dims) {
  Dims start{0, 0}, limit{w.dim(0), 1};
  for (int64_t i : k) {
    start.push_back(i);
    limit.push_back(i + 1);
  }
  return b.broadcast_in_dim(b.reshape(b.slice(w, start, limit), {w.dim(0)}), dims, {1});
}

// x with padding, so that the element k of the windows starts at dilation k.
XlaValue padded(Builder& b, const XlaValue& x, const Dims& low, const Dims& reach,
                const Dims& interior) {
  Dims lows{0, 0}, highs{0, 0}, interiors{0, 0};
  for (size_t i = 0; i < low.size(); ++i) {
    const int64_t size = x.dim(static_cast<int64_t>(i) + 2);
    lows.push_back(low[i]);
    highs.push_back(reach[i] - low[i] - (size + (size - 1) * interior[i]));
    interiors.push_back(interior[i]);
  }
  return b.pad(x, b.scalar(0, x.element_type()), lows, highs, interiors);
}

// Elements from `start` on, `count` of them `stride` apart in each spatial dimension.
XlaValue shifted(Builder& b, const XlaValue& x, const Dims& start, const Dims& count,
                 const Dims& stride) {
  Dims starts{0, 0}, limits{x.dim(0), x.dim(1)}, strides{1, 1};
  for (size_t i = 0; i < start.size(); ++i) {
    starts.push_back(start[i]);
    limits.push_back(start[i] + (count[i + 2] - 1) * stride[i] + 1);
    strides.push_back(stride[i]);
  }
  return b.slice(x, starts, limits, strides);
}

// What the windows of y reach in x, from the first padded element.
Dims reach(const ConvolutionGeometry& g, const Dims& y, const Dims& w) {
  Dims result;
  for (size_t i = 0; i < g.stride.size(); ++i) {
    result.push_back((y[i + 2] - 1) * g.stride[i] + g.dilation[i] * (w[i + 2] - 1) + 1);
  }
  return result;
}

Dims times(const Dims& k, const Dims& dilation) {
  Dims result = k;
  for (size_t i = 0; i < k.size(); ++i) result[i] *= dilation[i];
  return result;
}

}  // namespace

bool is_depthwise(int64_t channels, const Dims& w, const ConvolutionGeometry& g) {
  return g.groups > 1 && g.groups == channels && w[0] == channels && w[1] == 1 &&
         c10::multiply_integers(w.begin() + 2, w.end()) <= kLargestKernel;
}

XlaValue depthwise_correlate(Builder& b, const XlaValue& x, const XlaValue& w,
                             const ConvolutionGeometry& g, const Dims& y) {
  const Dims none(g.stride.size(), 0);
  const XlaValue source = padded(b, widened(b, x), g.padding, reach(g, y, w.dims()), none);
  const XlaValue weight = widened(b, w);
  XlaValue sum;
  for_each_tap(w.dims(), [&](const Dims& k) {
    const XlaValue term = b.multiply(shifted(b, source, times(k, g.dilation), y, g.stride),
                                     weight_at(b, weight, k, y));
    sum = sum ? b.add(sum, term) : term;
  });
  return sum;
}

XlaValue depthwise_spread(Builder& b, const XlaValue& y, const XlaValue& w,
                          const ConvolutionGeometry& g, const Dims& x) {
  const Dims ones(g.stride.size(), 1);
  Dims low, whole, interior;
  for (size_t i = 0; i < g.stride.size(); ++i) {
    const int64_t kernel = g.dilation[i] * (w.dim(static_cast<int64_t>(i) + 2) - 1);
    low.push_back(kernel - g.padding[i]);
    whole.push_back(x[i + 2] + kernel);
    interior.push_back(g.stride[i] - 1);
  }
  const XlaValue source = padded(b, widened(b, y), low, whole, interior);
  const XlaValue weight = widened(b, w);
  XlaValue sum;
  for_each_tap(w.dims(), [&](const Dims& k) {
    Dims start;
    for (size_t i = 0; i < k.size(); ++i) {
      start.push_back(g.dilation[i] * (w.dim(static_cast<int64_t>(i) + 2) - 1 - k[i]));
    }
    const XlaValue term =
        b.multiply(shifted(b, source, start, x, ones), weight_at(b, weight, k, x));
    sum = sum ? b.add(sum, term) : term;
  });
  return sum;
}

XlaValue depthwise_match(Builder& b, const XlaValue& x, const XlaValue& y,
                         const ConvolutionGeometry& g, const Dims& w) {
  const Dims none(g.stride.size(), 0);
  const XlaValue source = padded(b, widened(b, x), g.padding, reach(g, y.dims(), w), none);
  const XlaValue other = widened(b, y);
  Dims summed = stablehlo::iota_dims(y.dims().size());
  summed.erase(1);
  stablehlo::Values columns;
  for_each_tap(w, [&](const Dims& k) {
    const XlaValue product =
        b.multiply(shifted(b, source, times(k, g.dilation), y.dims(), g.stride), other);
    columns.push_back(b.reshape(b.reduce_sum(product, summed), {w[0], 1}));
  });
  return b.reshape(b.concatenate(columns, 1), w);
}

}  // namespace torch_xla::aten
