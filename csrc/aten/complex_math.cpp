#include "aten/complex_math.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace torch_xla::aten::complex_math {
namespace {

using stablehlo::ElementType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The parts of a number, and what is special about them.
struct Parts {
  Builder& b;
  Value x, y;

  Parts(Builder& b, const Value& z) : b(b), x(b.real(z)), y(b.imag(z)) {}

  Value number(double value) const { return b.full_like(x, value); }
  Value is_zero(const Value& part) const { return b.eq(part, number(0)); }
  Value is_wild(const Value& part) const { return b.not_(b.is_finite(part)); }
};

// The sign bit of `sign` on the size of `size`; NaN stays as it is.
Value copysign(Builder& b, const Value& size, const Value& sign) {
  const ElementType bits =
      sign.element_type() == ElementType::kF64 ? ElementType::kS64 : ElementType::kS32;
  const Value word = b.bitcast_convert(sign, bits);
  const Value negative = b.lt(word, b.zeros_like(word));
  return b.select(negative, b.negate(b.abs(size)), b.abs(size));
}
// The same, for results that have the sign of a part of the argument unless that is NaN.
Value with_sign_of(Builder& b, const Value& result, const Value& part) {
  return b.select(b.is_nan(part), result, copysign(b, result, part));
}

Value times_i(Builder& b, const Value& z) { return b.complex(b.negate(b.imag(z)), b.real(z)); }
Value over_i(Builder& b, const Value& z) { return b.complex(b.imag(z), b.negate(b.real(z))); }

}  // namespace

// An infinite real part decides, whatever the angle.
Value exp(Builder& b, const Value& z) {
  const Parts p(b, z);
  const Value decided = b.and_(b.is_inf(p.x), p.is_wild(p.y));
  const Value above = b.gt(p.x, p.number(0));
  const Value edge = b.complex(b.select(above, p.number(kInfinity), p.number(0)),
                               b.select(above, p.number(std::nan("")), p.number(0)));
  return b.select(decided, edge, b.exponential(z));
}

// expm1(x) cos y - 2 sin(y/2)^2 + i e^x sin y
Value expm1(Builder& b, const Value& z) {
  const Parts p(b, z);
  const Value half = b.sine(p.y * 0.5);
  return b.complex(b.exponential_minus_one(p.x) * b.cosine(p.y) - 2 * half * half,
                   b.exponential(p.x) * b.sine(p.y));
}

// Infinite for an infinite imaginary part, even beside NaN; on the side of that part.
Value sqrt(Builder& b, const Value& z) {
  const Parts p(b, z);
  const Value root = b.sqrt(z);
  Value re = b.real(root), im = b.imag(root);
  const Value unknown = b.is_nan(p.y), infinite = b.is_inf(p.y);
  const Value left = b.eq(p.x, p.number(-kInfinity)), right = b.eq(p.x, p.number(kInfinity));
  re = b.select(b.or_(infinite, b.and_(right, unknown)), p.number(kInfinity), re);
  im = b.select(b.or_(infinite, b.and_(left, unknown)), p.number(kInfinity), im);
  re = b.select(b.and_(left, unknown), p.number(std::nan("")), re);
  return b.complex(re, with_sign_of(b, im, p.y));
}

// The larger part is divided by first (Smith 1962), as c10::complex does.
Value reciprocal(Builder& b, const Value& z) {
  const Parts p(b, z);
  const Value wide = b.ge(b.abs(p.x), b.abs(p.y));
  const Value large = b.select(wide, p.x, p.y), small = b.select(wide, p.y, p.x);
  const Value ratio = small / large, scale = 1 / (large + small * ratio);
  const Value re = b.select(wide, scale, ratio * scale);
  const Value im = b.negate(b.select(wide, ratio * scale, scale));
  const Value none = b.and_(p.is_zero(p.x), p.is_zero(p.y));
  return b.complex(b.select(none, p.number(kInfinity), re),
                   b.select(none, p.number(std::nan("")), im));
}

Value sigmoid(Builder& b, const Value& z) { return reciprocal(b, 1 + exp(b, b.negate(z))); }

// Each part over the size, 0 for 0.
Value sgn(Builder& b, const Value& z) {
  const Parts p(b, z);
  const Value infinite = b.or_(b.is_inf(p.x), b.is_inf(p.y));
  const Value size = b.select(infinite, p.number(kInfinity), b.abs(z));
  const Value none = b.eq(size, p.number(0));
  return b.select(none, b.zeros_like(z), b.complex(p.x / size, p.y / size));
}

