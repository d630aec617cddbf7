// Loops, branches, custom calls, barriers, tokens and collectives.

#include <gtest/gtest.h>

#include "stablehlo/builder.h"
#include "stablehlo/run.h"

namespace torch_xla::stablehlo {
namespace {

using testing::array;
using testing::expect;
using testing::expect_compiles;
using testing::expect_partitioned;
using testing::expect_replicated;
using testing::f32;
using testing::pred;
using testing::s32;

const TensorType kScalar{ElementType::kS32, {}};

TEST(ControlFlow, While) {
  // The body uses a value from outside.
  expect({s32({}, {5}), f32({}, {3})},
         [](Builder& b, const Values& x) {
           return b.while_(
               {b.scalar(0, ElementType::kS32), b.scalar(1, ElementType::kF32)},
               [&](const Values& v) { return b.lt(v[0], x[0]); },
               [&](const Values& v) { return Values{v[0] + 1, v[1] * x[1]}; });
         },
         {s32({}, {5}), f32({}, {243})});
}

TEST(ControlFlow, NestedWhile) {
  expect({},
         [](Builder& b, const Values&) {
           Value zero = b.scalar(0, ElementType::kS32);
           auto below = [&](int64_t limit) {
             return [&b, limit](const Values& v) {
               return b.lt(v[0], b.scalar(limit, ElementType::kS32));
             };
           };
           return b.while_({zero, zero}, below(3), [&](const Values& outer) {
             Values inner = b.while_({zero, outer[1]}, below(4),
                                     [](const Values& v) { return Values{v[0] + 1, v[1] + 1}; });
             return Values{outer[0] + 1, inner[1]};
           });
         },
         {s32({}, {3}), s32({}, {12})});
}

TEST(ControlFlow, CaseAndIf) {
  auto program = [](Builder& b, const Values& x) {
    Values chosen =
        b.case_(x[0], {[&] { return Values{x[2] + x[2]}; }, [&] { return Values{x[2] * x[2]}; },
                       [&] { return Values{b.scalar(7, ElementType::kF32)}; }});
    Values either = b.if_(
        x[1], [&] { return Values{x[2], chosen[0]}; }, [&] { return Values{chosen[0], x[2]}; });
    return Values{chosen[0], either[0], either[1]};
  };
  expect({s32({}, {0}), pred({}, {1}), f32({}, {3})}, program,
         {f32({}, {6}), f32({}, {3}), f32({}, {6})});
  expect({s32({}, {1}), pred({}, {0}), f32({}, {3})}, program,
         {f32({}, {9}), f32({}, {9}), f32({}, {3})});
  expect({s32({}, {-4}), pred({}, {0}), f32({}, {3})}, program,
         {f32({}, {7}), f32({}, {7}), f32({}, {3})});
}

TEST(ControlFlow, OptimizationBarrierAndTokens) {
  expect({f32({}, {1}), s32({2}, {1, 2})},
         [](Builder& b, const Values& x) {
           Value token = b.create_token();
           token = b.after_all({token, b.create_token()});
           return b.optimization_barrier(x);
         },
         {f32({}, {1}), s32({2}, {1, 2})});
}

TEST(ControlFlow, CustomCallIntoThePlugin) {
  // Symmetric eigenvalues by XLA's own expander: lower triangle, at most 100 sweeps.
  CustomCallOptions options;
  options.api_version = 1;
  options.backend_config = "1,1,100,1e-6";
  expect(
      {f32({2, 2}, {2, 0, 0, 1})},
      [&](Builder& b, const Values& x) {
        Values r = b.custom_call("Eigh", {x[0]},
                                 {{ElementType::kF32, {2, 2}}, {ElementType::kF32, {2}}}, options);
        return Values{r[1]};
      },
      {f32({2}, {1, 2})}, 1e-5);
}

TEST(ControlFlow, CustomCallText) {
  Builder b;
  Value x = b.parameter({ElementType::kF32, {2, 3}});
  Value y = b.parameter({ElementType::kF32, {}});
  CustomCallOptions options;
  options.backend_config = "alpha = 2.5 : f32, tag = \"s\"";
  options.has_side_effect = true;
  options.operand_layouts = {{1, 0}, {}};
  options.result_layouts = {{0, 1}};
  options.output_operand_aliases = {{0, 0}};
  options.called_computations = {b.function("f", {kScalar}, [](const Values& v) { return v; })};
  options.extra = "mhlo.sharding = \"{replicated}\"";
  b.custom_call("my.target", {x, y}, {{ElementType::kF32, {2, 3}}}, options);
  b.ret({});
  EXPECT_NE(b.module().find(
                "\"stablehlo.custom_call\"(%0, %1) {call_target_name = \"my.target\", "
                "has_side_effect = true, api_version = 4 : i32, backend_config = {alpha = 2.5 : "
                "f32, tag = \"s\"}, called_computations = [@f], operand_layouts = [dense<[1, 0]> "
                ": tensor<2xindex>, dense<> : tensor<0xindex>], result_layouts = [dense<[0, 1]> "
                ": tensor<2xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<"
                "output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>], "
                "mhlo.sharding = \"{replicated}\"}"),
            std::string::npos)
      << b.module();
}

TEST(ControlFlow, ShardingCustomCallCompiles) {
  CustomCallOptions options;
  options.api_version = 1;
  options.extra = "mhlo.sharding = \"{replicated}\"";
  options.operand_layouts = {{1, 0}};
  options.result_layouts = {{1, 0}};
  expect({f32({2, 2}, {1, 2, 3, 4})},
         [&](Builder& b, const Values& x) {
           return b.custom_call("Sharding", x, {x[0].type()}, options);
         },
         {f32({2, 2}, {1, 2, 3, 4})});
}

TEST(ControlFlow, RefusesWhatDoesNotFit) {
  Builder b;
  Value i = b.parameter(kScalar);
  Value f = b.parameter({ElementType::kF32, {}});
  auto same = [](const Values& v) { return v; };
  EXPECT_THROW(b.while_({i}, [&](const Values& v) { return v[0]; }, same), std::logic_error);
  EXPECT_THROW(b.while_(
                   {i}, [&](const Values& v) { return b.lt(v[0], v[0]); },
                   [](const Values&) { return Values{}; }),
               std::logic_error);
  EXPECT_THROW(b.while_(
                   {i}, [&](const Values& v) { return b.lt(v[0], v[0]); },
                   [&](const Values&) { return Values{f}; }),
               std::logic_error);
  EXPECT_THROW(b.case_(f, {[&] { return Values{f}; }}), std::logic_error);
  EXPECT_THROW(b.case_(i, {}), std::logic_error);
  EXPECT_THROW(b.case_(i, {[&] { return Values{f}; }, [&] { return Values{i}; }}),
               std::logic_error);
  EXPECT_THROW(b.if_(i, [&] { return Values{f}; }, [&] { return Values{f}; }), std::logic_error);
  EXPECT_THROW(b.after_all({f}), std::logic_error);
  CustomCallOptions options;
  options.called_computations = {"nobody"};
  EXPECT_THROW(b.custom_call("t", {}, {}, options), std::logic_error);
  options.called_computations.clear();
  options.output_operand_aliases = {{0, 1}};
  EXPECT_THROW(b.custom_call("t", {f}, {f.type()}, options), std::logic_error);
  options.output_operand_aliases.clear();
  options.operand_layouts = {{}};
  EXPECT_THROW(b.custom_call("t", {f}, {f.type()}, options), std::logic_error);
  EXPECT_THROW(b.composite("c", "nobody", {f}), std::logic_error);
}

// --- Collectives ---------------------------------------------------------------------------------

Value add(Value l, Value r) { return l + r; }

TEST(Collectives, AllReduceInGroups) {
  CollectiveOptions pairs;
  pairs.groups = {{0, 1}, {2, 3}};
  expect_replicated({{f32({1}, {1})}, {f32({1}, {2})}, {f32({1}, {4})}, {f32({1}, {8})}},
                    [&](Builder& b, const Values& x) {
                      return Values{b.all_reduce(x[0], add), b.all_reduce(x[0], add, pairs),
                                    b.all_reduce({x[0], x[0] + x[0]}, add)[1]};
                    },
                    {{f32({1}, {15}), f32({1}, {3}), f32({1}, {30})},
                     {f32({1}, {15}), f32({1}, {3}), f32({1}, {30})},
                     {f32({1}, {15}), f32({1}, {12}), f32({1}, {30})},
                     {f32({1}, {15}), f32({1}, {12}), f32({1}, {30})}});
}

TEST(Collectives, TheOthers) {
  expect_replicated({{f32({2}, {1, 2})}, {f32({2}, {3, 4})}},
                    [](Builder& b, const Values& x) {
                      CollectiveOptions all;
                      all.groups = {{0, 1}};
                      return Values{b.all_gather(x[0], 0, 2, all),
                                    b.reduce_scatter(x[0], 0, 2, add, all),
                                    b.all_to_all(x[0], 0, 0, 2, all),
                                    b.collective_permute(x[0], {{0, 1}}),
                                    b.replica_id(),
                                    b.partition_id()};
                    },
                    {{f32({4}, {1, 2, 3, 4}), f32({1}, {4}), f32({2}, {1, 3}), f32({2}, {0, 0}),
                      array(ElementType::kU32, {}, {0}), array(ElementType::kU32, {}, {0})},
                     {f32({4}, {1, 2, 3, 4}), f32({1}, {6}), f32({2}, {2, 4}), f32({2}, {1, 2}),
                      array(ElementType::kU32, {}, {1}), array(ElementType::kU32, {}, {0})}});
}

TEST(Collectives, ChannelsAndGlobalIds) {
  CollectiveOptions options;
  options.groups = {{0, 1}};
  options.channel = 3;
  options.use_global_device_ids = true;
  expect_replicated(
      {{f32({1}, {1})}, {f32({1}, {2})}},
      [&](Builder& b, const Values& x) { return Values{b.all_reduce(x[0], add, options)}; },
      {{f32({1}, {3})}, {f32({1}, {3})}});
}

TEST(Collectives, ManualComputation) {
  const std::string rows = "<@mesh, [{\"x\"}]>";
  auto program = [&](Builder& b, const Values& x) {
    b.add_module_text("sdy.mesh @mesh = <[\"x\"=4]>");
    return b.manual_computation(x, {rows}, {{ElementType::kF32, {1}}}, {"<@mesh, [{}]>"},
                                {{ElementType::kF32, {1}}}, {"x"}, [&](const Values& shard) {
                                  CollectiveOptions options;
                                  options.groups = {{0, 1, 2, 3}};
                                  options.channel = 1;
                                  options.use_global_device_ids = true;
                                  return Values{b.all_reduce(shard[0], add, options)};
                                });
  };
  expect_partitioned(4, {f32({1}, {1}), f32({1}, {2}), f32({1}, {4}), f32({1}, {8})},
                     {ElementType::kF32, {4}}, "#sdy.sharding<@mesh, [{\"x\"}]>", program,
                     f32({1}, {15}));
  Builder b;
  Value x = b.parameter({ElementType::kF32, {4}});
  auto same = [](const Values& v) { return v; };
  EXPECT_THROW(b.manual_computation({x}, {}, {}, {}, {}, {}, same), std::logic_error);
}

TEST(Collectives, RefuseWhatDoesNotFit) {
  Builder b;
  Value x = b.parameter({ElementType::kF32, {3, 4}});
  CollectiveOptions options;
  options.use_global_device_ids = true;
  EXPECT_THROW(b.all_reduce(x, add, options), std::logic_error);
  EXPECT_THROW(b.all_reduce(Values{}, add), std::logic_error);
  EXPECT_THROW(b.all_gather(x, 2, 2), std::logic_error);
  EXPECT_THROW(b.all_gather(x, 0, 0), std::logic_error);
  EXPECT_THROW(b.reduce_scatter(x, 0, 2, add), std::logic_error);
  EXPECT_THROW(b.all_to_all(x, 0, 1, 2), std::logic_error);
  EXPECT_THROW(b.collective_permute(x, {{0, 1}, {2, 1}}), std::logic_error);
  CollectiveOptions wrong;
  wrong.groups = {{0, 1, 2}};
  EXPECT_THROW(b.all_gather(x, 0, 2, wrong), std::logic_error);
  wrong.groups = {{}};
  EXPECT_THROW(b.all_reduce(x, add, wrong), std::logic_error);
}

}  // namespace
}  // namespace torch_xla::stablehlo
