#include "lazy/full.h"

#include <cmath>

#include "ir/lowering.h"

namespace torch_xla::lazy {
namespace {

using stablehlo::Dims;

const ir::Op kComplexScalar{"xla::complex", [](ir::Lowering& l, const ir::Node&) -> ir::Results {
                              return l->complex(l.operand(0), l.operand(1));
                            }};

const ir::Op kFull{"aten::full", [](ir::Lowering& l, const ir::Node& n) -> ir::Results {
                     return l->broadcast_to(l.operand(0), Dims(n.output().dims));
                   }};

const ir::Op kConstant{"aten::full", [](ir::Lowering& l, const ir::Node& n) -> ir::Results {
                         return l->constant(n.output().type, Dims(n.output().dims),
                                            n.attributes().integer());
                       }};

}  // namespace

ir::Value scalar(const c10::Scalar& number, ir::ElementType type) {
  if (stablehlo::is_complex(type)) {
    const auto value = number.toComplexDouble();
    const ir::ElementType part = stablehlo::real_type(type);
    return ir::Node::make(kComplexScalar,
                          {ir::scalar(value.real(), part), ir::scalar(value.imag(), part)}, {},
                          ir::ShapeRef{type, {}});
  }
  if (stablehlo::is_float(type)) {
    return ir::scalar(number.isComplex() ? number.toComplexDouble().real() : number.toDouble(),
                      type);
  }
  if (type == ir::ElementType::kPred) {
    const bool truth = number.isComplex()         ? number.toComplexDouble() != 0.0
                       : number.isFloatingPoint() ? number.toDouble() != 0.0
                                                  : number.to<int64_t>() != 0;
    return ir::scalar(int64_t{truth}, type);
  }
  if (type == ir::ElementType::kU64 && number.isIntegral(true)) {
    return ir::scalar(static_cast<int64_t>(number.toUInt64()), type);
  }
  return ir::scalar(
      number.isFloatingPoint() ? static_cast<int64_t>(number.toDouble()) : number.toLong(), type);
}

ir::Value full(const c10::Scalar& number, ir::ElementType type, std::span<const int64_t> sizes) {
  const bool negative_zero = number.isFloatingPoint() && std::signbit(number.toDouble());
  for (int64_t constant : {0, 1}) {
    if (number.equal(constant) && !negative_zero) {
      return ir::Node::make(kConstant, {}, ir::Attributes::of(constant), ir::ShapeRef{type, sizes});
    }
  }
  return ir::Node::make(kFull, {scalar(number, type)}, {}, ir::ShapeRef{type, sizes});
}

bool is_full(const ir::Value& value) {
  return value && (&value.node->op() == &kConstant || &value.node->op() == &kFull);
}

std::optional<c10::Scalar> number_of_full(const ir::Value& value) {
  if (!is_full(value)) return std::nullopt;
  const ir::Node& node = *value.node;
  if (&node.op() == &kConstant) return c10::Scalar(node.attributes().integer());
  const ir::Node& number = *node.operand(0).node;
  if (&number.op() != &ir::kScalar) return std::nullopt;  // a complex number, of two parts
  const auto& scalar = *static_cast<const ir::ScalarPayload*>(number.payload());
  if (scalar.kind == ir::ScalarClass::kI64) return c10::Scalar(scalar.integer);
  return c10::Scalar(scalar.real);
}

}  // namespace torch_xla::lazy
