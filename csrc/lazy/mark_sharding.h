#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ir/node.h"
#include "lazy/runtime.h"
#include "lazy/storage.h"
#include "sharding/sharding.h"

namespace torch_xla::lazy {

// From here on the tensor's contents lie as told, whatever is written to it; its storage, rather,
// and so all tensors that share it. Contents that are on the host go to the devices now, each part
// to its own; others are moved by the next program. A part of a storage is cut this once only.
//
// Throws c10::ValueError for a sharding of another rank or number of devices, and for a dimension
// with fewer elements than tiles; c10::Error outside SPMD mode, and for a tensor that was told
// otherwise before, unless it may be told `again`.
void mark_sharding(const at::Tensor& tensor, const sharding::Sharding* sharding,
                   bool again = false);

// Ends what mark_sharding() began. The contents lie whole on each device from the next program on.
void clear_sharding(const at::Tensor& tensor);

// The checks of mark_sharding() that `sharding` fits the tensor, for a caller of another name.
void check_sharding(const char* caller, const at::Tensor& tensor,
                    const sharding::Sharding& sharding);

// How the tensor lies, or will: what it was told, else how XLA cut it. Null where that is not
// known, and for tensors that are no whole storage.
const sharding::Sharding* sharding_of(const at::Tensor& tensor);

// A new tensor of the same contents, cut as told at this place of the graph.
at::Tensor constrained(const at::Tensor& tensor, const sharding::Sharding* sharding);

// A new tensor made of what each device holds, in the order of the devices. Parts that several
// devices hold must be equal; the first counts. `sizes`: of the whole. Throws c10::ValueError for
// parts of other sizes or dtypes than the sharding gives them.
at::Tensor from_shards(const std::vector<at::Tensor>& shards, at::IntArrayRef sizes,
                       const sharding::Sharding* sharding);

// Contents that are about to become those of a storage, brought to where its contents lie. Results
// of a program that has not run are as they are: it makes them there.
ir::Value fitting_in_spmd(ir::Value value, LazyStorage& storage);
inline ir::Value fitting(ir::Value value, LazyStorage& storage) {
  if (is_partitioned()) [[unlikely]]
    return fitting_in_spmd(std::move(value), storage);
  return value;
}

// `like` lies as `tensor` does, where it is a new one of the same sizes: what optimizers make of
// parameters.
void inherit_sharding_in_spmd(const at::Tensor& like, const at::Tensor& tensor);
inline void inherit_sharding(const at::Tensor& like, const at::Tensor& tensor) {
  if (is_partitioned()) [[unlikely]]
    inherit_sharding_in_spmd(like, tensor);
}

}  // namespace torch_xla::lazy
