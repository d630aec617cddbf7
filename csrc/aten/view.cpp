// Views. A view is only sizes, strides and an offset over a storage that others share, so torch's
// own functions make them; here they are put on the XLA key. The ones that every model calls are
// made directly when their arguments are valid, without torch's second dispatch to as_strided;
// bad arguments are left to torch and its errors.

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/expand_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/permute_native.h>
#include <ATen/ops/select_native.h>
#include <ATen/ops/slice_native.h>
#include <ATen/ops/split_native.h>
#include <ATen/ops/split_with_sizes_native.h>
#include <ATen/ops/t_native.h>
#include <ATen/ops/transpose_native.h>
#include <ATen/ops/unbind_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/unsqueeze_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "aten/kernel.h"

namespace torch_xla::aten {
namespace {

// Moving a module between devices keeps its Parameter objects when their data can be exchanged:
// every dense tensor is the same c10::TensorImpl here, whatever its device.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto dense_or_xla = [](const at::Tensor& tensor) {
    return tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_nested();
  };
  if (lazy::is_xla(self) || lazy::is_xla(from)) return dense_or_xla(self) && dense_or_xla(from);
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

// --- The hot ones ---

// A geometry to change into that of a view.
struct Layout {
  explicit Layout(const at::Tensor& self)
      : sizes(self.sizes()), strides(self.strides()), offset(self.storage_offset()) {}

  void erase(int64_t dim) {
    sizes.erase(sizes.begin() + dim);
    strides.erase(strides.begin() + dim);
  }
  at::Tensor of(const at::Tensor& self) const { return lazy::alias(self, sizes, strides, offset); }

  at::DimVector sizes, strides;
  int64_t offset;
};

// `dim` counted from the front, or -1 when it is not one of `rank`.
int64_t plain_dim(int64_t dim, int64_t rank) {
  if (dim < 0) dim += rank;
  return dim >= 0 && dim < rank ? dim : -1;
}

at::Tensor select(const at::Tensor& self, int64_t dim, int64_t index) {
  const int64_t axis = plain_dim(dim, self.dim());
  const int64_t size = axis < 0 ? 0 : self.size(axis);
  if (index < -size || index >= size) return at::native::select_symint(self, dim, index);
  Layout layout(self);
  layout.offset += (index < 0 ? index + size : index) * layout.strides[axis];
  layout.erase(axis);
  return layout.of(self);
}

at::Tensor slice(const at::Tensor& self, int64_t dim, std::optional<int64_t> start,
                 std::optional<int64_t> end, int64_t step) {
  const int64_t axis = plain_dim(dim, self.dim());
  if (axis < 0 || step <= 0) return at::native::slice(self, dim, start, end, step);
  const int64_t size = self.size(axis);
  const auto position = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size);
  };
  const int64_t first = position(start.value_or(0));
  const int64_t last = std::max(first, position(end.value_or(size)));
  Layout layout(self);
  layout.offset += first * layout.strides[axis];
  layout.sizes[axis] = (last - first + step - 1) / step;
  layout.strides[axis] *= step;
  return layout.of(self);
}

at::Tensor transpose(const at::Tensor& self, int64_t dim0, int64_t dim1) {
  const int64_t a = plain_dim(dim0, self.dim()), b = plain_dim(dim1, self.dim());
  if (a < 0 || b < 0) return at::native::transpose(self, dim0, dim1);
  Layout layout(self);
  std::swap(layout.sizes[a], layout.sizes[b]);
  std::swap(layout.strides[a], layout.strides[b]);
  return layout.of(self);
}

at::Tensor t(const at::Tensor& self) {
  return self.dim() == 2 ? torch_xla::aten::transpose(self, 0, 1) : at::native::t(self);
}

