#include "aten/chebyshev.h"

#include <array>
#include <cmath>

namespace torch_xla::aten {
namespace {

// exp(-x) I0(x) over t = x/4 - 1, for x in [0, 8].
constexpr std::array kI0eSmall{
    0.33839763720473804,     -0.3046826723431984,     0.17162090152220878,
    -0.094901097048047644,   0.049305284239670708,    -0.023737414805899469,
    0.010546460394594998,    -0.0043243099950505759,  0.0016394756169413358,
    -0.00057637557453858237, 0.00018850288509584166,  -5.7541950100821037e-5,
    1.6448448070728897e-5,   -4.4167383584587506e-6,  1.1173875391201037e-6,
    -2.6707938539406117e-7,  6.0469950225419189e-8,   -1.300025009986248e-8,
    2.6598237246823867e-9,   -5.1897956016352629e-10, 9.6758090353732369e-11,
    -1.7268262914415557e-11, 2.9550526631296398e-12,  -4.8564467831119295e-13,
    7.6761854986049356e-14,  -1.1685332877993452e-14, 1.715391285555133e-15,
    -2.4312798465479547e-16, 3.3307945188222381e-17,  -4.4153416464793394e-18};
// sqrt(x) exp(-x) I0(x) over t = 16/x - 1, for x in [8, inf).
constexpr std::array kI0eLarge{
    0.40224520550705442,     0.0033691164782556941,   6.889758346916824e-5,
    2.8913705208347565e-6,   2.0489185894690637e-7,   2.2666689904981781e-8,
    3.3962320257083863e-9,   4.9406023882249696e-10,  1.1889147107846438e-11,
    -3.1499165279632414e-11, -1.3215811840447713e-11, -1.7941785315068061e-12,
    7.1801244513836662e-13,  3.8527783827421427e-13,  1.5400862175214098e-14,
    -4.1505693472872221e-14, -9.5548466988283076e-15, 3.8116806693526224e-15,
    1.7725601330565264e-15,  -3.4254856196772191e-16, -2.8276239805165835e-16,
    3.4612228676974611e-17,  4.46562142029676e-17,    -4.8305044859441821e-18};

}  // namespace

XlaValue chebyshev(Builder& b, std::span<const double> c, XlaValue t) {
  const double threshold = stablehlo::epsilon(t.element_type()) / 16;
  size_t count = c.size();
  while (count > 2 && std::abs(c[count - 1]) < threshold) --count;
  XlaValue next = b.zeros_like(t), current = b.full_like(t, c[count - 1]);
  for (size_t i = count - 2; i > 0; --i) {
    const XlaValue value = 2 * t * current - next + c[i];
    next = current;
    current = value;
  }
  return t * current - next + c[0];
}

XlaValue bessel_i0e(Builder& b, XlaValue x) {
  const XlaValue size = b.abs(x);
  const XlaValue far = b.gt(size, b.full_like(size, 8));
  const XlaValue near_size = b.select(far, b.full_like(size, 8), size);
  const XlaValue small = chebyshev(b, kI0eSmall, near_size / 4 - 1);
  const XlaValue far_size = b.select(far, size, b.full_like(size, 8));
  const XlaValue large = chebyshev(b, kI0eLarge, 16 / far_size - 1) * b.rsqrt(far_size);
  return b.select(far, large, small);
}

XlaValue bessel_i0(Builder& b, XlaValue x) { return bessel_i0e(b, x) * b.exponential(b.abs(x)); }

XlaValue bessel_i1(Builder& b, XlaValue x) { return b.bessel_i1e(x) * b.exponential(b.abs(x)); }

}  // namespace torch_xla::aten
