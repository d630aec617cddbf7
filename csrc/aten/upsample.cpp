// Interpolation to another size, and its gradient: one linear map a dimension, with the
// coordinates and weights of torch's CPU kernels.

#include <ATen/native/UpSample.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta.h>
#include <ATen/ops/upsample_bicubic2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_linear1d_backward_meta.h>
#include <ATen/ops/upsample_linear1d_meta.h>
#include <ATen/ops/upsample_nearest1d_backward_meta.h>
#include <ATen/ops/upsample_nearest1d_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest3d_backward_meta.h>
#include <ATen/ops/upsample_nearest3d_meta.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta.h>
#include <ATen/ops/upsample_trilinear3d_meta.h>

#include <cmath>

#include "aten/resample.h"

namespace torch_xla::aten {
namespace {

using at::IntArrayRef;
using at::Tensor;

enum class Mode { kNearest, kNearestExact, kLinear, kCubic, kLinearAntialias, kCubicAntialias };

// One dimension's interpolation from `in` to `out` elements.
struct Resize {
  int64_t in, out;
  bool align_corners;
  std::optional<double> scale;  // out / in as the user gave it, when the user did
};

// Real is the type CPU computes coordinates in: float, or double for double tensors.
template <class Real>
Taps linear_taps(const Resize& r) {
  Taps taps(r.out);
  const Real ratio =
      at::native::area_pixel_compute_scale<Real>(r.in, r.out, r.align_corners, r.scale);
  for (int64_t i = 0; i < r.out; ++i) {
    int64_t first, second;
    Real first_weight, second_weight;
    at::native::compute_source_index_and_lambda(first, second, first_weight, second_weight, ratio,
                                                i, r.in, r.out, r.align_corners);
    taps.add(i, first, static_cast<double>(first_weight));
    if (r.in != r.out) taps.add(i, second, static_cast<double>(second_weight));
  }
  return taps;
}

template <class Real>
Taps cubic_taps(const Resize& r) {
  Taps taps(r.out);
  const Real ratio =
      at::native::area_pixel_compute_scale<Real>(r.in, r.out, r.align_corners, r.scale);
  for (int64_t i = 0; i < r.out; ++i) {
    const Real at = at::native::area_pixel_compute_source_index<Real>(ratio, i, r.align_corners,
                                                                      /*cubic=*/true);
    int64_t index;
    Real fraction;
    at::native::guard_index_and_lambda(at, r.in, index, fraction);
    Real weights[4];
    at::native::get_cubic_upsample_coefficients<Real>(weights, fraction);
    for (int64_t k = 0; k < 4; ++k) {
      taps.add(i, std::clamp<int64_t>(index - 1 + k, 0, r.in - 1), static_cast<double>(weights[k]));
    }
  }
  return taps;
}

double triangle(double x) { return std::max(1 - std::abs(x), 0.0); }

// Keys 1981 with a = -1/2.
double keys(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? a * (((x - 5) * x + 8) * x - 4) : 0;
}

// A filter of this radius, stretched when it shrinks the image, as in Pillow.
template <class Real>
Taps filter_taps(const Resize& r, double radius, double (*filter)(double)) {
  Taps taps(r.out);
  const auto scale = static_cast<double>(
      at::native::area_pixel_compute_scale<Real>(r.in, r.out, r.align_corners, r.scale));
  const double stretch = std::max(scale, 1.0);
  for (int64_t i = 0; i < r.out; ++i) {
    const double center = scale * (static_cast<double>(i) + 0.5);
    const auto begin = std::max<int64_t>(static_cast<int64_t>(center - radius * stretch + 0.5), 0);
    const auto end = std::min(static_cast<int64_t>(center + radius * stretch + 0.5), r.in);
    double total = 0;
    for (int64_t j = begin; j < end; ++j) {
      const double weight = filter((static_cast<double>(j) - center + 0.5) / stretch);
      taps.add(i, j, weight);
      total += weight;
    }
    for (auto& tap : taps.rows[static_cast<size_t>(i)]) {
      if (total != 0) tap.weight /= total;
    }
  }
  return taps;
}

template <class Real>
Taps taps_of(Mode mode, const Resize& r) {
  switch (mode) {
    case Mode::kLinear:
      return linear_taps<Real>(r);
    case Mode::kCubic:
      return cubic_taps<Real>(r);
    case Mode::kLinearAntialias:
      return filter_taps<Real>(r, 1, triangle);
    case Mode::kCubicAntialias:
      return filter_taps<Real>(r, 2, keys);
    case Mode::kNearest:
    case Mode::kNearestExact:
      break;
  }
  Taps taps(r.out);
  for (int64_t i = 0; i < r.out; ++i) {
    taps.add(i, mode == Mode::kNearest ? at::native::nearest_idx(i, r.in, r.out, r.scale)
                                       : at::native::nearest_exact_idx(i, r.in, r.out, r.scale));
  }
  return taps;
}

// Attributes: mode, align_corners, then for each spatial dimension whether a scale was given and
// which. Sizes come from the shapes.
struct Interpolation {
  Mode mode;
  bool align_corners;
  std::vector<std::optional<double>> scales;

