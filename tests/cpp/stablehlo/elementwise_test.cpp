// Elementwise operations: values on every plugin, and what they refuse.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stablehlo/builder.h"
#include "stablehlo/run.h"

namespace torch_xla::stablehlo {
namespace {

using testing::array;
using testing::Array;
using testing::c64;
using testing::expect;
using testing::expect_compiles;
using testing::f32;
using testing::pred;
using testing::s32;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

using UnaryMethod = Value (Builder::*)(Value);
using BinaryMethod = Value (Builder::*)(Value, Value);

struct UnaryCase {
  const char* name;
  UnaryMethod method;
  std::vector<double> inputs;
  std::vector<double> outputs;
};

void PrintTo(const UnaryCase& c, std::ostream* os) { *os << c.name; }

// Known values: C's functions, and for the last rows constants of the functions themselves.
const UnaryCase kUnary[] = {
    {"abs", &Builder::abs, {-1.5, 0, 2}, {1.5, 0, 2}},
    {"negate", &Builder::negate, {-1.5, 2}, {1.5, -2}},
    {"exponential", &Builder::exponential, {0, 1, -kInf}, {1, M_E, 0}},
    {"exponential_minus_one", &Builder::exponential_minus_one, {0, 1e-6}, {0, std::expm1(1e-6)}},
    {"log", &Builder::log, {1, M_E, 0, -1}, {0, 1, -kInf, kNan}},
    {"log_plus_one", &Builder::log_plus_one, {0, 1e-6}, {0, std::log1p(1e-6)}},
    {"logistic", &Builder::logistic, {0, 1}, {0.5, 1 / (1 + std::exp(-1))}},
    {"tanh", &Builder::tanh, {0, 0.5}, {0, std::tanh(0.5)}},
    {"tan", &Builder::tan, {0, 1}, {0, std::tan(1)}},
    {"sine", &Builder::sine, {0, 1}, {0, std::sin(1)}},
    {"cosine", &Builder::cosine, {0, 1}, {1, std::cos(1)}},
    {"sqrt", &Builder::sqrt, {4, -1}, {2, kNan}},
    {"rsqrt", &Builder::rsqrt, {4, 0.25}, {0.5, 2}},
    {"cbrt", &Builder::cbrt, {8, -27}, {2, -3}},
    {"floor", &Builder::floor, {1.5, -1.5}, {1, -2}},
    {"ceil", &Builder::ceil, {1.5, -1.5}, {2, -1}},
    {"round_nearest_even", &Builder::round_nearest_even, {0.5, 1.5, -2.5}, {0, 2, -2}},
    {"round_nearest_afz", &Builder::round_nearest_afz, {0.5, 1.5, -2.5}, {1, 2, -3}},
    {"sign", &Builder::sign, {-3, 0, 5}, {-1, 0, 1}},
    {"real", &Builder::real, {-3, 4}, {-3, 4}},
    {"imag", &Builder::imag, {-3, 4}, {0, 0}},
    {"conj", &Builder::conj, {-3, 4}, {-3, 4}},
    {"square", &Builder::square, {-3, 4}, {9, 16}},
    {"erf", &Builder::erf, {0, 0.5}, {0, std::erf(0.5)}},
    {"erfc", &Builder::erfc, {0, 0.5}, {1, std::erfc(0.5)}},
    {"erf_inv", &Builder::erf_inv, {0, std::erf(0.5)}, {0, 0.5}},
    {"lgamma", &Builder::lgamma, {1, 5}, {0, std::log(24.0)}},
    {"digamma", &Builder::digamma, {1, 2}, {-0.57721566490153286, 0.42278433509846714}},
    {"acos", &Builder::acos, {1, 0.5}, {0, std::acos(0.5)}},
    {"asin", &Builder::asin, {0, 0.5}, {0, std::asin(0.5)}},
    {"atan", &Builder::atan, {0, 0.5}, {0, std::atan(0.5)}},
    {"acosh", &Builder::acosh, {1, 2}, {0, std::acosh(2)}},
    {"asinh", &Builder::asinh, {0, 2}, {0, std::asinh(2)}},
    {"atanh", &Builder::atanh, {0, 0.5}, {0, std::atanh(0.5)}},
    {"sinh", &Builder::sinh, {0, 0.5}, {0, std::sinh(0.5)}},
    {"cosh", &Builder::cosh, {0, 0.5}, {1, std::cosh(0.5)}},
    // exp(-1) times the modified Bessel function I1(1) = 0.565159103992485.
    {"bessel_i1e", &Builder::bessel_i1e, {0, 1}, {0, 0.565159103992485 * std::exp(-1)}},
};

class Unary : public ::testing::TestWithParam<UnaryCase> {};

TEST_P(Unary, F32) {
  auto size = static_cast<int64_t>(GetParam().inputs.size());
  expect(
      {f32({size}, GetParam().inputs)},
      [](Builder& b, const Values& x) { return Values{(b.*GetParam().method)(x[0])}; },
      {f32({size}, GetParam().outputs)}, 2e-6);
}

TEST_P(Unary, EveryFloatWidthCompiles) {
  expect_compiles({{ElementType::kF64, {2}}, {ElementType::kF16, {2}}, {ElementType::kBF16, {2}}},
                  [](Builder& b, const Values& x) {
                    Values results;
                    for (Value v : x) results.push_back((b.*GetParam().method)(v));
                    return results;
                  });
}

INSTANTIATE_TEST_SUITE_P(All, Unary, ::testing::ValuesIn(kUnary),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Elementwise, ComplexFunctionsCompile) {
  const UnaryMethod methods[] = {
      &Builder::negate, &Builder::exponential,  &Builder::exponential_minus_one,
      &Builder::log,    &Builder::log_plus_one, &Builder::logistic,
      &Builder::tanh,   &Builder::tan,          &Builder::sine,
      &Builder::cosine, &Builder::sqrt,         &Builder::rsqrt,
      &Builder::sign,   &Builder::acos,         &Builder::asin,
      &Builder::atan,   &Builder::acosh,        &Builder::asinh,
      &Builder::atanh,  &Builder::sinh,         &Builder::cosh,
      &Builder::conj,   &Builder::square,       &Builder::is_nan,
  };
  for (UnaryMethod method : methods) {
    expect_compiles(
        {{ElementType::kC64, {2}}, {ElementType::kC128, {2}}},
        [&](Builder& b, const Values& x) { return Values{(b.*method)(x[0]), (b.*method)(x[1])}; });
  }
}

TEST(Elementwise, Complex) {
  expect(
      {c64({2}, {3, 4, 0, -1}), f32({2}, {1, 2}), f32({2}, {-1, 5})},
      [](Builder& b, const Values& x) {
        return Values{b.abs(x[0]), b.real(x[0]), b.imag(x[0]), b.conj(x[0]), b.complex(x[1], x[2])};
      },
      {f32({2}, {5, 1}), f32({2}, {3, 0}), f32({2}, {4, -1}), c64({2}, {3, -4, 0, 1}),
       c64({2}, {1, -1, 2, 5})},
      1e-6);
}

TEST(Elementwise, Integers) {
  expect({s32({4}, {-7, 0, 5, 12})},
         [](Builder& b, const Values& x) {
           return Values{b.abs(x[0]),  b.negate(x[0]), b.sign(x[0]),
                         b.not_(x[0]), b.popcnt(x[0]), b.count_leading_zeros(x[0])};
         },
         {s32({4}, {7, 0, 5, 12}), s32({4}, {7, 0, -5, -12}), s32({4}, {-1, 0, 1, 1}),
          s32({4}, {6, -1, -6, -13}), s32({4}, {30, 0, 2, 2}), s32({4}, {0, 32, 29, 28})});
}

TEST(Elementwise, UnsignedAbsAndSign) {
  Array x = array(ElementType::kU8, {3}, {0, 1, 200});
  expect({x}, [](Builder& b, const Values& v) { return Values{b.abs(v[0]), b.sign(v[0])}; },
         {x, array(ElementType::kU8, {3}, {0, 1, 1})});
}

TEST(Elementwise, Classification) {
  expect({f32({4}, {1, kInf, -kInf, kNan})},
         [](Builder& b, const Values& x) {
           return Values{b.is_finite(x[0]), b.is_inf(x[0]), b.is_nan(x[0])};
         },
         {pred({4}, {1, 0, 0, 0}), pred({4}, {0, 1, 1, 0}), pred({4}, {0, 0, 0, 1})});
}

struct BinaryCase {
  const char* name;
  BinaryMethod method;
  ElementType type;
  std::vector<double> a, b, outputs;
};

void PrintTo(const BinaryCase& c, std::ostream* os) { *os << c.name; }

const BinaryCase kBinary[] = {
    {"add", &Builder::add, ElementType::kF32, {1, 2}, {3, -1}, {4, 1}},
    {"subtract", &Builder::subtract, ElementType::kF32, {1, 2}, {3, -1}, {-2, 3}},
    {"multiply", &Builder::multiply, ElementType::kF32, {1, 2}, {3, -1}, {3, -2}},
    {"divide", &Builder::divide, ElementType::kF32, {1, 2}, {4, 0}, {0.25, kInf}},
    {"divide_integer", &Builder::divide, ElementType::kS32, {-7, 7}, {2, 2}, {-3, 3}},
    {"maximum", &Builder::maximum, ElementType::kF32, {1, 2, kNan}, {3, -1, 1}, {3, 2, kNan}},
    {"minimum", &Builder::minimum, ElementType::kF32, {1, 2, 1}, {3, -1, kNan}, {1, -1, kNan}},
    {"remainder", &Builder::remainder, ElementType::kF32, {7, -7}, {4, 4}, {3, -3}},
    {"remainder_integer", &Builder::remainder, ElementType::kS32, {7, -7}, {4, 4}, {3, -3}},
    {"power", &Builder::power, ElementType::kF32, {2, 4}, {3, 0.5}, {8, 2}},
    {"power_integer", &Builder::power, ElementType::kS32, {2, -3}, {5, 3}, {32, -27}},
    {"atan2", &Builder::atan2, ElementType::kF32, {1, 0}, {0, -1}, {M_PI_2, M_PI}},
    {"and", &Builder::and_, ElementType::kS32, {6, 3}, {3, 8}, {2, 0}},
    {"or", &Builder::or_, ElementType::kPred, {1, 0}, {0, 0}, {1, 0}},
    {"xor", &Builder::xor_, ElementType::kS32, {6, 3}, {3, 8}, {5, 11}},
    {"shift_left", &Builder::shift_left, ElementType::kS32, {1, -1}, {4, 1}, {16, -2}},
    {"shift_right_logical",
     &Builder::shift_right_logical,
     ElementType::kU8,
     {128, 7},
     {7, 1},
     {1, 3}},
    {"shift_right_arithmetic",
     &Builder::shift_right_arithmetic,
     ElementType::kS32,
     {-8, 7},
     {1, 1},
     {-4, 3}},
    // zeta(2, 1) is the Basel sum; polygamma(1, 1) equals it.
    {"zeta", &Builder::zeta, ElementType::kF32, {2}, {1}, {M_PI * M_PI / 6}},
    {"polygamma", &Builder::polygamma, ElementType::kF32, {1}, {1}, {M_PI * M_PI / 6}},
    {"next_after",
     &Builder::next_after,
     ElementType::kF32,
     {1},
     {2},
     {1 + std::numeric_limits<float>::epsilon()}},
};

class Binary : public ::testing::TestWithParam<BinaryCase> {};

TEST_P(Binary, Values) {
  const BinaryCase& c = GetParam();
  Dims dims{static_cast<int64_t>(c.a.size())};
  double tolerance = c.type == ElementType::kF32 && c.method != &Builder::next_after ? 1e-6 : 0;
  expect(
      {array(c.type, dims, c.a), array(c.type, dims, c.b)},
      [&](Builder& b, const Values& x) { return Values{(b.*c.method)(x[0], x[1])}; },
      {array(c.type, dims, c.outputs)}, tolerance);
}

INSTANTIATE_TEST_SUITE_P(All, Binary, ::testing::ValuesIn(kBinary),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Elementwise, OperatorsAndNumbers) {
  expect({f32({2}, {1, 2}), f32({2}, {3, 5})},
         [](Builder&, const Values& x) {
           return Values{(x[0] + x[1]) * 2 - x[0] / 4, 1 - x[0], -x[1]};
         },
         {f32({2}, {7.75, 13.5}), f32({2}, {0, -1}), f32({2}, {-3, -5})});
  expect({pred({2}, {1, 0}), pred({2}, {1, 1})},
         [](Builder&, const Values& x) {
           return Values{x[0] & x[1], x[0] | x[1], x[0] ^ x[1], ~x[0]};
         },
         {pred({2}, {1, 0}), pred({2}, {1, 1}), pred({2}, {0, 1}), pred({2}, {0, 1})});
}

TEST(Elementwise, Compare) {
  expect({f32({3}, {1, 2, kNan}), f32({3}, {2, 2, 1})},
         [](Builder& b, const Values& x) {
           return Values{b.eq(x[0], x[1]), b.ne(x[0], x[1]), b.lt(x[0], x[1]),
                         b.le(x[0], x[1]), b.gt(x[0], x[1]), b.ge(x[0], x[1])};
         },
         {pred({3}, {0, 1, 0}), pred({3}, {1, 0, 1}), pred({3}, {1, 0, 0}), pred({3}, {1, 1, 0}),
          pred({3}, {0, 0, 0}), pred({3}, {0, 1, 0})});
  expect({array(ElementType::kU8, {2}, {200, 1}), array(ElementType::kU8, {2}, {100, 2})},
         [](Builder& b, const Values& x) { return Values{b.lt(x[0], x[1])}; }, {pred({2}, {0, 1})});
  expect({f32({2}, {-0.0, 1}), f32({2}, {0.0, kNan})},
         [](Builder& b, const Values& x) {
           return Values{b.compare(x[0], x[1], Direction::kLt, /*total_order=*/true)};
         },
         {pred({2}, {1, 1})});
}

TEST(Elementwise, SelectAndClamp) {
  expect({pred({2}, {1, 0}), f32({2}, {1, 2}), f32({2}, {3, 4}), pred({}, {0})},
         [](Builder& b, const Values& x) {
           return Values{b.select(x[0], x[1], x[2]), b.select(x[3], x[1], x[2]),
                         b.clamp(b.scalar(1.5, ElementType::kF32), x[2], x[1])};
         },
         {f32({2}, {1, 4}), f32({2}, {3, 4}), f32({2}, {1, 2})});
}

TEST(Elementwise, Convert) {
  expect({f32({4}, {-1.7, 0, 0.3, kNan}), c64({3}, {1, 2, 0, 0, 0, 1}), s32({2}, {-1, 300})},
         [](Builder& b, const Values& x) {
           return Values{b.convert(x[0], ElementType::kPred), b.convert(x[0], ElementType::kS32),
                         b.convert(x[1], ElementType::kF32),  b.convert(x[1], ElementType::kPred),
                         b.convert(x[1], ElementType::kC128), b.convert(x[2], ElementType::kU8),
                         b.convert(x[2], ElementType::kC64)};
         },
         {pred({4}, {1, 0, 1, 1}), s32({4}, {-1, 0, 0, 0}), f32({3}, {1, 0, 0}),
          pred({3}, {1, 0, 1}), array(ElementType::kC128, {3}, {1, 2, 0, 0, 0, 1}),
          array(ElementType::kU8, {2}, {255, 44}), c64({2}, {-1, 0, 300, 0})});
}

TEST(Elementwise, ConvertBetweenAllNumberTypes) {
  std::vector<TensorType> inputs;
  for (int i = 0; i < kElementTypeCount; ++i) {
    auto type = static_cast<ElementType>(i);
    bool rare = bit_width(type) < 8 && !is_pred(type);
    if (type != ElementType::kToken && !rare) inputs.push_back({type, {2}});
  }
  expect_compiles(inputs, [&](Builder& b, const Values& x) {
    Values results;
    for (Value v : x) results.push_back(b.convert(v, ElementType::kF32));
    for (const TensorType& type : inputs) results.push_back(b.convert(results[0], type.type));
    return results;
  });
}

TEST(Elementwise, Bitcast) {
  expect(
      {f32({1}, {1}), array(ElementType::kU8, {1, 4}, {0, 0, 0x80, 0x3f})},
      [](Builder& b, const Values& x) {
        return Values{b.bitcast_convert(x[0], ElementType::kS32),
                      b.bitcast_convert(x[0], ElementType::kU8),
                      b.bitcast_convert(x[1], ElementType::kF32)};
      },
      {s32({1}, {0x3f800000}), array(ElementType::kU8, {1, 4}, {0, 0, 0x80, 0x3f}), f32({1}, {1})});
}

TEST(Elementwise, ReducePrecision) {
  expect({f32({1}, {1.001})},
         [](Builder& b, const Values& x) { return Values{b.reduce_precision(x[0], 8, 7)}; },
         {f32({1}, {1})});
}

TEST(Elementwise, RefusesWhatDoesNotFit) {
  Builder b;
  Value f = b.parameter({ElementType::kF32, {2}});
  Value f3 = b.parameter({ElementType::kF32, {3}});
  Value i = b.parameter({ElementType::kS32, {2}});
  Value c = b.parameter({ElementType::kC64, {2}});
  Value p = b.parameter({ElementType::kPred, {2}});
  EXPECT_THROW(f + f3, std::logic_error);
  EXPECT_THROW(f + i, std::logic_error);
  EXPECT_THROW(b.floor(i), std::logic_error);
  EXPECT_THROW(b.negate(p), std::logic_error);
  EXPECT_THROW(b.lt(c, c), std::logic_error);
  EXPECT_THROW(b.compare(i, i, Direction::kLt, true), std::logic_error);
  EXPECT_THROW(b.maximum(c, c), std::logic_error);
  EXPECT_THROW(b.select(f, f, f), std::logic_error);
  EXPECT_THROW(b.select(p, f, i), std::logic_error);
  EXPECT_THROW(b.select(p, f3, f3), std::logic_error);
  EXPECT_THROW(b.clamp(f3, f, f), std::logic_error);
  EXPECT_THROW(b.complex(i, i), std::logic_error);
  EXPECT_THROW(b.bitcast_convert(p, ElementType::kU8), std::logic_error);
  EXPECT_THROW(b.bitcast_convert(f3, ElementType::kF64), std::logic_error);
  EXPECT_THROW(b.reduce_precision(i, 5, 10), std::logic_error);
}

TEST(Elementwise, ErrorsNameTheOperationAndTheTypes) {
  Builder b;
  Value f = b.parameter({ElementType::kF32, {2}});
  Value i = b.parameter({ElementType::kS32, {2, 3}});
  try {
    b.add(f, i);
    FAIL();
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(),
                 "stablehlo.add: operand types differ: tensor<2xf32> and tensor<2x3xi32>");
  }
  try {
    b.sine(i);
    FAIL();
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "stablehlo.sine: takes float, complex, not tensor<2x3xi32>");
  }
}

}  // namespace
}  // namespace torch_xla::stablehlo
