#include "aten/pointwise.h"

namespace torch_xla::aten {
namespace {

// Attributes of a pointwise node: the common type, then the formula's own.
Results lower_pointwise(Lowering& l, const Node& node) {
  ir::AttributeReader attributes = node.attributes();
  const auto common = attributes.enumeration<ElementType>();
  const ElementType compute = stablehlo::opmath_type(common);
  const ShapeRef output = node.output();
  Builder& b = l.builder();
  PointwiseArgs args{b, {}, attributes};
  for (size_t i = 0; i < l.num_operands(); ++i) {
    XlaValue x = l.operand(i);
    if (x.element_type() != compute) x = b.convert(b.convert(x, common), compute);
    args.x.push_back(b.broadcast_to(x, Dims(output.dims)));
  }
  const XlaValue result = static_cast<const PointwiseOp&>(node.op()).formula(args);
  if (result.element_type() == compute && compute != common) {
    return b.convert(b.convert(result, common), output.type);
  }
  return b.convert(result, output.type);
}

}  // namespace

PointwiseOp::PointwiseOp(const char* name, Formula formula)
    : Op(name, lower_pointwise), formula(formula) {}

Value pointwise(const PointwiseOp& op, std::span<const Value> operands, ElementType common,
                ShapeRef output, const Attributes& attributes) {
  Attributes all = Attributes::of(common);
  for (int64_t word : attributes.words()) all.add(word);
  return Node::make(op, operands, all, std::span(&output, 1));
}

Value scalar_operand(const c10::Scalar& number, ElementType common) {
  return lazy::scalar(number, stablehlo::opmath_type(common));
}

bool plain_pair(const at::Tensor& a, const at::Tensor& b) {
  const c10::TensorImpl* x = a.unsafeGetTensorImpl();
  const c10::TensorImpl* y = b.unsafeGetTensorImpl();
  return x->is_xla() && y->is_xla() && x->dtype() == y->dtype() && x->device() == y->device() &&
         x->sizes() == y->sizes() && x->is_contiguous() && y->is_contiguous();
}

}  // namespace torch_xla::aten
