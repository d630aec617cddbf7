// Activation functions and their gradients.

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/elu_backward_meta.h>
#include <ATen/ops/elu_meta.h>
#include <ATen/ops/gelu_backward_meta.h>
#include <ATen/ops/gelu_meta.h>
#include <ATen/ops/glu_meta.h>
#include <ATen/ops/hardshrink_backward_meta.h>
#include <ATen/ops/hardshrink_meta.h>
#include <ATen/ops/hardsigmoid_backward_meta.h>
#include <ATen/ops/hardsigmoid_meta.h>
#include <ATen/ops/leaky_relu_backward_meta.h>
#include <ATen/ops/leaky_relu_meta.h>
#include <ATen/ops/logit_backward_meta.h>
#include <ATen/ops/mish_meta.h>
#include <ATen/ops/sigmoid_backward_meta.h>
#include <ATen/ops/sigmoid_meta.h>
#include <ATen/ops/silu_backward_meta.h>
#include <ATen/ops/silu_meta.h>
#include <ATen/ops/softplus_backward_meta.h>
#include <ATen/ops/softplus_meta.h>
#include <ATen/ops/softshrink_backward_meta.h>
#include <ATen/ops/softshrink_meta.h>
#include <ATen/ops/tanh_backward_meta.h>
#include <ATen/ops/tanh_meta.h>
#include <ATen/ops/threshold_backward_meta.h>
#include <ATen/ops/threshold_meta.h>

#include <cmath>
#include <numbers>

#include "aten/complex_math.h"
#include "aten/fitting.h"
#include "lazy/runtime.h"

namespace torch_xla::aten {
namespace {

using Args = PointwiseArgs&;
using Number = const at::Scalar&;

// --- relu, threshold, hardtanh ---

// Keeps NaN and, on CPU, the sign of a zero as torch does there. Other compilers know a maximum as
// relu, and join it to the product before.
const PointwiseOp kRelu{"aten::relu", [](Args x) {
                          const XlaValue zero = x.number(0);
                          if (!lazy::Runtime::get().is_cpu()) return x.b.maximum(x[0], zero);
                          return x.b.select(x.b.lt(x[0], zero), zero, x[0]);
                        }};

struct ReluMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self) {
    TORCH_CHECK(self.scalar_type() != at::kBool, "Boolean inputs not supported for relu");
    TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), "clamp is not supported for complex types");
    build_borrowing_unary_op(maybe_get_output(0), self);
  }
};

// x, threshold, value.
const PointwiseOp kThreshold{"aten::threshold",
                             [](Args x) { return x.b.select(x.b.le(x[0], x[1]), x[2], x[0]); }};
// grad, x, threshold.
const PointwiseOp kThresholdBackward{"aten::threshold_backward", [](Args x) {
                                       return x.b.select(x.b.le(x[1], x[2]), x.number(0), x[0]);
                                     }};

// x, low, high.
const PointwiseOp kHardtanh{"aten::hardtanh",
                            [](Args x) { return x.b.minimum(x.b.maximum(x[0], x[1]), x[2]); }};
const PointwiseOp kHardtanhBackward{"aten::hardtanh_backward", [](Args x) {
                                      const XlaValue outside =
                                          x.b.or_(x.b.le(x[1], x[2]), x.b.ge(x[1], x[3]));
                                      return x.b.select(outside, x.number(0), x[0]);
                                    }};

struct HardtanhMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self, Number low, Number high) {
    const at::ScalarType dtype = self.scalar_type();
    TORCH_CHECK(dtype != at::kBool, "Bool inputs not supported for hardtanh");
    TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), "clamp is not supported for complex types");
    if (at::isIntegralType(dtype, false)) {
      const int64_t least = low.toLong(), greatest = high.toLong();
      TORCH_CHECK(at::isSignedType(dtype) || (least >= 0 && greatest >= 0),
                  "cannot do hardtanh on an unsigned type with negative limits");
    } else {
      for (const at::Scalar& number : {low, high}) (void)number.toDouble();  // refuses complex ones
    }
    build_borrowing_unary_op(maybe_get_output(0), self);
  }
};

// --- sigmoid, tanh, silu, mish ---

const PointwiseOp kSigmoid{"aten::sigmoid", [](Args x) {
                             return stablehlo::is_complex(x[0].element_type())
                                        ? complex_math::sigmoid(x.b, x[0])
                                        : x.b.logistic(x[0]);
                           }};
