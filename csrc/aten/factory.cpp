// Tensors from numbers: ranges, identity matrices, and constants shaped like another tensor.

#include <ATen/MemoryOverlap.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/full_like_native.h>
#include <ATen/ops/ones_like_native.h>
#include <ATen/ops/tril_indices.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/zeros_like_native.h>

#include "aten/kernel.h"
#include "aten/masked.h"
#include "aten/trimmed.h"
#include "lazy/mark_sharding.h"
#include "lazy/runtime.h"
#include "lazy/transfer.h"

namespace torch_xla::aten {
namespace {

using c10::Device;
using c10::Layout;
using c10::MemoryFormat;
using c10::Scalar;

using Dtype = std::optional<at::ScalarType>;

void check_layout(std::optional<Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(!layout || *layout == Layout::Strided,
              "the xla device has only strided tensors, got ", *layout);
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned");
}

Device target(std::optional<Device> device) {
  return lazy::normalize(device.value_or(Device(c10::kXLA)));
}

// --- arange: start + i * step ---

// 0, 1, 2, ...
const Op kIota{"aten::arange", [](Lowering& l, const Node& n) -> Results {
                 return l->iota(n.output().type, Dims(n.output().dims), 0);
               }};

// Operands start and step are of the type to compute in.
const Op kArange{"aten::arange", [](Lowering& l, const Node& n) -> Results {
                   const Dims dims(n.output().dims);
                   const XlaValue start = l.operand(0), step = l.operand(1);
                   const XlaValue i =
                       l->convert(l->iota(ElementType::kS64, dims, 0), start.element_type());
                   const XlaValue value = l->add(l->broadcast_to(start, dims),
                                                 l->multiply(i, l->broadcast_to(step, dims)));
                   return l->convert(value, n.output().type);
                 }};

int64_t arange_size(const Scalar& start, const Scalar& end, const Scalar& step,
                    at::ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(dtype != at::kBool && !at::isComplexType(dtype),
                              "\"arange\" not implemented for '", c10::toString(dtype), "'");
  return dtype == at::kLong ? at::native::compute_arange_size<int64_t>(start, end, step)
                            : at::native::compute_arange_size<double>(start, end, step);
}

// CPU computes floats in double and rounds once; numbers without a fraction are exact in f32 too.
ElementType arange_compute_type(const Scalar& start, const Scalar& step, at::ScalarType dtype,
                                int64_t size) {
  if (at::isIntegralType(dtype, false)) return ElementType::kS64;
  if (dtype == at::kDouble) return ElementType::kF64;
  if (dtype == at::kHalf || dtype == at::kBFloat16) return ElementType::kF32;
  constexpr double kExact = 1 << 24;
  const double first = start.toDouble(), stride = step.toDouble();
  const bool exact = first == std::trunc(first) && stride == std::trunc(stride) &&
                     std::abs(first) + std::abs(stride) * static_cast<double>(size) < kExact;
  return exact ? ElementType::kF32 : ElementType::kF64;
}

Value arange_value(const Scalar& start, const Scalar& step, at::ScalarType dtype, int64_t size) {
  const ShapeRef shape{lazy::element_type(dtype), {&size, 1}};
  if (start.equal(0) && step.equal(1)) {
    return Node::make(kIota, {}, {}, shape);
  }
  const ElementType compute = arange_compute_type(start, step, dtype, size);
  return Node::make(kArange, {lazy::scalar(start, compute), lazy::scalar(step, compute)}, {},
                    shape);
}

at::Tensor arange_step(const Scalar& start, const Scalar& end, const Scalar& step, Dtype dtype,
                       std::optional<Layout> layout, std::optional<Device> device,
                       std::optional<bool> pin_memory) {
  check_layout(layout, pin_memory);
  const bool integral = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  const at::ScalarType type =
      dtype.value_or(integral ? at::kLong : c10::get_default_dtype_as_scalartype());
  return lazy::make(arange_value(start, step, type, arange_size(start, end, step, type)), type,
                    target(device));
}

at::Tensor arange_start(const Scalar& start, const Scalar& end, Dtype dtype,
                        std::optional<Layout> layout, std::optional<Device> device,
                        std::optional<bool> pin_memory) {
  return arange_step(start, end, 1, dtype, layout, device, pin_memory);
}

at::Tensor arange(const Scalar& end, Dtype dtype, std::optional<Layout> layout,
                  std::optional<Device> device, std::optional<bool> pin_memory) {
  return arange_step(0, end, 1, dtype, layout, device, pin_memory);
}

at::Tensor& arange_out(const Scalar& start, const Scalar& end, const Scalar& step,
                       at::Tensor& out) {
  const int64_t size = arange_size(start, end, step, out.scalar_type());
  if (out.numel() != size) at::native::resize_output(out, {size});
  at::assert_no_internal_overlap(out);
  lazy::write(out, reshape(arange_value(start, step, out.scalar_type(), size), out.sizes()));
  return out;
}

// --- linspace, logspace: the two halves are counted from their own end ---

// Operands start, end, step, and for logspace the base, all of the type to compute in.
XlaValue spaced(Lowering& l, const Node& n) {
  const Dims dims(n.output().dims);
  const int64_t steps = dims[0];
  const ElementType type = n.operand(0).type();
  const XlaValue step = l->broadcast_to(l.operand(2), dims);
  const XlaValue i = l->iota(ElementType::kS64, dims, 0);
  const XlaValue left = l->subtract(l->full_like(i, steps - 1), i);
  const XlaValue from_start =
      l->add(l->broadcast_to(l.operand(0), dims), l->multiply(step, l->convert(i, type)));
  const XlaValue from_end =
      l->subtract(l->broadcast_to(l.operand(1), dims), l->multiply(step, l->convert(left, type)));
  return l->select(l->lt(i, l->full_like(i, steps / 2)), from_start, from_end);
}

const Op kLinspace{"aten::linspace", [](Lowering& l, const Node& n) -> Results {
                     return l->convert(spaced(l, n), n.output().type);
                   }};
const Op kLogspace{"aten::logspace", [](Lowering& l, const Node& n) -> Results {
                     const XlaValue exponent = spaced(l, n);
                     const XlaValue base =
                         l->broadcast_to(l.operand(3, exponent.element_type()), exponent.dims());
                     return l->convert(l->power(base, exponent), n.output().type);
                   }};

// A number as the dtype holds it.
Scalar rounded(const Scalar& number, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return static_cast<double>(number.to<float>());
    case at::kHalf:
      return static_cast<double>(static_cast<float>(number.to<at::Half>()));
    case at::kBFloat16:
      return static_cast<double>(static_cast<float>(number.to<at::BFloat16>()));
    case at::kDouble:
      return number.to<double>();
    case at::kByte:  // wraps small negative ones, as CPU does
      return static_cast<int64_t>(number.to<uint8_t>());
    default:
      break;
  }
  if (at::isComplexType(dtype)) return number.to<c10::complex<double>>();
  return number.to<int64_t>();
}

Scalar step_between(const Scalar& start, const Scalar& end, int64_t steps, at::ScalarType dtype) {
  if (at::isComplexType(dtype)) {
    return (end.toComplexDouble() - start.toComplexDouble()) / static_cast<double>(steps - 1);
  }
  const double step = (end.toDouble() - start.toDouble()) / static_cast<double>(steps - 1);
  return at::isIntegralType(dtype, false) ? Scalar(step) : rounded(step, dtype);
}

// Prepares out for `steps` numbers. False when there is nothing more to compute.
bool resize_for_steps(const at::Tensor& out, int64_t steps) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  at::assert_no_internal_overlap(out);
  return steps > 0;
}

