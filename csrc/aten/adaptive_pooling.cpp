// Pooling to a given output size: window i of n over a dimension of size s covers
// floor(i s / n) ... ceil((i + 1) s / n) - 1, so windows differ in size and may overlap.

#include <ATen/native/AdaptivePooling.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool3d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool3d_meta.h>

#include "aten/resample.h"
#include "aten/windows.h"

namespace torch_xla::aten {
namespace {

using at::IntArrayRef;
using at::Tensor;
using at::native::end_index;
using at::native::start_index;

// The windows when all are alike and do not overlap.
std::optional<WindowAxis> even_windows(int64_t dimension, int64_t size, int64_t outputs) {
  if (outputs == 0 || size % outputs != 0) return {};
  return WindowAxis{dimension, size / outputs, size / outputs, 0, 1, outputs};
}

int64_t window_size(int64_t i, int64_t outputs, int64_t size) {
  return end_index(i, outputs, size) - start_index(i, outputs, size);
}

// --- Average ---

// The sum over the windows of one dimension, as a linear map.
Taps window_taps(int64_t outputs, int64_t size) {
  Taps taps(outputs);
  for (int64_t i = 0; i < outputs; ++i) {
    for (int64_t j = start_index(i, outputs, size); j < end_index(i, outputs, size); ++j) {
      taps.add(i, j);
    }
  }
  return taps;
}

// x divided by the sizes of the windows that `inputs` is cut into for `outputs`.
XlaValue divide_by_sizes(Builder& b, const XlaValue& x, std::span<const int64_t> inputs,
                         std::span<const int64_t> outputs, int64_t first) {
  XlaValue count;
  for (int64_t d = first; d < x.rank(); ++d) {
    const auto i = static_cast<size_t>(d);
    std::vector<double> sizes;
    for (int64_t k = 0; k < outputs[i]; ++k) {
      sizes.push_back(static_cast<double>(window_size(k, outputs[i], inputs[i])));
    }
    const XlaValue factor = along(b, sizes, d, x.dims(), x.element_type());
    count = count ? b.multiply(count, factor) : factor;
  }
  return b.divide(x, count);
}

// Attribute: the number of pooled dimensions, the last ones.
int64_t first_pooled(const Node& n) {
  return static_cast<int64_t>(n.output().dims.size()) - n.attributes().integer();
}

const Op kAdaptiveAvgPool{
    "aten::adaptive_avg_pool", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      XlaValue x = l.operand(0);
      x = b.convert(x, stablehlo::opmath_type(x.element_type()));
      const Dims inputs = x.dims();
      const int64_t first = first_pooled(n);
      for (int64_t d = first; d < x.rank(); ++d) {
        const int64_t outputs = n.output().dims[static_cast<size_t>(d)];
        const auto even = even_windows(d, inputs[d], outputs);
        x = even ? window_sum(b, x, {*even}) : resample(b, x, d, window_taps(outputs, inputs[d]));
      }
      return b.convert(divide_by_sizes(b, x, inputs, n.output().dims, first), n.output().type);
    }};

const Op kAdaptiveAvgPoolBackward{
    "aten::adaptive_avg_pool_backward", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      XlaValue grad = l.operand(0);
      grad = b.convert(grad, stablehlo::opmath_type(grad.element_type()));
      const Dims outputs = grad.dims();
      const int64_t first = first_pooled(n);
      grad = divide_by_sizes(b, grad, n.output().dims, outputs, first);
      for (int64_t d = first; d < grad.rank(); ++d) {
        const int64_t size = n.output().dims[static_cast<size_t>(d)];
        grad = resample(b, grad, d, window_taps(outputs[d], size).transposed(size));
      }
      return b.convert(grad, n.output().type);
    }};

void check_not_empty(const char* name, const Tensor& self, int64_t spatial) {
  for (int64_t i = self.dim() - spatial; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) > 0, name,
                ": Expected input to have non-zero size for non-batch dimensions, but input has "
                "sizes ",
                self.sizes(), " with dimension ", i, " being empty");
  }
}

void check_float(const char* name, const Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()), "\"", name,
                              "\" not implemented for '", self.scalar_type(), "'");
}

