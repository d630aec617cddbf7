// Reductions, windows and sorting.

#include <gtest/gtest.h>

#include <cmath>

#include "stablehlo/builder.h"
#include "stablehlo/run.h"

namespace torch_xla::stablehlo {
namespace {

using testing::array;
using testing::expect;
using testing::f32;
using testing::pred;
using testing::s32;

Value add(Value l, Value r) { return l + r; }
Value max(Value l, Value r) { return l.builder().maximum(l, r); }

TEST(Reductions, UsualOnes) {
  expect({f32({2, 3}, {1, 2, 3, 4, 5, 6}), pred({2, 2}, {1, 1, 1, 0}), s32({2}, {6, 12})},
         [](Builder& b, const Values& x) {
           return Values{b.reduce_sum(x[0], {0}),    b.reduce_product(x[0], {1}),
                         b.reduce_max(x[0], {0, 1}), b.reduce_min(x[0], {1}),
                         b.reduce_and(x[1], {1}),    b.reduce_or(x[1], {1}),
                         b.reduce_and(x[2], {0}),    b.reduce_or(x[2], {0}),
                         b.reduce_max(x[1], {0, 1}), b.reduce_sum(x[0], {})};
         },
         {f32({3}, {5, 7, 9}), f32({2}, {6, 120}), f32({}, {6}), f32({2}, {1, 4}),
          pred({2}, {1, 0}), pred({2}, {1, 1}), s32({}, {4}), s32({}, {14}), pred({}, {1}),
          f32({2, 3}, {1, 2, 3, 4, 5, 6})});
}

TEST(Reductions, OfNothingGivesTheNeutralElement) {
  expect({f32({0, 2}, {})},
         [](Builder& b, const Values& x) {
           return Values{b.reduce_sum(x[0], {0}), b.reduce_max(x[0], {0})};
         },
         {f32({2}, {0, 0}), f32({2}, {-INFINITY, -INFINITY})});
}

TEST(Reductions, MaximumKeepsNan) {
  expect({f32({3}, {1, NAN, 2})},
         [](Builder& b, const Values& x) {
           return Values{b.reduce_max(x[0], {0}), b.reduce_min(x[0], {0})};
         },
         {f32({}, {NAN}), f32({}, {NAN})});
}

TEST(Reductions, Variadic) {
  // argmax: the value and its index together.
  expect({f32({4}, {3, 9, 2, 9})},
         [](Builder& b, const Values& x) {
           Value index = b.iota(ElementType::kS32, {4}, 0);
           return b.reduce({x[0], index},
                           {b.min_value(ElementType::kF32), b.scalar(0, ElementType::kS32)}, {0},
                           [&](const Values& l, const Values& r) {
                             Value left = b.gt(l[0], r[0]) | (b.eq(l[0], r[0]) & b.lt(l[1], r[1]));
                             return Values{b.select(left, l[0], r[0]), b.select(left, l[1], r[1])};
                           });
         },
         {f32({}, {9}), s32({}, {1})});
}

TEST(Reductions, Windows) {
  Window pool;
  pool.size = {2};
  pool.strides = {2};
  Window padded;
  padded.size = {3};
  padded.padding_low = {1};
  padded.padding_high = {1};
  Window dilated;
  dilated.size = {2};
  dilated.window_dilations = {2};
  dilated.base_dilations = {2};
  expect({f32({5}, {1, 5, 2, 4, 3})},
         [&](Builder& b, const Values& x) {
           Value low = b.min_value(ElementType::kF32);
           Value zero = b.scalar(0, ElementType::kF32);
           return Values{b.reduce_window(x[0], low, pool, max),
                         b.reduce_window(x[0], zero, padded, add),
                         b.reduce_window(x[0], zero, dilated, add)};
         },
         {f32({2}, {5, 4}), f32({5}, {6, 8, 11, 9, 7}), f32({7}, {6, 0, 7, 0, 6, 0, 7})});
}

TEST(Reductions, VariadicWindow) {
  Window w;
  w.size = {2};
  expect({f32({3}, {1, 5, 2}), s32({3}, {1, 2, 3})},
         [&](Builder& b, const Values& x) {
           return b.reduce_window(
               {x[0], x[1]}, {b.scalar(0, ElementType::kF32), b.scalar(0, ElementType::kS32)}, w,
               [](const Values& l, const Values& r) { return Values{l[0] + r[0], l[1] + r[1]}; });
         },
         {f32({2}, {6, 7}), s32({2}, {3, 5})});
}

TEST(Reductions, SelectAndScatter) {
  // The gradient of a maximum over windows of two.
  Window w;
  w.size = {2};
  w.strides = {2};
  expect({f32({4}, {1, 5, 7, 4}), f32({2}, {10, 20})},
         [&](Builder& b, const Values& x) {
           return Values{b.select_and_scatter(
               x[0], x[1], b.scalar(0, ElementType::kF32), w,
               [&](Value l, Value r) { return b.ge(l, r); }, add)};
         },
         {f32({4}, {0, 10, 20, 0})});
}

TEST(Reductions, StableSortOfSeveralOperands) {
  expect({f32({4}, {3, 1, 3, 2})},
         [](Builder& b, const Values& x) {
           Value index = b.iota(ElementType::kS32, {4}, 0);
           return b.sort({x[0], index}, 0, /*stable=*/true, [&](const Values& l, const Values& r) {
             return Values{b.gt(l[0], r[0])};
           });
         },
         {f32({4}, {3, 3, 2, 1}), s32({4}, {0, 2, 3, 1})});
}

TEST(Reductions, TopK) {
  expect({f32({2, 4}, {3, 1, 4, 2, 8, 5, 7, 6})},
         [](Builder& b, const Values& x) {
           auto [values, indices] = b.top_k(x[0], 2);
           return Values{values, indices};
         },
         {f32({2, 2}, {4, 3, 8, 7}), s32({2, 2}, {2, 0, 0, 2})});
}

TEST(Reductions, RefuseWhatDoesNotFit) {
  Builder b;
  Value x = b.parameter({ElementType::kF32, {4}});
  Value y = b.parameter({ElementType::kF32, {3}});
  Value zero = b.scalar(0, ElementType::kF32);
  Value izero = b.scalar(0, ElementType::kS32);
  auto both = [](const Values& l, const Values&) { return l; };
  EXPECT_THROW(b.reduce(x, izero, {0}, add), std::logic_error);
  EXPECT_THROW(b.reduce(x, zero, {1}, add), std::logic_error);
  EXPECT_THROW(b.reduce(x, zero, {0, 0}, add), std::logic_error);
  EXPECT_THROW(b.reduce({x, y}, {zero, zero}, {0}, both), std::logic_error);
  EXPECT_THROW(b.reduce({x}, {zero, zero}, {0}, both), std::logic_error);
  EXPECT_THROW(b.reduce(x, zero, {0}, [&](Value l, Value r) { return b.lt(l, r); }),
               std::logic_error);
  EXPECT_THROW(b.reduce(x, zero, {0}, [](Value, Value) { return Value(); }), std::logic_error);
  EXPECT_THROW(b.reduce({x}, {zero}, {0}, [](const Values&, const Values&) { return Values{}; }),
               std::logic_error);
  EXPECT_THROW(b.reduce_max(b.parameter({ElementType::kC64, {2}}), {0}), std::logic_error);
  Window w;
  w.size = {2, 2};
  EXPECT_THROW(b.reduce_window(x, zero, w, add), std::logic_error);
  w.size = {2};
  w.strides = {0};
  EXPECT_THROW(b.reduce_window(x, zero, w, add), std::logic_error);
  w.strides = {2};
  auto ge = [&](Value l, Value r) { return b.ge(l, r); };
  EXPECT_THROW(b.select_and_scatter(x, y, zero, w, ge, add), std::logic_error);
  EXPECT_THROW(b.sort({x, y}, 0, true,
                      [&](const Values& l, const Values& r) { return Values{b.lt(l[0], r[0])}; }),
               std::logic_error);
  EXPECT_THROW(b.sort({x}, 0, true, both), std::logic_error);
  EXPECT_THROW(b.top_k(x, 5), std::logic_error);
}

}  // namespace
}  // namespace torch_xla::stablehlo
