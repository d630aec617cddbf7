// Bessel functions. Series as in special.cpp (see chebyshev.h).

#include <ATen/ops/special_bessel_j0_meta.h>
#include <ATen/ops/special_bessel_j1_meta.h>
#include <ATen/ops/special_bessel_y0_meta.h>
#include <ATen/ops/special_bessel_y1_meta.h>
#include <ATen/ops/special_modified_bessel_i0_meta.h>
#include <ATen/ops/special_modified_bessel_i1_meta.h>
#include <ATen/ops/special_modified_bessel_k0_meta.h>
#include <ATen/ops/special_modified_bessel_k1_meta.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_meta.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_meta.h>
#include <ATen/ops/special_spherical_bessel_j0_meta.h>

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
constexpr double kTwoOverPi = 2 / std::numbers::pi;

// J0(x) over t = x^2/32 - 1, for x in [0, 8].
constexpr std::array kJ0Near{
    0.15772797147489012,    -0.0087234423528522213,  0.26517861320333681,
    -0.37009499387264978,   0.15806710233209726,     -0.034893769411408885,
    0.0048191800694676045,  -0.00046062616620627505, 3.2460328821005081e-5,
    -1.7619469077621507e-6, 7.6081635924187819e-8,   -2.6792535305576729e-9,
    7.8486963144794644e-11, -1.9438346867370166e-12, 4.1253205956343739e-14,
    -7.588508125447545e-16, 1.2218515873961341e-17};
// J1(x) / x over the same.
constexpr std::array kJ1Near{
    0.081044846325658115,   -0.14897514506765211,    0.1609992623572097,
    -0.082680491766817907,  0.022213639654966035,    -0.003646940600769276,
    0.00040503377283548218, -3.2555548668572585e-5,  1.9858774049915167e-6,
    -9.5219847567504362e-8, 3.6871337590971482e-9,   -1.1780266226958848e-10,
    3.1601545803480033e-12, -7.2217552396517734e-14, 1.4232144003513942e-15,
    -2.444197291619053e-17};
// Y0(x) - 2/pi log(x) J0(x) over the same.
constexpr std::array kY0Near{
    -0.033146113203284942,   -0.27447430552974527,   0.17903431407718266,
    0.26156734625504664,     -0.17730201278114358,   0.047196689595763387,
    -0.0072879624795520792,  0.00075311359325777423, -5.632079141056987e-5,
    3.206532537654801e-6,    -1.4407233274018699e-7, 5.2487947873305161e-9,
    -1.5837552541812015e-10, 4.0263308183061208e-12, -8.7473412033107696e-14,
    1.6434898714919467e-15,  -2.6977881152566589e-17};
// (Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x over the same.
constexpr std::array kY1Near{
    0.0025380132357417817,   -0.01608717304766875,  -0.095912045360830742,   0.084451972596523458,
    -0.028328123944594366,   0.005289897544167113,  -0.0006414551451326356,  5.5059828733387438e-5,
    -3.5380800186893499e-6,  1.7707804556154403e-7, -7.1105500498992798e-9,  2.3443379059115164e-10,
    -6.4651518414115942e-12, 1.51429151205002e-13,  -3.0511859694473252e-15, 5.3466803857286566e-17,
    -8.2249113720209282e-19};
// Amplitudes of the cosine and, times x, of the sine of Hankel's form, over t = 128/x^2 - 1, for
// x in [8, inf).
constexpr std::array kP0{0.99946034934751867,    -0.00053652204681321174, 3.0751847875194746e-6,
                         -5.1705945376060977e-8, 1.6306464635151383e-9,   -7.86409137723707e-11,
                         5.1682623873491925e-12, -4.3045788699253912e-13, 4.3265957431549406e-14,
                         -5.069034095935236e-15, 6.7480722157338723e-16,  -1.0011513723467791e-16,
                         1.6305919233744035e-17};