at::Tensor& linspace_out(const Scalar& start, const Scalar& end, int64_t steps, at::Tensor& out) {
  if (!resize_for_steps(out, steps)) return out;
  if (steps == 1) return out.fill_(start);
  const at::ScalarType dtype = out.scalar_type();
  const ElementType type = element_type(out);
  const ElementType compute =
      stablehlo::is_integer(type) ? ElementType::kF64 : stablehlo::opmath_type(type);
  check_number(start, dtype);
  check_number(end, dtype);
  const Scalar first = rounded(start, dtype), last = rounded(end, dtype);
  const Value value = Node::make(kLinspace,
                                 {lazy::scalar(first, compute), lazy::scalar(last, compute),
                                  lazy::scalar(step_between(first, last, steps, dtype), compute)},
                                 {}, ShapeRef{type, {&steps, 1}});
  lazy::write(out, reshape(value, out.sizes()));
  return out;
}

at::Tensor& logspace_out(const Scalar& start, const Scalar& end, int64_t steps, double base,
                         at::Tensor& out) {
  if (!resize_for_steps(out, steps)) return out;
  const at::ScalarType dtype = out.scalar_type();
  const ElementType type = element_type(out);
  if (steps == 1) {
    if (at::isComplexType(dtype)) return out.fill_(std::pow(base, start.toComplexDouble()));
    return out.fill_(std::pow(base, start.toDouble()));
  }
  // In f64 as CPU: a power of integers must not fall short of an integer.
  const ElementType compute = stablehlo::is_complex(type) ? ElementType::kC128 : ElementType::kF64;
  check_number(start, dtype);
  check_number(end, dtype);
  const Scalar first = rounded(start, dtype), last = rounded(end, dtype);
  const Value value = Node::make(
      kLogspace,
      {lazy::scalar(first, compute), lazy::scalar(last, compute),
       lazy::scalar(step_between(first, last, steps, dtype), compute), lazy::scalar(base, compute)},
      {}, ShapeRef{type, {&steps, 1}});
  lazy::write(out, reshape(value, out.sizes()));
  return out;
}

