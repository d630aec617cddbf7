#include "lazy/trimmed.h"

#include <algorithm>
#include <bit>

#include "ir/lowering.h"

namespace torch_xla::lazy {
namespace {

using stablehlo::Dims;

constexpr int64_t kAlwaysWhole = 1024;  // elements along the dim

stablehlo::Value with_rest(ir::Lowering& l, int64_t dim, stablehlo::Value number) {
  const stablehlo::Value x = l.operand(0), count = l.operand(1);
  const stablehlo::Value place = l->iota(count.element_type(), x.dims(), dim);
  return l->select(l->lt(place, l->broadcast_to(count, x.dims())), x,
                   l->broadcast_to(number, x.dims()));
}

// Operands: whole, count. Attributes: dim, what to fill with.
const ir::Op kFillRest{"xla::fill_rest", [](ir::Lowering& l, const ir::Node& n) -> ir::Results {
                         auto attributes = n.attributes();
                         const int64_t dim = attributes.integer();
                         const auto neutral = attributes.enumeration<Neutral>();
                         const ir::ElementType type = l.operand(0).element_type();
                         const bool is_pred = type == ir::ElementType::kPred;
                         stablehlo::Value number;
                         switch (neutral) {
                           case Neutral::kZero:
                           case Neutral::kOne:
                             number = l->scalar(neutral == Neutral::kOne ? 1 : 0, type);
                             break;
                           case Neutral::kLowest:
                             number = is_pred ? l->scalar(0, type) : l->min_value(type);
                             break;
                           case Neutral::kHighest:
                             number = is_pred ? l->scalar(1, type) : l->max_value(type);
                             break;
                         }
                         return with_rest(l, dim, number);
                       }};
// The same; the second attribute is the number.
const ir::Op kFillRestWith{"xla::fill_rest", [](ir::Lowering& l, const ir::Node& n) -> ir::Results {
                             auto attributes = n.attributes();
                             const int64_t dim = attributes.integer();
                             return with_rest(l, dim,
                                              l->full_like(l.operand(0), attributes.integer()));
                           }};

}  // namespace

// Operands: whole, count (which the size is also in the shape). Attribute: dim.
const ir::Op kTrim{"xla::trim", [](ir::Lowering& l, const ir::Node& n) -> ir::Results {
                     const Dims limits(n.output().dims);
                     return l->slice(l.operand(0), Dims(limits.size(), 0), limits);
                   }};

std::optional<Trimmed> trimmed(const ir::Value& value) {
  if (!is_trimmed(value)) return std::nullopt;
  const int64_t dim = value.node->attributes().integer();
  return Trimmed{value.node->operand(0), value.node->operand(1), dim,
                 value.dims()[static_cast<size_t>(dim)]};
}

ir::Value trim(ir::Value whole, ir::Value count, int64_t dim, int64_t size) {
  Dims dims(whole.dims());
  dims[static_cast<size_t>(dim)] = size;
  const ir::ShapeRef shape{whole.type(), dims};
  return ir::Node::make(kTrim, {std::move(whole), std::move(count)}, ir::Attributes::of(dim),
                        shape);
}

const ir::Value& computed(const ir::Value& contents) {
  return is_trimmed(contents) ? contents.node->operand(0) : contents;
}

ir::Value with_computed(const ir::Value& contents, const ir::Value& by) {
  const auto cut = trimmed(contents);
  return cut ? trim(by, cut->count, cut->dim, cut->size) : by;
}

int64_t bound_for(int64_t size, int64_t most) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
  return std::min(most, std::max(kAlwaysWhole, power));
}

ir::Value filled(const Trimmed& value, Neutral neutral) {
  return ir::Node::make(kFillRest, {value.whole, value.count},
                        ir::Attributes::of(value.dim, neutral), value.whole.shape());
}

ir::Value filled_with(const Trimmed& value, int64_t number) {
  return ir::Node::make(kFillRestWith, {value.whole, value.count},
                        ir::Attributes::of(value.dim, number), value.whole.shape());
}

}  // namespace torch_xla::lazy
