// Bytes worked out by hand from the wire format; test_compile_options.py asks a real client.
#include "pjrt/compile_options.h"

#include <gtest/gtest.h>

#include "pjrt/error.h"

namespace torch_xla::pjrt {
namespace {

std::string bytes(std::initializer_list<int> values) {
  return std::string(values.begin(), values.end());
}

// device_ordinal: -1, ten bytes of varint.
const std::string kNoOrdinal = bytes({0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1});

TEST(CompileOptions, Default) {
  EXPECT_EQ(encode({}), bytes({0x1a, 15}) + kNoOrdinal + bytes({0x20, 1, 0x28, 1}));
}

TEST(CompileOptions, Flags) {
  EXPECT_EQ(encode({.num_replicas = 1,
                    .num_partitions = 300,
                    .use_spmd_partitioning = true,
                    .use_shardy = true,
                    .parameter_is_tupled = true}),
            bytes({0x10, 1, 0x1a, 24}) + kNoOrdinal +
                bytes({0x20, 1, 0x28, 0xac, 0x02, 0x30, 1, 0x62, 1, 1, 0x98, 0x01, 1}));
  EXPECT_EQ(encode({.portable = true}), encode({}) + bytes({0x20, 1}));
}

TEST(CompileOptions, DeviceAssignmentIsReplicaMajor) {
  EXPECT_EQ(encode({.num_replicas = 2, .num_partitions = 2, .device_assignment = {0, 1, 2, 3}}),
            bytes({0x1a, 33}) + kNoOrdinal + bytes({0x20, 2, 0x28, 2}) +
                bytes({0x4a, 16, 8, 2, 16, 2, 0x1a, 4, 0x0a, 2, 0, 2, 0x1a, 4, 0x0a, 2, 1, 3}));
}

TEST(CompileOptions, Overrides) {
  auto encoded = [](Option option) {
    return encode({.env_overrides = {{"f", std::move(option)}}}).substr(encode({}).size());
  };
  EXPECT_EQ(encoded("x"), bytes({0x3a, 8, 0x0a, 1, 'f', 0x12, 3, 0x0a, 1, 'x'}));
  EXPECT_EQ(encoded(false), bytes({0x3a, 7, 0x0a, 1, 'f', 0x12, 2, 0x10, 0}));
  EXPECT_EQ(encoded(int64_t{5}), bytes({0x3a, 7, 0x0a, 1, 'f', 0x12, 2, 0x18, 5}));
  EXPECT_EQ(encoded(0.5f),
            bytes({0x3a, 14, 0x0a, 1, 'f', 0x12, 9, 0x21, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f}));
  EXPECT_THROW(encoded(std::vector<int64_t>{1}), Error);
}

TEST(CompileOptions, EqualOptionsGiveEqualBytes) {
  CompileOptions a, b;
  a.env_overrides = {{"x", true}, {"y", int64_t{1}}};
  b.env_overrides["y"] = int64_t{1};
  b.env_overrides["x"] = true;
  EXPECT_EQ(encode(a), encode(b));
}

TEST(CompileOptions, Errors) {
  EXPECT_THROW(encode({.num_replicas = 0}), Error);
  EXPECT_THROW(encode({.num_partitions = -1}), Error);
  EXPECT_THROW(encode({.device_assignment = {0, 1}}), Error);
  EXPECT_THROW(encode({.num_replicas = 2, .portable = true}), Error);
  EXPECT_NO_THROW(check_assignment({.num_replicas = 2, .device_assignment = {5, 3}}, {3, 4, 5}));
  EXPECT_THROW(check_assignment({.num_replicas = 2, .device_assignment = {5, 6}}, {3, 4, 5}),
               Error);
  EXPECT_THROW(check_assignment({.num_replicas = 2, .device_assignment = {5, 5}}, {3, 4, 5}),
               Error);
  EXPECT_THROW(check_assignment({.num_replicas = 2, .num_partitions = 2}, {3, 4, 5}), Error);
}

}  // namespace
}  // namespace torch_xla::pjrt
