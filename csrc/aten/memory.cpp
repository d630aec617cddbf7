// Memory of tensors: allocation, copies between and within devices, fills, resizing, storages.

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_to_copy.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/new_empty_strided_native.h>
#include <ATen/ops/set_native.h>

#include "aten/kernel.h"
#include "aten/masked.h"
#include "lazy/mark_sharding.h"
#include "lazy/runtime.h"
#include "lazy/storage.h"
#include "lazy/transfer.h"

namespace torch_xla::aten {
namespace {

using c10::Device;
using c10::Layout;
using c10::MemoryFormat;

void check_layout(std::optional<Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(!layout || *layout == Layout::Strided,
              "the xla device has only strided tensors, got ", *layout);
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned");
}

Device target(std::optional<Device> device) {
  return lazy::normalize(device.value_or(Device(c10::kXLA)));
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<Layout> layout, std::optional<Device> device,
                 std::optional<bool> pin_memory, std::optional<MemoryFormat> memory_format) {
  check_layout(layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  const MemoryFormat format = memory_format.value_or(MemoryFormat::Contiguous);
  if (format == MemoryFormat::Contiguous) return lazy::allocate(sizes, type, target(device));
  TORCH_CHECK(format != MemoryFormat::Preserve,
              "memory format option is only supported by strided tensors with Contiguous, "
              "ChannelsLast or ChannelsLast3d; got Preserve");
  at::Tensor tensor = lazy::allocate(sizes, type, target(device));
  tensor.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return tensor;
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<Layout> layout,
                         std::optional<Device> device, std::optional<bool> pin_memory) {
  check_layout(layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  TORCH_CHECK(sizes.size() == strides.size(), "dimensionality of sizes (", sizes.size(),
              ") must match dimensionality of strides (", strides.size(), ")");
  return lazy::allocate_strided(sizes, strides, c10::dtype_or_default(dtype), target(device));
}

// --- Copies ---

void check_writable(const at::Tensor& self, at::IntArrayRef from) {
  const std::vector<int64_t> shape = at::infer_size(self.sizes(), from);
  TORCH_CHECK(self.sizes() == at::IntArrayRef(shape), "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", at::IntArrayRef(shape));
  at::assert_no_internal_overlap(self);
}

// `source` as a value of `dtype` on `device`.
Value move_to(const at::Tensor& source, at::ScalarType dtype, Device device) {
  if (!lazy::is_xla(source)) {
    return lazy::upload(source.scalar_type() == dtype ? source : source.to(dtype), device);
  }
  if (source.device() != device) {
    return lazy::upload(lazy::download(source).to(dtype), device);
  }
  return value_of(source, dtype);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool) {
  TORCH_CHECK(self.defined(), "self is undefined");
  TORCH_CHECK(source.defined(), "src is undefined");
  if (self.is_same(source)) return self;
  if (!lazy::is_xla(self)) {
    self.copy_(lazy::download(source));
    return self;
  }
  check_writable(self, source.sizes());
  if (source.is_alias_of(self)) at::assert_no_partial_overlap(self, source);
  lazy::write(self, broadcast_to(move_to(source, self.scalar_type(), self.device()), self.sizes()));
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  at::Tensor out = destination;
  return copy_(out, self, non_blocking);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<MemoryFormat> memory_format);

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  if (self.sizes() != destination.sizes()) {
    if (lazy::is_xla(destination)) {
      resize_(destination, self.sizes(), {});
    } else {
      destination.resize_(self.sizes());
    }
  }
  return copy_from(self, destination, false);
}

// torch takes xla for a device without strides, and would make what is not dense row-major.
at::Tensor empty_like(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                      std::optional<Layout> layout, std::optional<Device> device,
                      std::optional<bool> pin_memory, std::optional<MemoryFormat> memory_format) {
  const Device to = device.value_or(self.device());
  if (to.is_xla() && memory_format.value_or(MemoryFormat::Preserve) == MemoryFormat::Preserve &&
      !self.is_non_overlapping_and_dense()) {
    check_layout(layout, pin_memory);
    return lazy::allocate_strided(self.sizes(),
                                  at::infer_dense_strides(self.sizes(), self.strides()),
                                  dtype.value_or(self.scalar_type()), target(to));
  }
  at::Tensor result =
      at::native::empty_like(self, dtype, layout, device, pin_memory, memory_format);
  lazy::inherit_sharding(result, self);
  return result;
}

// A tensor's contents never change, so a clone in the same layout is the same value.
at::Tensor clone(const at::Tensor& self, std::optional<MemoryFormat> memory_format) {
  const MemoryFormat format = memory_format.value_or(MemoryFormat::Preserve);
  if (self.is_contiguous() &&
      (format == MemoryFormat::Preserve || format == MemoryFormat::Contiguous)) {
    at::Tensor copy = lazy::make(lazy::read(self), self.scalar_type(), self.device());
    lazy::inherit_sharding(copy, self);
    return copy;
  }
  at::Tensor copy = at::empty_like(self, self.options(), format);
  lazy::write(copy, lazy::read(self));
  return copy;
}

// Tensor.to and its relatives: dtype, device and memory format at once.
at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                   std::optional<Layout> layout, std::optional<Device> device,
                   std::optional<bool> pin_memory, bool non_blocking,
                   std::optional<MemoryFormat> memory_format) {
  const Device to = device.value_or(self.device());
  const at::ScalarType type = dtype.value_or(self.scalar_type());
  const MemoryFormat format = memory_format.value_or(MemoryFormat::Preserve);
  check_layout(layout, to.is_cpu() ? std::nullopt : pin_memory);
  if (to.is_xla() && lazy::is_xla(self) && self.is_contiguous() &&
      self.device() == lazy::normalize(to) &&
      (format == MemoryFormat::Preserve || format == MemoryFormat::Contiguous)) {
    at::Tensor result =
        lazy::make(convert(lazy::read(self), lazy::element_type(type)), type, self.device());
    lazy::inherit_sharding(result, self);
    return result;
  }
  at::Tensor result =
      at::empty_like(self, self.options().dtype(type).device(to).pinned_memory(pin_memory), format);
  result.copy_(self, non_blocking);
  return result;
}

at::Tensor to_cpu_tensor(const at::Tensor& self) {
  return lazy::is_xla(self) ? lazy::download(at::TensorList(self)).front() : self;
}

std::vector<at::Tensor> to_cpu(at::TensorList tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(tensor.defined() ? to_cpu_tensor(tensor) : tensor);
  }
  return result;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  return at::_local_scalar_dense(lazy::download(self));
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  return at::equal(to_cpu_tensor(self), to_cpu_tensor(other));
}

// --- Fills ---

at::Tensor& fill_(at::Tensor& self, const at::Scalar& value) {
  check_filling(value, self.scalar_type(), self.numel());
  lazy::write(self, lazy::full(value, element_type(self), span_of(self.sizes())));
  return self;
}

at::Tensor& fill_tensor_(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  at::assert_no_internal_overlap(self);
  lazy::write(self, broadcast_to(value_of(value, self.scalar_type()), self.sizes()));
  return self;
}

at::Tensor& zero_(at::Tensor& self) { return torch_xla::aten::fill_(self, at::Scalar(0)); }

at::Tensor full(at::IntArrayRef sizes, const at::Scalar& value, std::optional<at::ScalarType> dtype,
                std::optional<Layout> layout, std::optional<Device> device,
                std::optional<bool> pin_memory) {
  check_layout(layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  const at::ScalarType inferred = value.isBoolean()         ? at::kBool
                                  : value.isIntegral(false) ? at::kLong
                                  : value.isComplex()
                                      ? c10::toComplexType(c10::get_default_dtype_as_scalartype())
                                      : c10::get_default_dtype_as_scalartype();
  const at::ScalarType type = dtype.value_or(inferred);
  check_filling(value, type, c10::multiply_integers(sizes));
  return lazy::make(lazy::full(value, lazy::element_type(type), span_of(sizes)), type,
                    target(device));
}

at::Tensor zeros(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<Layout> layout, std::optional<Device> device,
                 std::optional<bool> pin_memory) {
  return full(sizes, 0, c10::dtype_or_default(dtype), layout, device, pin_memory);
}

at::Tensor ones(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                std::optional<Layout> layout, std::optional<Device> device,
                std::optional<bool> pin_memory) {
  return full(sizes, 1, c10::dtype_or_default(dtype), layout, device, pin_memory);
}

// --- Sizes and storages ---

void grow_storage(const c10::Storage& storage, size_t bytes) {
  if (bytes <= storage.nbytes()) return;
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  lazy::check_fits(bytes, storage.device());
  lazy::LazyStorage::of(storage);  // its contents, before the number of bytes says otherwise
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

void resize_to(const at::Tensor& self, at::IntArrayRef sizes, at::OptionalIntArrayRef strides) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (self.sizes() == sizes && (!strides || self.strides() == *strides)) return;
  // The base of what is there already must not change with the new geometry.
  lazy::LazyStorage& storage = lazy::storage_of(self);
  if (!storage.has_value() && self.numel() > 0) lazy::read(self);
  const size_t element_size = self.dtype().itemsize();
  const auto offset = static_cast<size_t>(self.storage_offset());
  // First what may be refused, so that a refusal changes nothing.
  grow_storage(self.storage(),
               strides ? at::detail::computeStorageNbytes(sizes, *strides, element_size, offset)
                       : at::detail::computeStorageNbytesContiguous(sizes, element_size, offset));
  if (strides) {
    impl->set_sizes_and_strides(sizes, *strides, self.storage_offset());
  } else {
    impl->set_sizes_contiguous(sizes);
  }
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(sizes);
  resize_to(self, sizes, {});
  if (memory_format) {
    TORCH_CHECK(*memory_format != MemoryFormat::Preserve, "Unsupported memory format",
                *memory_format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  return self;
}

at::Tensor& set_storage_(at::Tensor& self, at::Storage source, int64_t offset,
                         at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::native::checkSetStorage(self, source, offset, sizes, strides);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  resize_to(self, sizes,
            strides.data() ? at::OptionalIntArrayRef(strides) : at::OptionalIntArrayRef());
  lazy::adopt_bytes(self);
  return self;
}

at::Tensor& set_empty_(at::Tensor& self) {
  const at::Tensor fresh = lazy::allocate({0}, self.scalar_type(), self.device());
  return set_storage_(self, fresh.storage(), 0, {0}, {});
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("new_empty_strided", at::native::new_empty_strided_symint);
  m.impl("copy_", copy_);
  m.impl("copy", at::native::copy);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("clone", clone);
  m.impl("lift_fresh_copy",
         [](const at::Tensor& self) { return torch_xla::aten::clone(self, std::nullopt); });
  m.impl("empty_like", torch_xla::aten::empty_like);
  m.impl("_to_copy", to_copy);
  m.impl("_to_cpu", to_cpu);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("equal", equal);
  m.impl("fill_.Scalar", fill_);
  m.impl("fill_.Tensor", fill_tensor_);
  m.impl("zero_", zero_);
  m.impl("full", full);
  m.impl("zeros", zeros);
  m.impl("ones", ones);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_storage_);
  m.impl("set_.source_Storage", [](at::Tensor& self, at::Storage source) -> at::Tensor& {
    return at::native::set_(self, source);
  });
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_", set_empty_);
}

}  // namespace torch_xla::aten
