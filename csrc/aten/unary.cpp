// Elementwise functions of one tensor. Those of higher mathematics are in special.cpp.

#include <ATen/ExpandUtils.h>
#include <ATen/ops/acos_meta.h>
#include <ATen/ops/acosh_meta.h>
#include <ATen/ops/asin_meta.h>
#include <ATen/ops/asinh_meta.h>
#include <ATen/ops/atan_meta.h>
#include <ATen/ops/atanh_meta.h>
#include <ATen/ops/bitwise_not_meta.h>
#include <ATen/ops/ceil_meta.h>
#include <ATen/ops/cos_meta.h>
#include <ATen/ops/cosh_meta.h>
#include <ATen/ops/exp2_meta.h>
#include <ATen/ops/exp_meta.h>
#include <ATen/ops/expm1_meta.h>
#include <ATen/ops/floor_meta.h>
#include <ATen/ops/frac_meta.h>
#include <ATen/ops/isneginf_meta.h>
#include <ATen/ops/isposinf_meta.h>
#include <ATen/ops/log10_meta.h>
#include <ATen/ops/log1p_meta.h>
#include <ATen/ops/log2_meta.h>
#include <ATen/ops/log_meta.h>
#include <ATen/ops/neg_meta.h>
#include <ATen/ops/reciprocal_meta.h>
#include <ATen/ops/round_meta.h>
#include <ATen/ops/rsqrt_meta.h>
#include <ATen/ops/sgn_meta.h>
#include <ATen/ops/sign_meta.h>
#include <ATen/ops/signbit_meta.h>
#include <ATen/ops/sin_meta.h>
#include <ATen/ops/sinc_meta.h>
#include <ATen/ops/sinh_meta.h>
#include <ATen/ops/sqrt_meta.h>
#include <ATen/ops/tan_meta.h>
#include <ATen/ops/trunc_meta.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "aten/complex_math.h"
#include "aten/elementwise.h"
#include "aten/formulas.h"
#include "lazy/runtime.h"