// grad, sigmoid(x). Complex gradients take the conjugate of the derivative.
const PointwiseOp kSigmoidBackward{"aten::sigmoid_backward",
                                   [](Args x) { return x[0] * x.b.conj((1 - x[1]) * x[1]); }};
const PointwiseOp kTanh{"aten::tanh", [](Args x) {
                          return stablehlo::is_complex(x[0].element_type())
                                     ? complex_math::tanh(x.b, x[0])
                                     : x.b.tanh(x[0]);
                        }};
const PointwiseOp kTanhBackward{"aten::tanh_backward",
                                [](Args x) { return x[0] * x.b.conj(1 - x[1] * x[1]); }};
const PointwiseOp kSilu{"aten::silu", [](Args x) { return x[0] * x.b.logistic(x[0]); }};
const PointwiseOp kSiluBackward{"aten::silu_backward", [](Args x) {
                                  const XlaValue s = x.b.logistic(x[1]);
                                  return x[0] * x.b.conj(s * (1 + x[1] * (1 - s)));
                                }};

// mish(x) = x tanh(softplus(x)): Misra 2019, eq. 1.
XlaValue softplus(Builder& b, XlaValue x) { return b.log_plus_one(b.exponential(x)); }
// Overflow of the exponential would not hurt tanh.
const PointwiseOp kMish{"aten::mish", [](Args x) { return x[0] * x.b.tanh(softplus(x.b, x[0])); }};
const PointwiseOp kMishBackward{"aten::mish_backward", [](Args x) {
                                  const XlaValue s = x.b.logistic(x[1]);
                                  const XlaValue t = x.b.tanh(softplus(x.b, x[1]));
                                  return x[0] * (t + x[1] * s * (1 - t * t));
                                }};

// --- gelu: x Phi(x); the tanh form is Hendrycks & Gimpel 2016, section 2 ---

constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

const PointwiseOp kGelu{"aten::gelu", [](Args x) {
                          const XlaValue v = x[0];
                          if (x.attributes.boolean()) {
                            const XlaValue inner = kSqrt2OverPi * (v + kCubic * (v * v * v));
                            return 0.5 * v * (1 + x.b.tanh(inner));
                          }
                          return 0.5 * v * (1 + x.b.erf(v * (1 / std::numbers::sqrt2)));
                        }};
const PointwiseOp kGeluBackward{
    "aten::gelu_backward", [](Args x) {
      Builder& b = x.b;
      const XlaValue grad = x[0], v = x[1];
      if (x.attributes.boolean()) {
        const XlaValue square = v * v;
        const XlaValue t = b.tanh(kSqrt2OverPi * (v + kCubic * (square * v)));
        const XlaValue slope = (1 - t * t) * (kSqrt2OverPi * (1 + 3 * kCubic * square));
        return grad * (0.5 * (1 + t) + 0.5 * v * slope);
      }
      const XlaValue cdf = 0.5 * (1 + b.erf(v * (1 / std::numbers::sqrt2)));
      const XlaValue density = (0.5 * kSqrt2OverPi) * b.exponential(-0.5 * (v * v));
      return grad * (cdf + v * density);
    }};

bool uses_tanh(std::string_view approximate) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh",
              "approximate argument must be either none or tanh.");
  return approximate == "tanh";
}

Value gelu_value(Infer<at::meta::structured_gelu, 1>& it, const at::Tensor& self,
                 std::string_view approximate) {
  check_domain("gelu", Domain::kFloat, self.scalar_type());
  return pointwise(kGelu, {value_of(self)}, common_type(it), it.output_shape(),
                   Attributes::of(uses_tanh(approximate)));
}

at::Tensor gelu(const at::Tensor& self, std::string_view approximate) {
  if (!plain_float(self)) {
    return structured_functional<at::meta::structured_gelu, gelu_value>(self, approximate);
  }
  return make_like(pointwise(kGelu, {lazy::read(self)}, element_type(self), shape_of(self),
                             Attributes::of(uses_tanh(approximate))),
                   self);
}

Value gelu_backward_value(Infer<at::meta::structured_gelu_backward, 1>& it, const at::Tensor& grad,
                          const at::Tensor& self, std::string_view approximate) {
  check_domain("gelu_backward", Domain::kFloat, self.scalar_type());
  return pointwise(kGeluBackward, {value_of(grad), value_of(self)}, common_type(it),
                   it.output_shape(), Attributes::of(uses_tanh(approximate)));
}