constexpr std::array kQ0{-0.12444683684269607,    0.00054708159540893197,  -5.9315987288485178e-6,
                         1.4377965798375193e-7,   -5.817532749493056e-9,   3.3760975237349908e-10,
                         -2.5653979367973078e-11, 2.4049161002813649e-12,  -2.6690625482579405e-13,
                         3.4041800321963568e-14,  -4.8799441053119115e-15, 7.7297031762412528e-16,
                         -1.3348852171488491e-16, 2.4865952389247524e-17,  -4.9528926297427858e-18,
                         1.0473158972351497e-18};
constexpr std::array kP1{1.0009030408600137,      0.00089898983308594086,  -3.9872843004889085e-6,
                         6.1776339606442985e-8,   -1.8718907491063066e-9,  8.8168986595823389e-11,
                         -5.7048636403956447e-12, 4.6991955152305424e-13,  -4.6842237839904892e-14,
                         5.4526748960447172e-15,  -7.2211808422740189e-16, 1.066768911433541e-16,
                         -1.7312313216116486e-17, 3.0492991197670783e-18};
constexpr std::array kQ1{0.3742222965562826,      -0.00077021788393256635, 7.3108922063643633e-6,
                         -1.6767825107266738e-7,  6.5833546621204433e-9,   -3.7490909505415562e-10,
                         2.8121750359748865e-11,  -2.6114525394623203e-12, 2.8774212663332271e-13,
                         -3.6490019160618735e-14, 5.2066263662270498e-15,  -8.2153180254618647e-16,
                         1.4141084390242895e-16,  -2.6267615898678929e-17, 5.2192649199480699e-18};
// K0(x) + log(x/2) I0(x) over t = x^2/2 - 1, for x in (0, 2].
constexpr std::array kK0Near{-0.26766369661695138,  0.34428989992462849,    0.035979936515361502,
                             0.0012646154114469259, 2.2862121031194518e-5,  2.5347910790261495e-7,
                             1.9045163772202089e-9, 1.0349695257633625e-11, 4.2598161427910826e-14,
                             1.3744654358807481e-16};
// x (K1(x) - log(x/2) I1(x)) over the same.
constexpr std::array kK1Near{
    0.76265011366947389,     -0.35315596077654488,    -0.12261118082265715,
    -0.0069757238596398644,  -0.00017302889575130521, -2.4334061415659682e-6,
    -2.2133876307347259e-8,  -1.4114883926335278e-10, -6.666901694199329e-13,
    -2.4274498505193655e-15, -7.0238634793864679e-18};
// exp(x) sqrt(x) K0(x), then K1, over t = 4/x - 1, for x in [2, inf).
constexpr std::array kK0Far{
    1.2201515410329777,      -0.031448101311964501,   0.0015698838857300534,
    -0.00012849549581627803, 1.3949813718876499e-5,   -1.8317555227191195e-6,
    2.7668136394450151e-7,   -4.6604898976879477e-8,  8.5740340174142261e-9,
    -1.6975345093890615e-9,  3.5773972814003284e-10,  -7.957489244477397e-11,
    1.8559491149549266e-11,  -4.5145978833745192e-12, 1.1403405882073442e-12,
    -2.9800969231481783e-13, 8.0328907750683744e-14,  -2.2275133267462963e-14,
    6.3400764762766466e-15,  -1.8485933779209074e-15, 5.5120559994043401e-16,
    -1.6782311257549011e-16, 5.2103917776436182e-17,  -1.647580593984301e-17,
    5.3004337711784187e-18};
constexpr std::array kK1Far{
    1.3603130952422213,     0.10392373657681724,     -0.0028578168596227794,
    0.00019521551847135163, -1.936197974166083e-5,   2.4064849478372171e-6,
    -3.5019606030878125e-7, 5.7410841254500493e-8,   -1.0345762465678097e-8,
    2.0150497551970346e-9,  -4.1903547593419256e-10, 9.2183151876053141e-11,
    -2.129967838427791e-11, 5.1396396734823435e-12,  -1.2891739609498229e-12,
    3.3484196660522431e-13, -8.9767051820101461e-14, 2.4771544242195987e-14,
    -7.019837089214768e-15, 2.0387031662398606e-15,  -6.0570472706430103e-16,
    1.8380935752430442e-16, -5.689462849193574e-17,  1.7940510478862934e-17,
    -5.7567444820715319e-18};

