// Elementwise operators of two tensors beyond the basic arithmetic of arithmetic.cpp.

#include <ATen/ScalarOps.h>
#include <ATen/ops/bitwise_and_meta.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_left_shift_meta.h>
#include <ATen/ops/bitwise_or_meta.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_right_shift_meta.h>
#include <ATen/ops/bitwise_xor_meta.h>
#include <ATen/ops/copysign_meta.h>
#include <ATen/ops/div.h>
#include <ATen/ops/fmax_meta.h>
#include <ATen/ops/fmin_meta.h>
#include <ATen/ops/fmod_meta.h>
#include <ATen/ops/gcd_meta.h>
#include <ATen/ops/heaviside_meta.h>
#include <ATen/ops/hypot_meta.h>
#include <ATen/ops/lcm_meta.h>
#include <ATen/ops/logaddexp2_meta.h>
#include <ATen/ops/logaddexp_meta.h>
#include <ATen/ops/nextafter_meta.h>
#include <ATen/ops/pow_meta.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/remainder_meta.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/xlogy_meta.h>

#include <array>
#include <limits>
#include <numbers>

#include "aten/checks.h"
#include "aten/elementwise.h"
#include "aten/formulas.h"
#include "aten/masked.h"

namespace torch_xla::aten {
namespace {

using Args = PointwiseArgs&;

bool is_float(const XlaValue& x) { return stablehlo::is_float(x.element_type()); }
bool is_complex(const XlaValue& x) { return stablehlo::is_complex(x.element_type()); }

// --- bits ---

const PointwiseOp kBitwiseAnd{"aten::bitwise_and", [](Args x) { return x.b.and_(x[0], x[1]); }};
const PointwiseOp kBitwiseOr{"aten::bitwise_or", [](Args x) { return x.b.or_(x[0], x[1]); }};
const PointwiseOp kBitwiseXor{"aten::bitwise_xor", [](Args x) { return x.b.xor_(x[0], x[1]); }};

// True where the shift is negative or as wide as the type. (A negative one is huge as unsigned.)
XlaValue out_of_range(Args x) {
  const XlaValue zero = x.number(0);
  const XlaValue wide = x.b.ge(x[1], x.number(stablehlo::bit_width(x[0].element_type())));
  return x.b.or_(x.b.lt(x[1], zero), wide);
}

// Such shifts give 0, or copies of the sign bit to the right.
const PointwiseOp kShiftLeft{
    "aten::bitwise_left_shift",
    [](Args x) { return x.b.select(out_of_range(x), x.number(0), x.b.shift_left(x[0], x[1])); }};
const PointwiseOp kShiftRight{
    "aten::bitwise_right_shift", [](Args x) {
      Builder& b = x.b;
      const ElementType type = x[0].element_type();
      if (!stablehlo::is_signed(type)) {
        return b.select(out_of_range(x), x.number(0), b.shift_right_logical(x[0], x[1]));
      }
      const XlaValue most = x.number(stablehlo::bit_width(type) - 1);
      return b.shift_right_arithmetic(x[0], b.select(out_of_range(x), most, x[1]));
    }};

template <class Meta, const PointwiseOp& op>
Value shift(Infer<Meta, 1>& it, const at::Tensor& self, const at::Tensor& other) {
  const at::ScalarType dtype = it.common_dtype();
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(dtype, false), '"', op.name,
                              "\" not implemented for '", c10::toString(dtype), "'");
  return pointwise(op, {value_of(self), value_of(other)}, common_type(it), it.output_shape());
}

at::Tensor lshift(const at::Tensor& self, const at::Tensor& other) {
  return at::bitwise_left_shift(self, other);
}
at::Tensor lshift_scalar(const at::Tensor& self, const at::Scalar& other) {
  return at::bitwise_left_shift(self, other);
}
at::Tensor& lshift_(at::Tensor& self, const at::Tensor& other) {
  return self.bitwise_left_shift_(other);
}
at::Tensor& lshift_scalar_(at::Tensor& self, const at::Scalar& other) {
  return self.bitwise_left_shift_(other);
}
at::Tensor rshift(const at::Tensor& self, const at::Tensor& other) {
  return at::bitwise_right_shift(self, other);
}
at::Tensor rshift_scalar(const at::Tensor& self, const at::Scalar& other) {
  return at::bitwise_right_shift(self, other);
}
at::Tensor& rshift_(at::Tensor& self, const at::Tensor& other) {
  return self.bitwise_right_shift_(other);
}
at::Tensor& rshift_scalar_(at::Tensor& self, const at::Scalar& other) {
  return self.bitwise_right_shift_(other);
}

// --- logic ---

XlaValue truth(Args x, size_t i) { return x.b.ne(x[i], x.number(0)); }

const PointwiseOp kLogicalAnd{"aten::logical_and",
                              [](Args x) { return x.b.and_(truth(x, 0), truth(x, 1)); }};
const PointwiseOp kLogicalOr{"aten::logical_or",
                             [](Args x) { return x.b.or_(truth(x, 0), truth(x, 1)); }};
const PointwiseOp kLogicalXor{"aten::logical_xor",
                              [](Args x) { return x.b.xor_(truth(x, 0), truth(x, 1)); }};

// --- pow ---

// x^n of integers, by squaring: XLA looks at the last six bits of n only. Of a negative power, what
// is no integer is 0.
XlaValue integer_power(Args x) {
  Builder& b = x.b;
  const XlaValue zero = x.number(0), one = x.number(1);
  const Dims all = stablehlo::iota_dims(static_cast<size_t>(x[0].rank()));
  const auto is_odd = [&](const XlaValue& n) { return b.ne(b.and_(n, one), zero); };
  XlaValue n = x[1], first = one;
  if (stablehlo::is_signed(n.element_type())) {
    const XlaValue negative = b.lt(n, zero), minus_one = x.number(-1);
    const XlaValue inverse =
        b.select(b.eq(x[0], one), one,
                 b.select(b.eq(x[0], minus_one), b.select(is_odd(n), minus_one, one), zero));
    first = b.select(negative, inverse, one);
    n = b.select(negative, zero, n);
  }
  const auto unfinished = [&](const stablehlo::Values& v) {
    return b.reduce_or(b.ne(v[2], b.zeros_like(v[2])), all);
  };
  const auto step = [&](const stablehlo::Values& v) -> stablehlo::Values {
    const XlaValue odd = b.ne(b.and_(v[2], b.ones_like(v[2])), b.zeros_like(v[2]));
    return {b.select(odd, b.multiply(v[0], v[1]), v[0]), b.multiply(v[1], v[1]),
            b.divide(v[2], b.full_like(v[2], 2))};
  };
  return b.while_({first, x[0], n}, unfinished, step)[0];
}

}  // namespace

