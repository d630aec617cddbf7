#pragma once

// Elementwise operators: one output element from one element of each operand.

#include <ATen/TensorIterator.h>

#include "aten/kernel.h"

namespace torch_xla::aten {

// `value`, of f32, rounded to bf16 or f16 where `type` is one of them.
XlaValue rounded_to(Builder& b, const XlaValue& value, ElementType type);

// What a formula sees: its operands, all of one element type (the operator's common dtype, widened
// to f32 for 16-bit and narrower floats, so that it rounds once) and of the output's dims.
struct PointwiseArgs {
  Builder& b;
  std::vector<XlaValue> x;
  ir::AttributeReader attributes;
  ElementType common;

  const XlaValue& operator[](size_t i) const { return x[i]; }
  size_t size() const { return x.size(); }
  // A constant of the operands' type and dims.
  XlaValue number(stablehlo::Number number) const { return b.full_like(x[0], number); }
  // What is left of `value` in the common dtype: CPU rounds some formulas' steps.
  XlaValue rounded(const XlaValue& value) const { return rounded_to(b, value, common); }
};

// An op that is a formula over elements.
struct PointwiseOp : Op {
  using Formula = XlaValue (*)(PointwiseArgs&);
  PointwiseOp(const char* name, Formula formula);
  Formula formula;
};

// The node of `op` over operands of any types and broadcastable dims. Operands are converted to
// `common` first (scalars only to its compute type); the result has `output`'s type and dims.
Value pointwise(const PointwiseOp& op, std::span<const Value> operands, ElementType common,
                ShapeRef output, const Attributes& attributes = {});
// The same, taking over what the operands hold (see Node::take).
Value pointwise_taking(const PointwiseOp& op, std::span<Value> operands, ElementType common,
                       ShapeRef output, const Attributes& attributes = {});
template <size_t N>
Value pointwise(const PointwiseOp& op, Value (&&operands)[N], ElementType common, ShapeRef output,
                const Attributes& attributes = {}) {
  return pointwise_taking(op, operands, common, output, attributes);
}

// A scalar argument for an operator that computes in `common`: kept in its compute type.
Value scalar_operand(const c10::Scalar& number, ElementType common);
// The same, rounded to `common` before: what most of CPU's kernels do with a number beside bf16 or
// f16 (mul, div and factors of fused formulas keep all its bits).
Value rounded_operand(const c10::Scalar& number, ElementType common);

// True when two xla tensors need no broadcast, conversion or strided output: the fast path.
bool plain_pair(const at::Tensor& a, const at::Tensor& b);

// The common dtype a TensorIterator decided on.
template <class Meta>
ElementType common_type(const Meta& iterator) {
  return lazy::element_type(iterator.common_dtype());
}

// compute() for structured operators whose meta is a TensorIterator and whose arguments are
// tensors only.
template <const PointwiseOp& op>
struct Elementwise {
  template <class Meta, class... Tensors>
  Value operator()(Meta& it, const Tensors&... tensors) const {
    return pointwise(op, {value_of(tensors)...}, common_type(it), it.output_shape());
  }
};

template <class Meta, const PointwiseOp& op>
void elementwise(torch::Library& m, Names names) {
  structured<Meta, Elementwise<op>{}>(m, names);
}

}  // namespace torch_xla::aten
