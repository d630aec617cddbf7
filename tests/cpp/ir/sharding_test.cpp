#include "ir/sharding.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <sstream>

#include "ir/ops.h"
#include "ir/run.h"
#include "sharding/dialect.h"
#include "sharding/op_sharding.h"

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
const Mesh* line() { return Mesh::get({"all"}, {4}, {0, 1, 2, 3}); }
Value eight() { return input(testing::f32({8}, {0, 1, 2, 3, 4, 5, 6, 7})); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A client of each plugin with as many devices as the mesh.
std::vector<std::shared_ptr<pjrt::Client>> clients_of_four() {
  std::vector<std::shared_ptr<pjrt::Client>> clients;
  for (const auto& client : testing::clients()) {
    clients.push_back(pjrt::Client::create(client->plugin(), {{"cpu_device_count", int64_t{4}}}));
  }
  return clients;
}

TEST(Sharding, ConstraintKeepsTheShapeAndIsPartOfTheKey) {
  const Value a = eight();
  const Value cut = constrain(a, Sharding::get(grid(), {{kX}}));
  EXPECT_EQ(cut.shape(), a.shape());
  EXPECT_EQ(constraint_of(*cut.node), Sharding::get(grid(), {{kX}}));
  EXPECT_EQ(constraint_of(*a.node), nullptr);
  EXPECT_FALSE(testing::key_of(cut) ==
               testing::key_of(constrain(a, Sharding::get(grid(), {{kY}}))));
}

TEST(Sharding, ProgramsNameTheirMeshOnce) {
  const Value a = eight();
  const Value root = add(constrain(a, Sharding::get(grid(), {{kX}})), a);
  LoweringOptions options;
  options.placement.parameters = {Sharding::replicated(line(), 1)};
  options.placement.outputs = {Sharding::get(line(), {{{0, 1, 4}}})};
  const std::string text = lower_roots(std::span(&root, 1), options).module;
  EXPECT_TRUE(contains(text, "sdy.mesh @mesh = <[\"x\"=2, \"y\"=2]>")) << text;
  EXPECT_FALSE(contains(text, "sdy.mesh @mesh_1")) << text;
  EXPECT_TRUE(contains(text, "#sdy.sharding<@mesh, [{\"x\"}]>")) << text;
  EXPECT_TRUE(contains(text, "#sdy.sharding<@mesh, [{\"x\", \"y\"}]>")) << text;
  EXPECT_TRUE(contains(text, "mhlo.num_partitions = 4 : i32")) << text;
}

TEST(Sharding, PluginsThatAreTooOldAreToldInOtherWords) {
  using sharding::Dialect;
  using Version = std::vector<int64_t>;
  EXPECT_EQ(sharding::dialect_for(Version{1, 9, 0}), Dialect::kShardy);
  EXPECT_EQ(sharding::dialect_for(Version{2, 0, 0}), Dialect::kShardy);
  EXPECT_EQ(sharding::dialect_for(Version{1, 8, 12}), Dialect::kGspmd);
  EXPECT_EQ(sharding::dialect_for(Version{}), Dialect::kGspmd);
  sharding::set_dialect_of_plugin(Dialect::kGspmd);
  const Value a = eight();
  const Value root = add(constrain(a, Sharding::get(grid(), {{kX}})), a);
  LoweringOptions options;
  options.placement.parameters = {Sharding::get(grid(), {{kX}})};
  options.placement.outputs = {Sharding::replicated(grid(), 1)};
  const std::string text = lower_roots(std::span(&root, 1), options).module;
  sharding::set_dialect_of_plugin(Dialect::kShardy);
  EXPECT_FALSE(contains(text, "sdy")) << text;
  const std::string halves = "{devices=[2,2]0,1,2,3 last_tile_dim_replicate}";
  EXPECT_TRUE(contains(text, "mhlo.sharding = \"" + halves + "\"")) << text;
  EXPECT_TRUE(contains(text, "call_target_name = \"Sharding\"")) << text;
  EXPECT_TRUE(contains(text, "mhlo.sharding = \"{replicated}\"")) << text;
}

TEST(Sharding, AnotherOrderOfDevicesIsAnotherMesh) {
  const Value a = eight();
  const Mesh* turned = Mesh::get({"a", "b"}, {2, 2}, {3, 0, 1, 2});
  const Value root =
      add(constrain(a, Sharding::get(grid(), {{kX}})), constrain(a, Sharding::get(turned, {{kX}})));
  const std::string text = lower_roots(std::span(&root, 1)).module;
  EXPECT_TRUE(contains(text, "sdy.mesh @mesh_1 = <[\"a\"=2, \"b\"=2], device_ids=[3,0,1,2]>"))
      << text;
}

TEST(Sharding, PartitionedProgramsRunOnEveryPlugin) {
  TORCH_XLA_NEEDS_PLUGIN();
  const Value a = eight();
  const Value root = add(a, a);
  LoweringOptions options;
  options.placement.parameters = {Sharding::get(grid(), {{kY}})};
  options.placement.outputs = {nullptr};
  const std::string module = lower_roots(std::span(&root, 1), options).module;
  for (const auto& client : clients_of_four()) {
    pjrt::CompileOptions compile;
    compile.num_partitions = 4;
    compile.use_spmd_partitioning = compile.use_shardy = true;
    const auto executable = client->compile(module, compile);
    std::vector<std::unique_ptr<pjrt::Buffer>> shards;
    std::vector<std::vector<pjrt::Buffer*>> lists;
    for (size_t p = 0; p < 4; ++p) {
      const std::vector<float> half =
          p % 2 == 0 ? std::vector<float>{0, 1, 2, 3} : std::vector<float>{4, 5, 6, 7};
      const int64_t size = 4;
      shards.push_back(client->buffer_from_host(
          half.data(), pjrt::BufferType::kF32, std::span(&size, 1), {},
          client->addressable_devices()[p], pjrt::HostBufferSemantics::kImmutableOnlyDuringCall));
      lists.push_back({shards.back().get()});
    }
    const auto results = executable->execute_sharded(lists);
    ASSERT_EQ(results.size(), 4u);
    if (const auto told = executable->output_shardings()) {
      EXPECT_EQ(sharding::parse_op_sharding(told->at(0), grid(), 1),
                options.placement.parameters[0]);
      std::vector<float> held(4);
      results[3][0]->copy_to_host(held.data(), 16).wait();
      EXPECT_EQ(held, (std::vector<float>{8, 10, 12, 14}));
    }
  }
}

}  // namespace
}  // namespace torch_xla::ir
