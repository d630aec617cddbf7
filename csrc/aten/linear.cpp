// torch.nn.functional.linear as one node forward and one for each gradient.

#include <ATen/ExpandUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear_native.h>

#include "aten/autograd.h"
#include "aten/host_product.h"
#include "aten/product.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

using at::Tensor;

// x w^T + bias, rounded once. x [..., in], w [out, in], bias [out].
const Op kLinear{"aten::linear", [](Lowering& l, const Node& n) -> Results {
                   const XlaValue x = l.operand(0);
                   XlaValue y = contract(l, x, l.operand(1), {{}, {}, {x.rank() - 1}, {1}});
                   if (l.num_operands() == 3) {
                     y = l->add(y, l->broadcast_to(l.operand(2, y.element_type()), y.dims()));
                   }
                   return l->convert(y, n.output().type);
                 }};

const Op kGradInput{"aten::linear_backward", [](Lowering& l, const Node& n) -> Results {
                      const XlaValue dy = l.operand(0);
                      return l->convert(
                          contract(l, dy, l.operand(1), {{}, {}, {dy.rank() - 1}, {0}}),
                          n.output().type);
                    }};

// Over everything but the features.
const Op kGradWeight{"aten::linear_backward", [](Lowering& l, const Node& n) -> Results {
                       const XlaValue dy = l.operand(0);
                       const Dims rows = stablehlo::iota_dims(static_cast<size_t>(dy.rank() - 1));
                       return l->convert(contract(l, dy, l.operand(1), {{}, {}, rows, rows}),
                                         n.output().type);
                     }};
const Op kHostGradWeight{"aten::linear_backward", [](Lowering& l, const Node&) -> Results {
                           return host_product(l, l.operand(0), l.operand(1));
                         }};

const Op kGradBias{"aten::linear_backward", [](Lowering& l, const Node& n) -> Results {
                     XlaValue dy = l.operand(0);
                     dy = l->convert(dy, stablehlo::opmath_type(dy.element_type()));
                     const Dims rows = stablehlo::iota_dims(static_cast<size_t>(dy.rank() - 1));
                     return l->convert(l->reduce_sum(dy, rows), n.output().type);
                   }};

// Whether everything fits without broadcasting or conversion.
bool is_plain(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  if (!lazy::is_xla(input) || !lazy::is_xla(weight) || weight.dim() != 2 || input.dim() < 1 ||
      input.layout() != c10::kStrided || weight.layout() != c10::kStrided ||
      input.dtype() != weight.dtype() || input.scalar_type() == at::kBool ||
      input.sizes().back() != weight.size(1) || input.device() != weight.device()) {
    return false;
  }
  return !bias.defined() || (lazy::is_xla(bias) && bias.dim() == 1 &&
                             bias.size(0) == weight.size(0) && bias.dtype() == input.dtype());
}

template <size_t N>
Tensor make(const Op& op, Value (&&operands)[N], at::IntArrayRef sizes, const Tensor& like) {
  const ShapeRef shape{element_type(like), span_of(sizes)};
  return lazy::make(Node::make(op, std::move(operands), {}, shape), like.scalar_type(),
                    like.device());
}

// Rows for rows: of a trimmed first operand, the whole.
Value by_rows(const Op& op, const Value& rows, const Value& weight, const Value& bias,
              ShapeRef output) {
  const auto cut = lazy::trimmed(rows);
  if (cut && cut->dim + 1 < static_cast<int64_t>(rows.dims().size())) {
    Dims dims(output.dims);
    dims[static_cast<size_t>(cut->dim)] = cut->bound();
    return lazy::with_computed(rows, by_rows(op, cut->whole, weight, bias, {output.type, dims}));
  }
  return bias ? Node::make(op, {rows, weight, bias}, {}, output)
              : Node::make(op, {rows, weight}, {}, output);
}

// What is summed over rows: those behind the size of a trimmed operand are zero.
Value summed_rows(const Value& rows) {
  const auto cut = lazy::trimmed(rows);
  return cut && cut->dim + 1 < static_cast<int64_t>(rows.dims().size())
             ? lazy::filled(*cut, lazy::Neutral::kZero)
             : rows;
}

