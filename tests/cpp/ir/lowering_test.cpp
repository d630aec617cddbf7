#include "ir/lowering.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ir/ops.h"
#include "ir/run.h"

namespace torch_xla::ir {
namespace {

using testing::add;
using testing::both;
using testing::evaluate;
using testing::input;
using testing::lower_roots;
using testing::rotate;
using Floats = std::vector<float>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string error_of(const Value& root) {
  try {
    lower_roots(std::span(&root, 1));
  } catch (const LoweringError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Lowering, ProgramsRunOnEveryPlugin) {
  TORCH_XLA_NEEDS_PLUGIN();
  const Value a = input(testing::f32({3}, {1, 2, 3})), b = input(testing::f32({3}, {10, 20, 30}));
  const auto [sum, difference] = both(rotate(a, 1), b);
  const Value roots[] = {difference, add(sum, a), a, difference};
  for (const auto& client : testing::clients()) {
    const auto results = evaluate(*client, roots);
    ASSERT_EQ(results.size(), 4u);
    EXPECT_EQ(results[0].as<float>(), (Floats{-8, -17, -29}));
    EXPECT_EQ(results[1].as<float>(), (Floats{13, 25, 34}));
    EXPECT_EQ(results[2].as<float>(), (Floats{1, 2, 3}));
    EXPECT_EQ(results[3].as<float>(), (Floats{-8, -17, -29}));
  }
}

TEST(Lowering, ScalarsOfEachClassArePackedInTheOrderOfUse) {
  TORCH_XLA_NEEDS_PLUGIN();
  const Value half = scalar(0.5, ElementType::kF32), third = scalar(1.0 / 3, ElementType::kF64);
  const Value five = scalar(int64_t{5}, ElementType::kS32);
  const Value wrapped = scalar(int64_t{257}, ElementType::kU8);
  const Value big = scalar(static_cast<int64_t>(0xffffffffffffffffu), ElementType::kU64);
  const Value yes = scalar(int64_t{2}, ElementType::kPred);
  const Value small = scalar(0.25, ElementType::kF16);
  const Value roots[] = {third, half, five, wrapped, big, yes, add(half, half), small};
  const LoweredProgram program = lower_roots(roots);
  EXPECT_EQ(program.scalar_parameters,
            (std::vector<ScalarClass>{ScalarClass::kF32, ScalarClass::kF64, ScalarClass::kI64}));
  for (const auto& client : testing::clients()) {
    const auto results = evaluate(*client, roots);
    EXPECT_EQ(results[0].as<double>()[0], 1.0 / 3);
    EXPECT_EQ(results[1].as<float>()[0], 0.5F);
    EXPECT_EQ(results[2].as<int32_t>()[0], 5);
    EXPECT_EQ(results[3].as<uint8_t>()[0], 1);
    EXPECT_EQ(results[4].as<uint64_t>()[0], 0xffffffffffffffffu);
    EXPECT_EQ(results[5].as<uint8_t>()[0], 1);
    EXPECT_EQ(results[6].as<float>()[0], 1.0F);
    EXPECT_EQ(results[7].as<uint16_t>()[0], 0x3400);
  }
}

TEST(Lowering, AGraphWithoutParametersRuns) {
  TORCH_XLA_NEEDS_PLUGIN();
  EXPECT_EQ(
      evaluate(add(scalar(1.5, ElementType::kF32), scalar(2.0, ElementType::kF32))).as<float>(),
      Floats{3.5});
}

TEST(Lowering, OptionsReachTheModule) {
  const Value x = input(testing::f32({2}, {1, 2})), y = input(testing::f32({2}, {1, 2}));
  const Value root = add(x, y);
  LoweringOptions options;
  options.name = "step";
  options.parameter_aliases = {-2, 0};
  const std::string text = lower_roots(std::span(&root, 1), options).module;
  EXPECT_TRUE(contains(text, "module @\"step\"")) << text;
  EXPECT_TRUE(contains(text, "jax.buffer_donor")) << text;
  EXPECT_TRUE(contains(text, "tf.aliasing_output = 0")) << text;
  EXPECT_FALSE(contains(text, "loc(\"")) << text;
  options.locations = true;
  EXPECT_TRUE(contains(lower_roots(std::span(&root, 1), options).module, "loc(\"test::add\""));
}

TEST(Lowering, ErrorsNameTheOpItsOperandsAndTheLine) {
  static const Op failing{"test::failing", [](Lowering& l, const Node&) -> Results {
                            return l->reshape(l.operand(0), {7});
                          }};
  set_location_provider(
      {[] { return Location{1}; }, [](Location) { return std::string("forward@model.py:12"); }});
  const Value x = input(testing::f32({2}, {1, 2}));
  const std::string text = error_of(Node::make(failing, {x}, {}, x.shape()));
  set_location_provider({});
  EXPECT_TRUE(contains(text, "test::failing(f32[2]{0}) at ")) << text;
}

TEST(Lowering, WrongShapesAndCountsAreFoundOut) {
  static const Op wrong_shape{"test::wrong_shape", [](Lowering& l, const Node&) -> Results {
                                return l->reshape(l.operand(0), {2, 1});
                              }};
  static const Op too_many{"test::too_many", [](Lowering& l, const Node&) -> Results {
                             return {l.operand(0), l.operand(0)};
                           }};
  const Value x = input(testing::f32({2}, {1, 2}));
  EXPECT_TRUE(contains(error_of(Node::make(wrong_shape, {x}, {}, x.shape())), "was declared"));
  EXPECT_TRUE(
      contains(error_of(Node::make(too_many, {x}, {}, x.shape())), "2 values instead of 1"));
}

TEST(Lowering, TenThousandNodesInARow) {
  Value x = input(testing::f32({2}, {0, 1}));
  for (int i = 0; i < 10'000; ++i) x = rotate(x, 1);
  EXPECT_TRUE(contains(lower_roots(std::span(&x, 1)).module, "return"));
}

}  // namespace
}  // namespace torch_xla::ir
