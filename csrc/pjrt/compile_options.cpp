#include "pjrt/compile_options.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <string_view>

#include "pjrt/error.h"

namespace torch_xla::pjrt {
namespace {

// Field numbers of the messages written here.
namespace compile_options_proto {
constexpr int kParameterIsTupledArguments = 2;
constexpr int kExecutableBuildOptions = 3;
constexpr int kCompilePortableExecutable = 4;
constexpr int kEnvOptionOverrides = 7;
}  // namespace compile_options_proto
namespace build_options_proto {
constexpr int kDeviceOrdinal = 1;
constexpr int kNumReplicas = 4;
constexpr int kNumPartitions = 5;
constexpr int kUseSpmdPartitioning = 6;
constexpr int kDeviceAssignment = 9;
constexpr int kAllowSpmdShardingPropagationToOutput = 12;
constexpr int kUseShardyPartitioner = 19;
}  // namespace build_options_proto
namespace device_assignment_proto {
constexpr int kReplicaCount = 1;
constexpr int kComputationCount = 2;
constexpr int kComputationDevices = 3;
constexpr int kReplicaDeviceIds = 1;  // of a ComputationDevice
}  // namespace device_assignment_proto
namespace override_proto {
constexpr int kString = 1;
constexpr int kBool = 2;
constexpr int kInt64 = 3;
constexpr int kDouble = 4;
}  // namespace override_proto
namespace map_entry {
constexpr int kKey = 1;
constexpr int kValue = 2;
}  // namespace map_entry

// A protobuf message, written field by field.
class Message {
 public:
  void integer(int field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void real(int field, double value) {
    tag(field, 1);
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(bits >> shift);
  }
  void text(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  void packed(int field, const std::vector<int64_t>& values) {
    Message content;
    for (int64_t value : values) content.varint(static_cast<uint64_t>(value));
    message(field, content);
  }
  std::string take() { return std::move(bytes_); }

 private:
  void tag(int field, int wire_type) { varint(static_cast<uint64_t>(field << 3 | wire_type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

void check_counts(const CompileOptions& options) {
  if (options.num_replicas < 1 || options.num_partitions < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "compile: num_replicas " + std::to_string(options.num_replicas) +
                    " and num_partitions " + std::to_string(options.num_partitions) +
                    " must be at least one");
  }
  const int64_t count = int64_t{options.num_replicas} * options.num_partitions;
  const auto given = static_cast<int64_t>(options.device_assignment.size());
  if (given != 0 && given != count) {
    throw Error(ErrorCode::kInvalidArgument,
                "compile: the device assignment names " + std::to_string(given) + " devices for " +
                    std::to_string(options.num_replicas) + " replicas x " +
                    std::to_string(options.num_partitions) + " partitions");
  }
  if (options.portable && (count != 1 || given != 0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "compile: a portable program has one replica, one partition and no assignment");
  }
}

Message device_assignment(const CompileOptions& options) {
  Message result;
  result.integer(device_assignment_proto::kReplicaCount, options.num_replicas);
  result.integer(device_assignment_proto::kComputationCount, options.num_partitions);
  for (int partition = 0; partition < options.num_partitions; ++partition) {
    std::vector<int64_t> ids;
    for (int replica = 0; replica < options.num_replicas; ++replica) {
      ids.push_back(options.device_assignment[replica * options.num_partitions + partition]);
    }
    Message devices;
    devices.packed(device_assignment_proto::kReplicaDeviceIds, ids);
    result.message(device_assignment_proto::kComputationDevices, devices);
  }
  return result;
}

Message build_options(const CompileOptions& options) {
  Message result;
  result.integer(build_options_proto::kDeviceOrdinal, -1);  // not chosen; zero would be a device
  result.integer(build_options_proto::kNumReplicas, options.num_replicas);
  result.integer(build_options_proto::kNumPartitions, options.num_partitions);
  if (options.use_spmd_partitioning) {
    result.integer(build_options_proto::kUseSpmdPartitioning, 1);
    // Without it older plugins make results whole of which the program says nothing.
    result.packed(build_options_proto::kAllowSpmdShardingPropagationToOutput, {1});
  }
  if (!options.device_assignment.empty()) {
    result.message(build_options_proto::kDeviceAssignment, device_assignment(options));
  }
  if (options.use_shardy) result.integer(build_options_proto::kUseShardyPartitioner, 1);
  return result;
}

Message override_entry(const std::string& name, const Option& option) {
  Message value;
  if (const auto* text = std::get_if<std::string>(&option)) {
    value.text(override_proto::kString, *text);
  } else if (const auto* integer = std::get_if<int64_t>(&option)) {
    value.integer(override_proto::kInt64, *integer);
  } else if (const auto* boolean = std::get_if<bool>(&option)) {
    value.integer(override_proto::kBool, *boolean);
  } else if (const auto* number = std::get_if<float>(&option)) {
    value.real(override_proto::kDouble, *number);
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                "compile: option '" + name + "' cannot be a list: " + to_string(option));
  }
  Message entry;
  entry.text(map_entry::kKey, name);
  entry.message(map_entry::kValue, value);
  return entry;
}

}  // namespace

std::string encode(const CompileOptions& options) {
  check_counts(options);
  Message result;
  if (options.parameter_is_tupled) {
    result.integer(compile_options_proto::kParameterIsTupledArguments, 1);
  }
  result.message(compile_options_proto::kExecutableBuildOptions, build_options(options));
  if (options.portable) result.integer(compile_options_proto::kCompilePortableExecutable, 1);
  for (const auto& [name, option] : options.env_overrides) {
    result.message(compile_options_proto::kEnvOptionOverrides, override_entry(name, option));
  }
  return result.take();
}

void check_assignment(const CompileOptions& options, const std::vector<int>& device_ids) {
  check_counts(options);
  const int64_t count = int64_t{options.num_replicas} * options.num_partitions;
  if (count > static_cast<int64_t>(device_ids.size())) {
    throw Error(ErrorCode::kInvalidArgument,
                "compile: " + std::to_string(options.num_replicas) + " replicas x " +
                    std::to_string(options.num_partitions) + " partitions need " +
                    std::to_string(count) + " devices; there are " +
                    std::to_string(device_ids.size()));
  }
  const std::set<int> known(device_ids.begin(), device_ids.end());
  std::set<int> seen;
  for (int id : options.device_assignment) {
    if (!known.contains(id)) {
      throw Error(ErrorCode::kInvalidArgument, "compile: the device assignment names device " +
                                                   std::to_string(id) + ", which does not exist");
    }
    if (!seen.insert(id).second) {
      throw Error(ErrorCode::kInvalidArgument,
                  "compile: the device assignment names device " + std::to_string(id) + " twice");
    }
  }
}

}  // namespace torch_xla::pjrt
