#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "sharding/sharding.h"

namespace torch_xla::lazy {

// Parts of a program that are written for one device (ir/manual.h), in SPMD mode. A tensor inside
// has the shape of one device's piece, and another value on each device; read on the host it is the
// first device's. On one device all of this leaves tensors as they are.

// Whether any such part was ever written. Checks of values would have to know where it ends.
bool has_manual_parts();

// A new tensor: the piece of `whole` that each device has by `sharding`. Contents that are on the
// host go to the devices now, each piece to its own. Throws c10::ValueError as mark_sharding(), and
// for a dimension that the tiles do not divide.
at::Tensor enter_manual(const at::Tensor& whole, const sharding::Sharding* sharding);
// A new tensor of `sizes`, of which `piece` is what each device has. Throws c10::ValueError where
// the sizes are not those.
at::Tensor leave_manual(const at::Tensor& piece, const std::vector<int64_t>& sizes,
                        const sharding::Sharding* sharding);
// In place: from here on each device may have another value. All begin with the whole.
void mark_manual(const at::Tensor& tensor);

// Collectives inside. `reduce_type` is "sum", "mul", "min" or "max"; `groups` are partitions that
// do it among themselves, all of one size and all partitions in one of them: by default one of all.
// Throws c10::ValueError.
using DeviceGroups = std::vector<std::vector<int64_t>>;
at::Tensor reduce_manual(const std::string& reduce_type, const at::Tensor& piece,
                         DeviceGroups groups);
// Each device gets an equal share along `dim`, in the order of its group of `shard_count`.
at::Tensor reduce_scatter_manual(const std::string& reduce_type, const at::Tensor& piece,
                                 int64_t dim, int64_t shard_count, DeviceGroups groups);
// The pieces of a group one behind the other along `dim`.
at::Tensor gather_manual(const at::Tensor& piece, int64_t dim, DeviceGroups groups);

}  // namespace torch_xla::lazy