// --- eye ---

const Op kEye{"aten::eye", [](Lowering& l, const Node& n) -> Results {
                const Dims dims(n.output().dims);
                return l->convert(
                    l->eq(l->iota(ElementType::kS64, dims, 0), l->iota(ElementType::kS64, dims, 1)),
                    n.output().type);
              }};

at::Tensor& eye_out(int64_t rows, int64_t columns, at::Tensor& out) {
  TORCH_CHECK(rows >= 0, "n must be greater or equal to 0, got ", rows);
  TORCH_CHECK(columns >= 0, "m must be greater or equal to 0, got ", columns);
  out.resize_({rows, columns});
  const std::array<int64_t, 2> sizes{rows, columns};
  lazy::write(out, Value(Node::make(kEye, {}, {}, ShapeRef{element_type(out), sizes})));
  return out;
}

at::Tensor& eye_square_out(int64_t rows, at::Tensor& out) { return eye_out(rows, rows, out); }

// --- tril_indices, triu_indices: known on the host, so made there ---

template <class Make>
at::Tensor indices_of_triangle(Make make, int64_t rows, int64_t columns, int64_t offset,
                               Dtype dtype, std::optional<Layout> layout,
                               std::optional<Device> device, std::optional<bool> pin_memory) {
  check_layout(layout, pin_memory);
  const at::Tensor host =
      make(rows, columns, offset, at::TensorOptions(dtype.value_or(at::kLong)).device(at::kCPU));
  const Device to = target(device);
  return lazy::make(lazy::upload(host, to), host.scalar_type(), to);
}

at::Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset, Dtype dtype,
                        std::optional<Layout> layout, std::optional<Device> device,
                        std::optional<bool> pin_memory) {
  const auto make = [](int64_t r, int64_t c, int64_t o, at::TensorOptions options) {
    return at::tril_indices(r, c, o, options);
  };
  return indices_of_triangle(make, rows, columns, offset, dtype, layout, device, pin_memory);
}

