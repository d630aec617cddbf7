// Constants: spelling, rounding, limits, and that plugins read back what was meant.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "stablehlo/builder.h"
#include "stablehlo/run.h"

namespace torch_xla::stablehlo {
namespace {

using testing::array;
using testing::Array;
using testing::c64;
using testing::expect;
using testing::f32;
using testing::pred;
using testing::s32;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

std::string literal(Number value, ElementType type) {
  Builder b;
  b.ret({b.scalar(value, type)});
  std::string text = b.module();
  size_t begin = text.find("dense<") + 6;
  return text.substr(begin, text.find("> :") - begin);
}

TEST(Constants, Spelling) {
  EXPECT_EQ(literal(1, ElementType::kF32), "1.0");
  EXPECT_EQ(literal(-0.0, ElementType::kF64), "-0.0");
  EXPECT_EQ(literal(0.1, ElementType::kF32), "1.0e-01");
  EXPECT_EQ(literal(1e300, ElementType::kF32), "0x7F800000");
  EXPECT_EQ(literal(-kInf, ElementType::kBF16), "0xFF80");
  EXPECT_EQ(literal(kNan, ElementType::kF16), "0x7E00");
  EXPECT_EQ(literal(kInf, ElementType::kF8E4M3FN), "0x7F");
  EXPECT_EQ(literal(2.5, ElementType::kS32), "2");
  EXPECT_EQ(literal(300, ElementType::kU8), "44");
  EXPECT_EQ(literal(-1, ElementType::kU64), "18446744073709551615");
  EXPECT_EQ(literal(std::numeric_limits<int64_t>::min(), ElementType::kS64),
            "-9223372036854775808");
  EXPECT_EQ(literal(9, ElementType::kS4), "-7");
  EXPECT_EQ(literal(1e30, ElementType::kS32), "-1");
  EXPECT_EQ(literal(0.5, ElementType::kPred), "true");
  EXPECT_EQ(literal(std::complex<double>(1, -2), ElementType::kC64), "(1.0, -2.0)");
}

TEST(Constants, ScalarsOfEveryKind) {
  const int64_t big = (int64_t{1} << 53) + 1;
  expect({},
         [&](Builder& b, const Values&) {
           return Values{
               b.scalar(0.1, ElementType::kF32),
               b.scalar(0.1, ElementType::kF64),
               b.scalar(true, ElementType::kPred),
               b.scalar(-5, ElementType::kS32),
               b.scalar(200, ElementType::kU8),
               b.scalar(std::complex<double>(kInf, -2), ElementType::kC64),
               b.eq(b.scalar(big, ElementType::kS64) - 1, b.scalar(big - 1, ElementType::kS64)),
               b.convert(b.scalar(1.00390625, ElementType::kBF16), ElementType::kF32),
               b.convert(b.scalar(65520, ElementType::kF16), ElementType::kF32),
               b.convert(b.scalar(-3, ElementType::kS4), ElementType::kS32)};
         },
         {f32({}, {0.1f}), array(ElementType::kF64, {}, {0.1}), pred({}, {1}), s32({}, {-5}),
          array(ElementType::kU8, {}, {200}), c64({}, {kInf, -2}), pred({}, {1}), f32({}, {1.0}),
          f32({}, {kInf}), s32({}, {-3})});
}

TEST(Constants, LimitsOfEveryType) {
  std::vector<Array> expected;
  expect(
      {},
      [&](Builder& b, const Values&) {
        Values results;
        expected.clear();
        for (int i = 0; i < kElementTypeCount; ++i) {
          auto type = static_cast<ElementType>(i);
          if (is_complex(type) || type == ElementType::kToken) continue;
          if (is_float(type) && bit_width(type) < 8) continue;
          for (Value v : {b.lowest(type), b.highest(type), b.min_value(type), b.max_value(type)}) {
            results.push_back(b.convert(v, ElementType::kF64));
          }
          double low, high;
          if (is_float(type)) {
            high = max_finite(type);
            low = type == ElementType::kF8E8M0FNU ? min_normal(type) : -high;
          } else if (is_pred(type)) {
            low = 0, high = 1;
          } else {
            high = std::ldexp(1.0, bit_width(type) - is_signed(type)) - 1;
            low = is_signed(type) ? -std::ldexp(1.0, bit_width(type) - 1) : 0;
          }
          bool infinite = is_float(type) && has_infinity(type);
          for (double value : {low, high, infinite ? -kInf : low, infinite ? kInf : high}) {
            expected.push_back(array(ElementType::kF64, {}, {value}));
          }
        }
        return results;
      },
      expected);
}

TEST(Constants, Nan) {
  std::vector<ElementType> types;
  for (int i = 0; i < kElementTypeCount; ++i) {
    auto type = static_cast<ElementType>(i);
    // Older plugins convert the NaN of f8E8M0FNU to infinity.
    if (type == ElementType::kF8E8M0FNU) continue;
    if (is_float(type) && bit_width(type) >= 8) types.push_back(type);
  }
  std::vector<Array> expected(types.size(), f32({}, {kNan}));
  expect(
      {},
      [&](Builder& b, const Values&) {
        Values results;
        for (ElementType type : types) {
          results.push_back(b.convert(b.nan(type), ElementType::kF32));
        }
        return results;
      },
      expected);
}

TEST(Constants, Splats) {
  expect({f32({2, 2}, {1, 2, 3, 4})},
         [](Builder& b, const Values& x) {
           EXPECT_EQ(b.zeros_like(x[0]).id(), b.zeros_like(x[0]).id());
           return Values{b.zeros_like(x[0]), b.ones_like(x[0]), b.full_like(x[0], 2.5),
                         b.constant(ElementType::kS32, {3}, 7),
                         b.constant(ElementType::kS32, {0}, 7)};
         },
         {f32({2, 2}, {0, 0, 0, 0}), f32({2, 2}, {1, 1, 1, 1}), f32({2, 2}, {2.5, 2.5, 2.5, 2.5}),
          s32({3}, {7, 7, 7}), s32({0}, {})});
}

TEST(Constants, Iota) {
  expect({},
         [](Builder& b, const Values&) {
           return Values{b.iota(ElementType::kF32, {2, 3}, 1), b.iota(ElementType::kS32, {2, 2}, 0),
                         b.iota({ElementType::kC64, {2}}, 0)};
         },
         {f32({2, 3}, {0, 1, 2, 0, 1, 2}), s32({2, 2}, {0, 0, 1, 1}), c64({2}, {0, 0, 1, 0})});
}

TEST(Constants, DenseArraysRoundTrip) {
  std::vector<Array> arrays = {
      f32({2, 2}, {1, -0.0, kInf, kNan}),
      array(ElementType::kF64, {2}, {0.1, -1e-300}),
      s32({3}, {1, -2, 3}),
      array(ElementType::kU64, {2}, {0, 18446744073709549568.0}),
      pred({2, 2}, {1, 0, 0, 1}),
      c64({2}, {1, 2, kInf, -3}),
      f32({0, 2}, {}),
      f32({3}, {4, 4, 4}),
      f32({}, {9}),
  };
  // Beyond what is spelled out.
  std::vector<double> ramp, flags, halves;
  for (int i = 0; i < 100; ++i) {
    ramp.push_back(i - 50);
    flags.push_back(i % 3 == 0);
    halves.push_back(i / 2.0);
    halves.push_back(-i);
  }
  arrays.push_back(array(ElementType::kS16, {10, 10}, ramp));
  arrays.push_back(f32({100}, ramp));
  arrays.push_back(pred({100}, flags));
  arrays.push_back(c64({50, 2}, halves));
  expect(
      {},
      [&](Builder& b, const Values&) {
        Values results;
        for (const Array& a : arrays) results.push_back(b.dense(a.type, a.bytes));
        return results;
      },
      arrays);
}

TEST(Constants, DenseNarrowTypes) {
  std::vector<std::byte> few(4), many(64);
  for (size_t i = 0; i < 64; ++i) many[i] = static_cast<std::byte>(i & 15);
  for (size_t i = 0; i < 4; ++i) few[i] = static_cast<std::byte>(i * 5);
  std::vector<double> few_signed{0, 5, -6, -1}, few_unsigned{0, 5, 10, 15};
  std::vector<double> many_signed, many_unsigned;
  for (int i = 0; i < 64; ++i) {
    many_unsigned.push_back(i & 15);
    many_signed.push_back((i & 15) < 8 ? i & 15 : (i & 15) - 16);
  }
  std::vector<std::byte> f8{std::byte{0x38}, std::byte{0xC0}};  // 1 and -2 in f8E4M3FN
  expect({},
         [&](Builder& b, const Values&) {
           return Values{b.convert(b.dense({ElementType::kS4, {4}}, few), ElementType::kS32),
                         b.convert(b.dense({ElementType::kU4, {4}}, few), ElementType::kS32),
                         b.convert(b.dense({ElementType::kS4, {64}}, many), ElementType::kS32),
                         b.convert(b.dense({ElementType::kU4, {64}}, many), ElementType::kS32),
                         b.convert(b.dense({ElementType::kF8E4M3FN, {2}}, f8), ElementType::kF32)};
         },
         {s32({4}, few_signed), s32({4}, few_unsigned), s32({64}, many_signed),
          s32({64}, many_unsigned), f32({2}, {1, -2})});
}

TEST(Constants, Vector) {
  std::vector<int64_t> values{3, -1, 2};
  expect({},
         [&](Builder& b, const Values&) {
           return Values{b.vector(values), b.vector(values, ElementType::kS32), b.vector({})};
         },
         {array(ElementType::kS64, {3}, {3, -1, 2}), s32({3}, {3, -1, 2}),
          array(ElementType::kS64, {0}, {})});
}

TEST(Constants, RefusesWhatDoesNotExist) {
  Builder b;
  EXPECT_THROW(b.infinity(ElementType::kF8E4M3FN), std::logic_error);
  EXPECT_THROW(b.infinity(ElementType::kS32), std::logic_error);
  EXPECT_THROW(b.nan(ElementType::kS32), std::logic_error);
  EXPECT_THROW(b.min_value(ElementType::kC64), std::logic_error);
  EXPECT_THROW(b.scalar(1, ElementType::kToken), std::logic_error);
  EXPECT_THROW(b.iota(ElementType::kPred, {2}, 0), std::logic_error);
  EXPECT_THROW(b.iota(ElementType::kS32, {2}, 1), std::logic_error);
  EXPECT_THROW(b.dense({ElementType::kF32, {2}}, std::vector<std::byte>(7)), std::logic_error);
  EXPECT_THROW(b.constant(ElementType::kF32, {-1}, 0), std::logic_error);
}

}  // namespace
}  // namespace torch_xla::stablehlo
