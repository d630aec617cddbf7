// The module around the operations: text, scopes, functions, locations, misuse.

#include "stablehlo/builder.h"

#include <gtest/gtest.h>

#include "stablehlo/run.h"

namespace torch_xla::stablehlo {
namespace {

using testing::expect;
using testing::expect_compiles;
using testing::f32;

const TensorType kF32x2{ElementType::kF32, {2}};

TEST(Builder, WritesTheGenericForm) {
  Builder b;
  Value x = b.parameter({ElementType::kF32, {2, 3}});
  Value y = b.parameter({ElementType::kF32, {2, 3}});
  b.ret({x + y});
  EXPECT_EQ(b.module("step"),
            "module @\"step\" {\n"
            "  func.func public @main(%0: tensor<2x3xf32>, %1: tensor<2x3xf32>)"
            " -> (tensor<2x3xf32>) {\n"
            "    %2 = \"stablehlo.add\"(%0, %1) : (tensor<2x3xf32>, tensor<2x3xf32>)"
            " -> tensor<2x3xf32>\n"
            "    \"func.return\"(%2) : (tensor<2x3xf32>) -> ()\n"
            "  }\n"
            "}\n");
}

TEST(Builder, WritesRegions) {
  Builder b;
  Value x = b.parameter(kF32x2);
  b.ret({b.reduce_sum(x, {0})});
  EXPECT_NE(b.module().find("    %5 = \"stablehlo.reduce\"(%0, %1) ({\n"
                            "    ^bb0(%2: tensor<f32>, %3: tensor<f32>):\n"
                            "      %4 = \"stablehlo.add\"(%2, %3) : (tensor<f32>, tensor<f32>)"
                            " -> tensor<f32>\n"
                            "      \"stablehlo.return\"(%4) : (tensor<f32>) -> ()\n"
                            "    }) {dimensions = array<i64: 0>} : (tensor<2xf32>, tensor<f32>)"
                            " -> tensor<f32>\n"),
            std::string::npos)
      << b.module();
}

TEST(Builder, ModuleWithoutParametersOrResults) {
  expect_compiles({}, [](Builder&, const Values&) { return Values{}; });
}

TEST(Builder, AnyModuleName) {
  Builder b;
  b.ret({});
  std::string text = b.module("a \"b\" \\ \n");
  EXPECT_EQ(text.substr(0, text.find(" {")), "module @\"a \\22b\\22 \\5C \\0A\"");
}

TEST(Builder, ArgumentAttributes) {
  Builder b;
  ArgumentAttributes attributes;
  attributes.aliased_output = 1;
  attributes.sharding = "{replicated}";
  attributes.extra = "my.tag = 3 : i32";
  Value x = b.parameter(kF32x2, attributes);
  ArgumentAttributes donated;
  donated.donated = true;
  donated.memory_kind = "device";
  Value y = b.parameter(kF32x2, donated);
  ArgumentAttributes result;
  result.sharding = "{replicated}";
  b.ret({x, y}, {result, {}});
  std::string text = b.module();
  EXPECT_NE(text.find("%0: tensor<2xf32> {tf.aliasing_output = 1 : i32, mhlo.sharding = "
                      "\"{replicated}\", my.tag = 3 : i32}, %1: tensor<2xf32> "
                      "{jax.buffer_donor = true, mhlo.memory_kind = \"device\"}) -> "
                      "(tensor<2xf32> {mhlo.sharding = \"{replicated}\"}, tensor<2xf32>)"),
            std::string::npos)
      << text;
}

TEST(Builder, DonationCompiles) {
  expect_compiles({}, [](Builder& b, const Values&) {
    ArgumentAttributes aliased, donated;
    aliased.aliased_output = 0;
    donated.donated = true;
    Value x = b.parameter(kF32x2, aliased);
    Value y = b.parameter(kF32x2, donated);
    return Values{x + y, x - y};
  });
}

TEST(Builder, LocationsAndOpAttributes) {
  auto program = [](Builder& b, const Values& x) {
    b.set_location("layer \"1\"");
    Value y = x[0] + x[0];
    b.set_location("matmul", "model.py", 12);
    Value z = b.reduce_sum(y, {0});
    b.set_location("layer \"1\"");
    Value w = z * z;
    b.set_location("");
    b.set_op_attributes("mhlo.frontend_attributes = {tag = \"a\"}");
    Value v = -w;
    b.set_op_attributes("");
    return Values{v};
  };
  std::string text = testing::text_of({kF32x2}, program);
  EXPECT_NE(text.find("tensor<2xf32> loc(#loc0)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("tensor<f32> loc(#loc1)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("#loc0 = loc(\"layer \\221\\22\")\n"), std::string::npos) << text;
  EXPECT_NE(text.find("#loc1 = loc(\"matmul\"(\"model.py\":12:0))\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("#loc2"), std::string::npos) << text;
  expect({f32({2}, {1, 2})}, program, {f32({}, {-36})});
}

TEST(Builder, ModuleAttributesAndMesh) {
  Builder b;
  b.set_module_attribute("mhlo.num_partitions", "1 : i32");
  b.set_module_attribute("mhlo.num_replicas", "1 : i32");
  b.add_module_text("sdy.mesh @mesh = <[\"x\"=1]>");
  b.ret({});
  EXPECT_EQ(b.module("m").substr(0, 107),
            "module @\"m\" attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32}"
            " {\n  sdy.mesh @mesh = <[");
  expect({f32({2}, {1, 2})},
         [](Builder& builder, const Values& x) {
           builder.add_module_text("sdy.mesh @mesh = <[\"x\"=1]>");
           return Values{builder.sharding_constraint(x[0], "#sdy.sharding<@mesh, [{\"x\"}]>")};
         },
         {f32({2}, {1, 2})});
}

TEST(Builder, SharesScalarsWithinARegionOnly) {
  auto program = [](Builder& b, const Values& x) {
    Value zero = b.scalar(0, ElementType::kF32);
    EXPECT_EQ(zero.id(), b.scalar(0.0, ElementType::kF32).id());
    EXPECT_NE(zero.id(), b.scalar(0, ElementType::kF64).id());
    Value total = b.reduce(x[0], zero, {0}, [&](Value l, Value r) {
      Value inner = b.scalar(0, ElementType::kF32);
      EXPECT_NE(inner.id(), zero.id());
      return l + r + inner;
    });
    EXPECT_EQ(zero.id(), b.scalar(0, ElementType::kF32).id());
    return Values{total};
  };
  expect({f32({2}, {5, 7})}, program, {f32({}, {12})});
}

TEST(Builder, Functions) {
  auto program = [](Builder& b, const Values& x) {
    auto twice = [](const Values& v) { return Values{v[0] + v[0], v[0]}; };
    std::string first = b.function("layer norm", {kF32x2}, twice);
    std::string second = b.function("layer norm", {kF32x2}, twice);
    EXPECT_EQ(first, "layer_norm");
    EXPECT_EQ(second, "layer_norm_1");
    Value y = b.call(first, {x[0]})[0];
    return b.call(second, {y});
  };
  expect({f32({2}, {1, 2})}, program, {f32({2}, {4, 8}), f32({2}, {2, 4})});
}

TEST(Builder, Composite) {
  expect({f32({2}, {1, 2})},
         [](Builder& b, const Values& x) {
           std::string f =
               b.function("impl", {kF32x2}, [](const Values& v) { return Values{v[0] * v[0]}; });
           return b.composite("my.square", f, {x[0]}, "k = 1 : i64", 2);
         },
         {f32({2}, {1, 4})});
}

TEST(Builder, UncheckedOperation) {
  expect({f32({2}, {-1, 2})},
         [](Builder& b, const Values& x) { return Values{b.op("stablehlo.abs", {x[0]}, kF32x2)}; },
         {f32({2}, {1, 2})});
}

TEST(Builder, RefusesMisuse) {
  Builder b;
  Builder other;
  Value x = b.parameter(kF32x2);
  EXPECT_THROW(other.negate(x), std::logic_error);
  EXPECT_THROW(b.negate(Value()), std::logic_error);
  EXPECT_THROW(Value().type(), std::logic_error);
  EXPECT_THROW(x.dim(1), std::logic_error);
  EXPECT_THROW(x.dim(-1), std::logic_error);
  EXPECT_THROW(b.module(), std::logic_error);
  EXPECT_THROW(b.call("nothing", {x}), std::logic_error);
  EXPECT_THROW(b.ret({x}, {{}, {}}), std::logic_error);
  EXPECT_THROW(b.zeros_like(Value()), std::logic_error);
  b.ret({x});
  EXPECT_THROW(b.ret({x}), std::logic_error);
  EXPECT_THROW(b.parameter(kF32x2), std::logic_error);
}

TEST(Builder, RefusesValuesOfClosedRegionsAndOtherFunctions) {
  Builder b;
  Value x = b.parameter(kF32x2);
  Value leaked;
  b.reduce(x, b.scalar(0, ElementType::kF32), {0}, [&](Value l, Value r) {
    leaked = l + r;
    return leaked;
  });
  EXPECT_THROW(-leaked, std::logic_error);
  EXPECT_THROW(b.function("f", {}, [&](const Values&) { return Values{-x}; }), std::logic_error);
  // XLA wants the regions of reductions to stand alone; those of loops may look outside.
  Value zero = b.scalar(0, ElementType::kF32);
  EXPECT_THROW(b.reduce(x, zero, {0}, [&](Value l, Value r) { return l + r + zero; }),
               std::logic_error);
  // The builder is whole after an exception out of a region.
  EXPECT_THROW(b.reduce(x, b.scalar(0, ElementType::kF32), {0},
                        [&](Value, Value) -> Value { throw std::runtime_error("no"); }),
               std::runtime_error);
  b.ret({-x});
  EXPECT_NE(b.module().find("stablehlo.negate"), std::string::npos);
}

TEST(Builder, CountsItsOperations) {
  Builder b;
  Value x = b.parameter(kF32x2);
  EXPECT_EQ(b.op_count(), 0u);
  b.ret({x + x});
  EXPECT_EQ(b.op_count(), 1u);
  EXPECT_GT(b.text_size(), 0u);
}

}  // namespace
}  // namespace torch_xla::stablehlo