at::Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset, Dtype dtype,
                        std::optional<Layout> layout, std::optional<Device> device,
                        std::optional<bool> pin_memory) {
  const auto make = [](int64_t r, int64_t c, int64_t o, at::TensorOptions options) {
    return at::triu_indices(r, c, o, options);
  };
  return indices_of_triangle(make, rows, columns, offset, dtype, layout, device, pin_memory);
}

// --- Constants ---

at::Tensor scalar_tensor(const Scalar& number, Dtype dtype, std::optional<Layout> layout,
                         std::optional<Device> device, std::optional<bool> pin_memory) {
  check_layout(layout, pin_memory);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  check_filling(number, type, 1);
  return lazy::make(lazy::full(number, lazy::element_type(type), {}), type, target(device));
}

// Row-major, and nothing asked for that differs from self.
bool is_like(const at::Tensor& self, Dtype dtype, std::optional<Layout> layout,
             std::optional<Device> device, std::optional<bool> pin_memory,
             std::optional<MemoryFormat> format) {
  return lazy::is_xla(self) && self.is_contiguous() && !dtype && !pin_memory &&
         (!layout || *layout == Layout::Strided) && (!device || *device == self.device()) &&
         (!format || *format == MemoryFormat::Preserve || *format == MemoryFormat::Contiguous);
}

at::Tensor filled_like(const at::Tensor& self, const Scalar& number) {
  check_filling(number, self.scalar_type(), self.numel());
  at::Tensor result = lazy::make(lazy::full(number, element_type(self), span_of(self.sizes())),
                                 self.scalar_type(), self.device());
  lazy::inherit_sharding(result, self);
  return result;
}

at::Tensor full_like(const at::Tensor& self, const Scalar& number, Dtype dtype,
                     std::optional<Layout> layout, std::optional<Device> device,
                     std::optional<bool> pin_memory, std::optional<MemoryFormat> format) {
  if (is_like(self, dtype, layout, device, pin_memory, format)) return filled_like(self, number);
  return at::native::full_like(self, number, dtype, layout, device, pin_memory, format);
}

at::Tensor zeros_like(const at::Tensor& self, Dtype dtype, std::optional<Layout> layout,
                      std::optional<Device> device, std::optional<bool> pin_memory,
                      std::optional<MemoryFormat> format) {
  if (is_like(self, dtype, layout, device, pin_memory, format)) return filled_like(self, 0);
  return at::native::zeros_like(self, dtype, layout, device, pin_memory, format);
}

at::Tensor ones_like(const at::Tensor& self, Dtype dtype, std::optional<Layout> layout,
                     std::optional<Device> device, std::optional<bool> pin_memory,
                     std::optional<MemoryFormat> format) {
  if (is_like(self, dtype, layout, device, pin_memory, format)) return filled_like(self, 1);
  return at::native::ones_like(self, dtype, layout, device, pin_memory, format);
}

}  // namespace

Value stretched_arange(const Value& value, int64_t size) {
  const Node& node = *value.node;
  if (&node.op() != &kIota && &node.op() != &kArange) return {};
  const ShapeRef shape{value.type(), {&size, 1}};
  return Node::make(node.op(), node.operands(), {}, std::span(&shape, 1));
}

XLA_KERNELS(m) {
  m.impl("arange", arange);
  m.impl("arange.start", arange_start);
  m.impl("arange.start_step", arange_step);
  m.impl("arange.start_out", arange_out);
  m.impl("linspace.out", linspace_out);
  m.impl("logspace.out", logspace_out);
  m.impl("eye.out", eye_square_out);
  m.impl("eye.m_out", eye_out);
  m.impl("tril_indices", tril_indices);
  m.impl("triu_indices", triu_indices);
  m.impl("scalar_tensor", scalar_tensor);
  m.impl("full_like", full_like);
  m.impl("zeros_like", zeros_like);
  m.impl("ones_like", ones_like);
}

}  // namespace torch_xla::aten
