// Options of one compilation, and their encoding.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pjrt/option.h"

namespace torch_xla::pjrt {

struct CompileOptions {
  int num_replicas = 1;
  int num_partitions = 1;
  bool use_spmd_partitioning = false;  // XLA refuses num_partitions > 1 without it
  bool use_shardy = false;             // read `sdy` attributes instead of `mhlo.sharding`
  bool parameter_is_tupled = false;
  // Compile for any one device, to be named at each execution. Needs one replica and partition.
  bool portable = false;
  // Ids of the devices, replica major: [replica * num_partitions + partition]. Empty: the plugin's
  // default.
  std::vector<int> device_assignment = {};
  // XLA flags for this compilation only, without the dashes: {"xla_cpu_enable_fast_min_max",
  // false}. An unknown name is an error of the plugin. A list of integers is not possible.
  std::map<std::string, Option> env_overrides = {};
};

// A serialized xla.CompileOptionsProto; equal options give equal bytes.
// Wire format: protobuf.dev/programming-guides/encoding; fields: OpenXLA's compile_options.proto
// and xla_data.proto. Throws Error on counts below one, a device assignment of another size, or an
// option value that has no field.
std::string encode(const CompileOptions& options);

// Throws Error unless the assignment fits: `device_ids` are all that exist. Plugins are known to
// abort the process instead of refusing.
void check_assignment(const CompileOptions& options, const std::vector<int>& device_ids);

}  // namespace torch_xla::pjrt
