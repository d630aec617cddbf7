#pragma once

#include <ATen/core/Tensor.h>

#include "ir/node.h"

namespace torch_xla::lazy {

class LazyStorage;

// Xla tensors are plain c10::TensorImpls over LazyStorages; these free functions are all there is
// to know about them.

inline bool is_xla(const at::TensorBase& tensor) { return tensor.defined() && tensor.is_xla(); }

// The lazy storage of an xla tensor. Throws c10::Error for any other tensor.
LazyStorage& storage_of(const at::TensorBase& tensor);

// The tensor's contents as a value of its dtype and sizes; conjugation and negation that the
// tensor only carries as a bit are applied.
ir::Value read(const at::TensorBase& tensor);

// Replaces the tensor's contents, in its storage and so in every tensor that shares it. `value`
// must have the tensor's dtype and sizes.
void write(const at::TensorBase& tensor, ir::Value value);

// Throws c10::OutOfMemoryError for a number of bytes that all devices together do not have. Smaller
// requests are made when a program runs, and may fail then.
void check_fits(size_t bytes, c10::Device device);

// A new tensor with uninitialised contents. Strides as given (they may overlap or leave gaps);
// without them, row-major.
at::Tensor allocate(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device);
at::Tensor allocate_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                            c10::Device device);

// A new tensor holding `value`, row-major or dense with the given strides.
at::Tensor make(ir::Value value, c10::Device device);
at::Tensor make(ir::Value value, at::ScalarType dtype, c10::Device device);
at::Tensor make_strided(ir::Value value, at::IntArrayRef strides, c10::Device device);

// A tensor of another geometry on the same storage (torch's as_strided without its checks).
at::Tensor alias(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                 int64_t offset, std::optional<at::ScalarType> dtype = {});

// Gives a storage of raw bytes (a loaded file's) the tensor's dtype, and its sizes where it fills
// the storage, so that no program has to reinterpret bytes.
void adopt_bytes(const at::TensorBase& tensor);

// True when no two elements share memory and none is left out.
bool is_dense(at::IntArrayRef sizes, at::IntArrayRef strides);

}  // namespace torch_xla::lazy
