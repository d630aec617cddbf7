#include "pjrt/client.h"

#include <set>

#include "pjrt/plugins.h"

namespace torch_xla::pjrt::testing {
namespace {

class ClientTest : public PluginTest {};
TORCH_XLA_FOR_EACH_PLUGIN(ClientTest);

TEST_P(ClientTest, Identity) {
  EXPECT_EQ(client()->platform_name(), "cpu");
  EXPECT_FALSE(client()->platform_version().empty());
  EXPECT_EQ(client()->process_index(), 0);
}

TEST_P(ClientTest, DeviceCount) {
  for (int64_t count : {1, 3, 8}) {
    const auto devices = client(count)->devices();
    EXPECT_EQ(devices.size(), count);
    EXPECT_EQ(client(count)->addressable_devices(), devices);
  }
}

TEST_P(ClientTest, Devices) {
  std::set<int> ids;
  int previous = -1;
  for (const Device* device : client(3)->devices()) {
    EXPECT_GT(device->id(), previous) << "sorted by id";
    previous = device->id();
    ids.insert(device->id());
    EXPECT_TRUE(device->is_addressable());
    EXPECT_EQ(device->process_index(), 0);
    EXPECT_EQ(device->kind(), "cpu");
    EXPECT_GE(device->local_hardware_id(), 0);
    EXPECT_FALSE(device->to_string().empty());
    EXPECT_FALSE(device->debug_string().empty());
    EXPECT_FALSE(device->memory_stats().has_value());  // a CPU plugin keeps none
  }
  EXPECT_EQ(ids.size(), 3);
}

TEST_P(ClientTest, Memories) {
  ASSERT_NE(device()->default_memory(), nullptr);
  EXPECT_FALSE(device()->default_memory()->kind().empty());
  EXPECT_FALSE(device()->default_memory()->debug_string().empty());
  EXPECT_EQ(device()->memory(device()->default_memory()->kind()), device()->default_memory());
  EXPECT_EQ(device()->memory("no such memory"), nullptr);
  EXPECT_GE(client()->memories().size(), device()->memories().size());
  std::set<int> ids;
  for (const Memory* memory : client()->memories()) ids.insert(memory->id());
  EXPECT_EQ(ids.size(), client()->memories().size());
}

TEST_P(ClientTest, BadDeviceCount) {
  for (const Option& bad : {Option("two"), Option(true), Option(2.f), Option(int64_t{0}),
                            Option(int64_t{-1}), Option(int64_t{1} << 40)}) {
    const Error error = error_of([&] { Client::create(plugin(), {{"cpu_device_count", bad}}); });
    EXPECT_TRUE(contains(error.what(), "from 1 to 4096, got " + to_string(bad))) << error.what();
  }
  EXPECT_EQ(client()->devices().size(), 2) << "the others go on";
}

TEST_P(ClientTest, ObjectsKeepTheirClientAlive) {
  auto alone = Client::create(plugin(), {{"cpu_device_count", int64_t{1}}});
  const float value = 3;
  auto buffer = alone->buffer_from_host(&value, BufferType::kF32, {}, {}, alone->devices()[0],
                                        HostBufferSemantics::kImmutableOnlyDuringCall);
  auto program = alone->compile(
      "func.func @main(%a: tensor<f32>) -> tensor<f32> {"
      " %0 = stablehlo.add %a, %a : tensor<f32>"
      " return %0 : tensor<f32> }");
  std::weak_ptr<Client> observer = alone;
  alone.reset();
  Buffer* args[] = {buffer.get()};
  auto outputs = program->execute(args);
  EXPECT_EQ(download(*outputs[0]), std::vector<float>{6});
  program.reset();
  buffer.reset();
  EXPECT_FALSE(observer.expired());
  outputs.clear();
  EXPECT_TRUE(observer.expired());
}

TEST(Options, Print) {
  EXPECT_EQ(to_string(Option("text")), "\"text\"");
  EXPECT_EQ(to_string(Option(int64_t{-4})), "-4");
  EXPECT_EQ(to_string(Option(true)), "true");
  EXPECT_EQ(to_string(Option(0.5f)), "0.5");
  EXPECT_EQ(to_string(Option(std::vector<int64_t>{1, 2})), "[1, 2]");
  EXPECT_EQ(to_string(Option(std::vector<int64_t>{})), "[]");
}

TEST(Errors, NamesOfCodes) {
  EXPECT_STREQ(to_string(ErrorCode::kResourceExhausted), "RESOURCE_EXHAUSTED");
  EXPECT_STREQ(to_string(ErrorCode::kUnauthenticated), "UNAUTHENTICATED");
  EXPECT_STREQ(to_string(static_cast<ErrorCode>(99)), "UNKNOWN");
}

}  // namespace
}  // namespace torch_xla::pjrt::testing