  explicit Interpolation(const Node& node) {
    ir::AttributeReader a = node.attributes();
    mode = a.enumeration<Mode>();
    align_corners = a.boolean();
    scales.resize(static_cast<size_t>(a.integer()));
    for (auto& scale : scales) {
      const bool given = a.boolean();
      const double value = a.real();
      if (given) scale = value;
    }
  }

  Taps taps(size_t i, int64_t in, int64_t out, ElementType type) const {
    const Resize resize{in, out, align_corners, scales[i]};
    return type == ElementType::kF64 ? taps_of<double>(mode, resize) : taps_of<float>(mode, resize);
  }
};

// --- Bytes, as Pillow interpolates images: whole weights, and bytes again after each dimension ---

// OpenCV's cubic: Keys 1981 with a = -3/4.
double keys_sharp(double x) {
  x = std::abs(x);
  if (x < 1) return at::native::cubic_convolution1(x, -0.75);
  return x < 2 ? at::native::cubic_convolution2(x, -0.75) : 0;
}

// The filter as it is, whatever the change of size.
Taps plain_filter_taps(const Resize& r, int64_t radius, double (*filter)(double)) {
  Taps taps(r.out);
  const auto ratio =
      at::native::area_pixel_compute_scale<double>(r.in, r.out, r.align_corners, r.scale);
  for (int64_t i = 0; i < r.out; ++i) {
    const double at = at::native::area_pixel_compute_source_index<double>(ratio, i, r.align_corners,
                                                                          /*cubic=*/radius > 1);
    int64_t index;
    double fraction;
    at::native::guard_index_and_lambda(at, r.in, index, fraction);
    auto& row = taps.rows[static_cast<size_t>(i)];
    for (int64_t j = 1 - radius; j <= radius; ++j) {
      // Weights beyond an edge are the edge's, summed before they are rounded.
      const int64_t input = std::clamp<int64_t>(index + j, 0, r.in - 1);
      const double weight = filter(static_cast<double>(j) - fraction);
      if (!row.empty() && row.back().input == input) {
        row.back().weight += weight;
      } else {
        row.push_back({input, weight});
      }
    }
  }
  return taps;
}

Taps byte_taps(Mode mode, const Resize& r) {
  switch (mode) {
    case Mode::kLinear:
      return plain_filter_taps(r, 1, triangle);
    case Mode::kCubic:
      return plain_filter_taps(r, 2, keys_sharp);
    default:
      return taps_of<double>(mode, r);
  }
}

// Makes the weights whole multiples of 2^-bits, for the most bits with which each is an int16.
int make_whole(Taps& taps) {
  double largest = 0;
  for (const auto& row : taps.rows) {
    for (const Taps::Tap& tap : row) largest = std::max(largest, tap.weight);
  }
  int bits = 0;
  while (bits < 22 && std::floor(0.5 + std::ldexp(largest, bits + 1)) < (1 << 15)) ++bits;
  for (auto& row : taps.rows) {
    for (Taps::Tap& tap : row) tap.weight = std::round(std::ldexp(tap.weight, bits));
  }
  return bits;
}

// The last dimension first; one whose size stays is left alone.
XlaValue interpolate_bytes(Builder& b, XlaValue x, const Interpolation& how, const Dims& output) {
  const auto first = x.rank() - static_cast<int64_t>(how.scales.size());
  for (int64_t d = x.rank() - 1; d >= first; --d) {
    if (x.dim(d) == output[d]) continue;
    Taps taps = byte_taps(how.mode, {x.dim(d), output[d], how.align_corners,
                                     how.scales[static_cast<size_t>(d - first)]});
    const int bits = make_whole(taps);
    const auto whole = [&](int64_t value) { return b.scalar(value, ElementType::kS32); };
    XlaValue sum = resample(b, b.convert(x, ElementType::kS32), d, taps);
    sum = b.add(sum, b.constant(ElementType::kS32, sum.dims(), 1 << (bits - 1)));
    sum = b.shift_right_arithmetic(sum, b.constant(ElementType::kS32, sum.dims(), bits));
    x = b.convert(b.clamp(whole(0), sum, whole(255)), ElementType::kU8);
  }
  return x;
}

// --- Lowerings ---

Results lower_forward(Lowering& l, const Node& n) {
  const Interpolation how(n);
  const ElementType type = n.output().type;
  const bool copies = how.mode == Mode::kNearest || how.mode == Mode::kNearestExact;
  XlaValue x = l.operand(0);
  if (!copies && type == ElementType::kU8) {
    return interpolate_bytes(l.builder(), x, how, n.output().dims);
  }
  if (!copies) x = l->convert(x, stablehlo::opmath_type(type));
  const auto first = x.rank() - static_cast<int64_t>(how.scales.size());
  for (int64_t d = first; d < x.rank(); ++d) {
    const Taps taps = how.taps(static_cast<size_t>(d - first), x.dim(d),
                               n.output().dims[static_cast<size_t>(d)], type);
    x = resample(l.builder(), x, d, taps);
  }
  return l->convert(x, type);
}

Results lower_backward(Lowering& l, const Node& n) {
  const Interpolation how(n);
  const ElementType type = n.output().type;
  XlaValue grad = l.operand(0, stablehlo::opmath_type(type));
  const auto first = grad.rank() - static_cast<int64_t>(how.scales.size());
  for (int64_t d = first; d < grad.rank(); ++d) {
    const int64_t in = n.output().dims[static_cast<size_t>(d)];
    const Taps taps = how.taps(static_cast<size_t>(d - first), in, grad.dim(d), type);
    grad = resample(l.builder(), grad, d, taps.transposed(in));
  }
  return l->convert(grad, type);
}

const Op kUpsample{"aten::upsample", lower_forward};
const Op kUpsampleBackward{"aten::upsample_backward", lower_backward};

Value make(const Op& op, const Tensor& operand, Mode mode, bool align_corners,
           std::initializer_list<std::optional<double>> scales, ShapeRef output) {
  const at::ScalarType type = operand.scalar_type();
  const bool copies = mode == Mode::kNearest || mode == Mode::kNearestExact;
  const bool bytes = type == at::kByte && (copies || scales.size() == 2);
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(type) || bytes,
                              "\"upsample\" not implemented for '", type, "'");
  Attributes a = Attributes::of(mode, align_corners, scales.size());
  for (const std::optional<double>& scale : scales) {
    a.add(scale.has_value());
    a.add(scale.value_or(0));
  }
  return Node::make(op, {value_of(operand)}, a, output);
}

template <Mode mode>
struct Forward {
  template <class Meta, class... Scales>
  Value operator()(Meta& it, const Tensor& self, IntArrayRef, bool align_corners,
                   const Scales&... scales) const {
    return make(kUpsample, self, mode, align_corners, {scales...}, it.output_shape());
  }
};

template <Mode mode>
struct ForwardNearest {
  template <class Meta, class... Scales>
  Value operator()(Meta& it, const Tensor& self, IntArrayRef, const Scales&... scales) const {
    return make(kUpsample, self, mode, false, {scales...}, it.output_shape());
  }
};

template <Mode mode>
struct Backward {
  template <class Meta, class... Scales>
  Value operator()(Meta& it, const Tensor& grad, IntArrayRef, IntArrayRef, bool align_corners,
                   const Scales&... scales) const {
    return make(kUpsampleBackward, grad, mode, align_corners, {scales...}, it.output_shape());
  }
};

template <Mode mode>
struct BackwardNearest {
  template <class Meta, class... Scales>
  Value operator()(Meta& it, const Tensor& grad, IntArrayRef, IntArrayRef,
                   const Scales&... scales) const {
    return make(kUpsampleBackward, grad, mode, false, {scales...}, it.output_shape());
  }
};

#define UPSAMPLE(name, forward, backward)                                                \
  structured<at::meta::structured_##name, forward{}>(m, {#name, nullptr, #name ".out"}); \
  structured<at::meta::structured_##name##_backward, backward{}>(                        \
      m, {#name "_backward", nullptr, #name "_backward.grad_input"})

}  // namespace

XLA_KERNELS(m) {
  UPSAMPLE(upsample_nearest1d, ForwardNearest<Mode::kNearest>, BackwardNearest<Mode::kNearest>);
  UPSAMPLE(upsample_nearest2d, ForwardNearest<Mode::kNearest>, BackwardNearest<Mode::kNearest>);
  UPSAMPLE(upsample_nearest3d, ForwardNearest<Mode::kNearest>, BackwardNearest<Mode::kNearest>);
  UPSAMPLE(_upsample_nearest_exact1d, ForwardNearest<Mode::kNearestExact>,
           BackwardNearest<Mode::kNearestExact>);
  UPSAMPLE(_upsample_nearest_exact2d, ForwardNearest<Mode::kNearestExact>,
           BackwardNearest<Mode::kNearestExact>);
  UPSAMPLE(_upsample_nearest_exact3d, ForwardNearest<Mode::kNearestExact>,
           BackwardNearest<Mode::kNearestExact>);
  UPSAMPLE(upsample_linear1d, Forward<Mode::kLinear>, Backward<Mode::kLinear>);
  UPSAMPLE(upsample_bilinear2d, Forward<Mode::kLinear>, Backward<Mode::kLinear>);
  UPSAMPLE(upsample_trilinear3d, Forward<Mode::kLinear>, Backward<Mode::kLinear>);
  UPSAMPLE(upsample_bicubic2d, Forward<Mode::kCubic>, Backward<Mode::kCubic>);
  UPSAMPLE(_upsample_bilinear2d_aa, Forward<Mode::kLinearAntialias>,
           Backward<Mode::kLinearAntialias>);
  UPSAMPLE(_upsample_bicubic2d_aa, Forward<Mode::kCubicAntialias>, Backward<Mode::kCubicAntialias>);
}

}  // namespace torch_xla::aten
