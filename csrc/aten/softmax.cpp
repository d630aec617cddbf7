// softmax and log_softmax along one dim, and their gradients.

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_meta.h>

#include "aten/reduction.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

// The operands of a lowering, wide enough that 16-bit floats round once, at least one dim each.
XlaValue wide(Lowering& l, size_t i, ElementType type) {
  return at_least_one_dim(l.operand(i, stablehlo::opmath_type(type)));
}

XlaValue sum_along(Builder& b, XlaValue x, int64_t dim) {
  return spread(b, b.reduce_sum(x, {dim}), x.dims(), {dim});
}

XlaValue minus_max(Builder& b, XlaValue x, int64_t dim) {
  return b.subtract(x, spread(b, b.reduce_max(x, {dim}), x.dims(), {dim}));
}

// Attribute of all four ops: dim.

// exp(x - max) / sum exp(x - max)
const Op kSoftmax{"aten::_softmax", [](Lowering& l, const Node& n) -> Results {
                    const int64_t dim = n.attributes().integer();
                    Builder& b = l.builder();
                    const XlaValue x = wide(l, 0, l.operand(0).element_type());
                    const XlaValue e = b.exponential(minus_max(b, x, dim));
                    return as_output(l, n, b.divide(e, sum_along(b, e, dim)));
                  }};

// x - max - log sum exp(x - max)
const Op kLogSoftmax{"aten::_log_softmax", [](Lowering& l, const Node& n) -> Results {
                       const int64_t dim = n.attributes().integer();
                       Builder& b = l.builder();
                       const XlaValue x = wide(l, 0, l.operand(0).element_type());
                       const XlaValue shifted = minus_max(b, x, dim);
                       const XlaValue sum = b.reduce_sum(b.exponential(shifted), {dim});
                       const XlaValue log = spread(b, b.log(sum), x.dims(), {dim});
                       return as_output(l, n, b.subtract(shifted, log));
                     }};

// y (g - sum(g y))
const Op kSoftmaxBackward{"aten::_softmax_backward_data",
                          [](Lowering& l, const Node& n) -> Results {
                            const int64_t dim = n.attributes().integer();
                            Builder& b = l.builder();
                            const ElementType type = l.operand(0).element_type();
                            const XlaValue g = wide(l, 0, type), y = wide(l, 1, type);
                            const XlaValue sum = sum_along(b, b.multiply(g, y), dim);
                            return as_output(l, n, b.multiply(y, b.subtract(g, sum)));
                          }};

// g - exp(y) sum(g)
const Op kLogSoftmaxBackward{"aten::_log_softmax_backward_data",
                             [](Lowering& l, const Node& n) -> Results {
                               const int64_t dim = n.attributes().integer();
                               Builder& b = l.builder();
                               const ElementType type = l.operand(0).element_type();
                               const XlaValue g = wide(l, 0, type), y = wide(l, 1, type);
                               const XlaValue sum = sum_along(b, g, dim);
                               const XlaValue scaled = b.multiply(b.exponential(y), sum);
                               return as_output(l, n, b.subtract(g, scaled));
                             }};

void check_input(const char* name, const at::Tensor& self, int64_t dim, bool half_to_float) {
  TORCH_CHECK(!half_to_float || self.scalar_type() == at::kHalf, name,
              " with half to float conversion needs a Half tensor, got ", self.scalar_type());
  const bool last = dim == self.dim() - 1 || self.dim() == 0;
  TORCH_CHECK_NOT_IMPLEMENTED(self.is_floating_point(), "\"", name,
                              last ? "_lastdim_kernel_impl" : "_kernel_impl",
                              "\" not implemented for '", c10::toString(self.scalar_type()), "'");
}

// Of operands of `output`'s dims; of their wholes where they are trimmed along another dim.
template <size_t N>
Value node(const Op& op, Value (&&operands)[N], int64_t dim, ShapeRef output) {
  if (any_trimmed(operands)) {
    if (const auto wholes = wholes_of(operands, output.dims); wholes && wholes->dim != dim) {
      return wholes->trimmed(Node::make(op, wholes->operands, Attributes::of(dim),
                                        ShapeRef{output.type, wholes->dims}));
    }
  }
  return Node::make(op, std::move(operands), Attributes::of(dim), output);
}

// The result is always row-major, whatever the strides of the input.
template <const Op& op>
struct Forward {
  static constexpr bool kLog = &op == &kLogSoftmax;

  static Value value(const at::Tensor& self, int64_t dim, bool half_to_float, ElementType type) {
    dim = at::maybe_wrap_dim(dim, self.dim());
    check_input(kLog ? "log_softmax" : "softmax", self, dim, half_to_float);
    return node(op, {value_of(self)}, dim, {type, span_of(self.sizes())});
  }
  static at::Tensor functional(const at::Tensor& self, int64_t dim, bool half_to_float) {
    const at::ScalarType type = half_to_float ? at::kFloat : self.scalar_type();
    return lazy::make(value(self, dim, half_to_float, lazy::element_type(type)), type,
                      self.device());
  }
  template <class Meta>
  static Value compute(Infer<Meta, 1>& it, const at::Tensor& self, int64_t dim,
                       bool half_to_float) {
    return value(self, dim, half_to_float, it.output_type());
  }
};

template <const Op& op>
struct Backward {
  static at::Tensor functional(const at::Tensor& grad, const at::Tensor& output, int64_t dim,
                               at::ScalarType input_type) {
    dim = at::maybe_wrap_dim(dim, grad.dim());
    TORCH_CHECK(grad.sizes() == output.sizes(), op.name, ": the gradient's sizes ", grad.sizes(),
                " are not those of the output, ", output.sizes());
    TORCH_CHECK(grad.scalar_type() == output.scalar_type(), op.name, ": expected a gradient of ",
                output.scalar_type(), ", got ", grad.scalar_type());
    return lazy::make(node(op, {value_of(grad), value_of(output)}, dim,
                           {lazy::element_type(input_type), span_of(grad.sizes())}),
                      input_type, grad.device());
  }
  template <class Meta>
  static Value compute(Infer<Meta, 1>& it, const at::Tensor& grad, const at::Tensor& output,
                       int64_t dim, at::ScalarType) {
    dim = at::maybe_wrap_dim(dim, grad.dim());
    return node(op, {value_of(grad), value_of(output)}, dim, it.output_shape());
  }
};

template <class Meta, auto compute>
void out_form(torch::Library& m, const char* name) {
  structured<Meta, compute>(m, {nullptr, nullptr, name});
}

}  // namespace

XLA_KERNELS(m) {
  using namespace at::meta;
  m.impl("_softmax", Forward<kSoftmax>::functional);
  m.impl("_log_softmax", Forward<kLogSoftmax>::functional);
  m.impl("_softmax_backward_data", Backward<kSoftmaxBackward>::functional);
  m.impl("_log_softmax_backward_data", Backward<kLogSoftmaxBackward>::functional);
  out_form<structured__softmax, &Forward<kSoftmax>::compute<structured__softmax>>(m,
                                                                                  "_softmax.out");
  out_form<structured__log_softmax, &Forward<kLogSoftmax>::compute<structured__log_softmax>>(
      m, "_log_softmax.out");
  out_form<structured__softmax_backward_data,
           &Backward<kSoftmaxBackward>::compute<structured__softmax_backward_data>>(
      m, "_softmax_backward_data.out");
  out_form<structured__log_softmax_backward_data,
           &Backward<kLogSoftmaxBackward>::compute<structured__log_softmax_backward_data>>(
      m, "_log_softmax_backward_data.out");
}

}  // namespace torch_xla::aten