const PointwiseOp kPow{"aten::pow", [](Args x) {
                         return stablehlo::is_integer(x[0].element_type()) ? integer_power(x)
                                                                           : x.b.power(x[0], x[1]);
                       }};

namespace {

// Exponents with a cheaper and more exact form; the node's attribute is the index.
constexpr std::array kSpecialExponents{2.0, 3.0, 0.5, -0.5, -1.0, -2.0};

const PointwiseOp kPowSpecial{"aten::pow", [](Args x) {
                                Builder& b = x.b;
                                const XlaValue v = x[0];
                                // CPU's bf16 kernels multiply in bf16; f16's call pow.
                                const bool steps = x.common == ElementType::kBF16;
                                const XlaValue square = steps ? x.rounded(v * v) : v * v;
                                switch (x.attributes.integer()) {
                                  case 0:
                                    return square;
                                  case 1:
                                    return square * v;
                                  case 2:
                                    return b.sqrt(v);
                                  case 3:
                                    return b.rsqrt(v);
                                  case 4:
                                    return 1 / v;
                                  default:
                                    return 1 / square;
                                }
                              }};

// Integers know no fractions or inverses: -1 for an exponent without a special form.
int64_t special_exponent(const at::Scalar& exponent, ElementType common) {
  if (exponent.isComplex()) return -1;
  const bool whole = stablehlo::is_integer(common);
  for (size_t i = 0; i < (whole ? 2 : kSpecialExponents.size()); ++i) {
    // For f16 CPU calls pow, which gives other roots of -inf and -0.
    if (common == ElementType::kF16 && std::abs(kSpecialExponents[i]) == 0.5) continue;
    if (exponent.toDouble() == kSpecialExponents[i]) return static_cast<int64_t>(i);
  }
  return -1;
}

Value pow_value(const at::Tensor& self, const at::Scalar& exponent, ElementType common,
                ShapeRef output) {
  if (stablehlo::is_integer(common) || stablehlo::opmath_type(common) != common) {
    check_number(exponent, lazy::scalar_type(common));  // CPU takes wider ones for wider floats
  }
  const Value base = value_of(self);
  if (exponent.equal(1)) return convert(base, output.type);
  if (exponent.equal(0)) return lazy::full(1, output.type, output.dims);
  const int64_t special = special_exponent(exponent, common);
  if (special >= 0) {
    return pointwise(kPowSpecial, {base}, common, output, Attributes::of(special));
  }
  return pointwise(kPow, {base, rounded_operand(exponent, common)}, common, output);
}

using PowScalar = at::meta::structured_pow_Tensor_Scalar;

Value pow_tensor_scalar(Infer<PowScalar, 1>& it, const at::Tensor& self,
                        const at::Scalar& exponent) {
  return pow_value(self, exponent, common_type(it), it.output_shape());
}

at::Tensor pow_scalar(const at::Tensor& self, const at::Scalar& exponent) {
  if (plain_float(self) && !exponent.isComplex()) {
    return make_like(pow_value(self, exponent, element_type(self), shape_of(self)), self);
  }
  return structured_functional<PowScalar, pow_tensor_scalar>(self, exponent);
}

Value pow_scalar_tensor(Infer<at::meta::structured_pow_Scalar, 1>& it, const at::Scalar& base,
                        const at::Tensor& exponent) {
  const ElementType common = it.output_type();
  return pointwise(kPow, {rounded_operand(base, common), value_of(exponent)}, common,
                   it.output_shape());
}

// --- remainders ---

// C's fmod: the sign of the dividend.
const PointwiseOp kFmod{"aten::fmod", [](Args x) { return x.b.remainder(x[0], x[1]); }};
// Python's %: the sign of the divisor.
const PointwiseOp kRemainder{"aten::remainder", [](Args x) {
                               Builder& b = x.b;
                               const XlaValue zero = x.number(0);
                               const XlaValue mod = b.remainder(x[0], x[1]);
                               const XlaValue opposite = b.ne(b.lt(mod, zero), b.lt(x[1], zero));
                               return b.select(b.and_(b.ne(mod, zero), opposite), mod + x[1], mod);
                             }};

template <class Meta, const PointwiseOp& op>
Value modulo(Infer<Meta, 1>& it, const at::Tensor& self, const at::Tensor& other) {
  const at::ScalarType dtype = it.common_dtype();
  check_domain(op.name, dtype == at::kBool ? Domain::kFloat : Domain::kNotComplex, dtype);
  // In the common dtype first, numbers of wider ones too: a remainder tells.
  Value divisor = value_of(other, dtype);
  if (at::isIntegralType(dtype, false) && it.output().numel() > 0) {
    divisor = checked_divisor(other, divisor, op.name);
  }
  return pointwise(op, {value_of(self, dtype), std::move(divisor)}, common_type(it),
                   it.output_shape());
}

at::Tensor remainder_scalar_tensor(const at::Scalar& self, const at::Tensor& other) {
  return at::remainder(at::native::wrapped_scalar_tensor(self), other);
}

at::Tensor floor_divide(const at::Tensor& self, const at::Tensor& other) {
  return at::div(self, other, "floor");
}
at::Tensor& floor_divide_(at::Tensor& self, const at::Tensor& other) {
  return self.div_(other, "floor");
}

at::Tensor rsub(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return at::sub(other, self, alpha);
}

// --- gcd, lcm ---

// Euclid's algorithm on every element until no remainder is left anywhere.
XlaValue greatest_common_divisor(Args x) {
  Builder& b = x.b;
  Dims all;
  for (int64_t i = 0; i < x[0].rank(); ++i) all.push_back(i);
  auto unfinished = [&](const stablehlo::Values& v) {
    return b.reduce_or(b.ne(v[1], b.zeros_like(v[1])), all);
  };
  auto step = [&](const stablehlo::Values& v) -> stablehlo::Values {
    const XlaValue done = b.eq(v[1], b.zeros_like(v[1]));
    const XlaValue divisor = b.select(done, b.ones_like(v[1]), v[1]);
    return {b.select(done, v[0], v[1]), b.select(done, v[1], b.remainder(v[0], divisor))};
  };
  return b.while_({b.abs(x[0]), b.abs(x[1])}, unfinished, step)[0];
}

const PointwiseOp kGcd{"aten::gcd", greatest_common_divisor};
const PointwiseOp kLcm{"aten::lcm", [](Args x) {
                         Builder& b = x.b;
                         const XlaValue divisor = greatest_common_divisor(x);
                         const XlaValue none = b.eq(divisor, x.number(0));
                         const XlaValue safe = b.select(none, x.number(1), divisor);
                         return b.select(none, x.number(0), b.abs(x[0] / safe * x[1]));
                       }};

template <class Meta, const PointwiseOp& op>
Value integers(Infer<Meta, 1>& it, const at::Tensor& self, const at::Tensor& other) {
  const at::ScalarType dtype = it.common_dtype();
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(dtype, false), '"', op.name,
                              "\" not implemented for '", c10::toString(dtype), "'");
  return pointwise(op, {value_of(self), value_of(other)}, common_type(it), it.output_shape());
}

