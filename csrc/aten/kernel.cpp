#include "aten/kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>

#include <cmath>

#include "lazy/trimmed.h"

namespace torch_xla::aten {
namespace {

// Floats as signed integers of 32 or 64 bits: the least one for what is out of range and for NaN,
// as x86 has it (CVTTSS2SI, Intel's manual, volume 2A). XLA saturates, and takes NaN for 0.
XlaValue to_signed(Builder& b, XlaValue x, ElementType to) {
  const double limit = std::ldexp(1.0, stablehlo::bit_width(to) - 1);
  return b.select(b.lt(x, b.full_like(x, limit)), b.convert(x, to),
                  b.broadcast_to(b.min_value(to), x.dims()));
}

// The upper half of unsigned integers of 32 or 64 bits is made of what exceeds the lower.
XlaValue to_unsigned(Builder& b, XlaValue x, ElementType to, ElementType as_signed) {
  const XlaValue limit = b.full_like(x, std::ldexp(1.0, stablehlo::bit_width(to) - 1));
  const XlaValue least = b.broadcast_to(b.min_value(as_signed), x.dims());
  const XlaValue upper = b.xor_(to_signed(b, b.subtract(x, limit), as_signed), least);
  const XlaValue lower = to_signed(b, x, as_signed);
  return b.bitcast_convert(b.select(b.ge(x, limit), upper, lower), to);
}

// Floats as whole numbers, out of range too, as CPU makes them of vectors: narrow ones are the low
// bits of 32.
XlaValue truncated(Builder& b, XlaValue x, ElementType to) {
  if (x.element_type() != ElementType::kF64) x = b.convert(x, ElementType::kF32);
  switch (to) {
    case ElementType::kS32:
    case ElementType::kS64:
      return to_signed(b, x, to);
    case ElementType::kU32:
      return to_unsigned(b, x, to, ElementType::kS32);
    case ElementType::kU64:
      return to_unsigned(b, x, to, ElementType::kS64);
    default:
      return b.convert(to_signed(b, x, ElementType::kS32), to);
  }
}

const Op kConvert{"xla::cast", [](Lowering& l, const Node& n) -> Results {
                    XlaValue x = l.operand(0);
                    const ElementType to = n.output().type;
                    if (stablehlo::is_complex(x.element_type())) {
                      if (to == ElementType::kPred) return l->ne(x, l->zeros_like(x));
                      if (stablehlo::is_integer(to)) x = l->real(x);
                    }
                    if (stablehlo::is_float(x.element_type()) && stablehlo::is_integer(to)) {
                      return truncated(l.builder(), x, to);
                    }
                    return l->convert(x, to);
                  }};
const Op kBroadcast{"aten::expand", [](Lowering& l, const Node& n) -> Results {
                      return l->broadcast_to(l.operand(0), Dims(n.output().dims));
                    }};
const Op kReshape{"aten::view", [](Lowering& l, const Node& n) -> Results {
                    return l->reshape(l.operand(0), Dims(n.output().dims));
                  }};

}  // namespace

at::Scalar number_in(const at::Tensor& tensor) {
  // What Python numbers become, without a trip through the dispatcher.
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return *static_cast<const double*>(data);
    case at::kLong:
      return *static_cast<const int64_t*>(data);
    case at::kBool:
      return *static_cast<const bool*>(data);
    default:
      return at::_local_scalar_dense(tensor);
  }
}

Value value_of(const at::Tensor& tensor) {
  if (lazy::is_xla(tensor)) return lazy::read(tensor);
  TORCH_CHECK(
      tensor.defined() && tensor.device().is_cpu() && tensor.dim() == 0,
      "Expected all tensors to be on the same device, but found at least two devices, xla:0 "
      "and ",
      tensor.defined() ? tensor.device().str() : "none", "!");
  return lazy::scalar(number_in(tensor), element_type(tensor));
}

Value value_of(const at::Tensor& tensor, at::ScalarType type) {
  return convert(value_of(tensor), lazy::element_type(type));
}

Value convert(Value value, ElementType type) {
  if (value.type() == type) return value;
  if (const auto cut = lazy::trimmed(value))
    return lazy::with_computed(value, convert(cut->whole, type));
  return Node::make(kConvert, {value}, {}, ShapeRef{type, value.dims()});
}

Value broadcast_to(const Value& value, at::IntArrayRef sizes) {
  const ShapeRef shape{value.type(), span_of(sizes)};
  return value.shape() == shape ? value : Value(Node::make(kBroadcast, {value}, {}, shape));
}

Value reshape(const Value& value, at::IntArrayRef sizes) {
  const ShapeRef shape{value.type(), span_of(sizes)};
  return value.shape() == shape ? value : Value(Node::make(kReshape, {value}, {}, shape));
}

c10::Device device_of(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (lazy::is_xla(tensor)) return tensor.device();
  }
  TORCH_INTERNAL_ASSERT(false, "an xla kernel was called without xla tensors");
}

at::Tensor allocate_output(at::IntArrayRef sizes, at::IntArrayRef strides,
                           const at::TensorOptions& options) {
  const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  if (!strides.empty()) return lazy::allocate_strided(sizes, strides, dtype, options.device());
  at::detail::check_size_nonnegative(sizes);
  switch (options.memory_format_opt().value_or(c10::MemoryFormat::Contiguous)) {
    case c10::MemoryFormat::ChannelsLast:
      return lazy::allocate_strided(sizes, c10::get_channels_last_strides_2d(sizes), dtype,
                                    options.device());
    case c10::MemoryFormat::ChannelsLast3d:
      return lazy::allocate_strided(sizes, c10::get_channels_last_strides_3d(sizes), dtype,
                                    options.device());
    default:
      return lazy::allocate(sizes, dtype, options.device());
  }
}

void check_inplace(const at::Tensor& self, at::IntArrayRef sizes,
                   const at::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: ", "input tensor dtype ",
              self.dtype(), " and output tensor dtype ", options.dtype(), " should match");
  TORCH_CHECK(options.device() == self.device(), "Bad in-place call: ", "input tensor device ",
              self.device(), " and output tensor device ", options.device(), " should match");
  TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: ", "input tensor size ", self.sizes(),
              " and output tensor size ", sizes, " should match");
}

void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(),
              ", but got ", out.dtype(), " instead");
  TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ",
              options.device(), ", but got ", out.device(), " instead");
  if (!at::native::resize_output(out, sizes)) return;
  if (!strides.empty()) {
    out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  } else if (options.has_memory_format()) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
  }
}

}  // namespace torch_xla::aten