// --- J and Y: a series near zero, Hankel's form (DLMF 10.17.3) beyond 8 ---

// max(x, limit) and min(x, limit): each branch sees arguments of its own range only.
XlaValue at_least(Builder& b, XlaValue x, double limit) {
  return b.maximum(x, b.full_like(x, limit));
}
XlaValue at_most(Builder& b, XlaValue x, double limit) {
  return b.minimum(x, b.full_like(x, limit));
}

struct Hankel {
  XlaValue cosine, sine;  // of the phase, with amplitude
};

// sqrt(2 / (pi x)) (P, Q/x) for order n, and the phase x - (2n+1) pi/4.
Hankel hankel(Builder& b, XlaValue x, int order, bool second_kind) {
  const XlaValue inverse = 1 / x;
  const XlaValue t = 128 * inverse * inverse - 1;
  const XlaValue p = order ? chebyshev(b, kP1, t) : chebyshev(b, kP0, t);
  const XlaValue q = (order ? chebyshev(b, kQ1, t) : chebyshev(b, kQ0, t)) * inverse;
  const XlaValue phase = x - (2 * order + 1) * std::numbers::pi / 4;
  const XlaValue amplitude = b.sqrt(kTwoOverPi * inverse);
  const XlaValue c = amplitude * b.cosine(phase), s = amplitude * b.sine(phase);
  return second_kind ? Hankel{q * c, p * s} : Hankel{p * c, b.negate(q * s)};
}

XlaValue near_argument(Builder& b, XlaValue x) {
  const XlaValue clipped = at_most(b, x, 8);
  return clipped * clipped / 32 - 1;
}

// J_n(x) for x >= 0.
XlaValue bessel_j(Builder& b, XlaValue x, int order) {
  const XlaValue t = near_argument(b, x);
  const XlaValue near =
      order ? chebyshev(b, kJ1Near, t) * at_most(b, x, 8) : chebyshev(b, kJ0Near, t);
  const Hankel far = hankel(b, at_least(b, x, 8), order, false);
  return b.select(b.gt(x, b.full_like(x, 8)), far.cosine + far.sine, near);
}

// Y_n(x) for x > 0, -inf at 0 and NaN below.
XlaValue bessel_y(Builder& b, XlaValue x, int order) {
  const XlaValue t = near_argument(b, x), small = at_most(b, x, 8);
  const XlaValue log_j = b.log(small) * bessel_j(b, small, order);
  const XlaValue near = order ? chebyshev(b, kY1Near, t) * small + kTwoOverPi * (log_j - 1 / small)
                              : chebyshev(b, kY0Near, t) + kTwoOverPi * log_j;
  const Hankel far = hankel(b, at_least(b, x, 8), order, true);
  const XlaValue value = b.select(b.gt(x, b.full_like(x, 8)), far.cosine + far.sine, near);
  return b.select(b.eq(x, b.zeros_like(x)), b.full_like(x, -kInfinity), value);
}

const PointwiseOp kBesselJ0{"aten::special_bessel_j0",
                            [](Args x) { return bessel_j(x.b, x.b.abs(x[0]), 0); }};
const PointwiseOp kBesselJ1{"aten::special_bessel_j1", [](Args x) {
                              const XlaValue value = bessel_j(x.b, x.b.abs(x[0]), 1);
                              return x.b.select(x.b.lt(x[0], x.number(0)), x.b.negate(value),
                                                value);
                            }};
const PointwiseOp kBesselY0{"aten::special_bessel_y0",
                            [](Args x) { return bessel_y(x.b, x[0], 0); }};