at::Tensor gelu_backward(const at::Tensor& grad, const at::Tensor& self,
                         std::string_view approximate) {
  if (!plain_float(self) || !plain_pair(self, grad)) {
    return structured_functional<at::meta::structured_gelu_backward, gelu_backward_value>(
        grad, self, approximate);
  }
  return make_like(
      pointwise(kGeluBackward, {lazy::read(grad), lazy::read(self)}, element_type(self),
                shape_of(self), Attributes::of(uses_tanh(approximate))),
      self);
}

// --- hardswish, hardsigmoid ---

XlaValue relu6_shifted(Args x) {  // min(max(x + 3, 0), 6)
  return x.b.minimum(x.b.maximum(x[0] + 3, x.number(0)), x.number(6));
}

const PointwiseOp kHardswish{"aten::hardswish", [](Args x) { return x[0] * relu6_shifted(x) / 6; }};
// NaN counts as above, as on CPU.
const PointwiseOp kHardswishBackward{
    "aten::hardswish_backward", [](Args x) {
      const XlaValue inside = x.b.lt(x[1], x.number(3));
      const XlaValue above = x.b.select(inside, x[0] * (x[1] / 3 + 0.5), x[0]);
      return x.b.select(x.b.le(x[1], x.number(-3)), x.number(0), above);
    }};
const PointwiseOp kHardsigmoid{"aten::hardsigmoid", [](Args x) { return relu6_shifted(x) / 6; }};
const PointwiseOp kHardsigmoidBackward{"aten::hardsigmoid_backward", [](Args x) {
                                         const XlaValue inside = x.b.and_(
                                             x.b.gt(x[1], x.number(-3)), x.b.lt(x[1], x.number(3)));
                                         return x.b.select(inside, x[0] / 6, x.number(0));
                                       }};

// --- elu, leaky_relu, prelu ---

// x, alpha, scale, input_scale.
const PointwiseOp kElu{"aten::elu", [](Args x) {
                         Builder& b = x.b;
                         const XlaValue below =
                             b.exponential_minus_one(x[0] * x[3]) * (x[1] * x[2]);
                         return b.select(b.le(x[0], x.number(0)), below, x[0] * x[2]);
                       }};
// grad, alpha, scale, input_scale, x or the result; attribute: which of them.
const PointwiseOp kEluBackward{
    "aten::elu_backward", [](Args x) {
      Builder& b = x.b;
      const XlaValue alpha = x[1] * x[2];
      const XlaValue slope = x.attributes.boolean() ? x[3] * (x[4] + alpha)
                                                    : x[3] * alpha * b.exponential(x[4] * x[3]);
      return x[0] * b.select(b.le(x[4], x.number(0)), slope, x[2]);
    }};

const PointwiseOp kLeakyRelu{"aten::leaky_relu", [](Args x) {
                               return x.b.select(x.b.gt(x[0], x.number(0)), x[0], x[0] * x[1]);
                             }};
const PointwiseOp kLeakyReluBackward{
    "aten::leaky_relu_backward",
    [](Args x) { return x.b.select(x.b.gt(x[1], x.number(0)), x[0], x[0] * x[2]); }};

// x, weight.
const PointwiseOp kPrelu{"aten::_prelu_kernel", [](Args x) {
                           return x.b.select(x.b.gt(x[0], x.number(0)), x[0], x[0] * x[1]);
                         }};
// grad, x, weight: the gradients of x and of the weight, before its reduction.
const PointwiseOp kPreluBackwardSelf{
    "aten::_prelu_kernel_backward",
    [](Args x) { return x.b.select(x.b.gt(x[1], x.number(0)), x[0], x[0] * x[2]); }};
const PointwiseOp kPreluBackwardWeight{
    "aten::_prelu_kernel_backward",
    [](Args x) { return x.b.select(x.b.gt(x[1], x.number(0)), x.number(0), x[0] * x[1]); }};

std::tuple<at::Tensor, at::Tensor> prelu_backward(const at::Tensor& grad, const at::Tensor& self,
                                                  const at::Tensor& weight) {
  return {
      structured_functional<TernaryMeta<>, Numeric<kPreluBackwardSelf>{}>(grad, self, weight),
      structured_functional<TernaryMeta<>, Numeric<kPreluBackwardWeight>{}>(grad, self, weight)};
}

