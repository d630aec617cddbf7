// Where a partitioned program makes arrays whole on each device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torch_xla::sharding {

struct Replication {
  std::string operation;  // what called for it, as the program's metadata name it
  int64_t bytes = 0;      // on each device
};

// The all-gathers of a compiled program whose result is whole on each device, is not small, and was
// not asked for: what a program computed in parts and then has whole, and any array that is
// gathered for an operation which XLA cannot cut (sort, FFT, calls of other code). Weights that are
// gathered for a layer are none: that is how fully sharded data parallelism works. One entry an
// operation, the largest first.
//
// `program` is a serialized HloModuleProtoWithConfig (OpenXLA, hlo.proto). Throws
// std::invalid_argument for other bytes.
std::vector<Replication> replications(std::string_view program, int64_t num_partitions,
                                      int64_t least_bytes);

}  // namespace torch_xla::sharding
