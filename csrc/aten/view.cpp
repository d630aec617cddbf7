// Views. A view is only sizes, strides and an offset over a storage that others share, so torch's
// own functions make them; here they are put on the XLA key.

#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
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

}  // namespace

XLA_KERNELS(m) {
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", [](const at::Tensor& self, at::IntArrayRef size) {
    return at::native::view(self, size);
  });
  m.impl("view.dtype", at::native::view_dtype);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

}  // namespace torch_xla::aten
