// Sparse tensors on xla. What they consist of, indices and values, are xla tensors like any other;
// what is computed from them is computed on the host, counted and warned of as every such trip.

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/WrapDimUtils.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/_validate_sparse_compressed_tensor_args_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/ccol_indices_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/fill_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/resize_as_sparse_native.h>
#include <ATen/ops/row_indices_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/zero_native.h>
#include <ATen/ops/zeros.h>

#include "aten/fallback.h"
#include "aten/kernel.h"

namespace torch_xla::aten {
namespace {

// --- Compressed layouts (CSR, CSC, BSR, BSC) ---

// torch's own class, whose constructor takes a few devices only and xla is not one of them: made
// for the meta device and moved.
class XlaCompressed final : public at::SparseCsrTensorImpl {
 public:
  XlaCompressed(c10::Device device, c10::Layout layout, caffe2::TypeMeta dtype)
      : SparseCsrTensorImpl(c10::DispatchKeySet(c10::DispatchKey::SparseCsrMeta),
                            c10::Device(c10::kMeta), layout, dtype) {
    key_set_ = key_set_.remove_backend(c10::BackendComponent::MetaBit) |
               c10::DispatchKeySet(c10::BackendComponent::XLABit);
    device_opt_ = device;
  }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion& version_counter,
      bool allow_tensor_metadata_change) const override {
    return copy(version_counter, allow_tensor_metadata_change);
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(
      c10::VariableVersion&& version_counter, bool allow_tensor_metadata_change) const override {
    return copy(version_counter, allow_tensor_metadata_change);
  }

 private:
  c10::intrusive_ptr<TensorImpl> copy(const c10::VariableVersion& version_counter,
                                      bool allow_tensor_metadata_change) const {
    auto impl = c10::make_intrusive<XlaCompressed>(device(), layout_impl(), dtype());
    TensorImpl::copy_tensor_metadata(this, impl.get(), version_counter,
                                     allow_tensor_metadata_change);
    impl->crow_indices_ = crow_indices_;
    impl->col_indices_ = col_indices_;
    impl->values_ = values_;
    impl->refresh_numel();
    return impl;
  }
};

at::Tensor compressed(const at::Tensor& compressed_indices, const at::Tensor& plain_indices,
                      const at::Tensor& values, c10::SymIntArrayRef size,
                      std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                      std::optional<c10::Device>, std::optional<bool>) {
  TORCH_CHECK(layout, "sparse_compressed_tensor_unsafe expected sparse compressed tensor layout ",
              "but got none");
  at::Tensor result = at::detail::make_tensor<XlaCompressed>(
      values.device(), *layout, c10::scalarTypeToTypeMeta(dtype.value_or(values.scalar_type())));
  static_cast<XlaCompressed*>(result.unsafeGetTensorImpl())
      ->set_member_tensors(compressed_indices, plain_indices, values, size);
  return result;
}

// --- On the host ---

// The value with all its tensors mapped; devices are the host's.
template <class Function>
c10::IValue mapped(const c10::IValue& value, const Function& function) {
  if (value.isTensor()) return function(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::kCPU);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& item : value.toTensorVector()) list.push_back(function(item));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& item : value.toOptionalTensorVector()) {
      list.push_back(item ? std::optional(function(*item)) : std::nullopt);
    }
    return list;
  }
  return value;
}

void copy_back(const at::Tensor& host, at::Tensor target) {
  if (target.is_sparse()) {
    at::native::copy_sparse_(target, host);
  } else {
    target.copy_(host);
  }
}

// torch's own fallback knows dense tensors only.
void run_sparse_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  note_host_trip(op);
  const auto& parameters = op.schema().arguments();
  const auto arguments = torch::jit::last(*stack, parameters.size());
  std::optional<c10::Device> device;
  struct Written {
    at::Tensor host, original;
  };
  std::vector<Written> written;
  torch::jit::Stack inner;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_written = parameters[i].alias_info() && parameters[i].alias_info()->isWrite();
    inner.push_back(mapped(arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.is_xla()) return tensor;
      device = tensor.device();
      const at::Tensor host = tensor.cpu();
      // Kernels that keep something for the backward pass only (sparse.mm's reductions) ask.
      if (tensor.requires_grad()) host.set_requires_grad(true);
      if (is_written) written.push_back({host, tensor});
      return host;
    }));
  }
  op.callBoxed(&inner);
  for (const Written& pair : written) copy_back(pair.host, pair.original);
  torch::jit::drop(*stack, arguments.size());
  for (const c10::IValue& result : inner) {
    stack->push_back(mapped(result, [&](const at::Tensor& tensor) {
      for (const Written& pair : written) {
        if (tensor.is_same(pair.host)) return pair.original;
      }
      return tensor.defined() && device ? tensor.to(*device) : tensor;
    }));
  }
}

