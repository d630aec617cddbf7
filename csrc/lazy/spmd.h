#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "lazy/array.h"
#include "lazy/data.h"
#include "lazy/runtime.h"
#include "sharding/sharding.h"

namespace torch_xla::lazy {

// In SPMD mode (runtime.h) a tensor looks as ever, and lies cut over all devices or whole on each.
//
// From here on every array has a shard on each device, in the order of the client's addressable
// devices. A program numbers them in its own order (ir::MeshNames); a launch gives it each shard's.

// Turns it on for the rest of the process. What xla:0 holds is copied to all devices. Throws
// c10::Error when another device holds tensors.
void use_spmd();
// The whole on each device. Requires SPMD mode.
const sharding::Sharding* replicated(size_t rank);

// A view of what is in `ranges`, one for each dimension.
at::Tensor part_of(const at::Tensor& tensor, const std::vector<sharding::Range>& ranges);

// Brings a dense, row-major CPU tensor to the device, or in SPMD mode each part of it to the
// devices that hold it. Later writes to the tensor must not matter to its owner: a CPU device may
// use its memory as it is.
Array place(const at::Tensor& dense, const sharding::Sharding* sharding, c10::Device device);
// The whole array as a row-major CPU tensor. Blocks. Throws pjrt::Error.
void fetch(const Array& array, const at::Tensor& into);
// What these devices hold, without padding. Blocks. Throws pjrt::Error.
std::vector<at::Tensor> fetch_shards(const Array& array, const std::vector<size_t>& devices,
                                     at::IntArrayRef sizes, at::ScalarType dtype);

}  // namespace torch_xla::lazy
