#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ir/node.h"
#include "lazy/array.h"

namespace torch_xla::lazy {

// Copies a CPU tensor to the device: its elements, in any strides. The copy is made before this
// returns, so the tensor may change right after.
ir::Value upload(const at::Tensor& cpu, c10::Device device);

// A new array with `number` in every element, cut by `sharding` in SPMD mode. Its memory may be the
// host's own, donated or not.
Array upload_full(const c10::Scalar& number, ir::ShapeRef shape, const sharding::Sharding* sharding,
                  c10::Device device);

// Computes what is pending and copies a value into a new, row-major CPU tensor. Blocks until it is
// there. Throws the error of the program that makes it.
at::Tensor download(ir::Value value, c10::Device device);
// The same for an xla tensor. A whole storage seen as bytes (what torch.save reads) comes without a
// program that reinterprets it.
at::Tensor download(const at::Tensor& tensor);
// The same for xla tensors, all of one sync; strides are kept where they are dense.
std::vector<at::Tensor> download(at::TensorList tensors);

}  // namespace torch_xla::lazy