// Every operator for which torch has a kernel on `host_key` and `library`'s key has none.
void take_host_kernels(torch::Library& library, c10::DispatchKey key, c10::DispatchKey host_key) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op || !op->hasKernelForDispatchKey(host_key) || op->hasKernelForDispatchKey(key)) continue;
    const std::string text = c10::toString(name);
    library.impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_sparse_on_host>());
  }
}

// --- Copies: torch's refuse compressed layouts on xla ---

at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                   std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                   std::optional<bool> pin_memory, bool non_blocking,
                   std::optional<c10::MemoryFormat> memory_format) {
  const c10::Device to = device.value_or(self.device());
  if (!self.is_xla() && !to.is_xla()) {
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking,
                                memory_format);
  }
  const auto [compressed_indices, plain_indices] = at::sparse_csr::getCompressedPlainIndices(self);
  const at::Tensor values = self.values().to(
      self.values().options().device(to).dtype(dtype.value_or(self.scalar_type())), non_blocking,
      /*copy=*/true);
  const at::Tensor parts[] = {
      compressed_indices.to(to, compressed_indices.scalar_type(), non_blocking, true),
      plain_indices.to(to, plain_indices.scalar_type(), non_blocking, true)};
  if (to.is_xla()) {
    return compressed(parts[0], parts[1], values, self.sym_sizes(), values.scalar_type(),
                      self.layout(), to, {});
  }
  return at::_sparse_compressed_tensor_unsafe(parts[0], parts[1], values, self.sizes(),
                                              values.options().layout(self.layout()));
}

at::Tensor checked_compressed(const at::Tensor& compressed_indices, const at::Tensor& plain_indices,
                              const at::Tensor& values, c10::SymIntArrayRef size,
                              std::optional<at::ScalarType> dtype,
                              std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                              std::optional<bool> pin_memory) {
  TORCH_CHECK(layout, "sparse_compressed_tensor: expected a sparse compressed layout, got none");
  at::native::_validate_sparse_compressed_tensor_args(compressed_indices.cpu(), plain_indices.cpu(),
                                                      values.cpu(), C10_AS_INTARRAYREF_SLOW(size),
                                                      *layout);
  return compressed(compressed_indices, plain_indices, values, size, dtype, layout, device,
                    pin_memory);
}

// The same by the name of one layout.
template <c10::Layout kLayout>
at::Tensor of_layout(const at::Tensor& compressed_indices, const at::Tensor& plain_indices,
                     const at::Tensor& values, at::IntArrayRef size,
                     std::optional<at::ScalarType> dtype, std::optional<c10::Layout>,
                     std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return compressed(compressed_indices, plain_indices, values, c10::fromIntArrayRefSlow(size),
                    dtype, kLayout, device, pin_memory);
}
template <c10::Layout kLayout>
at::Tensor checked_of_layout(const at::Tensor& compressed_indices, const at::Tensor& plain_indices,
                             const at::Tensor& values, at::IntArrayRef size,
                             std::optional<at::ScalarType> dtype, std::optional<c10::Layout>,
                             std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return checked_compressed(compressed_indices, plain_indices, values,
                            c10::fromIntArrayRefSlow(size), dtype, kLayout, device, pin_memory);
}

at::Tensor clone(const at::Tensor& self, std::optional<c10::MemoryFormat>) {
  return to_copy(self, {}, {}, {}, {}, false, {});
}

// torch's own makes a tensor of its class, whose constructor does not take xla.
at::Tensor zeros_like(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                      std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                      std::optional<bool> pinned, std::optional<c10::MemoryFormat> format) {
  const bool stays = layout.value_or(self.layout()) == self.layout() &&
                     device.value_or(self.device()) == self.device();
  if (stays) return at::empty_like(self, dtype, layout, device, pinned, format).zero_();
  return at::zeros(self.sizes(), dtype.value_or(self.scalar_type()), layout.value_or(self.layout()),
                   device.value_or(self.device()), pinned);
}

c10::Layout flipped(c10::Layout layout) {
  switch (layout) {
    case c10::kSparseCsr:
      return c10::kSparseCsc;
    case c10::kSparseCsc:
      return c10::kSparseCsr;
    case c10::kSparseBsr:
      return c10::kSparseBsc;
    default:
      return c10::kSparseBsr;
  }
}

