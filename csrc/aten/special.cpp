// Special functions of one or two tensors.

#include <ATen/ops/digamma_meta.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/erf_meta.h>
#include <ATen/ops/erfc_meta.h>
#include <ATen/ops/erfinv_meta.h>
#include <ATen/ops/i0_meta.h>
#include <ATen/ops/igamma_meta.h>
#include <ATen/ops/igammac_meta.h>
#include <ATen/ops/lgamma_meta.h>
#include <ATen/ops/polygamma_meta.h>
#include <ATen/ops/special_entr_meta.h>
#include <ATen/ops/special_erfcx_meta.h>
#include <ATen/ops/special_i0e_meta.h>
#include <ATen/ops/special_i1_meta.h>
#include <ATen/ops/special_i1e_meta.h>
#include <ATen/ops/special_log_ndtr_meta.h>
#include <ATen/ops/special_ndtri_meta.h>
#include <ATen/ops/special_xlog1py_meta.h>
#include <ATen/ops/special_zeta_meta.h>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "aten/chebyshev.h"
#include "aten/elementwise.h"

namespace torch_xla::aten {
namespace {

using Args = PointwiseArgs&;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// --- error functions ---

const PointwiseOp kErf{"aten::erf", [](Args x) { return x.b.erf(x[0]); }};
const PointwiseOp kErfc{"aten::erfc", [](Args x) { return x.b.erfc(x[0]); }};
const PointwiseOp kErfinv{"aten::erfinv", [](Args x) { return x.b.erf_inv(x[0]); }};

// (1 + 2x) exp(x^2) erfc(x) over t = (x - 3) / (x + 3), for x in [0, inf): the form of Shepherd &
// Laframboise 1981.
constexpr std::array kErfcxSeries{
    1.17756257419656,        0.0053539045396156768,   -0.093775503422842091,
    0.05436652555744322,     -0.018976596707845207,   0.0044534260614627116,
    -0.00063355317105531469, 1.7661719523171592e-5,   1.2841532864056671e-5,
    -2.0072285659059914e-6,  -1.8075227904148371e-7,  7.5498283438250928e-8,
    1.8856685238386028e-9,   -2.699519049798364e-9,   -1.4600791199391049e-11,
    1.036160744596949e-10,   1.475715976623473e-12,   -4.2773400643969108e-12,
    -2.07922492859799e-13,   1.8134502003176962e-13,  1.9734255745447388e-14,
    -7.2879437375926732e-15, -1.5169878690228116e-15, 2.3514112258781404e-16,
    1.0006111691821668e-16};

// exp(x^2) erfc(x).
XlaValue erfcx(Builder& b, XlaValue x) {
  const XlaValue size = b.abs(x);
  const XlaValue t = b.select(b.is_inf(size), b.ones_like(size), (size - 3) / (size + 3));
  const XlaValue right = chebyshev(b, kErfcxSeries, t) / (1 + 2 * size);
  const XlaValue left = 2 * b.exponential(x * x) - right;
  return b.select(b.lt(x, b.zeros_like(x)), left, right);
}
const PointwiseOp kErfcx{"aten::special_erfcx", [](Args x) { return erfcx(x.b, x[0]); }};

// log of the normal distribution function; its left tail from erfcx, which does not underflow.
XlaValue log_ndtr(Builder& b, XlaValue x) {
  const XlaValue scaled = x * (1 / std::numbers::sqrt2);
  const XlaValue tail = b.log(0.5 * erfcx(b, b.negate(scaled))) - scaled * scaled;
  const XlaValue body = b.log_plus_one(-0.5 * b.erfc(scaled));
  return b.select(b.lt(x, b.full_like(x, -1)), tail, body);
}
const PointwiseOp kLogNdtr{"aten::special_log_ndtr", [](Args x) { return log_ndtr(x.b, x[0]); }};

// With z = sqrt(-2 log p): (z - log(z)/z + ndtri(p)) z over 1/z in [1/40, 1/2]. Eleven terms give
// six digits, which Newton's method doubles twice.
constexpr std::array kNdtriSeries{
    1.0131859906189804,     0.091556543263647728,   -0.00024722528621678663,
    -0.001048261281788573,  0.00052403051286763442, -0.00022071038035326263,
    8.8502061822048005e-5,  -3.5794532854558384e-5, 1.5036308364335459e-5,
    -6.6071272373394513e-6, 3.0224392419246444e-6};

// The inverse of the normal distribution function in its tail, p <= exp(-2).
XlaValue ndtri_tail(Builder& b, XlaValue p) {
  const XlaValue log_p = b.log(p);
  const XlaValue z = b.sqrt(-2 * log_p);
  constexpr double kLow = 1.0 / 40, kHigh = 0.5;
  const XlaValue t = (1 / z - kLow) * (2 / (kHigh - kLow)) - 1;
  XlaValue x = chebyshev(b, kNdtriSeries, t) / z + b.log(z) / z - z;
  for (int step = 0; step < 2; ++step) {
    // d/dx log Phi(x) = sqrt(2/pi) / erfcx(-x / sqrt 2).
    const XlaValue inverse_slope =
        erfcx(b, x * (-1 / std::numbers::sqrt2)) * std::sqrt(std::numbers::pi / 2);
    x = x - (log_ndtr(b, x) - log_p) * inverse_slope;
  }
  return x;
}

const PointwiseOp kNdtri{
    "aten::special_ndtri", [](Args x) {
      Builder& b = x.b;
      const XlaValue p = x[0], q = 1 - p;
      const double edge = std::exp(-2.0);
      // The tails see a harmless argument where they are not used.
      auto tail = [&](XlaValue v) {
        const XlaValue used = b.and_(b.gt(v, x.number(0)), b.lt(v, x.number(edge)));
        return ndtri_tail(b, b.select(used, v, x.number(edge)));
      };
      const XlaValue body = b.erf_inv(2 * p - 1) * std::numbers::sqrt2;
      XlaValue result = b.select(b.lt(p, x.number(edge)), tail(p), body);
      result = b.select(b.gt(p, x.number(1 - edge)), b.negate(tail(q)), result);
      result = b.select(b.eq(p, x.number(0)), x.number(-kInfinity), result);
      result = b.select(b.eq(p, x.number(1)), x.number(kInfinity), result);
      const XlaValue inside = b.and_(b.ge(p, x.number(0)), b.le(p, x.number(1)));
      return b.select(inside, result, x.number(std::nan("")));
    }};

// --- the gamma function and its kin ---

const PointwiseOp kLgamma{"aten::lgamma", [](Args x) { return x.b.lgamma(x[0]); }};

// The pole at a signed zero has the opposite sign.
XlaValue digamma(Builder& b, XlaValue x) {
  const XlaValue pole = b.full_like(x, -1) / x;
  return b.select(b.eq(x, b.zeros_like(x)), pole, b.digamma(x));
}
const PointwiseOp kDigamma{"aten::digamma", [](Args x) { return digamma(x.b, x[0]); }};

// The coefficients (2j)! / B_2j, j from 1 to 12, of the Euler-Maclaurin sum below; B_2j are
// Bernoulli's numbers (DLMF 24.2.1).
constexpr std::array kEulerMaclaurin{12.0,
                                     -720.0,
                                     30240.0,
                                     -1209600.0,
                                     47900160.0,
                                     -1307674368000.0 / 691,
                                     74724249600.0,
                                     -10670622842880000.0 / 3617,
                                     5109094217170944000.0 / 43867,
                                     -802857662698291200000.0 / 174611,
                                     15511210043330985984000000.0 / 854513,
                                     -1693824136731743669452800000.0 / 236364091};

// `sum` of (q + k)^-s, whose last term `power` is that of `end`, with the integral of the terms
// that follow and its corrections (DLMF 25.11.5), as many as change the sum.
XlaValue with_remainder(Builder& b, XlaValue sum, XlaValue s, XlaValue end, XlaValue power) {
  XlaValue value = sum + power * end / (s - 1) - power * 0.5;
  XlaValue open = b.full_like(b.eq(s, s), 1), rising = b.ones_like(s);
  for (size_t j = 0; j < kEulerMaclaurin.size(); ++j) {
    const double k = 2.0 * static_cast<double>(j);
    rising = rising * (s + k);
    power = power / end;
    const XlaValue correction = rising * power / kEulerMaclaurin[j];
    value = b.select(open, value + correction, value);
    open = b.and_(open, b.not_(b.lt(b.abs(correction / value), b.full_like(value, 0x1p-53))));
    rising = rising * (s + (k + 1));
    power = power / end;
  }
  return value;
}

// The sum of (q + k)^-s for k = 0, 1, ... as long as q + k < -kNear, for whole s and q < -kNear
// that is not. That is (-1)^s (zeta(s, kNear + 1 - f) - zeta(s, 1 - q)), f the fraction of q.
constexpr double kNear = 1024;
XlaValue far_left_terms(Builder& b, XlaValue s, XlaValue q) {
  const auto zeta = [&](XlaValue start) {
    const XlaValue power = b.power(start, b.negate(s)), zero = b.zeros_like(power);
    return b.select(b.eq(power, zero), zero, with_remainder(b, power, s, start, power));
  };
  const XlaValue sum = zeta(b.floor(q) - q + (kNear + 1)) - zeta(1 - q);
  const XlaValue odd = b.ne(s * 0.5, b.floor(s * 0.5));
  return b.select(odd, b.negate(sum), sum);
}

// Hurwitz's zeta function for s > 1, the sum over k >= 0 of (q + k)^-s: nine terms and as many more
// as bring q + k above 9, then what is left. As on CPU, in f64 but for the first term, and in the
// same order, which decide what comes out where terms overflow; only those far left of 0 are added
// at once. Infinite at the poles 0, -1, -2, ... of q; NaN for other negative q unless s is whole.
XlaValue hurwitz_zeta(Builder& b, XlaValue s_given, XlaValue q_given) {
  const XlaValue s = b.convert(s_given, ElementType::kF64);
  const XlaValue q = b.convert(q_given, ElementType::kF64);
  Dims all;
  for (int64_t i = 0; i < q.rank(); ++i) all.push_back(i);
  const XlaValue zero = b.zeros_like(q), one = b.ones_like(q);
  const XlaValue left = b.le(q, zero);
  const XlaValue pole = b.and_(left, b.eq(q, b.floor(q)));
  const XlaValue undefined = b.and_(left, b.ne(s, b.floor(s)));
  const XlaValue regular = b.not_(b.or_(b.le(s, one), b.or_(pole, undefined)));
  const auto negligible = [&](XlaValue term, XlaValue sum) {
    constexpr double kHalfUnit = 0x1p-53;
    return b.and_(b.lt(sum * -kHalfUnit, term), b.lt(term, sum * kHalfUnit));
  };

  // State: how many terms followed the first, the last q + k, its power, the sum, which elements
  // go on, and which have a remainder.
  const XlaValue far = b.lt(q, b.full_like(q, -kNear));
  const XlaValue start = b.select(far, q - b.floor(q) - kNear, q);
  const XlaValue narrow = b.convert(start, q_given.element_type());
  const XlaValue first = b.select(far, far_left_terms(b, s, q), zero) +
                         b.convert(b.power(narrow, b.negate(s_given)), ElementType::kF64);
  const auto some_go_on = [&](const stablehlo::Values& v) { return b.reduce_or(v[4], all); };
  const auto add_term = [&](const stablehlo::Values& v) -> stablehlo::Values {
    const XlaValue count = v[0] + 1, at = v[1] + 1, term = b.power(at, b.negate(s)),
                   sum = v[3] + term;
    const XlaValue done = b.and_(v[4], negligible(term, sum));
    const XlaValue few = b.broadcast_to(b.lt(count, b.full_like(count, 9)), q.dims());
    const XlaValue more = b.or_(few, b.le(at, b.full_like(at, 9)));
    return {count,
            b.select(v[4], at, v[1]),
            b.select(v[4], term, v[2]),
            b.select(v[4], sum, v[3]),
            b.and_(b.and_(v[4], b.not_(done)), more),
            b.and_(v[5], b.not_(done))};
  };
  const auto summed = b.while_(
      {b.scalar(0, ElementType::kS32), start, zero, first, regular, regular}, some_go_on, add_term);
  XlaValue value = with_remainder(b, summed[3], s, summed[1], summed[2]);
  value = b.select(summed[5], value, summed[3]);

  const XlaValue nan = b.full_like(q, std::nan("")), infinity = b.full_like(q, kInfinity);
  value = b.select(undefined, nan, value);
  value = b.select(pole, infinity, value);
  value = b.select(b.lt(s, one), nan, value);
  value = b.select(b.eq(s, one), infinity, value);
  return b.convert(value, q_given.element_type());
}
const PointwiseOp kZeta{"aten::special_zeta", [](Args x) { return hurwitz_zeta(x.b, x[0], x[1]); }};

// The regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P: the series for P (DLMF
// 8.11.4) where x < a + 1, elsewhere the continued fraction for Q (8.9.2) by Lentz's method. Each
// runs until no element that uses it changes any more.
XlaValue incomplete_gamma(Args args, bool upper) {
  Builder& b = args.b;
  const XlaValue a = args[0], x = args[1], zero = args.number(0), one = args.number(1);
  const double epsilon = stablehlo::epsilon(a.element_type());
  constexpr int64_t kLimit = 2000;
  Dims all;
  for (int64_t i = 0; i < a.rank(); ++i) all.push_back(i);
  const XlaValue regular =
      b.and_(b.and_(b.gt(a, zero), b.is_finite(a)), b.and_(b.gt(x, zero), b.is_finite(x)));
  const XlaValue by_series = b.lt(x, a + 1);
  auto some = [&](XlaValue where, XlaValue count) {
    return b.and_(b.reduce_or(where, all), b.lt(count, b.full_like(count, kLimit)));
  };
  const XlaValue start = b.scalar(1, ElementType::kS32);
  auto step_of = [&](XlaValue count) {
    return b.broadcast_to(b.convert(count, a.element_type()), a.dims());
  };

  // State: step n, term x^n / ((a+1) ... (a+n)), sum.
  const XlaValue in_series = b.and_(regular, by_series);
  auto series_open = [&](const stablehlo::Values& v) {
    return some(b.and_(in_series, b.gt(v[1], v[2] * epsilon)), v[0]);
  };
  auto series_step = [&](const stablehlo::Values& v) -> stablehlo::Values {
    const XlaValue term = v[1] * x / (a + step_of(v[0]));
    return {v[0] + 1, term, v[2] + term};
  };
  const XlaValue sum = b.while_({start, one, one}, series_open, series_step)[2];

  // State: step n, c, d, the fraction so far, its last factor.
  const XlaValue in_fraction = b.and_(regular, b.not_(by_series));
  const XlaValue base = b.select(in_fraction, x + 1 - a, one);
  const double tiny = stablehlo::min_normal(a.element_type()) / epsilon;
  auto guarded = [&](XlaValue v) {
    return b.select(b.lt(b.abs(v), b.full_like(v, tiny)), b.full_like(v, tiny), v);
  };
  auto fraction_open = [&](const stablehlo::Values& v) {
    return some(b.and_(in_fraction, b.gt(b.abs(v[4] - 1), b.full_like(v[4], epsilon))), v[0]);
  };
  auto fraction_step = [&](const stablehlo::Values& v) -> stablehlo::Values {
    const XlaValue n = step_of(v[0]);
    const XlaValue numerator = n * (a - n), denominator = base + 2 * n;
    const XlaValue d = 1 / guarded(denominator + numerator * v[2]);
    const XlaValue c = guarded(denominator + numerator / v[1]);
    return {v[0] + 1, c, d, v[3] * c * d, c * d};
  };
  const XlaValue first = 1 / base;
  const XlaValue fraction = b.while_({start, b.full_like(a, 1 / tiny), first, first, zero},
                                     fraction_open, fraction_step)[3];

  const XlaValue safe_x = b.select(regular, x, one), safe_a = b.select(regular, a, one);
  const XlaValue factor = b.exponential(safe_a * b.log(safe_x) - safe_x - b.lgamma(safe_a));
  const XlaValue p = factor * sum / safe_a, q = factor * fraction;
  const XlaValue value = upper ? b.select(by_series, 1 - p, q) : b.select(by_series, p, 1 - q);

  // The edges: P is 1 for an infinite x or a zero a, 0 for a zero x or an infinite a. Where two
  // meet, the order is PyTorch's.
  const XlaValue full = upper ? zero : one, none = upper ? one : zero;
  const XlaValue nan = args.number(std::nan(""));
  XlaValue result = b.select(regular, value, nan);
  result = b.select(b.is_inf(x), full, result);
  result = b.select(b.is_inf(a), b.select(b.is_inf(x), nan, none), result);
  result = b.select(b.eq(x, zero), none, result);
  result = b.select(b.eq(a, zero), b.select(b.gt(x, zero), full, nan), result);
  return b.select(b.or_(b.lt(a, zero), b.lt(x, zero)), nan, result);
}
const PointwiseOp kIgamma{"aten::igamma", [](Args x) { return incomplete_gamma(x, false); }};
const PointwiseOp kIgammac{"aten::igammac", [](Args x) { return incomplete_gamma(x, true); }};

// psi_n(x) = (-1)^(n+1) n! zeta(n+1, x); the trigamma function by reflection left of 1/2:
// psi_1(1-x) + psi_1(x) = (pi / sin(pi x))^2.
const PointwiseOp kPolygamma{
    "aten::polygamma", [](Args x) {
      Builder& b = x.b;
      const int64_t n = x.attributes.integer();
      const XlaValue v = x[0];
      if (n == 0) return digamma(b, v);
      if (n == 1) {
        const XlaValue mirrored = b.lt(v, x.number(0.5));
        const XlaValue right = b.zeta(x.number(2), b.select(mirrored, 1 - v, v));
        const XlaValue ratio = std::numbers::pi / b.sine(v * std::numbers::pi);
        const XlaValue value = b.select(mirrored, ratio * ratio - right, right);
        return b.select(b.eq(v, x.number(kInfinity)), x.number(0), value);
      }
      const double factorial = std::exp(std::lgamma(static_cast<double>(n) + 1));
      const XlaValue scaled = hurwitz_zeta(b, x.number(static_cast<double>(n) + 1), v) * factorial;
      return n % 2 ? scaled : b.negate(scaled);
    }};

// --- modified Bessel functions of the first kind ---

const PointwiseOp kI0e{"aten::special_i0e", [](Args x) { return bessel_i0e(x.b, x[0]); }};
const PointwiseOp kI0{"aten::i0", [](Args x) { return bessel_i0(x.b, x[0]); }};
const PointwiseOp kI1e{"aten::special_i1e", [](Args x) { return x.b.bessel_i1e(x[0]); }};
const PointwiseOp kI1{"aten::special_i1", [](Args x) { return bessel_i1(x.b, x[0]); }};

// --- entropy ---

// -x log(x), 0 at 0 and -inf below.
const PointwiseOp kEntr{"aten::special_entr", [](Args x) {
                          Builder& b = x.b;
                          const XlaValue zero = x.number(0);
                          const XlaValue below =
                              b.select(b.eq(x[0], zero), zero, x.number(-kInfinity));
                          const XlaValue above = b.negate(x[0]) * b.log(x[0]);
                          const XlaValue ordered = b.or_(b.gt(x[0], zero), b.is_nan(x[0]));
                          return b.select(ordered, above, below);
                        }};
// x log(1 + y), 0 for a zero x unless y is NaN.
const PointwiseOp kXlog1py{"aten::special_xlog1py", [](Args x) {
                             Builder& b = x.b;
                             const XlaValue product =
                                 b.select(b.eq(x[0], x.number(0)), x.number(0),
                                          x[0] * x.rounded(b.log_plus_one(x[1])));
                             return b.select(b.is_nan(x[1]), x[1], product);
                           }};

// --- frexp ---

// x = mantissa * 2^exponent with the mantissa in [1/2, 1): read off the bits. Zero, infinity and
// NaN are their own mantissa. Attribute: whether the exponent is asked for.
const PointwiseOp kFrexp{
    "aten::frexp", [](Args x) {
      Builder& b = x.b;
      const bool wide = x[0].element_type() == ElementType::kF64;
      const ElementType word = wide ? ElementType::kS64 : ElementType::kS32;
      const int fraction_bits = wide ? 52 : 23;
      const int64_t field = wide ? 0x7ff : 0xff, half = wide ? 1022 : 126;
      const XlaValue bits = b.bitcast_convert(x[0], word);
      const XlaValue mask = b.full_like(bits, field);
      const XlaValue biased =
          b.and_(b.shift_right_logical(bits, b.full_like(bits, fraction_bits)), mask);
      const XlaValue zero = b.zeros_like(bits);
      const XlaValue special = b.or_(b.eq(biased, zero), b.eq(biased, mask));
      if (x.attributes.boolean()) return b.select(special, zero, biased - half);
      const XlaValue kept = b.and_(bits, b.full_like(bits, ~(field << fraction_bits)));
      const XlaValue mantissa = b.bitcast_convert(
          b.or_(kept, b.full_like(bits, half << fraction_bits)), x[0].element_type());
      return b.select(special, x[0], mantissa);
    }};

std::tuple<at::Tensor, at::Tensor> frexp(const at::Tensor& self) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "torch.frexp() only supports floating-point dtypes");
  auto part = [&](at::ScalarType dtype, bool exponent) {
    const at::Tensor result = at::empty_like(self, self.options().dtype(dtype));
    lazy::write(result, pointwise(kFrexp, {lazy::read(self)}, element_type(self),
                                  {lazy::element_type(dtype), span_of(self.sizes())},
                                  Attributes::of(exponent)));
    return result;
  };
  return {part(self.scalar_type(), false), part(at::kInt, true)};
}

}  // namespace