namespace torch_xla::aten {
namespace {

using Args = PointwiseArgs&;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_float(const XlaValue& x) { return stablehlo::is_float(x.element_type()); }
bool is_complex(const XlaValue& x) { return stablehlo::is_complex(x.element_type()); }
bool is_signed(const XlaValue& x) { return stablehlo::is_signed(x.element_type()); }

// One function of real numbers and one of complex ones.
template <XlaValue (Builder::*real)(XlaValue), XlaValue (*complex)(Builder&, const XlaValue&)>
XlaValue either(Args x) {
  return is_complex(x[0]) ? complex(x.b, x[0]) : (x.b.*real)(x[0]);
}

// --- exponentials, logarithms, roots ---

const PointwiseOp kExp2{"aten::exp2", [](Args x) {
                          Builder& b = x.b;
                          if (is_float(x[0])) return b.power(x.number(2), x[0]);
                          const XlaValue real = b.real(x[0]) * std::numbers::ln2;
                          const XlaValue imag = b.imag(x[0]) * std::numbers::ln2;
                          return complex_math::exp(b, b.complex(real, imag));
                        }};
const PointwiseOp kExpm1{"aten::expm1",
                         either<&Builder::exponential_minus_one, complex_math::expm1>};
// A complex number with an infinite part is infinite, whatever the other part is (C99, annex G.6):
// `size`, a function of x's magnitude, with infinity for such x.
XlaValue infinite_if_part_is(Builder& b, XlaValue x, XlaValue size) {
  const XlaValue infinite = b.or_(b.is_inf(b.real(x)), b.is_inf(b.imag(x)));
  return b.select(infinite, b.full_like(size, kInfinity), size);
}

XlaValue magnitude(Builder& b, XlaValue x) {
  return is_complex(x) ? infinite_if_part_is(b, x, b.abs(x)) : b.abs(x);
}

// log(x) / log_of_base. The parts of a complex number are scaled one by one: as a product of
// complex numbers, infinity times zero would make both NaN.
XlaValue logarithm(Builder& b, XlaValue x, double log_of_base) {
  const XlaValue natural = b.log(x);
  if (!is_complex(x)) return log_of_base == 1 ? natural : natural / log_of_base;
  const XlaValue real = infinite_if_part_is(b, x, b.real(natural));
  return b.complex(real / log_of_base, b.imag(natural) / log_of_base);
}
const PointwiseOp kLog{"aten::log", [](Args x) { return logarithm(x.b, x[0], 1); }};
const PointwiseOp kLog1p{"aten::log1p", [](Args x) { return x.b.log_plus_one(x[0]); }};
const PointwiseOp kLog2{"aten::log2",
                        [](Args x) { return logarithm(x.b, x[0], std::numbers::ln2); }};
const PointwiseOp kLog10{"aten::log10",
                         [](Args x) { return logarithm(x.b, x[0], std::numbers::ln10); }};

// --- trigonometry ---

const PointwiseOp kSin{"aten::sin", either<&Builder::sine, complex_math::sin>};
const PointwiseOp kCos{"aten::cos", either<&Builder::cosine, complex_math::cos>};
const PointwiseOp kTan{"aten::tan", either<&Builder::tan, complex_math::tan>};
const PointwiseOp kAsin{"aten::asin", either<&Builder::asin, complex_math::asin>};
const PointwiseOp kAcos{"aten::acos", either<&Builder::acos, complex_math::acos>};
// atan(x) = atan2(x, 1), halved on both sides: the vectorised atan that lammps-jax-pjrt-cpu 0.11.2
// makes of atan2(x, 1) and of chlo.atan gives garbage from some 48 elements on.
const PointwiseOp kAtan{"aten::atan", [](Args x) {
                          if (is_complex(x[0])) return complex_math::atan(x.b, x[0]);
                          return x.b.atan2(x[0] * 0.5, x.number(0.5));
                        }};
const PointwiseOp kSinh{"aten::sinh", either<&Builder::sinh, complex_math::sinh>};
const PointwiseOp kCosh{"aten::cosh", either<&Builder::cosh, complex_math::cosh>};
const PointwiseOp kAsinh{"aten::asinh", either<&Builder::asinh, complex_math::asinh>};
const PointwiseOp kAcosh{"aten::acosh", either<&Builder::acosh, complex_math::acosh>};
const PointwiseOp kAtanh{"aten::atanh", either<&Builder::atanh, complex_math::atanh>};

// sin(pi x) / (pi x), 1 at zero.
const PointwiseOp kSinc{"aten::sinc", [](Args x) {
                          const XlaValue scaled = x[0] * std::numbers::pi;
                          return x.b.select(x.b.eq(x[0], x.number(0)), x.number(1),
                                            x.b.sine(scaled) / scaled);
                        }};

// --- rounding: integers are whole already ---

template <XlaValue (Builder::*round)(XlaValue)>
XlaValue rounded(Args x) {
  return is_float(x[0]) ? (x.b.*round)(x[0]) : x[0];
}

XlaValue truncate(Builder& b, XlaValue x) {
  return b.select(b.lt(x, b.zeros_like(x)), b.ceil(x), b.floor(x));
}

const PointwiseOp kFloor{"aten::floor", rounded<&Builder::floor>};
const PointwiseOp kCeil{"aten::ceil", rounded<&Builder::ceil>};
const PointwiseOp kRound{"aten::round", rounded<&Builder::round_nearest_even>};
const PointwiseOp kTrunc{"aten::trunc",
                         [](Args x) { return is_float(x[0]) ? truncate(x.b, x[0]) : x[0]; }};
const PointwiseOp kFrac{"aten::frac", [](Args x) { return x[0] - truncate(x.b, x[0]); }};

// Integers pass floor, ceil, round and trunc unchanged, but bools are no integers to them.
template <class Meta, const PointwiseOp& op>
struct Rounding {
  static Value compute(Infer<Meta, 1>& it, const at::Tensor& self) {
    const at::ScalarType dtype = self.scalar_type();
    check_domain(op.name, dtype == at::kBool ? Domain::kFloat : Domain::kNotComplex, dtype);
    return pointwise(op, {value_of(self)}, common_type(it), it.output_shape());
  }
};

// round(x, decimals=d) = round(x * 10^d) / 10^d. A negative d divides first, as 10^d is not exact.
const PointwiseOp kRoundDecimals{"aten::round", [](Args x) {
                                   const bool negative = x.attributes.boolean();
                                   if (negative) {
                                     return x.b.round_nearest_even(x[0] / x[1]) * x[1];
                                   }
                                   return x.b.round_nearest_even(x[0] * x[1]) / x[1];
                                 }};

Value round_decimals(Infer<UnaryMeta<int64_t>, 1>& it, const at::Tensor& self, int64_t decimals) {
  const ElementType common = common_type(it);
  if (decimals == 0) return pointwise(kRound, {value_of(self)}, common, it.output_shape());
  check_domain("round", Domain::kFloat, self.scalar_type());
  const double scale = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  return pointwise(kRoundDecimals, {value_of(self), scalar_operand(scale, common)}, common,
                   it.output_shape(), Attributes::of(decimals < 0));
}

// --- sign, absolute value, angle ---

// -1, 0 or 1; 0 for NaN, as (0 < x) - (x < 0) gives.
XlaValue sign(Args x) {
  Builder& b = x.b;
  if (!is_signed(x[0])) return stablehlo::is_pred(x[0].element_type()) ? x[0] : b.sign(x[0]);
  const XlaValue zero = x.number(0);
  return b.select(b.gt(x[0], zero), x.number(1), b.select(b.lt(x[0], zero), x.number(-1), zero));
}

// The direction of a complex number, 0 for 0.
const PointwiseOp kSgn{
    "aten::sgn", [](Args x) { return is_complex(x[0]) ? complex_math::sgn(x.b, x[0]) : sign(x); }};

// The gradient of sgn on the real line, and other zeros that autograd hopes nobody will look at.
at::Tensor zero_tensor(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                       std::optional<c10::Layout> /*layout*/, std::optional<c10::Device> device,
                       std::optional<bool> /*pin_memory*/) {
  const at::ScalarType type = c10::dtype_or_default(dtype);
  return lazy::make(lazy::full(0, lazy::element_type(type), span_of(sizes)), type,
                    lazy::normalize(device.value_or(c10::Device(c10::kXLA))));
}

const PointwiseOp kSignbit{"aten::signbit", [](Args x) {
                             Builder& b = x.b;
                             XlaValue bits = x[0];
                             if (is_float(bits)) {
                               const bool wide = bits.element_type() == ElementType::kF64;
                               bits = b.bitcast_convert(
                                   bits, wide ? ElementType::kS64 : ElementType::kS32);
                             }
                             if (!is_signed(bits)) {
                               return b.constant(ElementType::kPred, bits.dims(), false);
                             }
                             return b.lt(bits, b.zeros_like(bits));
                           }};

// The angle of a number in the complex plane: 0 or pi on the real line, NaN for NaN.
const PointwiseOp kAngle{"aten::angle", [](Args x) {
                           Builder& b = x.b;
                           if (is_complex(x[0])) return b.atan2(b.imag(x[0]), b.real(x[0]));
                           const XlaValue on_line = b.select(
                               b.lt(x[0], x.number(0)), x.number(std::numbers::pi), x.number(0));
                           return b.select(b.is_nan(x[0]), x[0], on_line);
                         }};

const PointwiseOp kConj{"aten::conj_physical", [](Args x) { return x.b.conj(x[0]); }};

// abs and angle give the real dtype of a complex operand, which no TensorIterator infers: the
// strides are those of an operand of that dtype.
at::Tensor real_result(const PointwiseOp& op, const at::Tensor& self, at::ScalarType dtype) {
  const Value value = pointwise(op, {lazy::read(self)}, element_type(self),
                                {lazy::element_type(dtype), span_of(self.sizes())});
  if (self.is_contiguous()) return lazy::make(value, dtype, self.device());
  const at::Tensor result = lazy::allocate_strided(
      self.sizes(), at::infer_dense_strides(self.sizes(), self.strides()), dtype, self.device());
  lazy::write(result, value);
  return result;
}

at::Tensor abs(const at::Tensor& self) {
  if (at::isComplexType(self.scalar_type())) {
    return real_result(kAbs, self, c10::toRealValueType(self.scalar_type()));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() != at::kBool,
                              "\"abs\" not implemented for 'Bool'");
  return real_result(kAbs, self, self.scalar_type());
}

at::Tensor angle(const at::Tensor& self) {
  const at::ScalarType dtype = self.scalar_type();
  if (at::isIntegralType(dtype, true)) {
    return real_result(kAngle, self.to(c10::get_default_dtype_as_scalartype()),
                       c10::get_default_dtype_as_scalartype());
  }
  // That of complex numbers is row-major, as CPU makes it.
  if (at::isComplexType(dtype)) {
    return real_result(kAngle, self.contiguous(), c10::toRealValueType(dtype));
  }
  return real_result(kAngle, self, dtype);
}

// --- predicates, logic, bits ---

template <bool negative>
XlaValue is_infinity(Args x) {
  if (!is_float(x[0])) return x.b.constant(ElementType::kPred, x[0].dims(), false);
  return x.b.eq(x[0], x.number(negative ? -kInfinity : kInfinity));
}
const PointwiseOp kIsposinf{"aten::isposinf", is_infinity<false>};
const PointwiseOp kIsneginf{"aten::isneginf", is_infinity<true>};
const PointwiseOp kIsnan{"aten::isnan", [](Args x) {
                           if (is_float(x[0]) || is_complex(x[0])) return x.b.is_nan(x[0]);
                           return x.b.constant(ElementType::kPred, x[0].dims(), false);
                         }};
const PointwiseOp kLogicalNot{"aten::logical_not",
                              [](Args x) { return x.b.eq(x[0], x.number(0)); }};
const PointwiseOp kBitwiseNot{"aten::bitwise_not", [](Args x) { return x.b.not_(x[0]); }};

// --- nan_to_num ---

// Operands: x, and what replaces NaN, infinity and -infinity.
XlaValue replace_nonfinite(Builder& b, XlaValue x, XlaValue nan, XlaValue high, XlaValue low) {
  const XlaValue infinity = b.full_like(x, kInfinity);
  const XlaValue finite =
      b.select(b.eq(x, infinity), high, b.select(b.eq(x, b.negate(infinity)), low, x));
  return b.select(b.is_nan(x), nan, finite);
}

const PointwiseOp kNanToNum{"aten::nan_to_num", [](Args x) {
                              Builder& b = x.b;
                              if (!is_complex(x[0])) {
                                return replace_nonfinite(b, x[0], x[1], x[2], x[3]);
                              }
                              const XlaValue nan = b.real(x[1]), high = b.real(x[2]),
                                             low = b.real(x[3]);
                              return b.complex(replace_nonfinite(b, b.real(x[0]), nan, high, low),
                                               replace_nonfinite(b, b.imag(x[0]), nan, high, low));
                            }};

using NanToNumMeta = UnaryMeta<std::optional<double>, std::optional<double>, std::optional<double>>;

Value nan_to_num(Infer<NanToNumMeta, 1>& it, const at::Tensor& self, std::optional<double> nan,
                 std::optional<double> posinf, std::optional<double> neginf) {
  if (at::isIntegralType(self.scalar_type(), true)) return value_of(self);
  const ElementType common = common_type(it);
  // The limits are those of the dtype, though the comparison runs in its compute type.
  const double limit = stablehlo::max_finite(stablehlo::real_type(common));
  return pointwise(kNanToNum,
                   {value_of(self), scalar_operand(nan.value_or(0.0), common),
                    scalar_operand(posinf.value_or(limit), common),
                    scalar_operand(neginf.value_or(-limit), common)},
                   common, it.output_shape());
}

}  // namespace

// --- formulas that other families share (formulas.h) ---

const PointwiseOp kExp{"aten::exp", either<&Builder::exponential, complex_math::exp>};
const PointwiseOp kSqrt{"aten::sqrt", either<&Builder::sqrt, complex_math::sqrt>};
const PointwiseOp kRsqrt{"aten::rsqrt", [](Args x) {
                           if (!is_complex(x[0])) return x.b.rsqrt(x[0]);
                           return complex_math::reciprocal(x.b, complex_math::sqrt(x.b, x[0]));
                         }};
const PointwiseOp kReciprocal{
    "aten::reciprocal",
    [](Args x) { return is_complex(x[0]) ? complex_math::reciprocal(x.b, x[0]) : 1 / x[0]; }};
const PointwiseOp kNeg{"aten::neg", [](Args x) { return x.b.negate(x[0]); }};
const PointwiseOp kAbs{
    "aten::abs",
    [](Args x) { return stablehlo::is_pred(x[0].element_type()) ? x[0] : magnitude(x.b, x[0]); }};
const PointwiseOp kSign{"aten::sign", sign};

// name, op, domain: the three forms of a structured operator.
#define UNARY(name, op, domain) \
  numeric<at::meta::structured_##name, op, Domain::domain>(m, {#name, #name "_", #name ".out"})
#define ROUNDING(name, op)                                                                      \
  structured<at::meta::structured_##name, &Rounding<at::meta::structured_##name, op>::compute>( \
      m, {#name, #name "_", #name ".out"})
#define PREDICATE(name, op) \
  elementwise<at::meta::structured_##name, op>(m, {#name, nullptr, #name ".out"})

XLA_KERNELS(m) {
  UNARY(exp, kExp, kAny);
  UNARY(exp2, kExp2, kAny);
  UNARY(expm1, kExpm1, kAny);
  UNARY(log, kLog, kAny);
  UNARY(log1p, kLog1p, kAny);
  UNARY(log2, kLog2, kAny);
  UNARY(log10, kLog10, kAny);
  UNARY(sqrt, kSqrt, kAny);
  UNARY(rsqrt, kRsqrt, kAny);
  UNARY(reciprocal, kReciprocal, kAny);
  UNARY(sin, kSin, kAny);
  UNARY(cos, kCos, kAny);
  UNARY(tan, kTan, kAny);
  UNARY(asin, kAsin, kAny);
  UNARY(acos, kAcos, kAny);
  UNARY(atan, kAtan, kAny);
  UNARY(sinh, kSinh, kAny);
  UNARY(cosh, kCosh, kAny);
  UNARY(asinh, kAsinh, kAny);
  UNARY(acosh, kAcosh, kAny);
  UNARY(atanh, kAtanh, kAny);
  UNARY(sinc, kSinc, kAny);
  UNARY(neg, kNeg, kAny);
  UNARY(sign, kSign, kNotComplex);
  UNARY(sgn, kSgn, kAny);
  UNARY(frac, kFrac, kFloat);
  ROUNDING(floor, kFloor);
  ROUNDING(ceil, kCeil);
  ROUNDING(round, kRound);
  ROUNDING(trunc, kTrunc);
  structured<UnaryMeta<int64_t>, round_decimals>(
      m, {"round.decimals", "round_.decimals", "round.decimals_out"});
  m.impl("_efficientzerotensor", &zero_tensor);
  m.impl("abs", &abs);
  m.impl("angle", &angle);
  elementwise<UnaryMeta<>, kConj>(m, {"_conj_physical", "conj_physical_", "conj_physical.out"});
  PREDICATE(signbit, kSignbit);
  PREDICATE(isposinf, kIsposinf);
  PREDICATE(isneginf, kIsneginf);
  elementwise<PredicateMeta, kIsnan>(m, {"isnan"});
  elementwise<PredicateMeta, kLogicalNot>(m, {"logical_not"});
  UNARY(bitwise_not, kBitwiseNot, kInteger);
  structured<NanToNumMeta, nan_to_num>(m, {"nan_to_num"});
}

}  // namespace torch_xla::aten
