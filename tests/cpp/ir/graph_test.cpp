#include "ir/graph.h"

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/run.h"

namespace torch_xla::ir {
namespace {

using testing::add;
using testing::both;
using testing::key_of;
using testing::rotate;

Value leaf(int64_t size = 2) {
  return testing::input(testing::f32({size}, std::vector<float>(static_cast<size_t>(size), 1.0F)));
}

Value number(double value) { return scalar(value, ElementType::kF32); }

TEST(Walk, OperandsComeBeforeTheirUsers) {
  const Value a = leaf(), b = leaf();
  const Value sum = add(a, b);
  const Value root = add(rotate(sum, 1), sum);
  const std::lock_guard lock(graph_mutex());
  const Graph graph = walk(std::span(&root, 1));
  ASSERT_EQ(graph.order.size(), 5u);
  for (size_t i = 0; i < graph.order.size(); ++i) {
    EXPECT_EQ(graph.order[i]->visit.position, i);
    for (const Value& operand : graph.order[i]->operands()) {
      EXPECT_LT(operand.node->visit.position, i);
    }
  }
  EXPECT_EQ(sum.node->visit.uses, 2u);
  EXPECT_EQ(root.node->visit.uses, 0u);
}

TEST(Walk, LeavesAreListedByFirstUse) {
  const Value a = leaf(), b = leaf(), one = number(1), two = number(2);
  const Value roots[] = {add(add(b, one), add(two, a)), add(a, one)};
  const std::lock_guard lock(graph_mutex());
  const Graph graph = walk(roots);
  EXPECT_EQ(graph.parameters, (std::vector<Node*>{b.node.get(), a.node.get()}));
  EXPECT_EQ(graph.scalars, (std::vector<Node*>{one.node.get(), two.node.get()}));
}

TEST(Walk, GoesOnWhereItEnded) {
  const Value a = leaf(), b = leaf(), c = leaf(), sum = add(a, b);
  const Value more = add(rotate(sum, 1), c);
  const std::lock_guard lock(graph_mutex());
  Graph graph = walk(std::span(&sum, 1));
  const Hash128 before = graph.key;
  EXPECT_TRUE(graph.contains(*a.node));
  EXPECT_FALSE(graph.contains(*c.node));
  extend(graph, std::span(&more, 1));
  EXPECT_TRUE(graph.contains(*c.node));
  EXPECT_FALSE(graph.key == before);
  EXPECT_EQ(graph.parameters, (std::vector<Node*>{a.node.get(), b.node.get(), c.node.get()}));
  ASSERT_EQ(graph.order.size(), 6u);
  for (size_t i = 0; i < graph.order.size(); ++i) {
    EXPECT_EQ(graph.order[i]->visit.position, i);
  }
  EXPECT_EQ(sum.node->visit.uses, 1u);
}

TEST(Walk, ConditionsArePartOfTheKey) {
  const Value a = leaf(), sum = add(a, number(1)), other = add(a, number(2));
  const Value roots[] = {sum, other};
  const std::lock_guard lock(graph_mutex());
  Graph graph = walk(roots), one = walk(roots), two = walk(roots);
  set_condition(one, *sum.node, other);
  set_condition(two, *other.node, sum);
  EXPECT_FALSE(graph.key == one.key);
  EXPECT_FALSE(one.key == two.key);
}

TEST(Walk, InputsStandForDeviceData) {
  const Value a = leaf(), b = leaf();
  const Value made = add(rotate(a, 1), rotate(a, 1));
  const Value given = add(made, b), same = add(leaf(), b), longer = add(leaf(3), leaf(3));
  const std::lock_guard lock(graph_mutex());
  const Graph graph = walk(std::span(&given, 1), {made.node.get()});
  EXPECT_EQ(graph.order, (std::vector<Node*>{made.node.get(), b.node.get(), given.node.get()}));
  EXPECT_EQ(graph.parameters, (std::vector<Node*>{made.node.get(), b.node.get()}));
  EXPECT_EQ(graph.key, walk(std::span(&same, 1)).key);
  EXPECT_FALSE(graph.key == walk(std::span(&longer, 1)).key);
  EXPECT_FALSE(graph.key == walk(std::span(&given, 1)).key);
}

TEST(Walk, DeepGraphsNeedNoRecursion) {
  Value x = leaf();
  for (int i = 0; i < 500'000; ++i) x = add(x, x);
  const std::lock_guard lock(graph_mutex());
  EXPECT_EQ(walk(std::span(&x, 1)).order.size(), 500'001u);
}

TEST(Walk, ARootMayBeALeafOrTwiceTheSame) {
  const Value a = leaf();
  const Value roots[] = {a, a};
  const std::lock_guard lock(graph_mutex());
  EXPECT_EQ(walk(roots).order.size(), 1u);
}

TEST(Key, IsTheSameForGraphsOfTheSameStructure) {
  const auto build = [] {
    const Value a = leaf(), b = leaf();
    return add(rotate(add(a, b), 1), a);
  };
  EXPECT_EQ(key_of(build()), key_of(build()));
}

TEST(Key, TellsSharedFromRepeated) {
  const Value a = leaf(), b = leaf();
  EXPECT_FALSE(key_of(add(a, a)) == key_of(add(a, b)));
  const Value shared = add(a, b);
  EXPECT_FALSE(key_of(add(shared, shared)) == key_of(add(add(a, b), add(a, b))));
}

TEST(Key, KnowsWhichParameterIsUsedWhere) {
  const Value a = leaf(), b = leaf();
  EXPECT_FALSE(key_of(add(add(a, b), a)) == key_of(add(add(a, b), b)));
  // Parameters have no names: the order of first use is all.
  EXPECT_EQ(key_of(add(add(a, b), a)), key_of(add(add(b, a), b)));
}

TEST(Key, DoesNotKnowTheNumbersInScalars) {
  const Value a = number(0.1), b = number(0.2);
  EXPECT_EQ(key_of(add(a, number(3))), key_of(add(b, number(4))));
  EXPECT_FALSE(key_of(add(a, a)) == key_of(add(a, b)));
  EXPECT_FALSE(key_of(scalar(1.0, ElementType::kF32)) == key_of(scalar(1.0, ElementType::kF64)));
}

TEST(Key, KnowsAttributesShapesAndOps) {
  const Value a = leaf(), wide = leaf(3);
  EXPECT_FALSE(key_of(rotate(a, 0)) == key_of(rotate(a, 1)));
  EXPECT_FALSE(key_of(rotate(a, 1)) == key_of(rotate(wide, 1)));
  EXPECT_FALSE(key_of(both(a, a).first) == key_of(add(a, a)));
}

TEST(Key, KnowsOutputsAndTheOrderOfRoots) {
  const Value a = leaf(), b = leaf();
  const auto [sum, difference] = both(a, b);
  EXPECT_FALSE(key_of(sum) == key_of(difference));
  EXPECT_FALSE(key_of(add(sum, sum)) == key_of(add(sum, difference)));
  const Value one_way[] = {sum, difference}, other_way[] = {difference, sum}, single[] = {sum};
  EXPECT_FALSE(key_of(one_way) == key_of(other_way));
  EXPECT_FALSE(key_of(one_way) == key_of(single));
}

TEST(Key, SpreadsOverAllBits) {
  // Neighbouring graphs: each bit of the key differs in about half of the pairs.
  const Value a = leaf(64);
  std::vector<int> changed(128, 0);
  constexpr int kPairs = 2000;
  for (int i = 0; i < kPairs; ++i) {
    const Hash128 x = key_of(rotate(a, i)), y = key_of(rotate(a, i + 1));
    for (size_t bit = 0; bit < 64; ++bit) {
      changed[bit] += static_cast<int>((x.low ^ y.low) >> bit & 1);
      changed[64 + bit] += static_cast<int>((x.high ^ y.high) >> bit & 1);
    }
  }
  for (int count : changed) EXPECT_NEAR(count, kPairs / 2, kPairs / 8);
}

}  // namespace
}  // namespace torch_xla::ir