#define META(name) at::meta::structured_##name
#define FORMS(name) {#name, #name "_", #name ".out"}
#define OUT_FORMS(name) {#name, nullptr, #name ".out"}

XLA_KERNELS(m) {
  numeric<META(erf), kErf, Domain::kFloat>(m, FORMS(erf));
  numeric<META(erfc), kErfc, Domain::kFloat>(m, FORMS(erfc));
  numeric<META(erfinv), kErfinv, Domain::kFloat>(m, FORMS(erfinv));
  numeric<META(special_erfcx), kErfcx, Domain::kFloat>(m, OUT_FORMS(special_erfcx));
  numeric<META(special_log_ndtr), kLogNdtr, Domain::kFloat>(m, OUT_FORMS(special_log_ndtr));
  numeric<META(special_ndtri), kNdtri, Domain::kFloat>(m, OUT_FORMS(special_ndtri));
  numeric<META(lgamma), kLgamma, Domain::kFloat>(m, FORMS(lgamma));
  numeric<META(digamma), kDigamma, Domain::kFloat>(m, FORMS(digamma));
  numeric<META(polygamma), kPolygamma, Domain::kFloat>(m, OUT_FORMS(polygamma));
  numeric<META(special_zeta), kZeta, Domain::kFloat>(m, OUT_FORMS(special_zeta));
  numeric<META(igamma), kIgamma, Domain::kFloat>(m, FORMS(igamma));
  numeric<META(igammac), kIgammac, Domain::kFloat>(m, FORMS(igammac));
  numeric<META(i0), kI0, Domain::kFloat>(m, FORMS(i0));
  numeric<META(special_i0e), kI0e, Domain::kFloat>(m, OUT_FORMS(special_i0e));
  numeric<META(special_i1), kI1, Domain::kFloat>(m, OUT_FORMS(special_i1));
  numeric<META(special_i1e), kI1e, Domain::kFloat>(m, OUT_FORMS(special_i1e));
  numeric<META(special_entr), kEntr, Domain::kFloat>(m, OUT_FORMS(special_entr));
  numeric<META(special_xlog1py), kXlog1py, Domain::kFloat>(m, OUT_FORMS(special_xlog1py));
  m.impl("frexp.Tensor", &frexp);
}

}  // namespace torch_xla::aten