// --- floats ---

// sqrt(x^2 + y^2) without overflow of the squares; infinite beside an infinity, even with a NaN.
const PointwiseOp kHypot{
    "aten::hypot", [](Args x) {
      Builder& b = x.b;
      const XlaValue p = b.abs(x[0]), q = b.abs(x[1]);
      const XlaValue large = b.maximum(p, q), small = b.minimum(p, q);
      const XlaValue ratio = small / b.select(b.eq(large, x.number(0)), x.number(1), large);
      const XlaValue length = large * b.sqrt(1 + ratio * ratio);
      return b.select(b.or_(b.is_inf(p), b.is_inf(q)),
                      x.number(std::numeric_limits<double>::infinity()), length);
    }};

const PointwiseOp kCopysign{"aten::copysign", [](Args x) {
                              Builder& b = x.b;
                              const bool wide = x[1].element_type() == ElementType::kF64;
                              const XlaValue bits = b.bitcast_convert(
                                  x[1], wide ? ElementType::kS64 : ElementType::kS32);
                              const XlaValue size = b.abs(x[0]);
                              return b.select(b.lt(bits, b.zeros_like(bits)), b.negate(size), size);
                            }};

// The neighbour of x in its own dtype (an attribute), not in the compute type.
const PointwiseOp kNextafter{"aten::nextafter", [](Args x) {
                               const auto type = x.attributes.enumeration<ElementType>();
                               return x.b.next_after(x.b.convert(x[0], type),
                                                     x.b.convert(x[1], type));
                             }};