// 2-d results keep the memory format of the input, 3-d ones are contiguous, as on CPU.
Tensor wrap(Value value, const Tensor& like) {
  if (like.dim() == 4 && value.dims().size() == 4 &&
      like.suggest_memory_format() == at::MemoryFormat::ChannelsLast) {
    const std::vector<int64_t> sizes(value.dims().begin(), value.dims().end());
    return lazy::make_strided(std::move(value), c10::get_channels_last_strides_2d(sizes),
                              like.device());
  }
  return lazy::make(std::move(value), like.scalar_type(), like.device());
}

template <int64_t kSpatial>
Tensor adaptive_avg_pool(const Tensor& self, IntArrayRef output_size) {
  const char* name = kSpatial == 2 ? "adaptive_avg_pool2d" : "adaptive_avg_pool3d";
  TORCH_CHECK(output_size.size() == kSpatial, name, ": output_size must be ", kSpatial);
  TORCH_CHECK(self.dim() == kSpatial + 1 || self.dim() == kSpatial + 2, name, "(): Expected ",
              kSpatial + 1, "D or ", kSpatial + 2, "D tensor, but got ", self.sizes());
  check_not_empty(kSpatial == 2 ? "adaptive_avg_pool2d()" : "adaptive_avg_pool3d()", self,
                  kSpatial);
  for (int64_t size : output_size) {
    TORCH_CHECK(size >= 0, name, ": elements of output_size must be greater than or equal to 0 ",
                "but received ", output_size);
  }
  check_float(kSpatial == 2 ? "adaptive_avg_pool2d" : "adaptive_avg_pool3d_cpu", self);
  std::vector<int64_t> sizes = self.sizes().vec();
  std::copy(output_size.begin(), output_size.end(), sizes.end() - kSpatial);
  Value value = Node::make(kAdaptiveAvgPool, {value_of(self)}, Attributes::of(kSpatial),
                           ShapeRef{element_type(self), sizes});
  if constexpr (kSpatial == 3) {
    return lazy::make(std::move(value), self.scalar_type(), self.device());
  }
  return wrap(std::move(value), self);
}

template <int64_t kSpatial>
Tensor adaptive_avg_pool_backward(const Tensor& grad, const Tensor& self) {
  at::native::adaptive_pool_empty_output_check(
      grad, kSpatial == 2 ? "adaptive_avg_pool2d_backward" : "adaptive_avg_pool3d_backward");
  TORCH_CHECK(
      grad.dim() == self.dim() && (self.dim() == kSpatial + 1 || self.dim() == kSpatial + 2),
      "adaptive_avg_pool", kSpatial, "d_backward: expected grad_output and input of ", kSpatial + 1,
      " or ", kSpatial + 2, " dimensions, but got ", grad.sizes(), " and ", self.sizes());
  TORCH_CHECK(grad.scalar_type() == self.scalar_type(), "expected dtype ", self.scalar_type(),
              " for `grad_output` but got dtype ", grad.scalar_type());
  Value value = Node::make(kAdaptiveAvgPoolBackward, {value_of(grad)}, Attributes::of(kSpatial),
                           ShapeRef{element_type(self), span_of(self.sizes())});
  if constexpr (kSpatial == 3) {
    return lazy::make(std::move(value), self.scalar_type(), self.device());
  }
  return wrap(std::move(value), self);
}

// --- Maximum ---

// Windows of one uneven dimension: their elements in turn, the last one repeated to the end.
Maximum uneven_maximum(Builder& b, const Maximum& x, int64_t dimension, int64_t outputs) {
  const int64_t size = x.value.dim(dimension);
  int64_t widest = 0;
  for (int64_t i = 0; i < outputs; ++i) {
    widest = std::max(widest, window_size(i, outputs, size));
  }
  Maximum best;
  for (int64_t k = 0; k < widest; ++k) {
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < outputs; ++i) {
      positions.push_back(
          std::min(start_index(i, outputs, size) + k, end_index(i, outputs, size) - 1));
    }
    const Maximum next{take(b, x.value, dimension, positions),
                       take(b, x.index, dimension, positions)};
    best = k == 0 ? next : larger(b, best, next);
  }
  return best;
}