const PointwiseOp kBesselY1{"aten::special_bessel_y1",
                            [](Args x) { return bessel_y(x.b, x[0], 1); }};

// sin(x) / x, from its series where that would lose digits.
const PointwiseOp kSphericalJ0{"aten::special_spherical_bessel_j0", [](Args x) {
                                 Builder& b = x.b;
                                 const XlaValue v = x[0], square = v * v;
                                 XlaValue series = x.number(1);
                                 for (int k = 6; k > 0; --k)
                                   series = 1 - square / ((2.0 * k) * (2.0 * k + 1)) * series;
                                 const XlaValue value =
                                     b.select(b.lt(b.abs(v), x.number(0.5)), series, b.sine(v) / v);
                                 return b.select(b.is_inf(v), x.number(0), value);
                               }};

// --- K, and I in terms of its kernels in special.cpp ---

// exp(x) K_n(x) for x > 0, infinite at 0 and NaN below.
XlaValue scaled_k(Builder& b, XlaValue x, int order) {
  const XlaValue small = at_most(b, x, 2), large = at_least(b, x, 2);
  const XlaValue log_half = b.log(small * 0.5), t = small * small * 0.5 - 1;
  const XlaValue near = order ? chebyshev(b, kK1Near, t) / small + log_half * bessel_i1(b, small)
                              : chebyshev(b, kK0Near, t) - log_half * bessel_i0(b, small);
  const XlaValue u = 4 / large - 1;
  const XlaValue far = (order ? chebyshev(b, kK1Far, u) : chebyshev(b, kK0Far, u)) * b.rsqrt(large);
  const XlaValue value = b.select(b.gt(x, b.full_like(x, 2)), far, near * b.exponential(small));
  return b.select(b.eq(x, b.zeros_like(x)), b.full_like(x, kInfinity), value);
}

const PointwiseOp kScaledK0{"aten::special_scaled_modified_bessel_k0",
                            [](Args x) { return scaled_k(x.b, x[0], 0); }};
const PointwiseOp kScaledK1{"aten::special_scaled_modified_bessel_k1",
                            [](Args x) { return scaled_k(x.b, x[0], 1); }};
const PointwiseOp kModifiedK0{"aten::special_modified_bessel_k0", [](Args x) {
                                return scaled_k(x.b, x[0], 0) * x.b.exponential(x.b.negate(x[0]));
                              }};
const PointwiseOp kModifiedK1{"aten::special_modified_bessel_k1", [](Args x) {
                                return scaled_k(x.b, x[0], 1) * x.b.exponential(x.b.negate(x[0]));
                              }};
const PointwiseOp kModifiedI0{"aten::special_modified_bessel_i0",
                              [](Args x) { return bessel_i0(x.b, x[0]); }};
const PointwiseOp kModifiedI1{"aten::special_modified_bessel_i1",
                              [](Args x) { return bessel_i1(x.b, x[0]); }};

}  // namespace

#define BESSEL(name, op)                                            \
  numeric<at::meta::structured_special_##name, op, Domain::kFloat>( \
      m, {"special_" #name, nullptr, "special_" #name ".out"})

XLA_KERNELS(m) {
  BESSEL(bessel_j0, kBesselJ0);
  BESSEL(bessel_j1, kBesselJ1);
  BESSEL(bessel_y0, kBesselY0);
  BESSEL(bessel_y1, kBesselY1);
  BESSEL(spherical_bessel_j0, kSphericalJ0);
  BESSEL(modified_bessel_i0, kModifiedI0);
  BESSEL(modified_bessel_i1, kModifiedI1);
  BESSEL(modified_bessel_k0, kModifiedK0);
  BESSEL(modified_bessel_k1, kModifiedK1);
  BESSEL(scaled_modified_bessel_k0, kScaledK0);
  BESSEL(scaled_modified_bessel_k1, kScaledK1);
}

}  // namespace torch_xla::aten