at::Tensor permute(const at::Tensor& self, at::IntArrayRef dims) {
  const int64_t rank = self.dim();
  if (static_cast<int64_t>(dims.size()) != rank) return at::native::permute(self, dims);
  Layout layout(self);
  uint64_t seen = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = plain_dim(dims[i], rank);
    if (dim < 0 || dim >= 64 || seen >> dim & 1) return at::native::permute(self, dims);
    seen |= uint64_t{1} << dim;
    layout.sizes[i] = self.size(dim);
    layout.strides[i] = self.stride(dim);
  }
  return layout.of(self);
}

at::Tensor unsqueeze(const at::Tensor& self, int64_t dim) {
  const int64_t axis = plain_dim(dim, self.dim() + 1);
  if (axis < 0) return at::native::unsqueeze(self, dim);
  Layout layout(self);
  const int64_t stride = axis < self.dim() ? layout.sizes[axis] * layout.strides[axis] : 1;
  layout.sizes.insert(layout.sizes.begin() + axis, 1);
  layout.strides.insert(layout.strides.begin() + axis, stride);
  return layout.of(self);
}

at::Tensor expand(const at::Tensor& self, at::IntArrayRef sizes, bool implicit) {
  if (static_cast<int64_t>(sizes.size()) < self.dim()) {
    return at::native::expand(self, sizes, implicit);
  }
  const auto geometry = at::inferExpandGeometry_dimvector(self.sizes(), self.strides(), sizes);
  return lazy::alias(self, geometry.sizes, geometry.strides, self.storage_offset());
}

// Pieces of the given sizes, one after another along axis.
template <class Sizes>
std::vector<at::Tensor> pieces(const at::Tensor& self, int64_t axis, const Sizes& sizes) {
  std::vector<at::Tensor> result;
  Layout layout(self);
  for (int64_t size : sizes) {
    layout.sizes[axis] = size;
    result.push_back(layout.of(self));
    layout.offset += size * layout.strides[axis];
  }
  return result;
}

std::vector<at::Tensor> split(const at::Tensor& self, int64_t split_size, int64_t dim) {
  const int64_t axis = plain_dim(dim, self.dim());
  if (axis < 0 || split_size <= 0 || self.size(axis) == 0) {
    return at::native::split(self, split_size, dim);
  }
  at::DimVector sizes;
  for (int64_t left = self.size(axis); left > 0; left -= split_size) {
    sizes.push_back(std::min(left, split_size));
  }
  return pieces(self, axis, sizes);
}

std::vector<at::Tensor> split_with_sizes(const at::Tensor& self, at::IntArrayRef sizes,
                                         int64_t dim) {
  const int64_t axis = plain_dim(dim, self.dim());
  int64_t total = 0;
  bool valid = axis >= 0;
  for (int64_t size : sizes) {
    valid = valid && size >= 0;
    total += size;
  }
  if (!valid || total != self.size(axis)) return at::native::split_with_sizes(self, sizes, dim);
  return pieces(self, axis, sizes);
}

std::vector<at::Tensor> unbind(const at::Tensor& self, int64_t dim) {
  const int64_t axis = plain_dim(dim, self.dim());
  if (axis < 0) return at::native::unbind(self, dim);
  std::vector<at::Tensor> result;
  Layout layout(self);
  const int64_t count = layout.sizes[axis], stride = layout.strides[axis];
  layout.erase(axis);
  for (int64_t i = 0; i < count; ++i, layout.offset += stride) result.push_back(layout.of(self));
  return result;
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("select.int", select);
  m.impl("slice.Tensor", slice);
  m.impl("transpose.int", transpose);
  m.impl("t", t);
  m.impl("permute", permute);
  m.impl("unsqueeze", unsqueeze);
  m.impl("expand", expand);
  m.impl("split.Tensor", split);
  m.impl("split_with_sizes", split_with_sizes);
  m.impl("unbind.int", unbind);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("as_strided_", at::native::as_strided__symint);
  m.impl("view",
         [](const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); });
  m.impl("view.dtype", at::native::view_dtype);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  m.impl("is_set_to", at::native::is_set_to);
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

}  // namespace torch_xla::aten
