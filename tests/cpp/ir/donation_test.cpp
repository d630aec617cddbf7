#include "ir/donation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/ops.h"
#include "ir/run.h"

namespace torch_xla::ir {
namespace {

using testing::add;
using testing::rotate;
using Takers = std::vector<int64_t>;

const Op kScale{"test::scale", [](Lowering& l, const Node& n) -> Results {
                  const stablehlo::Dims dims(n.output().dims);
                  return l.operand(0) * l->broadcast_in_dim(l.operand(1), dims, {});
                }};
// A row for each of the second operand's, which is no work element by element.
const Op kProject{"test::project", [](Lowering& l, const Node& n) -> Results {
                    return l->broadcast_in_dim(l.operand(0), stablehlo::Dims(n.output().dims), {1});
                  }};

const Op kFirstRow{"test::first_row",
                   [](Lowering& l, const Node&) -> Results {
                     return l->dynamic_update_slice(l.operand(0), l.operand(1),
                                                    {l->scalar(0, ElementType::kS64)});
                   },
                   /*updates=*/true};

Value leaf(int64_t size = 2) {
  return testing::input(testing::f32({size}, std::vector<float>(static_cast<size_t>(size), 1.0F)));
}
Value scale(const Value& x, double by) {
  return Node::make(kScale, {x, scalar(by, ElementType::kF32)}, {}, x.shape());
}
Value project(const Value& x, const Value& rows) {
  const int64_t dims[] = {rows.dims()[0], x.dims()[0]};
  return Node::make(kProject, {x, rows}, {}, ShapeRef{ElementType::kF32, dims});
}

// Every parameter may be overwritten.
Takers pair_all(std::span<const Value> roots) {
  const std::lock_guard lock(graph_mutex());
  const Graph graph = walk(roots);
  return pair_donations(graph, roots, std::vector<bool>(graph.parameters.size(), true));
}

TEST(Donation, GoesToTheRootThatUpdates) {
  const Value weight = leaf(), input = leaf();
  const Value gradient = rotate(add(rotate(weight, 1), input), 1);
  const Value roots[] = {gradient, add(weight, scale(gradient, -0.1))};
  EXPECT_EQ(pair_all(roots), (Takers{1, 0}));
}

TEST(Donation, GoesThroughUpdatesOfParts) {
  const Value keys = leaf(), values = leaf(), row = leaf(1);
  const auto update = [&](const Value& cache) {
    return Value(Node::make(kFirstRow, {cache, row}, {}, cache.shape()));
  };
  const Value roots[] = {update(update(values)), update(keys)};
  EXPECT_EQ(pair_all(roots), (Takers{0, kAnyDonation, 1}));
}

TEST(Donation, EachRootTakesOneParameter) {
  const Value a = leaf(), b = leaf();
  const Value roots[] = {add(a, b)};
  EXPECT_EQ(pair_all(roots), (Takers{0, kAnyDonation}));
}

TEST(Donation, OnlyWhatMayBeOverwritten) {
  const Value a = leaf(), b = leaf();
  const Value roots[] = {add(a, b)};
  const std::lock_guard lock(graph_mutex());
  const Graph graph = walk(roots);
  EXPECT_EQ(pair_donations(graph, roots, {false, true}), (Takers{kNoDonation, 0}));
  EXPECT_EQ(pair_donations(graph, roots, {false, false}), (Takers{kNoDonation, kNoDonation}));
}

TEST(Donation, AUserOfOtherShapesDoesNotUpdate) {
  const Value weight = leaf(3), rows = leaf(2);
  const Value roots[] = {project(weight, rows)};
  EXPECT_EQ(pair_all(roots), (Takers{kAnyDonation, kAnyDonation}));
}

class Order : public ::testing::Test {
 protected:
  OrderedGraph order(std::span<const Value> roots) {
    const std::lock_guard lock(graph_mutex());
    const Graph graph = walk(roots);
    const Takers takers =
        pair_donations(graph, roots, std::vector<bool>(graph.parameters.size(), true));
    OrderedGraph ordered = order_updates(graph, roots, takers);
    EXPECT_EQ(ordered.order.size(), graph.order.size());
    return ordered;
  }
  static size_t place(const OrderedGraph& graph, const Value& value) {
    return static_cast<size_t>(std::find(graph.order.begin(), graph.order.end(), value.node.get()) -
                               graph.order.begin());
  }
};

TEST_F(Order, AnUpdateWaitsForOtherReaders) {
  const Value weight = leaf();
  const Value update = scale(weight, 0.9);
  const Value reader = rotate(weight, 1);
  const Value after_reader = rotate(reader, 1);
  const Value roots[] = {update, after_reader};
  const OrderedGraph ordered = order(roots);
  ASSERT_EQ(ordered.waits.size(), 1u);
  const Wait& wait = ordered.waits.at(update.node.get());
  EXPECT_EQ(wait.operand, 1u);
  EXPECT_EQ(wait.values, (std::vector<Value>{reader}));
  EXPECT_LT(place(ordered, reader), place(ordered, update));
  EXPECT_LT(place(ordered, weight), place(ordered, reader));
}

TEST_F(Order, AnUpdateWaitsForTheOtherOutputsOfItsGradient) {
  const Value weight = leaf();
  const auto [to_weight, to_input] = testing::both(rotate(weight, 1), weight);
  const Value update = scale(add(weight, to_weight), 0.9);
  const Value roots[] = {update, rotate(to_input, 1)};
  const OrderedGraph ordered = order(roots);
  ASSERT_EQ(ordered.waits.size(), 1u);
  EXPECT_EQ(ordered.waits.at(update.node.get()).values, (std::vector<Value>{to_input}));
  EXPECT_TRUE(order(std::span(roots).first(1)).waits.empty());
}

TEST_F(Order, ReadersThatComeBeforeAnyhowNeedNoWait) {
  const Value weight = leaf();
  const Value roots[] = {scale(add(weight, rotate(weight, 1)), 0.5)};
  EXPECT_TRUE(order(roots).waits.empty());
}

TEST_F(Order, AReaderThatNeedsTheUpdateCannotComeFirst) {
  const Value weight = leaf();
  const Value update = scale(weight, 0.9);
  const Value roots[] = {update, rotate(add(update, weight), 1)};
  EXPECT_TRUE(order(roots).waits.empty());
}

TEST_F(Order, UpdatesThatNeedEachOtherDoNotBothWait) {
  const Value a = leaf(), b = leaf();
  const Value new_a = scale(a, 0.5), new_b = scale(b, 0.25);
  const Value roots[] = {new_a, new_b, rotate(add(a, new_b), 1), rotate(add(b, new_a), 1)};
  const OrderedGraph ordered = order(roots);
  EXPECT_EQ(ordered.waits.size(), 1u);
  for (const Node* node : ordered.order) {
    for (const Value& operand : node->operands()) {
      EXPECT_LT(place(ordered, operand), place(ordered, Value(NodePtr(const_cast<Node*>(node)))));
    }
  }
}

TEST_F(Order, TheProgramSaysSo) {
  const Value weight = leaf();
  const Value roots[] = {scale(weight, 0.9), rotate(weight, 1)};
  LoweringOptions options;
  options.parameter_aliases = {0};
  EXPECT_EQ(testing::lower_roots(roots, options).module.find("custom_call"), std::string::npos);
  options.wait_call = "test.wait";
  const std::string text = testing::lower_roots(roots, options).module;
  EXPECT_NE(text.find("call_target_name = \"test.wait\""), std::string::npos) << text;
  EXPECT_NE(text.find("tf.aliasing_output = 0"), std::string::npos) << text;
}

}  // namespace
}  // namespace torch_xla::ir