Value nextafter(Infer<at::meta::structured_nextafter, 1>& it, const at::Tensor& self,
                const at::Tensor& other) {
  const ElementType common = common_type(it);
  check_domain("nextafter", Domain::kFloat, it.common_dtype());
  return pointwise(kNextafter, {value_of(self), value_of(other)}, common, it.output_shape(),
                   Attributes::of(common));
}

// log(exp(x) + exp(y)) from the larger operand, by its real part.
const PointwiseOp kLogaddexp{
    "aten::logaddexp", [](Args x) {
      Builder& b = x.b;
      if (!is_complex(x[0])) {
        const XlaValue large = b.maximum(x[0], x[1]);
        const XlaValue difference = b.negate(b.abs(x[0] - x[1]));
        const XlaValue same = b.and_(b.is_inf(x[0]), b.eq(x[0], x[1]));
        return b.select(same, x[0], large + b.log_plus_one(b.exponential(difference)));
      }
      const XlaValue first = b.ge(b.real(x[0]), b.real(x[1]));
      const XlaValue large = b.select(first, x[0], x[1]), small = b.select(first, x[1], x[0]);
      const XlaValue same = b.and_(b.is_inf(b.real(x[0])), b.eq(x[0], x[1]));
      return b.select(same, x[0], large + b.log_plus_one(b.exponential(small - large)));
    }};