namespace {

// sinh x cos y + i cosh x sin y; a real argument has a real result, an imaginary one an imaginary.
// `edge`: the real part of an infinite x at no angle, which C99 leaves open.
Value sinh_of(Builder& b, const Value& z, double edge) {
  const Parts p(b, z);
  Value re = b.sinh(p.x) * b.cosine(p.y), im = b.cosh(p.x) * b.sine(p.y);
  re = b.select(b.and_(b.is_inf(p.x), p.is_wild(p.y)), p.number(edge), re);
  re = b.select(p.is_zero(p.x), p.x, re);
  im = b.select(p.is_zero(p.y), p.y, im);
  const Value special =
      b.or_(b.or_(p.is_zero(p.x), p.is_zero(p.y)), b.or_(p.is_wild(p.x), p.is_wild(p.y)));
  return b.select(special, b.complex(re, im), b.sinh(z));
}

}  // namespace

Value sinh(Builder& b, const Value& z) { return sinh_of(b, z, kInfinity); }
Value sin(Builder& b, const Value& z) { return over_i(b, sinh_of(b, times_i(b, z), -kInfinity)); }

// cosh x cos y + i sinh x sin y
Value cosh(Builder& b, const Value& z) {
  const Parts p(b, z);
  Value re = b.cosh(p.x) * b.cosine(p.y), im = b.sinh(p.x) * b.sine(p.y);
  re = b.select(b.and_(b.is_inf(p.x), p.is_wild(p.y)), p.number(kInfinity), re);
  const Value on_axis = b.or_(p.is_zero(p.x), p.is_zero(p.y));
  const Value sign = copysign(b, p.number(1), p.x) * copysign(b, p.number(1), p.y);
  im = b.select(on_axis, 0 * sign, im);
  const Value special = b.or_(on_axis, b.or_(p.is_wild(p.x), p.is_wild(p.y)));
  return b.select(special, b.complex(re, im), b.cosh(z));
}
Value cos(Builder& b, const Value& z) { return cosh(b, times_i(b, z)); }

Value tanh(Builder& b, const Value& z) {
  const Parts p(b, z);
  const Value tangent = b.tanh(z);
  return b.complex(b.select(p.is_zero(p.x), p.x, b.real(tangent)),
                   b.select(p.is_zero(p.y), p.y, b.imag(tangent)));
}
Value tan(Builder& b, const Value& z) { return over_i(b, tanh(b, times_i(b, z))); }

// Both parts have the signs of the argument's. An imaginary argument has an imaginary result.
Value asin(Builder& b, const Value& z) {
  const Parts p(b, z);
  const Value arc = b.asin(z);
  const Value re = b.select(p.is_zero(p.x), p.x, b.real(arc));
  const Value lost = b.and_(b.is_nan(p.y), b.is_finite(p.x));
  const Value im = b.select(lost, p.y, with_sign_of(b, b.imag(arc), p.y));
  return b.complex(re, im);
}
Value asinh(Builder& b, const Value& z) { return over_i(b, asin(b, times_i(b, z))); }

// pi/2 for the real part of an imaginary argument; the other has the argument's sign, turned.
Value acos(Builder& b, const Value& z) {
  const Parts p(b, z);
  const Value arc = b.acos(z);
  const Value right = p.number(std::numbers::pi / 2);
  const Value re = b.select(p.is_zero(p.x), right, b.real(arc));
  const Value lost = b.and_(b.is_nan(p.y), b.is_finite(p.x));
  const Value im = b.select(lost, p.y, with_sign_of(b, b.imag(arc), b.negate(p.y)));
  return b.complex(re, im);
}

// |log| of the same, with the angle's sign that of the imaginary part.
Value acosh(Builder& b, const Value& z) {
  const Parts p(b, z);
  const Value arc = b.acosh(z);
  const Value lost = b.and_(b.is_nan(p.y), b.is_finite(p.x));
  const Value right = b.and_(lost, p.is_zero(p.x));
  const Value im = with_sign_of(b, b.imag(arc), p.y);
  return b.complex(b.select(lost, p.y, b.real(arc)),
                   b.select(right, p.number(std::numbers::pi / 2), im));
}

// Both parts have the signs of the argument's.
Value atan(Builder& b, const Value& z) {
  const Parts p(b, z);
  const Value arc = b.atan(z);
  const Value lost = b.or_(b.is_nan(p.x), b.and_(b.is_nan(p.y), b.is_finite(p.x)));
  const Value re = b.select(lost, p.number(std::nan("")), with_sign_of(b, b.real(arc), p.x));
  const Value im = with_sign_of(b, b.imag(arc), p.y);
  const Value edge = b.and_(b.is_nan(p.x), b.or_(p.is_zero(p.y), b.is_inf(p.y)));
  return b.complex(re, b.select(edge, copysign(b, p.number(0), p.y), im));
}
Value atanh(Builder& b, const Value& z) { return over_i(b, atan(b, times_i(b, z))); }

}  // namespace torch_xla::aten::complex_math
