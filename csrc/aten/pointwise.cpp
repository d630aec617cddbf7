#include "aten/pointwise.h"

#include "aten/trimmed.h"
#include "ir/stretch.h"

namespace torch_xla::aten {
namespace {

// Attributes of a pointwise node: the common type, then the formula's own.
Results lower_pointwise(Lowering& l, const Node& node) {
  ir::AttributeReader attributes = node.attributes();
  const auto common = attributes.enumeration<ElementType>();
  const ElementType compute = stablehlo::opmath_type(common);
  const ShapeRef output = node.output();
  Builder& b = l.builder();
  PointwiseArgs args{b, {}, attributes, common};
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

XlaValue rounded_to(Builder& b, const XlaValue& value, ElementType type) {
  // Not a pair of conversions, which XLA may drop.
  if (type == ElementType::kBF16) return b.reduce_precision(value, 8, 7);
  if (type != ElementType::kF16) return value;
  // Subnormals would become zero, and f16's are not small: differences of f16 are exact there.
  const XlaValue subnormal = b.lt(b.abs(value), b.full_like(value, 0x1p-14));
  return b.select(subnormal, value, b.reduce_precision(value, 5, 10));
}

PointwiseOp::PointwiseOp(const char* name, Formula formula)
    : Op(name, lower_pointwise), formula(formula) {}

namespace {

constexpr int kDeepest = 8;  // formulas that are followed to what repeats itself

Value stretched(const Value& value, int64_t dim, int64_t from, int64_t to, int depth);

// Elementwise: as its operands.
Value stretched_formula(const Value& value, int64_t dim, int64_t from, int64_t to, int depth) {
  const Node& node = *value.node;
  const auto rank = static_cast<int64_t>(value.dims().size());
  std::vector<Value> operands;
  for (const Value& operand : node.operands()) {
    const int64_t own = dim - (rank - static_cast<int64_t>(operand.dims().size()));
    operands.push_back(own < 0 ? operand : stretched(operand, own, from, to, depth + 1));
    if (!operands.back()) return {};
  }
  Attributes attributes;
  for (int64_t word : node.attribute_words()) attributes.add(word);
  Dims dims(value.dims());
  dims[static_cast<size_t>(dim)] = to;
  const ShapeRef shape{value.type(), dims};
  return Node::make(node.op(), operands, attributes, std::span(&shape, 1));
}

// `value`, of which one sees how it goes on along `dim` (one number again and again, say), in
// another size; empty for others.
Value stretched(const Value& value, int64_t dim, int64_t from, int64_t to, int depth) {
  const auto axis = static_cast<size_t>(dim);
  if (value.dims()[axis] != from || from == 1) return value.dims()[axis] == 1 ? value : Value();
  if (const auto number = lazy::number_of_full(value)) {
    Dims dims(value.dims());
    dims[axis] = to;
    return lazy::full(*number, value.type(), dims);
  }
  if (Value view = ir::stretch_view(value, axis, to)) return view;
  if (Value range = stretched_arange(value, to)) return range;
  if (Value scattered = stretched_scatter(value, dim, to)) return scattered;
  const bool is_formula = value.node->op().lower == &lower_pointwise;
  return is_formula && depth < kDeepest ? stretched_formula(value, dim, from, to, depth) : Value();
}

}  // namespace

Value whole_operand(const Value& operand, int64_t rank, int64_t dim, int64_t size, int64_t bound) {
  const int64_t own = dim - (rank - static_cast<int64_t>(operand.dims().size()));
  if (own < 0) return operand;
  const auto cut = lazy::trimmed(operand);
  if (!cut) return stretched(operand, own, size, bound, 0);
  const bool fits = cut->dim == own && cut->size == size && cut->bound() == bound;
  return fits ? cut->whole : Value();
}

std::optional<Wholes> wholes_of(std::span<const Value> operands, std::span<const int64_t> dims) {
  const auto rank = static_cast<int64_t>(dims.size());
  Wholes result;
  int64_t bound = -1;
  for (const Value& operand : operands) {
    if (const auto cut = lazy::trimmed(operand)) {
      result.dim = cut->dim + rank - static_cast<int64_t>(operand.dims().size());
      result.size = dims[static_cast<size_t>(result.dim)];
      result.count = cut->count;
      bound = cut->bound();
    }
  }
  if (bound < 0) return std::nullopt;
  for (const Value& operand : operands) {
    result.operands.push_back(whole_operand(operand, rank, result.dim, result.size, bound));
    if (!result.operands.back()) return std::nullopt;
  }
  result.dims = Dims(dims);
  result.dims[static_cast<size_t>(result.dim)] = bound;
  return result;
}

std::optional<WholePositions> whole_positions(const Value& positions, int64_t size,
                                              const Value& source, int64_t source_dim) {
  const auto some = lazy::trimmed(positions);
  if (!some) return std::nullopt;
  const auto rank = static_cast<int64_t>(source.dims().size());
  Value whole = whole_operand(source, rank, source_dim, some->size, some->bound());
  if (!whole) return std::nullopt;
  return WholePositions{lazy::filled_with(*some, size), std::move(whole)};
}

std::optional<ReducedWhole> reduced_whole(const Value& operand, const Dims& dims,
                                          std::span<const int64_t> output, Neutral neutral) {
  auto cut = lazy::trimmed(operand);
  if (!cut) return std::nullopt;
  ReducedWhole result{cut->whole, Dims(output), cut->count, cut->dim, std::nullopt};
  if (dims.contains(cut->dim)) {
    result.operand = lazy::filled(*cut, neutral);
    return result;
  }
  if (output.size() != operand.dims().size()) {  // the dims are gone
    int64_t before = 0;
    for (int64_t dim : dims) before += dim < cut->dim ? 1 : 0;
    cut->dim -= before;
  }
  result.output[static_cast<size_t>(cut->dim)] = cut->bound();
  result.kept = std::move(cut);
  return result;
}

namespace {

Attributes with_common(ElementType common, const Attributes& attributes) {
  Attributes all = Attributes::of(common);
  for (int64_t word : attributes.words()) all.add(word);
  return all;
}

// The node over the wholes of trimmed operands, or empty where there is none.
Value pointwise_of_wholes(const PointwiseOp& op, std::span<const Value> operands, ShapeRef output,
                          const Attributes& attributes) {
  const auto wholes = wholes_of(operands, output.dims);
  if (!wholes) return {};
  return wholes->trimmed(
      Node::make(op, wholes->operands, attributes, ShapeRef{output.type, wholes->dims}));
}

}  // namespace

Value pointwise(const PointwiseOp& op, std::span<const Value> operands, ElementType common,
                ShapeRef output, const Attributes& attributes) {
  const Attributes all = with_common(common, attributes);
  if (any_trimmed(operands)) [[unlikely]] {
    if (Value value = pointwise_of_wholes(op, operands, output, all)) return value;
  }
  return Node::make(op, operands, all, output);
}

Value pointwise_taking(const PointwiseOp& op, std::span<Value> operands, ElementType common,
                       ShapeRef output, const Attributes& attributes) {
  const Attributes all = with_common(common, attributes);
  if (any_trimmed(operands)) [[unlikely]] {
    if (Value value = pointwise_of_wholes(op, operands, output, all)) return value;
  }
  return Node::take(op, operands, all, std::span(&output, 1));
}

Value scalar_operand(const c10::Scalar& number, ElementType common) {
  return lazy::scalar(number, stablehlo::opmath_type(common));
}

Value rounded_operand(const c10::Scalar& number, ElementType common) {
  if (number.isFloatingPoint() || number.isIntegral(/*includeBool=*/false)) {
    const auto single = static_cast<float>(number.toDouble());
    if (common == ElementType::kBF16) {
      return scalar_operand(static_cast<float>(c10::BFloat16(single)), common);
    }
    if (common == ElementType::kF16) {
      return scalar_operand(static_cast<float>(c10::Half(single)), common);
    }
  }
  return scalar_operand(number, common);
}

bool plain_pair(const at::Tensor& a, const at::Tensor& b) {
  const c10::TensorImpl* x = a.unsafeGetTensorImpl();
  const c10::TensorImpl* y = b.unsafeGetTensorImpl();
  return x->is_xla() && y->is_xla() && x->dtype() == y->dtype() && x->device() == y->device() &&
         x->sizes() == y->sizes() && x->is_contiguous() && y->is_contiguous();
}

}  // namespace torch_xla::aten