// The parts of a matrix are those of its transpose, in the other layout; blocks turn too. torch's
// own makes a tensor of its class again. What has more dimensions goes through the host.
at::Tensor transpose(const at::Tensor& self, int64_t dim0, int64_t dim1) {
  const int64_t first = at::maybe_wrap_dim(dim0, self.dim());
  const int64_t second = at::maybe_wrap_dim(dim1, self.dim());
  if (first == second) return at::alias(self);
  if (self.dim() > 2) return self.cpu().transpose(first, second).to(self.device());
  const auto [compressed_indices, plain_indices] = at::sparse_csr::getCompressedPlainIndices(self);
  const bool blocks = self.layout() == c10::kSparseBsr || self.layout() == c10::kSparseBsc;
  const at::Tensor values = blocks ? self.values().transpose(-2, -1) : self.values();
  const std::array<c10::SymInt, 2> sizes{self.sym_size(1), self.sym_size(0)};
  return compressed(compressed_indices, plain_indices, values, sizes, self.scalar_type(),
                    flipped(self.layout()), self.device(), {});
}

// torch picks the key by the device and layout that are asked for, or by those of the parts.
void register_constructors(torch::Library& m) {
  m.impl("sparse_compressed_tensor.comp_plain_value_size", checked_compressed);
  m.impl("sparse_csr_tensor.crow_col_value_size", checked_of_layout<c10::kSparseCsr>);
  m.impl("sparse_csc_tensor.ccol_row_value_size", checked_of_layout<c10::kSparseCsc>);
  m.impl("sparse_bsr_tensor.crow_col_value_size", checked_of_layout<c10::kSparseBsr>);
  m.impl("sparse_bsc_tensor.ccol_row_value_size", checked_of_layout<c10::kSparseBsc>);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparseXLA, m) {
  m.impl("_sparse_coo_tensor_with_dims", at::native::new_with_dims_sparse);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         at::native::new_with_dims_and_tensor_sparse_symint);
  m.impl("empty.memory_format", at::native::empty_sparse);
  m.impl("_indices", at::native::_indices_sparse);
  m.impl("_values", at::native::_values_sparse);
  m.impl("indices", at::native::indices_sparse);
  m.impl("values", at::native::values_sparse);
  m.impl("_nnz", at::native::_nnz_sparse);
  m.impl("sparse_dim", at::native::sparse_dim_sparse);
  m.impl("dense_dim", at::native::dense_dim_sparse);
  m.impl("is_coalesced", at::native::is_coalesced_sparse);
  m.impl("_coalesced_", at::native::_coalesced_sparse_);
  m.impl("clone", at::native::clone_sparse);
  m.impl("copy_sparse_to_sparse_", at::native::copy_sparse_);
  m.impl("sparse_resize_", at::native::sparse_resize_);
  m.impl("sparse_resize_and_clear_", at::native::sparse_resize_and_clear_);
  m.impl("resize_as_sparse_", at::native::resize_as_sparse_);
  take_host_kernels(m, c10::DispatchKey::SparseXLA, c10::DispatchKey::SparseCPU);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrXLA, m) {
  m.impl("crow_indices", at::native::crow_indices_sparse_csr);
  m.impl("col_indices", at::native::col_indices_sparse_csr);
  m.impl("ccol_indices", at::native::ccol_indices_sparse_csr);
  m.impl("row_indices", at::native::row_indices_sparse_csr);
  m.impl("values", at::native::values_sparse_csr);
  m.impl("_nnz", at::native::_nnz_sparse_csr);
  m.impl("sparse_dim", at::native::sparse_dim_sparse_csr);
  m.impl("dense_dim", at::native::dense_dim_sparse_csr);
  m.impl("clone", clone);
  m.impl("_to_copy", to_copy);
  // What the host computed in place is copied back by these.
  m.impl("copy_", at::native::copy_sparse_compressed_);
  m.impl("fill_.Scalar", at::native::fill_sparse_csr_);
  m.impl("zero_", at::native::zero_sparse_csr_);
  m.impl("zeros_like", torch_xla::aten::zeros_like);
  m.impl("transpose.int", torch_xla::aten::transpose);
  // On CPU made of forms for which its key has kernels.
  for (const char* composed : {"mv", "addmv", "addmv_"}) {
    m.impl(composed, torch::CppFunction::makeFromBoxedFunction<&run_sparse_on_host>());
  }
  register_constructors(m);
  take_host_kernels(m, c10::DispatchKey::SparseCsrXLA, c10::DispatchKey::SparseCsrCPU);
}
TORCH_LIBRARY_IMPL(aten, SparseCsrCPU, m) { m.impl("_to_copy", to_copy); }

XLA_KERNELS(m) {
  register_constructors(m);
  m.impl("_sparse_compressed_tensor_unsafe", compressed);
  m.impl("_sparse_csr_tensor_unsafe", of_layout<c10::kSparseCsr>);
  m.impl("_sparse_csc_tensor_unsafe", of_layout<c10::kSparseCsc>);
  m.impl("_sparse_bsr_tensor_unsafe", of_layout<c10::kSparseBsr>);
  m.impl("_sparse_bsc_tensor_unsafe", of_layout<c10::kSparseBsc>);
}

}  // namespace torch_xla::aten