const PointwiseOp kLogaddexp2{
    "aten::logaddexp2", [](Args x) {
      Builder& b = x.b;
      const XlaValue large = b.maximum(x[0], x[1]);
      const XlaValue power = b.power(x.number(2), b.negate(b.abs(x[0] - x[1])));
      const XlaValue same = b.and_(b.is_inf(x[0]), b.eq(x[0], x[1]));
      return b.select(same, x[0], large + b.log_plus_one(power) * std::numbers::log2e);
    }};

// x log(y), 0 for a zero x unless y is NaN.
const PointwiseOp kXlogy{"aten::xlogy", [](Args x) {
                           Builder& b = x.b;
                           const XlaValue product = b.select(b.eq(x[0], x.number(0)), x.number(0),
                                                             x[0] * x.rounded(b.log(x[1])));
                           return b.select(b.is_nan(x[1]), x[1], product);
                         }};

const PointwiseOp kHeaviside{"aten::heaviside", [](Args x) {
                               Builder& b = x.b;
                               const XlaValue zero = x.number(0);
                               if (stablehlo::is_pred(x[0].element_type())) {
                                 return b.or_(x[0], x[1]);
                               }
                               const XlaValue step =
                                   b.convert(b.gt(x[0], zero), x[0].element_type());
                               return b.select(b.eq(x[0], zero), x[1], step);
                             }};

// Like maximum and minimum, but a number wins over NaN.
template <XlaValue (Builder::*pick)(XlaValue, XlaValue)>
XlaValue ignoring_nan(Args x) {
  Builder& b = x.b;
  const XlaValue picked = (b.*pick)(x[0], x[1]);
  if (!is_float(x[0])) return picked;
  return b.select(b.is_nan(x[0]), x[1], b.select(b.is_nan(x[1]), x[0], picked));
}
const PointwiseOp kFmax{"aten::fmax", ignoring_nan<&Builder::maximum>};
const PointwiseOp kFmin{"aten::fmin", ignoring_nan<&Builder::minimum>};

// --- complex numbers from parts ---

const PointwiseOp kComplex{"aten::complex", [](Args x) { return x.b.complex(x[0], x[1]); }};
const PointwiseOp kPolar{"aten::polar", [](Args x) {
                           return x.b.complex(x[0] * x.b.cosine(x[1]), x[0] * x.b.sine(x[1]));
                         }};

struct ComplexMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& a, const at::Tensor& b) {
    for (const at::Tensor& part : {a, b}) {
      const at::ScalarType dtype = part.scalar_type();
      TORCH_CHECK(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf,
                  "Expected both inputs to be Half, Float or Double tensors but got ",
                  a.scalar_type(), " and ", b.scalar_type());
    }
    TORCH_CHECK(a.scalar_type() == b.scalar_type(), "Expected object of scalar type ",
                a.scalar_type(), " but got scalar type ", b.scalar_type(), " for second argument");
    const at::ScalarType dtype = c10::toComplexType(a.scalar_type());
    const at::Tensor& out = maybe_get_output(0);
    TORCH_CHECK(!out.defined() || out.scalar_type() == dtype, "Expected object of scalar type ",
                dtype, " but got scalar type ", out.defined() ? out.scalar_type() : dtype,
                " for argument 'out'");
    build(at::TensorIteratorConfig()
              .add_output(out)
              .add_const_input(a)
              .add_const_input(b)
              .allow_cpu_scalars(true)
              .check_all_same_dtype(false)
              .declare_static_dtype(dtype));
  }
};

}  // namespace

