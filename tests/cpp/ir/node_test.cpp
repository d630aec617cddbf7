#include "ir/node.h"

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/run.h"

namespace torch_xla::ir {
namespace {

using testing::add;
using testing::both;
using testing::input;
using testing::rotate;

// Counts the leaves that are alive.
struct Counted final : Payload {
  explicit Counted(int& alive) : alive(alive) { ++alive; }
  ~Counted() override { --alive; }
  int& alive;
};

Value counted_leaf(int& alive) {
  static const int64_t dims[] = {2};
  return Node::leaf(kDeviceData, {ElementType::kF32, dims}, std::make_shared<Counted>(alive));
}

TEST(ShapeRef, PrintsAsXlaDoes) {
  const int64_t dims[] = {2, 3, 4};
  EXPECT_EQ((ShapeRef{ElementType::kF32, dims}.to_string()), "f32[2,3,4]{2,1,0}");
  EXPECT_EQ((ShapeRef{ElementType::kPred, {}}.to_string()), "pred[]");
  EXPECT_EQ((ShapeRef{ElementType::kBF16, dims}.num_elements()), 24);
}

TEST(ShapeRef, ComparesTypeAndDims) {
  const int64_t a[] = {2, 3}, b[] = {2, 3, 1};
  EXPECT_EQ((ShapeRef{ElementType::kF32, a}), (ShapeRef{ElementType::kF32, std::span(b, 2)}));
  EXPECT_FALSE((ShapeRef{ElementType::kF32, a}) == (ShapeRef{ElementType::kF32, b}));
  EXPECT_FALSE((ShapeRef{ElementType::kF32, a}) == (ShapeRef{ElementType::kF64, a}));
}

TEST(Node, KeepsOperandsAttributesAndShapes) {
  const Value x = input(testing::f32({2, 3}, {1, 2, 3, 4, 5, 6}));
  const Value operands[] = {x, x};
  const int64_t row[] = {3};
  const ShapeRef outputs[] = {x.shape(), {ElementType::kS64, row}, {ElementType::kPred, {}}};
  const NodePtr node = Node::make(testing::kBoth, operands, Attributes::of(7, 0.5), outputs);
  EXPECT_EQ(&node->op(), &testing::kBoth);
  ASSERT_EQ(node->operands().size(), 2u);
  EXPECT_EQ(node->operand(1), x);
  AttributeReader attributes = node->attributes();
  EXPECT_EQ(attributes.integer(), 7);
  EXPECT_EQ(attributes.real(), 0.5);
  ASSERT_EQ(node->num_outputs(), 3u);
  EXPECT_EQ(node->output(0).to_string(), "f32[2,3]{1,0}");
  EXPECT_EQ(node->output(1).to_string(), "s64[3]{0}");
  EXPECT_EQ(node->output(2).to_string(), "pred[]");
  EXPECT_EQ(Value(node, 1).shape(), outputs[1]);
}

// Header, operands, attribute words and shapes follow each other in one block of memory.
TEST(Node, IsOneAllocation) {
  const Value x = input(testing::f32({2}, {1, 2}));
  const Value y = rotate(add(x, x), 1);
  const Node& node = *y.node;
  const auto* begin = reinterpret_cast<const std::byte*>(&node);
  const auto* operands = reinterpret_cast<const std::byte*>(node.operands().data());
  const auto* words = reinterpret_cast<const std::byte*>(node.attribute_words().data());
  const auto* dims = reinterpret_cast<const std::byte*>(node.output().dims.data());
  EXPECT_EQ(operands - begin, static_cast<ptrdiff_t>(sizeof(Node)));
  EXPECT_EQ(words - operands, static_cast<ptrdiff_t>(sizeof(Value)));
  EXPECT_EQ(dims - words, static_cast<ptrdiff_t>(2 * sizeof(int64_t)));
}

TEST(Node, LivesAsLongAsItsUsers) {
  int alive = 0;
  {
    Value sum;
    {
      const Value leaf = counted_leaf(alive);
      sum = add(leaf, leaf);
      EXPECT_EQ(leaf.node->use_count(), 3u);
    }
    EXPECT_EQ(alive, 1);
    const Value other = sum;
    sum = {};
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Node, PointersCopyMoveAndAssign) {
  int alive = 0;
  Value a = counted_leaf(alive);
  Value b = a;
  Value c = std::move(a);
  EXPECT_FALSE(a);  // NOLINT: the moved-from state is what is tested
  EXPECT_EQ(b, c);
  b = b;  // NOLINT: self-assignment keeps the node
  EXPECT_EQ(alive, 1);
  b = {};
  c = {};
  EXPECT_EQ(alive, 0);
}

// Deep graphs are freed without recursion: a million nodes would overflow any stack.
TEST(Node, LongChainsDieWithoutRecursion) {
  int alive = 0;
  {
    Value x = counted_leaf(alive);
    for (int i = 0; i < 1'000'000; ++i) x = add(x, x);
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

// A payload may own values itself: its end during another node's end must come through too.
TEST(Node, PayloadsThatHoldNodesDieWithThem) {
  struct Holder final : Payload {
    Value value;
  };
  int alive = 0;
  {
    Value x = counted_leaf(alive);
    for (int i = 0; i < 1000; ++i) {
      auto holder = std::make_shared<Holder>();
      holder->value = std::move(x);
      x = Node::leaf(kDeviceData, {ElementType::kF32, {}}, std::move(holder));
    }
  }
  EXPECT_EQ(alive, 0);
}

TEST(Node, LocalHashIsOfOpAttributesAndShapes) {
  const Value x = input(testing::f32({2}, {1, 2}));
  const Value y = input(testing::f32({3}, {1, 2, 3}));
  EXPECT_EQ(rotate(x, 1).node->local_hash(), rotate(x, 1).node->local_hash());
  EXPECT_NE(rotate(x, 1).node->local_hash(), rotate(x, 0).node->local_hash());
  EXPECT_NE(rotate(x, 1).node->local_hash(), rotate(y, 1).node->local_hash());
  EXPECT_NE(add(x, x).node->local_hash(), both(x, x).first.node->local_hash());
  // Two ops of one name may lower differently, so they do not share programs.
  static const Op same_name{"test::add", testing::kAdd.lower};
  EXPECT_NE(Node::make(same_name, {x, x}, {}, x.shape())->local_hash(),
            add(x, x).node->local_hash());
}

TEST(Scalar, BecomesDataOfTheClassItsTypeNeeds) {
  const auto kind = [](const Value& value) {
    return static_cast<ScalarPayload*>(value.node->payload())->kind;
  };
  EXPECT_EQ(kind(scalar(0.5, ElementType::kF32)), ScalarClass::kF32);
  EXPECT_EQ(kind(scalar(0.5, ElementType::kBF16)), ScalarClass::kF32);
  EXPECT_EQ(kind(scalar(0.5, ElementType::kF64)), ScalarClass::kF64);
  EXPECT_EQ(kind(scalar(int64_t{5}, ElementType::kU8)), ScalarClass::kI64);
  EXPECT_EQ(scalar(0.5, ElementType::kBF16).shape().to_string(), "bf16[]");
}

// What a location provider says when a node is made stays with the node.
TEST(Location, IsTakenWhenANodeIsMade) {
  set_location_provider({[] { return Location{42}; },
                         [](Location location) { return "line " + std::to_string(location); }});
  const Value x = input(testing::f32({2}, {1, 2}));
  set_location_provider({});
  EXPECT_EQ(x.node->location(), 42u);
  EXPECT_EQ(add(x, x).node->location(), 0u);
  EXPECT_EQ(describe(42), "");
}

}  // namespace
}  // namespace torch_xla::ir
