// What gradient scalers need: gradients divided by the scale, and the scale that follows from them
// (Micikevicius et al., "Mixed Precision Training", 2018, section 3.2).

#include <ATen/MemoryOverlap.h>

#include "aten/kernel.h"

namespace torch_xla::aten {
namespace {

// found_inf and any number of tensors: 1 where one of their elements is infinite or NaN, else
// found_inf.
const Op kNonFinite{"aten::_amp_foreach_non_finite_check", [](Lowering& l, const Node&) -> Results {
                      const XlaValue found = l.operand(0);
                      XlaValue finite = l->constant(ElementType::kPred, {}, true);
                      for (size_t i = 1; i < l.num_operands(); ++i) {
                        const XlaValue x = l.operand(i);
                        const Dims every = stablehlo::iota_dims(static_cast<size_t>(x.rank()));
                        finite = l->and_(finite, l->reduce_and(l->is_finite(x), every));
                      }
                      finite = l->broadcast_to(finite, found.dims());
                      return l->select(finite, found, l->ones_like(found));
                    }};

// A gradient times the inverse of the scale, rounded once.
const Op kUnscale{"aten::_amp_foreach_unscale", [](Lowering& l, const Node& n) -> Results {
                    const ElementType type = n.output().type;
                    const ElementType compute = stablehlo::opmath_type(type);
                    const XlaValue x = l.operand(0, compute);
                    const XlaValue inverse = l->reshape(l.operand(1, compute), {});
                    return l->convert(l->multiply(x, l->broadcast_to(inverse, x.dims())), type);
                  }};

void check_one_element(const char* op, const char* name, const at::Tensor& tensor,
                       at::ScalarType dtype) {
  TORCH_CHECK(tensor.numel() == 1, op, ": ", name, " must be a 1-element tensor, got ",
              tensor.sizes());
  TORCH_CHECK(tensor.scalar_type() == dtype, op, ": ", name, " must be a ", dtype, " tensor, got ",
              tensor.scalar_type());
}

void non_finite_check_and_unscale(at::TensorList gradients, at::Tensor& found_inf,
                                  const at::Tensor& inverse_scale) {
  constexpr auto kName = "_amp_foreach_non_finite_check_and_unscale_";
  if (gradients.empty()) return;
  check_one_element(kName, "inv_scale", inverse_scale, at::kFloat);
  check_one_element(kName, "found_inf", found_inf, at::kFloat);
  std::vector<Value> operands{value_of(found_inf)};
  for (const at::Tensor& gradient : gradients) {
    TORCH_CHECK(lazy::is_xla(gradient), kName, ": expected gradients on xla, got one on ",
                gradient.device());
    TORCH_CHECK(at::isFloatingType(gradient.scalar_type()), kName,
                ": expected floating point gradients, got ", gradient.scalar_type());
    at::assert_no_internal_overlap(gradient);
    operands.push_back(lazy::read(gradient));
  }
  const Value inverse = value_of(inverse_scale);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Value& value = operands[i + 1];
    lazy::write(gradients[i], Node::make(kUnscale, {value, inverse}, {}, value.shape()));
  }
  const ShapeRef shape = operands[0].shape();
  lazy::write(found_inf, Node::make(kNonFinite, operands, {}, std::span(&shape, 1)));
}

// scale, growth_tracker, found_inf, growth, backoff, interval -> scale, growth_tracker. After
// `interval` steps without an overflow the scale grows, unless it would be infinite.
const Op kUpdateScale{
    "aten::_amp_update_scale_", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const Dims dims(n.output(0).dims), tracker_dims(n.output(1).dims);
      const XlaValue scale = b.reshape(l.operand(0), {}), tracker = b.reshape(l.operand(1), {});
      const XlaValue found = b.reshape(l.operand(2), {}), growth = l.operand(3);
      const XlaValue overflow = b.ne(found, b.zeros_like(found));
      const auto times = [&](const XlaValue& factor) {
        return b.convert(b.multiply(b.convert(scale, ElementType::kF64), factor),
                         ElementType::kF32);
      };
      const XlaValue count = b.add(tracker, b.ones_like(tracker));
      const XlaValue due = b.eq(count, l.operand(5, ElementType::kS32));
      const XlaValue larger = times(growth);
      const XlaValue grown = b.select(b.and_(due, b.is_finite(larger)), larger, scale);
      const XlaValue none = b.zeros_like(tracker);
      return {b.reshape(b.select(overflow, times(l.operand(4)), grown), dims),
              b.reshape(b.select(b.or_(overflow, due), none, count), tracker_dims)};
    }};

at::Tensor& update_scale(at::Tensor& scale, at::Tensor& growth_tracker, const at::Tensor& found_inf,
                         double growth_factor, double backoff_factor, int64_t growth_interval) {
  constexpr auto kName = "_amp_update_scale_";
  check_one_element(kName, "growth_tracker", growth_tracker, at::kInt);
  check_one_element(kName, "current_scale", scale, at::kFloat);
  check_one_element(kName, "found_inf", found_inf, at::kFloat);
  const std::array<Value, 6> operands{value_of(scale),
                                      value_of(growth_tracker),
                                      value_of(found_inf),
                                      lazy::scalar(growth_factor, ElementType::kF64),
                                      lazy::scalar(backoff_factor, ElementType::kF64),
                                      lazy::scalar(growth_interval, ElementType::kS64)};
  const std::array<ShapeRef, 2> shapes{operands[0].shape(), operands[1].shape()};
  const ir::NodePtr node = Node::make(kUpdateScale, operands, {}, shapes);
  lazy::write(scale, Value(node, 0));
  lazy::write(growth_tracker, Value(node, 1));
  return scale;
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("_amp_foreach_non_finite_check_and_unscale_", non_finite_check_and_unscale);
  m.impl("_amp_update_scale_", update_scale);
}

}  // namespace torch_xla::aten