// --- softplus, softshrink, hardshrink, log_sigmoid ---

// x, beta, threshold: log(1 + exp(beta x)) / beta, the identity above the threshold.
const PointwiseOp kSoftplus{"aten::softplus", [](Args x) {
                              const XlaValue scaled = x[0] * x[1];
                              return x.b.select(x.b.gt(scaled, x[2]), x[0],
                                                softplus(x.b, scaled) / x[1]);
                            }};
const PointwiseOp kSoftplusBackward{"aten::softplus_backward", [](Args x) {
                                      const XlaValue scaled = x[1] * x[2];
                                      return x.b.select(x.b.gt(scaled, x[3]), x[0],
                                                        x[0] * x.b.logistic(scaled));
                                    }};

XlaValue within(Builder& b, XlaValue x, XlaValue lambda) {
  return b.and_(b.ge(x, b.negate(lambda)), b.le(x, lambda));
}
const PointwiseOp kSoftshrink{"aten::softshrink", [](Args x) {
                                Builder& b = x.b;
                                const XlaValue low =
                                    b.select(b.lt(x[0], b.negate(x[1])), x[0] + x[1], x[0] * 0);
                                return b.select(b.gt(x[0], x[1]), x[0] - x[1], low);
                              }};

Value softshrink(Infer<at::meta::structured_softshrink, 1>& it, const at::Tensor& self,
                 Number lambda) {
  check_domain("softshrink", Domain::kFloat, self.scalar_type());
  const double value = lambda.toDouble(), limit = stablehlo::max_finite(element_type(self));
  TORCH_CHECK(value >= 0 && value <= limit, "lambda must be in range [0, ", limit,
              "] for input dtype ", self.scalar_type(), ", but found ", value);
  return Numeric<kSoftshrink>{}(it, self, lambda);
}

// As on CPU, lambda is rounded here and in the gradient, and not in softshrink.
const PointwiseOp kHardshrink{"aten::hardshrink", [](Args x) {
                                const XlaValue lambda = x.rounded(x[1]);
                                return x.b.select(within(x.b, x[0], lambda), x.number(0), x[0]);
                              }};
// grad, x, lambda: of both.
const PointwiseOp kShrinkBackward{"aten::shrink_backward", [](Args x) {
                                    const XlaValue lambda = x.rounded(x[2]);
                                    return x.b.select(within(x.b, x[1], lambda), x.number(0), x[0]);
                                  }};

const PointwiseOp kLogSigmoid{"aten::log_sigmoid_forward", [](Args x) {
                                Builder& b = x.b;
                                const XlaValue tail =
                                    b.log_plus_one(b.exponential(b.negate(b.abs(x[0]))));
                                return b.minimum(x[0], x.number(0)) - tail;
                              }};
const PointwiseOp kLogSigmoidBackward{"aten::log_sigmoid_backward",
                                      [](Args x) { return x[0] * x.b.logistic(x.b.negate(x[1])); }};

// Row-major whatever the input is. The second result is a cache for the gradient that is of use to
// the CPU alone: empty here, as on CUDA.
std::tuple<at::Tensor, at::Tensor> log_sigmoid_forward(const at::Tensor& self) {
  const at::Tensor x = self.contiguous();
  return {structured_functional<UnaryMeta<>, Numeric<kLogSigmoid, Domain::kFloat>{}>(x),
          lazy::allocate({0}, self.scalar_type(), self.device())};
}
at::Tensor log_sigmoid_backward(const at::Tensor& grad, const at::Tensor& self,
                                const at::Tensor& /*buffer*/) {
  return structured_functional<BinaryMeta<>, Numeric<kLogSigmoidBackward, Domain::kFloat>{}>(grad,
                                                                                             self);
}

// --- logit ---

// log(x / (1 - x)); attribute: whether x is first clamped to [eps, 1 - eps].
const PointwiseOp kLogit{"aten::logit", [](Args x) {
                           Builder& b = x.b;
                           XlaValue v = x[0];
                           if (x.size() > 1) {
                             v = b.minimum(b.maximum(v, x[1]), 1 - x[1]);
                           }
                           return b.log(v / (1 - v));
                         }};