Tensor linear_node(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  c10::SmallVector<int64_t, 6> sizes(input.sizes().begin(), input.sizes().end());
  sizes.back() = weight.size(0);
  const Value b = bias.defined() ? lazy::read(bias) : Value();
  return lazy::make(by_rows(kLinear, lazy::read(input), lazy::read(weight), b,
                            {element_type(input), {sizes.data(), sizes.size()}}),
                    input.scalar_type(), input.device());
}

// The composition, which CPU does not run: it says of a bias that does not fit what addmm says.
Tensor composed(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  const Tensor b = bias.value_or(Tensor());
  const bool is_sized = !input.unsafeGetTensorImpl()->has_symbolic_sizes_strides() &&
                        !weight.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  if (is_sized && b.defined() && b.dim() == 1 && weight.dim() == 2 && input.dim() > 0 &&
      input.size(-1) == weight.size(1) && input.size(-1) > 0) {
    const std::array<int64_t, 2> product{input.numel() / input.size(-1), weight.size(0)};
    if (!at::is_expandable_to(b.sizes(), product)) {
      at::inferExpandGeometry_dimvector(b.sizes(), b.strides(), product);
    }
  }
  return at::native::linear(input, weight, bias);
}

Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  const Tensor b = bias.value_or(Tensor());
  return is_plain(input, weight, b) ? linear_node(input, weight, b) : composed(input, weight, bias);
}

const auto& generated_linear() {
  static const GeneratedAutograd<Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&)>
      linear("aten::linear");
  return linear;
}

Tensor linear_autograd(c10::DispatchKeySet keys, const Tensor& input, const Tensor& weight,
                       const std::optional<Tensor>& bias) {
  const Tensor b = bias.value_or(Tensor());
  if (!is_plain(input, weight, b) || !generated_linear().exists() ||
      !keep_whole(keys, {input, weight, b})) {
    return composed(input, weight, bias);
  }
  if (!needs_gradient({input, weight, b})) return linear_node(input, weight, b);
  // torch has no gradient of a complex linear_backward.
  if (input.is_complex()) return composed(input, weight, bias);
  return generated_linear()(keys, input, weight, bias);
}

std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& input, const Tensor& grad,
                                                   const Tensor& weight, std::array<bool, 3> mask) {
  TORCH_CHECK(weight.dim() == 2 && input.dim() == grad.dim() && grad.dim() >= 1 &&
                  grad.size(-1) == weight.size(0) && input.size(-1) == weight.size(1),
              "linear_backward: sizes do not fit: input ", input.sizes(), ", grad_output ",
              grad.sizes(), ", weight ", weight.sizes());
  std::tuple<Tensor, Tensor, Tensor> result;
  const Value x = value_of(input.is_complex() ? input.conj() : input);
  Value dy = value_of(grad);
  if (mask[1]) {
    Value rows = x, gradients = dy;
    const auto wholes = wholes_of(std::array{x, dy}, grad.sizes());
    if (wholes && wholes->dim + 1 < grad.dim()) {
      rows = summed_rows(wholes->trimmed(wholes->operands[0]));
      dy = wholes->trimmed(wholes->operands[1]);
      gradients = summed_rows(dy);
    }
    const int64_t multiply_adds = rows.shape().num_elements() * weight.size(0);
    const Op& op = prefers_host_product(rows.type(), multiply_adds) ? kHostGradWeight : kGradWeight;
    std::get<1>(result) = make(op, {gradients, rows}, weight.sizes(), weight);
  }
  if (mask[0]) {
    const Value w = value_of(weight.is_complex() ? weight.conj() : weight);
    std::get<0>(result) =
        lazy::make(by_rows(kGradInput, dy, w, {}, {element_type(input), span_of(input.sizes())}),
                   input.scalar_type(), input.device());
  }
  if (mask[2]) std::get<2>(result) = make(kGradBias, {summed_rows(dy)}, {weight.size(0)}, weight);
  return result;
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("linear", linear);
  m.impl("linear_backward", linear_backward);
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { m.impl("linear", TORCH_FN(linear_autograd)); }

}  // namespace torch_xla::aten
