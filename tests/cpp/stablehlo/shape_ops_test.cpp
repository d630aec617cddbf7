// Operations that move elements, gather and scatter.

#include <gtest/gtest.h>

#include "stablehlo/builder.h"
#include "stablehlo/run.h"

namespace torch_xla::stablehlo {
namespace {

using testing::array;
using testing::expect;
using testing::f32;
using testing::s32;

TEST(ShapeOps, Broadcast) {
  expect({f32({2}, {1, 2}), f32({2, 1}, {3, 4}), f32({}, {5})},
         [](Builder& b, const Values& x) {
           EXPECT_EQ(b.broadcast_to(x[0], {2}).id(), x[0].id());
           return Values{b.broadcast_to(x[0], {2, 2}), b.broadcast_to(x[1], {2, 3}),
                         b.broadcast_to(x[2], {3}), b.broadcast_in_dim(x[0], {2, 3}, {0})};
         },
         {f32({2, 2}, {1, 2, 1, 2}), f32({2, 3}, {3, 3, 3, 4, 4, 4}), f32({3}, {5, 5, 5}),
          f32({2, 3}, {1, 1, 1, 2, 2, 2})});
}

TEST(ShapeOps, ReshapeTransposeReverse) {
  expect({f32({2, 3}, {1, 2, 3, 4, 5, 6})},
         [](Builder& b, const Values& x) {
           EXPECT_EQ(b.reshape(x[0], {2, 3}).id(), x[0].id());
           EXPECT_EQ(b.transpose(x[0], {0, 1}).id(), x[0].id());
           EXPECT_EQ(b.reverse(x[0], {}).id(), x[0].id());
           return Values{b.reshape(x[0], {3, 1, 2}), b.transpose(x[0], {1, 0}),
                         b.reverse(x[0], {1})};
         },
         {f32({3, 1, 2}, {1, 2, 3, 4, 5, 6}), f32({3, 2}, {1, 4, 2, 5, 3, 6}),
          f32({2, 3}, {3, 2, 1, 6, 5, 4})});
}

TEST(ShapeOps, Slice) {
  expect({f32({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})},
         [](Builder& b, const Values& x) {
           EXPECT_EQ(b.slice(x[0], {0, 0}, {2, 4}).id(), x[0].id());
           return Values{b.slice(x[0], {0, 1}, {2, 4}, {1, 2}), b.slice_in_dim(x[0], 1, 2, 1, 0),
                         b.slice(x[0], {1, 2}, {1, 2})};
         },
         {f32({2, 2}, {2, 4, 6, 8}), f32({1, 4}, {5, 6, 7, 8}), f32({0, 0}, {})});
}

TEST(ShapeOps, DynamicSlices) {
  expect({f32({4}, {1, 2, 3, 4}), s32({}, {3}), f32({2}, {8, 9})},
         [](Builder& b, const Values& x) {
           return Values{b.dynamic_slice(x[0], {x[1]}, {2}),
                         b.dynamic_update_slice(x[0], x[2], {x[1]})};
         },
         {f32({2}, {3, 4}), f32({4}, {1, 2, 8, 9})});
}

TEST(ShapeOps, Concatenate) {
  expect({f32({1, 2}, {1, 2}), f32({2, 2}, {3, 4, 5, 6})},
         [](Builder& b, const Values& x) {
           EXPECT_EQ(b.concatenate({x[0]}, 1).id(), x[0].id());
           return Values{b.concatenate({x[0], x[1], x[0]}, 0)};
         },
         {f32({4, 2}, {1, 2, 3, 4, 5, 6, 1, 2})});
}

TEST(ShapeOps, Pad) {
  expect({f32({3}, {1, 2, 3}), f32({}, {0})},
         [](Builder& b, const Values& x) {
           EXPECT_EQ(b.pad(x[0], x[1], {0}, {0}).id(), x[0].id());
           return Values{b.pad(x[0], x[1], {1}, {2}), b.pad(x[0], x[1], {-1}, {1}),
                         b.pad(x[0], x[1], {0}, {-1}, {1})};
         },
         {f32({6}, {0, 1, 2, 3, 0, 0}), f32({3}, {2, 3, 0}), f32({4}, {1, 0, 2, 0})});
}

TEST(ShapeOps, GatherRows) {
  expect({f32({3, 2}, {1, 2, 3, 4, 5, 6}), s32({2}, {2, 0})},
         [](Builder& b, const Values& x) {
           GatherDimensions d;
           d.offset_dims = {1};
           d.collapsed_slice_dims = {0};
           d.start_index_map = {0};
           d.index_vector_dim = 1;  // The indices themselves are the vectors.
           return Values{b.gather(x[0], x[1], d, {1, 2})};
         },
         {f32({2, 2}, {5, 6, 1, 2})});
}

TEST(ShapeOps, GatherWithBatchingDimensions) {
  // result[i, j] = operand[i, indices[i, j]]
  expect({f32({2, 3}, {1, 2, 3, 4, 5, 6}), s32({2, 2, 1}, {2, 0, 1, 1})},
         [](Builder& b, const Values& x) {
           GatherDimensions d;
           d.collapsed_slice_dims = {1};
           d.operand_batching_dims = {0};
           d.start_indices_batching_dims = {0};
           d.start_index_map = {1};
           d.index_vector_dim = 2;
           return Values{b.gather(x[0], x[1], d, {1, 1})};
         },
         {f32({2, 2}, {3, 1, 5, 5})});
}

TEST(ShapeOps, ScatterAdd) {
  expect({f32({3, 2}, {1, 2, 3, 4, 5, 6}), s32({2}, {2, 2}), f32({2, 2}, {10, 20, 30, 40})},
         [](Builder& b, const Values& x) {
           ScatterDimensions d;
           d.update_window_dims = {1};
           d.inserted_window_dims = {0};
           d.scatter_dims_to_operand_dims = {0};
           d.index_vector_dim = 1;
           return Values{b.scatter(x[0], x[1], x[2], d, [](Value l, Value r) { return l + r; })};
         },
         {f32({3, 2}, {1, 2, 3, 4, 45, 66})});
}

TEST(ShapeOps, ScatterSetsWithBatchingDimensions) {
  expect({f32({2, 3}, {1, 2, 3, 4, 5, 6}), s32({2, 1, 1}, {2, 0}), f32({2, 1}, {10, 20})},
         [](Builder& b, const Values& x) {
           ScatterDimensions d;
           d.inserted_window_dims = {1};
           d.input_batching_dims = {0};
           d.scatter_indices_batching_dims = {0};
           d.scatter_dims_to_operand_dims = {1};
           d.index_vector_dim = 2;
           return Values{b.scatter(
               x[0], x[1], x[2], d, [](Value, Value r) { return r; },
               /*indices_are_sorted=*/true, /*unique_indices=*/true)};
         },
         {f32({2, 3}, {1, 2, 10, 20, 5, 6})});
}

TEST(ShapeOps, ScatterOfSeveralInputs) {
  expect({f32({3}, {1, 2, 3}), s32({3}, {4, 5, 6}), s32({1, 1}, {1}), f32({1}, {9}), s32({1}, {8})},
         [](Builder& b, const Values& x) {
           ScatterDimensions d;
           d.inserted_window_dims = {0};
           d.scatter_dims_to_operand_dims = {0};
           d.index_vector_dim = 1;
           return b.scatter({x[0], x[1]}, x[2], {x[3], x[4]}, d,
                            [](const Values& old, const Values& update) {
                              return Values{old[0] + update[0], update[1]};
                            });
         },
         {f32({3}, {1, 11, 3}), s32({3}, {4, 8, 6})});
}

TEST(ShapeOps, BoundedSize) {
  Builder b;
  Value x = b.parameter({ElementType::kF32, {4}});
  Value n = b.parameter({ElementType::kS32, {}});
  Value bounded = b.set_dimension_size(x, n, 0);
  EXPECT_EQ(to_string(bounded.type()), "tensor<?xf32, #stablehlo.bounds<4>>");
  EXPECT_EQ(b.get_dimension_size(bounded, 0).type(), (TensorType{ElementType::kS32, {}}));
  EXPECT_THROW(b.reverse(bounded, {0}), std::logic_error);
  testing::expect_compiles({{ElementType::kF32, {4}}, {ElementType::kS32, {}}},
                           [](Builder& builder, const Values& v) {
                             Value y = builder.set_dimension_size(v[0], v[1], 0);
                             return Values{builder.get_dimension_size(y, 0), y};
                           });
}

TEST(ShapeOps, RefusesWhatDoesNotFit) {
  Builder b;
  Value x = b.parameter({ElementType::kF32, {2, 3}});
  Value i = b.parameter({ElementType::kS32, {}});
  Value f = b.parameter({ElementType::kF32, {}});
  EXPECT_THROW(b.broadcast_in_dim(x, {2, 3}, {0}), std::logic_error);
  EXPECT_THROW(b.broadcast_in_dim(x, {2, 4}, {0, 1}), std::logic_error);
  EXPECT_THROW(b.broadcast_in_dim(x, {2, 3}, {0, 2}), std::logic_error);
  EXPECT_THROW(b.broadcast_to(x, {3}), std::logic_error);
  EXPECT_THROW(b.reshape(x, {5}), std::logic_error);
  EXPECT_THROW(b.transpose(x, {0, 0}), std::logic_error);
  EXPECT_THROW(b.transpose(x, {0}), std::logic_error);
  EXPECT_THROW(b.reverse(x, {2}), std::logic_error);
  EXPECT_THROW(b.slice(x, {0, 0}, {2, 4}), std::logic_error);
  EXPECT_THROW(b.slice(x, {0, 2}, {2, 1}), std::logic_error);
  EXPECT_THROW(b.slice(x, {0, 0}, {2, 3}, {1, 0}), std::logic_error);
  EXPECT_THROW(b.slice_in_dim(x, 0, 1, 1, -1), std::logic_error);
  EXPECT_THROW(b.dynamic_slice(x, {i}, {1, 1}), std::logic_error);
  EXPECT_THROW(b.dynamic_slice(x, {f, f}, {1, 1}), std::logic_error);
  EXPECT_THROW(b.dynamic_slice(x, {i, i}, {3, 1}), std::logic_error);
  EXPECT_THROW(b.dynamic_update_slice(x, f, {i, i}), std::logic_error);
  EXPECT_THROW(b.concatenate({}, 0), std::logic_error);
  EXPECT_THROW(b.concatenate({x, f}, 0), std::logic_error);
  EXPECT_THROW(b.pad(x, i, {0, 0}, {0, 0}), std::logic_error);
  EXPECT_THROW(b.pad(x, f, {-3, 0}, {0, 0}), std::logic_error);
  EXPECT_THROW(b.pad(x, f, {0}, {0, 0}), std::logic_error);
  EXPECT_THROW(b.set_dimension_size(x, f, 0), std::logic_error);
}

TEST(ShapeOps, GatherAndScatterRefuseWrongNumbers) {
  Builder b;
  Value x = b.parameter({ElementType::kF32, {3, 2}});
  Value i = b.parameter({ElementType::kS32, {4}});
  Value u = b.parameter({ElementType::kF32, {4, 2}});
  GatherDimensions good;
  good.offset_dims = {1};
  good.collapsed_slice_dims = {0};
  good.start_index_map = {0};
  good.index_vector_dim = 1;
  EXPECT_EQ(b.gather(x, i, good, {1, 2}).dims(), (Dims{4, 2}));
  EXPECT_THROW(b.gather(x, i, good, {2, 2}), std::logic_error);
  EXPECT_THROW(b.gather(x, i, good, {1, 3}), std::logic_error);
  EXPECT_THROW(b.gather(x, x, good, {1, 2}), std::logic_error);
  GatherDimensions d = good;
  d.offset_dims = {2};
  EXPECT_THROW(b.gather(x, i, d, {1, 2}), std::logic_error);
  d = good;
  d.start_index_map = {0, 1};
  EXPECT_THROW(b.gather(x, i, d, {1, 2}), std::logic_error);
  d = good;
  d.index_vector_dim = 2;
  EXPECT_THROW(b.gather(x, i, d, {1, 2}), std::logic_error);

  ScatterDimensions s;
  s.update_window_dims = {1};
  s.inserted_window_dims = {0};
  s.scatter_dims_to_operand_dims = {0};
  s.index_vector_dim = 1;
  auto add = [](Value l, Value r) { return l + r; };
  EXPECT_EQ(b.scatter(x, i, u, s, add).dims(), (Dims{3, 2}));
  EXPECT_THROW(b.scatter(x, i, x, s, add), std::logic_error);
  EXPECT_THROW(b.scatter(x, i, u, s, [&](Value l, Value r) { return b.lt(l, r); }),
               std::logic_error);
  s.update_window_dims = {};
  EXPECT_THROW(b.scatter(x, i, u, s, add), std::logic_error);
}

}  // namespace
}  // namespace torch_xla::stablehlo