// grad, x, eps: the gradient is NaN outside [0, 1], and 0 where eps clamped.
const PointwiseOp kLogitBackward{
    "aten::logit_backward", [](Args x) {
      Builder& b = x.b;
      const XlaValue v = x[1];
      const bool clamped = x.size() > 2;
      const XlaValue low = clamped ? x[2] : x.number(0);
      const XlaValue outside = b.or_(b.lt(v, low), b.gt(v, 1 - low));
      const XlaValue grad = x[0] / (v * (1 - v));
      return b.select(outside, clamped ? x.number(0) : x.number(std::nan("")), grad);
    }};

struct LogitMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self, std::optional<double>) {
    build_borrowing_unary_float_op(maybe_get_output(0), self);
  }
};

Value logit(Infer<LogitMeta, 1>& it, const at::Tensor& self, std::optional<double> eps) {
  const ElementType common = common_type(it);
  check_domain("logit", Domain::kFloat, lazy::scalar_type(common));
  if (!eps || *eps < 0) return pointwise(kLogit, {value_of(self)}, common, it.output_shape());
  return pointwise(kLogit, {value_of(self), scalar_operand(*eps, common)}, common,
                   it.output_shape());
}

Value logit_backward(Infer<at::meta::structured_logit_backward, 1>& it, const at::Tensor& grad,
                     const at::Tensor& self, std::optional<double> eps) {
  const ElementType common = common_type(it);
  check_domain("logit_backward", Domain::kFloat, lazy::scalar_type(common));
  std::vector<Value> operands{value_of(grad), value_of(self)};
  if (eps && *eps >= 0) operands.push_back(scalar_operand(*eps, common));
  return pointwise(kLogitBackward, operands, common, it.output_shape());
}

// --- glu: the first half of a dimension times the sigmoid of the second ---

std::pair<XlaValue, XlaValue> halves(Builder& b, XlaValue x, int64_t dim) {
  const int64_t size = x.dim(dim) / 2;
  return {b.slice_in_dim(x, 0, size, 1, dim), b.slice_in_dim(x, size, 2 * size, 1, dim)};
}

const Op kGlu{"aten::glu", [](Lowering& l, const Node& n) -> Results {
                const ElementType type = n.output().type;
                auto [value, gate] = halves(l.builder(), l.operand(0, stablehlo::opmath_type(type)),
                                            n.attributes().integer());
                return l->convert(value * l->logistic(gate), type);
              }};
// grad, x.
const Op kGluBackward{"aten::glu_backward", [](Lowering& l, const Node& n) -> Results {
                        const ElementType type = n.output().type,
                                          compute = stablehlo::opmath_type(type);
                        const int64_t dim = n.attributes().integer();
                        const XlaValue grad = l.operand(0, compute);
                        auto [value, gate] = halves(l.builder(), l.operand(1, compute), dim);
                        const XlaValue s = l->logistic(gate);
                        const XlaValue grad_gate = grad * value * ((1 - s) * s);
                        return l->convert(l->concatenate({grad * s, grad_gate}, dim), type);
                      }};

Value glu(Infer<at::meta::structured_glu, 1>& it, const at::Tensor& self, int64_t dim) {
  check_domain("glu", Domain::kFloat, self.scalar_type());
  return Node::make(kGlu, {value_of(self)}, Attributes::of(at::maybe_wrap_dim(dim, self.dim())),
                    it.output_shape());
}

at::Tensor glu_backward(const at::Tensor& grad, const at::Tensor& self, int64_t dim) {
  TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
  dim = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(self.size(dim) % 2 == 0, "Halving dimension must be even, but dimension ", dim,
              " is size ", self.size(dim));
  auto half = self.sizes().vec();
  half[static_cast<size_t>(dim)] /= 2;
  TORCH_CHECK(grad.sizes() == half, "glu_backward: expected a gradient of sizes ", half, ", got ",
              grad.sizes());
  check_domain("glu_backward", Domain::kFloat, self.scalar_type());
  return lazy::make(Node::make(kGluBackward, {value_of(grad), value_of(self)}, Attributes::of(dim),
                               shape_of(self)),
                    self.scalar_type(), self.device());
}

}  // namespace

#define META(name) at::meta::structured_##name
#define FORMS(name) {#name, #name "_", #name ".out"}
#define GRADIENT(name) {#name, nullptr, #name ".grad_input"}