const Op kAdaptiveMaxPool{"aten::adaptive_max_pool", [](Lowering& l, const Node& n) -> Results {
                            Builder& b = l.builder();
                            const XlaValue x = l.operand(0);
                            const int64_t first = first_pooled(n);
                            Dims dimensions;
                            for (int64_t d = first; d < x.rank(); ++d) dimensions.push_back(d);
                            const Dims outputs(n.output().dims);
                            if (c10::multiply_integers(outputs.begin(), outputs.end()) == 0) {
                              return {b.constant(x.element_type(), outputs, 0),
                                      b.constant(ElementType::kS64, outputs, 0)};
                            }
                            Maximum best = elements(b, x, dimensions);
                            for (int64_t d = x.rank() - 1; d >= first; --d) {
                              const auto even = even_windows(d, x.dim(d), outputs[d]);
                              best = even ? window_maximum(b, best, *even)
                                          : uneven_maximum(b, best, d, outputs[d]);
                            }
                            return {best.value, b.convert(best.index, ElementType::kS64)};
                          }};

const Op kAdaptiveMaxPoolBackward{
    "aten::adaptive_max_pool_backward", [](Lowering& l, const Node& n) -> Results {
      XlaValue grad = l.operand(0);
      grad = l->convert(grad, stablehlo::opmath_type(grad.element_type()));
      return l->convert(
          add_at(l.builder(), grad, l.operand(1), Dims(n.output().dims), n.attributes().integer()),
          n.output().type);
    }};

template <class Meta, int64_t kSpatial>
struct AdaptiveMaxPool {
  static Values<2> forward(Infer<Meta, 2>& it, const Tensor& self, IntArrayRef) {
    check_float(kSpatial == 2 ? "adaptive_max_pool2d" : "adaptive_max_pool3d_cpu", self);
    const std::array<ShapeRef, 2> shapes{it.output_shape(0), it.output_shape(1)};
    const Value x = value_of(self);
    const ir::NodePtr node =
        Node::make(kAdaptiveMaxPool, std::span(&x, 1), Attributes::of(kSpatial), shapes);
    return {Value(node, 0), Value(node, 1)};
  }
  static Value backward(Infer<Meta, 1>& it, const Tensor& grad, const Tensor&,
                        const Tensor& indices) {
    return Node::make(kAdaptiveMaxPoolBackward, {value_of(grad), value_of(indices)},
                      Attributes::of(kSpatial), it.output_shape());
  }
};

}  // namespace

XLA_KERNELS(m) {
  using namespace at::meta;
  m.impl("_adaptive_avg_pool2d", adaptive_avg_pool<2>);
  m.impl("_adaptive_avg_pool2d_backward", adaptive_avg_pool_backward<2>);
  m.impl("_adaptive_avg_pool3d", adaptive_avg_pool<3>);
  m.impl("_adaptive_avg_pool3d_backward", adaptive_avg_pool_backward<3>);
  structured<structured_adaptive_max_pool2d,
             &AdaptiveMaxPool<structured_adaptive_max_pool2d, 2>::forward, 2>(
      m, {"adaptive_max_pool2d", nullptr, "adaptive_max_pool2d.out"});
  structured<structured_adaptive_max_pool2d_backward,
             &AdaptiveMaxPool<structured_adaptive_max_pool2d_backward, 2>::backward>(
      m, {"adaptive_max_pool2d_backward", nullptr, "adaptive_max_pool2d_backward.grad_input"});
  structured<structured_adaptive_max_pool3d,
             &AdaptiveMaxPool<structured_adaptive_max_pool3d, 3>::forward, 2>(
      m, {"adaptive_max_pool3d", nullptr, "adaptive_max_pool3d.out"});
  structured<structured_adaptive_max_pool3d_backward,
             &AdaptiveMaxPool<structured_adaptive_max_pool3d_backward, 3>::backward>(
      m, {"adaptive_max_pool3d_backward", nullptr, "adaptive_max_pool3d_backward.grad_input"});
}

}  // namespace torch_xla::aten
