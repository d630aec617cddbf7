#include "ir/signature.h"

#include <gtest/gtest.h>

#include "ir/ops.h"
#include "ir/run.h"

namespace torch_xla::ir {
namespace {

using testing::add;
using testing::rotate;

Value leaf(int64_t size = 2) {
  return testing::input(testing::f32({size}, std::vector<float>(static_cast<size_t>(size), 1.0F)));
}

Signature signature(std::vector<Value> roots, std::vector<bool> donated = {}) {
  const std::lock_guard lock(graph_mutex());
  return Signature(walk(roots), roots, donated);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Signature step(int64_t size, int64_t by) {
  const Value x = leaf(size);
  return signature({add(rotate(x, by), x)});
}

TEST(Signature, EqualGraphsDoNotDiffer) {
  EXPECT_EQ(step(4, 1).difference(step(4, 1)), "");
  EXPECT_EQ(step(4, 1).similarity(step(4, 1)), 1.0);
}

TEST(Signature, AnInputOfAnotherShapeIsTheCause) {
  const std::string text = step(7, 1).difference(step(8, 1));
  EXPECT_TRUE(contains(text, "an input of test::rotate")) << text;
  EXPECT_TRUE(contains(text, "is f32[7] and was f32[8]")) << text;
  EXPECT_EQ(step(7, 1).similarity(step(8, 1)), 0.0);
}

TEST(Signature, AnAttributeIsNamedWithItsOp) {
  const std::string text = step(4, 2).difference(step(4, 1));
  EXPECT_TRUE(contains(text, "test::rotate")) << text;
  EXPECT_TRUE(contains(text, "has the attributes [2] and had [1]")) << text;
  EXPECT_GT(step(4, 2).similarity(step(4, 1)), 0.5);
}

TEST(Signature, AnotherPathNamesBothOps) {
  const Value x = leaf(), y = leaf();
  const std::string text =
      signature({add(rotate(x, 1), y)}).difference(signature({add(add(x, x), y)}));
  EXPECT_TRUE(contains(text, "test::rotate stands where test::add stood")) << text;
}

TEST(Signature, OtherOperandsAreSeen) {
  const Value x = leaf(), y = leaf();
  const Value sum = add(x, y);
  const std::string text = signature({add(sum, x)}).difference(signature({add(sum, y)}));
  EXPECT_TRUE(contains(text, "test::add takes other operands")) << text;
}

TEST(Signature, LengthResultsAndDonationsAreSeen) {
  const Value x = leaf();
  const Value one = rotate(x, 1), two = rotate(one, 1);
  EXPECT_TRUE(contains(signature({two}).difference(signature({one})), "it goes on with"));
  EXPECT_TRUE(contains(signature({one}).difference(signature({two})), "it ends before"));
  EXPECT_TRUE(
      contains(signature({two, one}).difference(signature({two})), "it has 2 results and had 1"));
  EXPECT_TRUE(contains(signature({two}, {true}).difference(signature({two}, {false})),
                       "overwritten in other places"));
}

TEST(Signature, InputsOfAWalkCountAsDeviceData) {
  const Value x = leaf(), y = leaf();
  const Value made = rotate(rotate(x, 1), 1);
  const std::vector<Value> roots{add(made, y)};
  const Signature given = [&] {
    const std::lock_guard lock(graph_mutex());
    return Signature(walk(roots, {made.node.get()}), roots, {});
  }();
  EXPECT_EQ(given.difference(signature({add(x, y)})), "");
  EXPECT_EQ(given.size(), 3u);
}

}  // namespace
}  // namespace torch_xla::ir
