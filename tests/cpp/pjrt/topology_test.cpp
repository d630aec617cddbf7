#include "pjrt/topology.h"

#include "pjrt/plugins.h"

namespace torch_xla::pjrt::testing {
namespace {

constexpr char kDouble[] =
    "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {"
    " %0 = stablehlo.add %a, %a : tensor<4xf32> return %0 : tensor<4xf32> }";

class TopologyTest : public PluginTest {};
TORCH_XLA_FOR_EACH_PLUGIN(TopologyTest);

TEST_P(TopologyTest, OfAClient) {
  auto topology = Topology::from_client(client());
  EXPECT_EQ(topology->platform_name(), "cpu");
  EXPECT_FALSE(topology->platform_version().empty());
  topology->attributes();
  ASSERT_EQ(topology->devices().size(), 2);
  EXPECT_EQ(topology->devices()[0].kind, device()->kind());
}

TEST_P(TopologyTest, CompilesOrSaysWhyNot) {
  auto topology = Topology::from_client(client());
  try {
    auto program = topology->compile(kDouble);
    EXPECT_EQ(program->num_outputs(), 1);
    EXPECT_EQ(program->output_dims(), (std::vector<std::vector<int64_t>>{{4}}));
  } catch (const Error& error) {
    // Older CPU plugins have no compiler apart from their client's.
    EXPECT_TRUE(contains(error.what(), "ompiler")) << error.what();
  }
}

TEST_P(TopologyTest, RefusesMoreDevicesThanItHas) {
  auto topology = Topology::from_client(client());
  EXPECT_TRUE(contains(error_of([&] { topology->compile(kDouble, {.num_replicas = 3}); }).what(),
                       "need 3 devices; there are 2"));
}

TEST_P(TopologyTest, UnknownName) {
  EXPECT_THROW(Topology::create(plugin(), "no such topology"), Error);
}

}  // namespace
}  // namespace torch_xla::pjrt::testing
