#include "ir/manual.h"

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/run.h"

namespace torch_xla::ir {
namespace {

using sharding::AxisPart;
using sharding::Mesh;
using sharding::Sharding;
using testing::add;
using testing::input;
using testing::lower_roots;

constexpr AxisPart kX{0, 1, 2}, kY{1, 1, 2};

const Mesh* grid() { return Mesh::get({"x", "y"}, {2, 2}, {0, 1, 2, 3}); }
const Sharding* by_x() { return Sharding::get(grid(), {{kX}}); }
Value eight() { return input(testing::f32({8}, {0, 1, 2, 3, 4, 5, 6, 7})); }

LoweringOptions partitioned(std::vector<const Sharding*> parameters, size_t outputs = 1) {
  LoweringOptions options;
  options.placement.parameters = std::move(parameters);
  options.placement.outputs.resize(outputs);
  return options;
}

std::string module_of(std::span<const Value> roots, const LoweringOptions& options) {
  return lower_roots(roots, options).module;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Manual, PiecesHaveTheShapeOfOneDevice) {
  const Value piece = enter_manual(eight(), by_x());
  EXPECT_EQ(piece.dims()[0], 4);
  EXPECT_EQ(leave_manual(piece, by_x()).dims()[0], 8);
  EXPECT_EQ(entered_by(*piece.node), by_x());
  EXPECT_EQ(left_by(*piece.node), nullptr);
  EXPECT_EQ(gather_manual(piece, 0, {{0, 1}, {2, 3}}).dims()[0], 8);
  EXPECT_EQ(reduce_scatter_manual(piece, Reduction::kSum, 0, {{0, 1}, {2, 3}}).dims()[0], 2);
}

TEST(Manual, AManualShardingIsAnother) {
  const Sharding* manual = Sharding::manual(grid(), 1);
  EXPECT_EQ(manual, Sharding::manual(grid(), 1));
  EXPECT_NE(manual, Sharding::replicated(grid(), 1));
  EXPECT_NE(manual->layout(), Sharding::replicated(grid(), 1)->layout());
  EXPECT_EQ(manual->hlo(), "{manual}");
  EXPECT_FALSE(manual->is_replicated());
}

TEST(Manual, OnePartIsOneComputation) {
  const Value piece = enter_manual(eight(), by_x());
  const Value root = leave_manual(add(piece, piece), by_x());
  const std::string text =
      module_of(std::span(&root, 1), partitioned({Sharding::replicated(grid(), 1)}));
  EXPECT_EQ(count(text, "sdy.manual_computation"), 1u) << text;
  EXPECT_EQ(count(text, "manual_axes{\"x\", \"y\"}"), 1u) << text;
}

TEST(Manual, WhatLeavesIsWholeAtTheNextLevel) {
  const Value piece = enter_manual(eight(), by_x());
  const Value doubled = add(piece, piece);
  const Value whole = leave_manual(doubled, by_x());
  const Value again = enter_manual(add(whole, whole), by_x());
  const Value root = leave_manual(add(again, doubled), by_x());
  const std::string text =
      module_of(std::span(&root, 1), partitioned({Sharding::replicated(grid(), 1)}));
  EXPECT_EQ(count(text, "sdy.manual_computation"), 2u) << text;
  // The piece that the second part needs of the first crosses in a stack of four.
  EXPECT_GE(count(text, "tensor<4x4xf32>"), 1u) << text;
}

TEST(Manual, PiecesMayOutliveTheProgram) {
  const Value piece = enter_manual(eight(), by_x());
  const Value root = add(piece, piece);
  const std::string text =
      module_of(std::span(&root, 1), partitioned({Sharding::replicated(grid(), 1)}));
  EXPECT_GE(count(text, "tensor<4x4xf32>"), 1u) << text;
  EXPECT_GE(count(text, "[{\"x\", \"y\"}, {}]"), 1u) << text;
}

TEST(Manual, WholeArraysAreRefusedInside) {
  const Value whole = input(testing::f32({4}, {1, 2, 3, 4}));
  const Value root = add(enter_manual(eight(), by_x()), whole);
  const Sharding* everywhere = Sharding::replicated(grid(), 1);
  EXPECT_THROW(module_of(std::span(&root, 1), partitioned({everywhere, everywhere})),
               LoweringError);
  const Value nested = enter_manual(enter_manual(eight(), by_x()), by_x());
  EXPECT_THROW(module_of(std::span(&nested, 1), partitioned({everywhere})), LoweringError);
}

TEST(Manual, OneMeshSaysAllBoundaries) {
  const Mesh* line = Mesh::get({"all"}, {4}, {3, 2, 1, 0});
  const Value a = enter_manual(eight(), Sharding::get(grid(), {{kX, kY}}));
  const Value b = enter_manual(eight(), Sharding::get(line, {{{0, 1, 4}}}));
  const Value root = add(a, b);
  const Sharding* everywhere = Sharding::replicated(grid(), 1);
  EXPECT_THROW(module_of(std::span(&root, 1), partitioned({everywhere, everywhere})),
               LoweringError);
}

}  // namespace
}  // namespace torch_xla::ir
