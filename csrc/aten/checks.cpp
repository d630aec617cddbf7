#include "aten/checks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <string>
#include <string_view>

#include "aten/kernel.h"
#include "lazy/host_range.h"
#include "lazy/manual.h"
#include "lazy/runtime.h"
#include "lazy/trimmed.h"
#include "lazy/value_checks.h"

namespace torch_xla::aten {
namespace {

std::atomic<bool> g_check{true};

// --- What was found ---

// "aten::gather at train@model.py:12"
std::string where(const std::string& op, const std::string& line) {
  return line.empty() ? op : op + " at " + line;
}

// Attributes: op, kind of error, whether positions may count from the end, whether there is an
// exception, which. Behind them the size, a number: sizes that depend on data compile nothing.
void fail_index(ir::AttributeReader attributes, const std::string& line, int64_t position) {
  const std::string op = attributes.string();
  const auto error = attributes.enumeration<CheckError>();
  const bool from_end = attributes.boolean();
  attributes.boolean();
  attributes.integer();
  const int64_t size = attributes.integer(), low = from_end ? -size : 0;
  if (error == CheckError::kClass) {
    TORCH_CHECK(position >= low, where(op, line), ": Class values must be non-negative.");
    TORCH_CHECK(false, where(op, line), ": Class values must be smaller than num_classes.");
  }
  const std::string what = where(op, line) + ": index " + std::to_string(position) +
                           " is out of bounds: expected at least " + std::to_string(low) +
                           " and less than " + std::to_string(size);
  TORCH_CHECK_INDEX(error != CheckError::kIndex, what);
  TORCH_CHECK(false, what);
}

// Attributes: op, message, interval.
void fail_check(ir::AttributeReader attributes, const std::string& line, int64_t) {
  const std::string op = attributes.string();
  TORCH_CHECK(false, where(op, line), ": ", attributes.string());
}

// Attributes: op.
void fail_divisor(ir::AttributeReader attributes, const std::string& line, int64_t) {
  const std::string op = attributes.string();
  TORCH_CHECK(false, where(op, line), ": ZeroDivisionError");
}

// --- Lowering ---

struct Bounds {
  int64_t least, greatest;
};

// Of an integer type.
Bounds bounds_of(ElementType type) {
  switch (type) {
    case ElementType::kS8:
      return {-128, 127};
    case ElementType::kU8:
      return {0, 255};
    case ElementType::kS16:
      return {-32768, 32767};
    case ElementType::kS32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    default:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

// The nearest positions in range, [low, last]: kernels of the host that take them do not look.
XlaValue inside(Builder& b, XlaValue index, XlaValue low, XlaValue last) {
  const ElementType type = index.element_type();
  const Bounds bounds = bounds_of(type);
  const auto end = [&](XlaValue position) {
    return b.broadcast_to(b.convert(position, type), index.dims());
  };
  return b.clamp(end(b.maximum(low, b.full_like(low, bounds.least))), index,
                 end(b.minimum(last, b.full_like(last, bounds.greatest))));
}

// Operands: positions, size. Attributes as above.
const Op kCheckIndex{
    "xla::check_index", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      auto attributes = n.attributes();
      attributes.string();
      attributes.integer();
      const bool from_end = attributes.boolean(), has_exception = attributes.boolean();
      const XlaValue index = l.operand(0), size = l.operand(1);
      const XlaValue low = from_end ? b.negate(size) : b.zeros_like(size);
      XlaValue seen = index, right = inside(b, index, low, b.subtract(size, b.ones_like(size)));
      if (has_exception) {
        const int64_t exception = attributes.integer();
        const XlaValue wide = b.convert(index, ElementType::kS64);  // bytes have no -100
        const XlaValue is_exception = b.eq(wide, b.full_like(wide, exception));
        seen = b.select(is_exception, b.broadcast_to(low, wide.dims()), wide);
        right = b.select(is_exception, index, right);
      }
      const Dims all = stablehlo::iota_dims(seen.dims().size());
      const XlaValue least = b.convert(b.reduce_min(seen, all), ElementType::kS64);
      const XlaValue greatest = b.convert(b.reduce_max(seen, all), ElementType::kS64);
      const XlaValue above = b.ge(greatest, size), below = b.lt(least, low);
      return {right, lazy::report(b, b.or_(above, below), b.select(above, greatest, least))};
    }};

// Operands: value, numbers. Attributes as above.
const Op kCheck{"xla::check", [](Lowering& l, const Node& n) -> Results {
                  Builder& b = l.builder();
                  auto attributes = n.attributes();
                  attributes.string();
                  attributes.string();
                  const double least = attributes.real(), greatest = attributes.real();
                  const bool without_least = attributes.boolean();
                  const XlaValue x = l.operand(1);
                  const XlaValue from = b.full_like(x, least);
                  const XlaValue right = b.and_(without_least ? b.gt(x, from) : b.ge(x, from),
                                                b.le(x, b.full_like(x, greatest)));
                  const XlaValue wrong =
                      b.reduce_or(b.not_(right), stablehlo::iota_dims(x.dims().size()));
                  return {l.operand(0), lazy::report(b, wrong, b.scalar(0, ElementType::kS64))};
                }};

const Op kCheckDivisor{"xla::check_divisor", [](Lowering& l, const Node&) -> Results {
                         Builder& b = l.builder();
                         const XlaValue x = l.operand(0), zero = b.eq(x, b.zeros_like(x));
                         const XlaValue wrong =
                             b.reduce_or(zero, stablehlo::iota_dims(x.dims().size()));
                         return {b.select(zero, b.ones_like(x), x),
                                 lazy::report(b, wrong, b.scalar(0, ElementType::kS64))};
                       }};

const bool g_registered = [] {
  lazy::register_checks({kCheckIndex.lower, fail_index});
  lazy::register_checks({kCheck.lower, fail_check});
  lazy::register_checks({kCheckDivisor.lower, fail_divisor});
  return true;
}();

// --- While tracing ---

// Gives its first operand.
Value make_check(const Op& op, std::span<const Value> operands, const Attributes& attributes) {
  const ShapeRef shape = operands[0].shape();
  return lazy::make_check(op, operands, attributes, std::span(&shape, 1));
}

// The value that `value` is a view, copy, cast or cut of.
Value origin(Value value) {
  while (true) {
    const Node& node = *value.node;
    const std::string_view name = node.op().name;
    const bool selects =
        name == "xla::cast"
            ? stablehlo::is_integer(node.operand(0).type())
            : &node.op() == &lazy::kTrim ||
                  (node.operands().size() == 1 && node.output().type == node.operand(0).type() &&
                   (name == "aten::view" || name == "aten::expand" || name == "aten::slice" ||
                    name == "aten::permute" || name == "aten::as_strided"));
    if (!selects) return value;
    value = Value(node.operand(0));
  }
}

// What the positions that an operator of ours finds are less than; none for other operators.
std::optional<int64_t> end_of_positions(const Value& value) {
  const Node& node = *value.node;
  const std::string_view name = node.op().name;
  if (name == "aten::nonzero" && !node.attribute_words().empty()) {
    // Sizes behind a first word.
    const auto sizes = node.attribute_words().subspan(1);
    return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  }
  if (name == "aten::arange" && node.operands().empty()) return node.output().num_elements();
  if (name == "aten::argmax") {
    auto attributes = node.attributes();
    attributes.boolean();
    const ShapeRef of = node.operand(0).shape();
    const int64_t dim = attributes.integer();
    if (dim < 0) return of.num_elements();
    return of.dims.empty() ? 1 : of.dims[static_cast<size_t>(dim)];
  }
  if (value.index == 1 && name == "aten::sort" && node.operands().size() == 2) {
    return static_cast<const ir::ScalarPayload*>(node.operand(1).node->payload())->integer;
  }
  if (value.index == 1 && (name == "aten::max" || name == "aten::sort")) {
    const auto dims = node.operand(0).dims();
    return dims.empty() ? 1 : *std::max_element(dims.begin(), dims.end());
  }
  return std::nullopt;
}

bool is_known_inside(const Value& index, int64_t low, int64_t size) {
  if (lazy::known_range(index)) return true;  // the caller has looked
  const Value from = origin(index);
  if (lazy::is_full(from) && from.node->operands().empty()) {  // not a number that is data
    const int64_t position = lazy::number_of_full(from)->toLong();
    return low <= position && position < size;
  }
  const auto end = end_of_positions(from);
  return end && low <= 0 && *end <= size;
}

}  // namespace

void set_check_values(bool check) { g_check = check; }

bool checks_values() {
  static const bool is_cpu = lazy::Runtime::get().is_cpu();
  // In a part that is written for one device each would find something else.
  return is_cpu && g_check.load(std::memory_order_relaxed) && !lazy::has_manual_parts();
}

ir::Value checked_index(const ir::Value& index, int64_t low, int64_t size, const char* op,
                        CheckError error, std::optional<int64_t> exception) {
  if (index.shape().num_elements() == 0 || size <= 0 || !checks_values() ||
      is_known_inside(index, low, size)) {
    return index;
  }
  const auto cut = lazy::trimmed(index);
  // What is behind the size of a whole is arbitrary, and no index.
  const Value seen = cut ? lazy::filled(*cut, lazy::Neutral::kZero) : index;
  const std::array<Value, 2> operands{seen, ir::scalar(size, ElementType::kS64)};
  const Value whole = make_check(kCheckIndex, operands,
                                 Attributes::of(std::string_view(op), error, low < 0,
                                                exception.has_value(), exception.value_or(0)));
  return cut ? lazy::with_computed(index, whole) : whole;
}

std::optional<int64_t> last_of_range(const ir::Value& value) {
  const Node& node = *value.node;
  const bool is_range = node.op().name == std::string_view("aten::arange") &&
                        node.operands().empty() && node.output().num_elements() > 0;
  return is_range ? std::optional(node.output().num_elements() - 1) : std::nullopt;
}

ir::Value checked_divisor(const at::Tensor& tensor, const ir::Value& divisor, const char* op) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (divisor.shape().num_elements() == 0) return divisor;
  if (!lazy::is_xla(tensor)) {
    // As much of the number as the dtype holds.
    const int bits = 64 - 8 * static_cast<int>(stablehlo::byte_size(divisor.type()));
    TORCH_CHECK(static_cast<uint64_t>(number_in(tensor).toLong()) << bits, "ZeroDivisionError");
    return divisor;
  }
  if (const auto range = lazy::known_range(divisor)) {
    const bool has_zero = range->reached && (range->least == 0 || range->greatest == 0);
    TORCH_CHECK(!has_zero, "ZeroDivisionError");
    if (range->least > 0 || range->greatest < 0) {
      const bool positive = range->least > 0;
      lazy::note_bounds(divisor, {positive ? 1 : kLeast, positive ? kMost : 0, std::nullopt});
      return divisor;
    }
  }
  const Value from = origin(divisor);
  if (lazy::is_full(from) && from.node->operands().empty()) {  // not a number that is data
    TORCH_CHECK(!lazy::number_of_full(from)->equal(0), "ZeroDivisionError");
    return divisor;
  }
  if (!checks_values()) return divisor;
  const auto cut = lazy::trimmed(divisor);
  const Value seen = cut ? lazy::filled(*cut, lazy::Neutral::kOne) : divisor;
  const Value whole =
      make_check(kCheckDivisor, std::span(&seen, 1), Attributes::of(std::string_view(op)));
  return cut ? lazy::with_computed(divisor, whole) : whole;
}

ir::Value checked(const ir::Value& value, const ir::Value& numbers, Interval interval,
                  const char* op, const char* message) {
  if (value.shape().num_elements() == 0 || numbers.shape().num_elements() == 0 ||
      !checks_values()) {
    return value;
  }
  const auto some = lazy::trimmed(numbers), cut = lazy::trimmed(value);
  const Value seen = some ? lazy::filled(*some, lazy::Neutral::kOne) : numbers;
  const Value result = cut ? cut->whole : value;
  const std::array<Value, 2> operands{result, seen};
  return lazy::with_computed(
      value, make_check(kCheck, operands,
                        Attributes::of(std::string_view(op), std::string_view(message),
                                       interval.least, interval.greatest, interval.without_least)));
}

}  // namespace torch_xla::aten