#define META(name) at::meta::structured_##name
#define TENSOR_FORMS(name) {#name ".Tensor", #name "_.Tensor", #name ".Tensor_out"}
#define BITWISE(name, op) \
  structured<META(name##_Tensor), Numeric<op, Domain::kInteger>{}>(m, TENSOR_FORMS(name))

XLA_KERNELS(m) {
  BITWISE(bitwise_and, kBitwiseAnd);
  BITWISE(bitwise_or, kBitwiseOr);
  BITWISE(bitwise_xor, kBitwiseXor);
  using LeftShift = META(bitwise_left_shift_Tensor);
  using RightShift = META(bitwise_right_shift_Tensor);
  structured<LeftShift, &shift<LeftShift, kShiftLeft>>(m, TENSOR_FORMS(bitwise_left_shift));
  structured<RightShift, &shift<RightShift, kShiftRight>>(m, TENSOR_FORMS(bitwise_right_shift));
  m.impl("__lshift__.Tensor", &lshift);
  m.impl("__lshift__.Scalar", &lshift_scalar);
  m.impl("__ilshift__.Tensor", &lshift_);
  m.impl("__ilshift__.Scalar", &lshift_scalar_);
  m.impl("__rshift__.Tensor", &rshift);
  m.impl("__rshift__.Scalar", &rshift_scalar);
  m.impl("__irshift__.Tensor", &rshift_);
  m.impl("__irshift__.Scalar", &rshift_scalar_);

  elementwise<ComparisonMeta, kLogicalAnd>(m, {"logical_and", nullptr, "logical_and.out"});
  elementwise<ComparisonMeta, kLogicalOr>(m, {"logical_or", nullptr, "logical_or.out"});
  elementwise<ComparisonMeta, kLogicalXor>(m, {"logical_xor", nullptr, "logical_xor.out"});

  numeric<META(pow_Tensor_Tensor), kPow>(
      m, {"pow.Tensor_Tensor", "pow_.Tensor", "pow.Tensor_Tensor_out"});
  m.impl("pow.Tensor_Scalar", &pow_scalar);
  structured<PowScalar, pow_tensor_scalar>(m, {nullptr, "pow_.Scalar", "pow.Tensor_Scalar_out"});
  structured<META(pow_Scalar), pow_scalar_tensor>(m, {"pow.Scalar", nullptr, "pow.Scalar_out"});

  structured<META(fmod_Tensor), &modulo<META(fmod_Tensor), kFmod>>(m, TENSOR_FORMS(fmod));
  structured<META(remainder_Tensor), &modulo<META(remainder_Tensor), kRemainder>>(
      m, TENSOR_FORMS(remainder));
  m.impl("remainder.Scalar_Tensor", &remainder_scalar_tensor);
  m.impl("floor_divide", &floor_divide);
  m.impl("floor_divide_.Tensor", &floor_divide_);
  m.impl("rsub.Tensor", &rsub);
  structured<META(gcd), &integers<META(gcd), kGcd>>(m, {"gcd", "gcd_", "gcd.out"});
  structured<META(lcm), &integers<META(lcm), kLcm>>(m, {"lcm", "lcm_", "lcm.out"});

  numeric<META(hypot), kHypot, Domain::kFloat>(m, {"hypot", "hypot_", "hypot.out"});
  numeric<META(copysign_Tensor), kCopysign, Domain::kFloat>(
      m, {"copysign.Tensor", "copysign_.Tensor", "copysign.out"});
  structured<META(nextafter), nextafter>(m, {"nextafter", "nextafter_", "nextafter.out"});
  numeric<META(logaddexp), kLogaddexp, Domain::kFloatOrComplex>(
      m, {"logaddexp", nullptr, "logaddexp.out"});
  numeric<META(logaddexp2), kLogaddexp2, Domain::kFloat>(m,
                                                         {"logaddexp2", nullptr, "logaddexp2.out"});
  numeric<META(xlogy_Tensor), kXlogy, Domain::kFloat>(
      m, {"xlogy.Tensor", "xlogy_.Tensor", "xlogy.OutTensor"});
  numeric<META(heaviside), kHeaviside, Domain::kNotComplex>(
      m, {"heaviside", "heaviside_", "heaviside.out"});
  numeric<META(fmax), kFmax, Domain::kNotComplex>(m, {"fmax", nullptr, "fmax.out"});
  numeric<META(fmin), kFmin, Domain::kNotComplex>(m, {"fmin", nullptr, "fmin.out"});
  elementwise<ComplexMeta, kComplex>(m, {"complex", nullptr, "complex.out"});
  elementwise<ComplexMeta, kPolar>(m, {"polar", nullptr, "polar.out"});
}

}  // namespace torch_xla::aten