XLA_KERNELS(m) {
  numeric<ReluMeta, kRelu>(m, {"relu", "relu_"});
  fitting<META(threshold), kThreshold, Domain::kNotComplex, Fit::kCompute, Fit::kDtype>(
      m, FORMS(threshold));
  numeric<META(threshold_backward), kThresholdBackward, Domain::kNotComplex>(
      m, GRADIENT(threshold_backward));
  fitting<HardtanhMeta, kHardtanh, Domain::kAny, Fit::kDtype, Fit::kDtype>(
      m, {"hardtanh", "hardtanh_", "hardtanh.out"});
  numeric<BinaryMeta<Number, Number>, kHardtanhBackward, Domain::kFloat>(
      m, GRADIENT(hardtanh_backward));

  numeric<META(sigmoid), kSigmoid>(m, FORMS(sigmoid));
  numeric<META(sigmoid_backward), kSigmoidBackward, Domain::kFloatOrComplex>(
      m, GRADIENT(sigmoid_backward));
  numeric<META(tanh), kTanh>(m, FORMS(tanh));
  numeric<META(tanh_backward), kTanhBackward, Domain::kFloatOrComplex>(m, GRADIENT(tanh_backward));
  numeric<META(silu), kSilu, Domain::kFloatOrComplex>(m, FORMS(silu));
  numeric<META(silu_backward), kSiluBackward, Domain::kFloatOrComplex>(m, GRADIENT(silu_backward));
  numeric<META(mish), kMish, Domain::kFloat>(m, FORMS(mish));
  numeric<BinaryMeta<>, kMishBackward, Domain::kFloat>(m, {"mish_backward"});

  m.impl("gelu", &gelu);
  structured<META(gelu), gelu_value>(m, {nullptr, "gelu_", "gelu.out"});
  m.impl("gelu_backward", &gelu_backward);
  structured<META(gelu_backward), gelu_backward_value>(
      m, {nullptr, nullptr, "gelu_backward.grad_input"});

  numeric<UnaryMeta<>, kHardswish, Domain::kFloat>(m, FORMS(hardswish));
  numeric<BinaryMeta<>, kHardswishBackward, Domain::kFloat>(m, {"hardswish_backward"});
  numeric<META(hardsigmoid), kHardsigmoid, Domain::kFloat>(m, FORMS(hardsigmoid));
  numeric<META(hardsigmoid_backward), kHardsigmoidBackward, Domain::kFloat>(
      m, GRADIENT(hardsigmoid_backward));

  fitting<META(elu), kElu, Domain::kFloat, Fit::kCompute, Fit::kCompute, Fit::kCompute>(m,
                                                                                        FORMS(elu));
  numeric<META(elu_backward), kEluBackward, Domain::kFloat>(m, GRADIENT(elu_backward));
  fitting<META(leaky_relu), kLeakyRelu, Domain::kFloat, Fit::kCompute>(m, FORMS(leaky_relu));
  numeric<META(leaky_relu_backward), kLeakyReluBackward, Domain::kFloat>(
      m, GRADIENT(leaky_relu_backward));
  numeric<BinaryMeta<>, kPrelu, Domain::kFloat>(m, {"_prelu_kernel"});
  m.impl("_prelu_kernel_backward", &prelu_backward);

  fitting<META(softplus), kSoftplus, Domain::kFloat, Fit::kCompute, Fit::kCompute>(
      m, {"softplus", nullptr, "softplus.out"});
  numeric<META(softplus_backward), kSoftplusBackward, Domain::kFloat>(m,
                                                                      GRADIENT(softplus_backward));
  structured<META(softshrink), softshrink>(m, {"softshrink", nullptr, "softshrink.out"});
  numeric<META(softshrink_backward), kShrinkBackward, Domain::kFloat>(
      m, GRADIENT(softshrink_backward));
  fitting<META(hardshrink), kHardshrink, Domain::kFloat, Fit::kDtype>(
      m, {"hardshrink", nullptr, "hardshrink.out"});
  numeric<META(hardshrink_backward), kShrinkBackward, Domain::kFloat>(
      m, GRADIENT(hardshrink_backward));
  m.impl("log_sigmoid_forward", &log_sigmoid_forward);
  m.impl("log_sigmoid_backward", &log_sigmoid_backward);

  structured<LogitMeta, logit>(m, {"logit", "logit_", "logit.out"});
  structured<META(logit_backward), logit_backward>(m, GRADIENT(logit_backward));
  structured<META(glu), glu>(m, {"glu", nullptr, "glu.out"});
  m.impl("glu_backward", &glu_backward);
}

}  // namespace torch_xla::aten
