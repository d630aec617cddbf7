#include "aten/checks.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <string_view>

#include "aten/kernel.h"
#include "lazy/host_function.h"
#include "lazy/host_range.h"
#include "lazy/program_error.h"
#include "lazy/trimmed.h"
#include "pjrt/error.h"

namespace torch_xla::aten {
namespace {

constexpr const char* kIndexTarget = "torch_xla.check_index";
constexpr const char* kTarget = "torch_xla.check";

std::atomic<bool> g_check{true};

// --- While a program runs: each gives a zero ---

[[noreturn]] void fail(const pjrt::FfiCall& call, const std::string& what) {
  throw pjrt::Error(pjrt::ErrorCode::kInvalidArgument,
                    std::string(call.string_attr("where")) + ": " + what);
}

void pass(const pjrt::FfiCall& call) {
  const int32_t zero = 0;
  std::memcpy(call.result(0).data, &zero, sizeof zero);
}

int64_t number(const pjrt::FfiBuffer& buffer) {
  int64_t number = 0;
  std::memcpy(&number, buffer.data, sizeof number);
  return number;
}

void check_index(const pjrt::FfiCall& call) {
  const int64_t least = number(call.arg(0)), greatest = number(call.arg(1));
  const int64_t low = call.int_attr("low"), size = call.int_attr("size");
  if (least < low || greatest >= size) {
    const bool raises_index_error =
        call.int_attr("error") == static_cast<int64_t>(CheckError::kIndex);
    fail(call, std::string(raises_index_error ? lazy::kIndexError : "") + "index " +
                   std::to_string(greatest >= size ? greatest : least) +
                   " is out of bounds: expected at least " + std::to_string(low) +
                   " and less than " + std::to_string(size));
  }
  pass(call);
}

void check(const pjrt::FfiCall& call) {
  if (*static_cast<const bool*>(call.arg(0).data)) {
    fail(call, std::string(call.string_attr("message")));
  }
  pass(call);
}

bool is_available() {
  static const bool available =
      lazy::register_host_function(kIndexTarget, pjrt::ffi_entry<check_index>) &&
      lazy::register_host_function(kTarget, pjrt::ffi_entry<check>);
  return available && g_check.load(std::memory_order_relaxed);
}

// --- Lowering ---

std::string quoted(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~' || c == '"' || c == '\\') c = '?';
  }
  return '"' + text + '"';
}

// "aten::gather at train@model.py:12"
std::string where(const Node& n, const std::string& op) {
  const std::string line = ir::describe(n.location());
  return "where = " + quoted(line.empty() ? op : op + " at " + line);
}

// `x` plus the zero that the call gives: what reads x waits for the call.
XlaValue after_call(Builder& b, XlaValue x, const char* target, const stablehlo::Values& operands,
                    std::string config) {
  stablehlo::CustomCallOptions options;
  options.backend_config = std::move(config);
  const XlaValue zero = b.custom_call(target, operands, {{ElementType::kS32, {}}}, options)[0];
  return b.add(x, b.broadcast_to(b.convert(zero, x.element_type()), x.dims()));
}

// Attributes: op, kind of error, low, size, whether there is an exception, which.
const Op kCheckIndex{"xla::check_index", [](Lowering& l, const Node& n) -> Results {
                       Builder& b = l.builder();
                       auto attributes = n.attributes();
                       const std::string op = attributes.string();
                       const int64_t error = attributes.integer();
                       const int64_t low = attributes.integer(), size = attributes.integer();
                       const bool has_exception = attributes.boolean();
                       const XlaValue index = l.operand(0);
                       XlaValue seen = index;
                       if (has_exception) {
                         seen = b.convert(seen, ElementType::kS64);  // bytes have no -100
                         seen = b.select(b.eq(seen, b.full_like(seen, attributes.integer())),
                                         b.full_like(seen, low), seen);
                       }
                       const Dims all = stablehlo::iota_dims(seen.dims().size());
                       return after_call(b, index, kIndexTarget,
                                         {b.convert(b.reduce_min(seen, all), ElementType::kS64),
                                          b.convert(b.reduce_max(seen, all), ElementType::kS64)},
                                         where(n, op) + ", error = " + std::to_string(error) +
                                             " : i64, low = " + std::to_string(low) +
                                             " : i64, size = " + std::to_string(size) + " : i64");
                     }};

// Operands: value, numbers. Attributes: op, message, interval.
const Op kCheck{"xla::check", [](Lowering& l, const Node& n) -> Results {
                  Builder& b = l.builder();
                  auto attributes = n.attributes();
                  const std::string op = attributes.string(), message = attributes.string();
                  const double least = attributes.real(), greatest = attributes.real();
                  const bool without_least = attributes.boolean();
                  const XlaValue x = l.operand(1);
                  const XlaValue from = b.full_like(x, least);
                  const XlaValue inside = b.and_(without_least ? b.gt(x, from) : b.ge(x, from),
                                                 b.le(x, b.full_like(x, greatest)));
                  const XlaValue wrong =
                      b.reduce_or(b.not_(inside), stablehlo::iota_dims(x.dims().size()));
                  return after_call(b, l.operand(0), kTarget, {wrong},
                                    where(n, op) + ", message = " + quoted(message));
                }};

// --- While tracing ---

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

ir::Value checked_index(const ir::Value& index, int64_t low, int64_t size, const char* op,
                        CheckError error, std::optional<int64_t> exception) {
  if (index.shape().num_elements() == 0 || size <= 0 || !is_available() ||
      is_known_inside(index, low, size)) {
    return index;
  }
  const auto cut = lazy::trimmed(index);
  // What is behind the size of a whole is arbitrary, and no index.
  const Value seen = cut ? lazy::filled(*cut, lazy::Neutral::kZero) : index;
  const Value whole = Node::make(kCheckIndex, {seen},
                                 Attributes::of(std::string_view(op), error, low, size,
                                                exception.has_value(), exception.value_or(0)),
                                 seen.shape());
  return cut ? lazy::with_computed(index, whole) : whole;
}

ir::Value checked(const ir::Value& value, const ir::Value& numbers, Interval interval,
                  const char* op, const char* message) {
  if (value.shape().num_elements() == 0 || numbers.shape().num_elements() == 0 || !is_available()) {
    return value;
  }
  const auto some = lazy::trimmed(numbers), cut = lazy::trimmed(value);
  const Value seen = some ? lazy::filled(*some, lazy::Neutral::kOne) : numbers;
  const Value result = cut ? cut->whole : value;
  return lazy::with_computed(
      value, Node::make(kCheck, {result, seen},
                        Attributes::of(std::string_view(op), std::string_view(message),
                                       interval.least, interval.greatest, interval.without_least),
                        result.shape()));
}

bool checks_values() { return is_available(); }

}  // namespace torch_xla::aten
