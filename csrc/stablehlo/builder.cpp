// The module itself: values, types, regions, functions, locations and how an operation is written.

#include "stablehlo/builder.h"

#include <cctype>
#include <stdexcept>

#include "stablehlo/scope.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {
namespace {

size_t hash_type(const TensorType& type) {
  size_t hash = static_cast<size_t>(type.type) + type.bounded * 31;
  for (int64_t size : type.dims) hash = (hash ^ static_cast<size_t>(size)) * 0x9E3779B97F4A7C15u;
  return hash;
}

std::string argument_attributes(const ArgumentAttributes& attributes) {
  Attributes text;
  if (attributes.aliased_output)
    text.integer("tf.aliasing_output", *attributes.aliased_output, "i32");
  if (attributes.donated) text.boolean("jax.buffer_donor", true);
  if (!attributes.sharding.empty()) text.raw("mhlo.sharding", quote(attributes.sharding));
  if (!attributes.sdy_sharding.empty()) text.raw("sdy.sharding", attributes.sdy_sharding);
  if (!attributes.memory_kind.empty()) text.raw("mhlo.memory_kind", quote(attributes.memory_kind));
  text.append(attributes.extra);
  std::string inside = text.take();
  return inside.empty() ? inside : cat(" {", inside, "}");
}

bool takes_bounded(std::string_view name) {
  return name == "stablehlo.get_dimension_size" || name == "stablehlo.set_dimension_size" ||
         name == "stablehlo.custom_call" || name == "stablehlo.optimization_barrier";
}

}  // namespace

const TensorType& Value::type() const {
  if (!builder_) throw std::logic_error("type of an empty stablehlo::Value");
  return builder_->type_of(type_);
}

int64_t Value::dim(int64_t i) const {
  const TensorType& t = type();
  if (i < 0 || i >= rank()) fail("Value::dim", "dimension ", i, " of ", t);
  return t.dims[static_cast<size_t>(i)];
}

Builder::Builder() : main_scope_(std::make_unique<Scope>()) {
  scope_ = main_scope_.get();
  scope_visible_.push_back(true);
  body_.reserve(1 << 14);
}

Builder::~Builder() = default;

// --- Values and types --------------------------------------------------------------------------

uint32_t Builder::intern(const TensorType& type) {
  size_t hash = hash_type(type);
  auto [first, last] = type_index_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (types_[it->second].type == type) return it->second;
  }
  for (int64_t size : type.dims) {
    if (size < 0) throw std::logic_error(cat("negative size in a type: ", type.dims));
  }
  auto index = static_cast<uint32_t>(types_.size());
  types_.push_back({type, to_string(type)});
  type_index_.emplace(hash, index);
  return index;
}

Value Builder::new_value(uint32_t type) {
  auto id = static_cast<uint32_t>(value_scope_.size());
  value_scope_.push_back(scope_->number);
  return {this, id, type};
}

void Builder::append_value(Value v) {
  body_ += '%';
  append_to(body_, v.id_);
}

void Builder::append_types(const Values& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) body_ += ", ";
    body_ += types_[values[i].type_].text;
  }
}

void Builder::check_operand(std::string_view name, Value v) const {
  if (v.builder_ != this) {
    fail(name, v.builder_ ? "operand of another builder" : "empty operand");
  }
  if (!scope_visible_[value_scope_[v.id_]]) {
    fail(name, "operand %", v.id_,
         " is not visible here: it belongs to another region or function, or to the outside of a "
         "region that must stand alone");
  }
}

// --- Operations ----------------------------------------------------------------------------------

Values Builder::write(std::string_view name, std::span<const Value> operands,
                      std::span<const uint32_t> result_types, std::string_view attributes,
                      std::span<const std::string> regions) {
  for (Value v : operands) {
    check_operand(name, v);
    if (types_[v.type_].type.bounded && !takes_bounded(name)) {
      fail(name, "does not take the bounded type ", types_[v.type_].text);
    }
  }
  Values results;
  results.reserve(result_types.size());
  for (uint32_t type : result_types) results.push_back(new_value(type));

  body_.append(static_cast<size_t>(scope_->depth) * 2, ' ');
  for (size_t i = 0; i < results.size(); ++i) {
    if (i) body_ += ", ";
    append_value(results[i]);
  }
  if (!results.empty()) body_ += " = ";
  body_ += '"';
  body_ += name;
  body_ += "\"(";
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i) body_ += ", ";
    append_value(operands[i]);
  }
  body_ += ')';
  for (size_t i = 0; i < regions.size(); ++i) {
    body_ += i ? ", " : " (";
    body_ += regions[i];
  }
  if (!regions.empty()) body_ += ')';
  if (!attributes.empty() || !op_attributes_.empty()) {
    body_ += " {";
    body_ += attributes;
    if (!attributes.empty() && !op_attributes_.empty()) body_ += ", ";
    body_ += op_attributes_;
    body_ += '}';
  }
  body_ += " : (";
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i) body_ += ", ";
    body_ += types_[operands[i].type_].text;
  }
  body_ += ") -> ";
  bool parentheses = results.size() != 1;
  if (parentheses) body_ += '(';
  append_types(results);
  if (parentheses) body_ += ')';
  body_ += location_;
  body_ += '\n';
  ++op_count_;
  return results;
}

Value Builder::write(std::string_view name, std::initializer_list<Value> operands,
                     uint32_t result_type, std::string_view attributes,
                     std::span<const std::string> regions) {
  return write(name, std::span<const Value>(operands.begin(), operands.size()),
               std::span<const uint32_t>(&result_type, 1), attributes, regions)[0];
}

Values Builder::op(std::string_view name, const Values& operands,
                   const std::vector<TensorType>& results, std::string_view attributes) {
  std::vector<uint32_t> types;
  for (const TensorType& type : results) types.push_back(intern(type));
  return write(name, operands, types, attributes);
}

Value Builder::op(std::string_view name, const Values& operands, const TensorType& result,
                  std::string_view attributes) {
  uint32_t type = intern(result);
  return write(name, operands, std::span<const uint32_t>(&type, 1), attributes)[0];
}

// --- Regions and functions ---------------------------------------------------------------------

std::string Builder::region(std::span<const uint32_t> arguments, const ValuesRegion& body,
                            Values* results, std::string_view terminator) {
  ScopeGuard guard(*this, ScopeGuard::Kind::kRegion);
  return finish_region(arguments, body, results, terminator);
}

std::string Builder::isolated_region(std::span<const uint32_t> arguments,
                                     const ValuesRegion& body) {
  ScopeGuard guard(*this, ScopeGuard::Kind::kIsolatedRegion);
  return finish_region(arguments, body, nullptr, "stablehlo.return");
}

std::string Builder::finish_region(std::span<const uint32_t> arguments, const ValuesRegion& body,
                                   Values* results, std::string_view terminator) {
  Values values;
  for (uint32_t type : arguments) values.push_back(new_value(type));
  body_ = "{\n";
  if (!values.empty()) {
    body_.append(static_cast<size_t>(scope_->depth - 1) * 2, ' ');
    body_ += "^bb0(";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i) body_ += ", ";
      append_value(values[i]);
      body_ += ": ";
      body_ += types_[values[i].type_].text;
    }
    body_ += "):\n";
  }
  Values returned = body(values);
  write(terminator, returned, {});
  body_.append(static_cast<size_t>(scope_->depth - 1) * 2, ' ');
  body_ += '}';
  if (results) *results = std::move(returned);
  return std::move(body_);
}

std::string Builder::combiner(std::string_view op, const Values& xs, const ReduceRegion& body) {
  std::vector<uint32_t> scalars;
  for (int side = 0; side < 2; ++side) {
    for (Value x : xs) scalars.push_back(intern(x.element_type(), {}));
  }
  size_t count = xs.size();
  return isolated_region(scalars, [&](const Values& args) {
    auto middle = args.begin() + static_cast<std::ptrdiff_t>(count);
    Values results = body(Values(args.begin(), middle), Values(middle, args.end()));
    if (results.size() != count) {
      fail(op, "the region gives ", results.size(), " values for ", count, " inputs");
    }
    for (size_t i = 0; i < count; ++i) {
      check_operand(op, results[i]);
      if (results[i].type_ != scalars[i]) {
        fail(op, "the region gives ", results[i].type(), " for ", types_[scalars[i]].text);
      }
    }
    return results;
  });
}

std::string Builder::function(std::string_view name, const std::vector<TensorType>& arguments,
                              const ValuesRegion& body) {
  std::string unique;
  for (char c : name) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    unique += plain || c == '.' || c == '$' ? c : '_';
  }
  if (unique.empty() ||
      !(std::isalpha(static_cast<unsigned char>(unique[0])) || unique[0] == '_')) {
    unique.insert(0, "f_");
  }
  std::string base = unique;
  for (int i = 1; unique == "main" || function_table_.contains(unique); ++i) {
    unique = cat(base, "_", i);
  }
  function_table_[unique] = {};  // Takes the name; recursion is not allowed and will not resolve.

  Function signature;
  for (const TensorType& type : arguments) signature.arguments.push_back(intern(type));
  ScopeGuard guard(*this, ScopeGuard::Kind::kFunction);
  Values values;
  for (uint32_t type : signature.arguments) values.push_back(new_value(type));
  Values returned = body(values);
  write("func.return", returned, {});
  for (Value v : returned) signature.results.push_back(v.type_);
  std::string text = std::move(body_);

  std::string header = cat("  func.func private @", unique, "(");
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) header += ", ";
    header += cat("%", values[i].id_, ": ", types_[values[i].type_].text);
  }
  header += ") -> (";
  for (size_t i = 0; i < returned.size(); ++i) {
    if (i) header += ", ";
    header += types_[returned[i].type_].text;
  }
  functions_ += cat(header, ") {\n", text, "  }\n");
  function_table_[unique] = std::move(signature);
  return unique;
}

Values Builder::call(std::string_view function, const Values& arguments) {
  auto it = function_table_.find(std::string(function));
  if (it == function_table_.end()) fail("func.call", "no function named ", function);
  const Function& signature = it->second;
  if (arguments.size() != signature.arguments.size()) {
    fail("func.call", function, " takes ", signature.arguments.size(), " arguments, not ",
         arguments.size());
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    check_operand("func.call", arguments[i]);
    if (arguments[i].type_ != signature.arguments[i]) {
      fail("func.call", function, " takes ", types_[signature.arguments[i]].text, " as argument ",
           i, ", not ", arguments[i].type());
    }
  }
  return write("func.call", arguments, signature.results,
               Attributes().raw("callee", cat("@", function)));
}

// --- The module ----------------------------------------------------------------------------------

Value Builder::parameter(const TensorType& type, const ArgumentAttributes& attributes) {
  if (scope_ != main_scope_.get()) fail("parameter", "called inside a region");
  if (returned_) fail("parameter", "called after ret()");
  Value v = new_value(intern(type));
  if (next_parameter_++) parameters_ += ", ";
  parameters_ += cat("%", v.id_, ": ", types_[v.type_].text, argument_attributes(attributes));
  return v;
}

void Builder::ret(const Values& results, const std::vector<ArgumentAttributes>& attributes) {
  if (scope_ != main_scope_.get()) fail("ret", "called inside a region");
  if (returned_) fail("ret", "called twice");
  if (!attributes.empty() && attributes.size() != results.size()) {
    fail("ret", attributes.size(), " attributes for ", results.size(), " results");
  }
  for (Value v : results) check_operand("ret", v);
  body_ += "    \"func.return\"(";
  for (size_t i = 0; i < results.size(); ++i) {
    if (i) body_ += ", ";
    append_value(results[i]);
  }
  body_ += ") : (";
  append_types(results);
  body_ += ") -> ()\n";
  for (size_t i = 0; i < results.size(); ++i) {
    if (i) results_ += ", ";
    results_ += types_[results[i].type_].text;
    if (!attributes.empty()) results_ += argument_attributes(attributes[i]);
  }
  returned_ = true;
}

std::string Builder::module(std::string_view name) const {
  if (!returned_) fail("module", "ret() has not been called");
  std::string text;
  text.reserve(text_size() + parameters_.size() + results_.size() + locations_.size() + 256);
  text += "module @";
  text += quote(name);
  if (!module_attributes_.empty()) text += cat(" attributes {", module_attributes_, "}");
  text += " {\n";
  text += module_text_;
  text += functions_;
  text += "  func.func public @main(";
  text += parameters_;
  text += ") -> (";
  text += results_;
  text += ") {\n";
  text += body_;
  text += "  }\n}\n";
  text += locations_;
  return text;
}

void Builder::set_location(std::string_view name) {
  if (name.empty()) {
    location_.clear();
    return;
  }
  auto [it, inserted] = location_index_.try_emplace(quote(name), location_index_.size());
  if (inserted) locations_ += cat("#loc", it->second, " = loc(", it->first, ")\n");
  location_ = cat(" loc(#loc", it->second, ")");
}

void Builder::set_location(std::string_view name, std::string_view file, int line) {
  std::string key = cat(quote(name), "(", quote(file), ":", line, ":0)");
  auto [it, inserted] = location_index_.try_emplace(std::move(key), location_index_.size());
  if (inserted) locations_ += cat("#loc", it->second, " = loc(", it->first, ")\n");
  location_ = cat(" loc(#loc", it->second, ")");
}

void Builder::set_op_attributes(std::string_view attributes) { op_attributes_ = attributes; }

void Builder::set_module_attribute(std::string_view name, std::string_view value) {
  if (!module_attributes_.empty()) module_attributes_ += ", ";
  module_attributes_ += cat(name, " = ", value);
}

void Builder::add_module_text(std::string_view text) { module_text_ += cat("  ", text, "\n"); }

// --- Operators -----------------------------------------------------------------------------------

Value operator+(Value a, Value b) { return a.builder().add(a, b); }
Value operator-(Value a, Value b) { return a.builder().subtract(a, b); }
Value operator*(Value a, Value b) { return a.builder().multiply(a, b); }
Value operator/(Value a, Value b) { return a.builder().divide(a, b); }
Value operator&(Value a, Value b) { return a.builder().and_(a, b); }
Value operator|(Value a, Value b) { return a.builder().or_(a, b); }
Value operator^(Value a, Value b) { return a.builder().xor_(a, b); }
Value operator-(Value x) { return x.builder().negate(x); }
Value operator~(Value x) { return x.builder().not_(x); }
Value operator+(Value a, Number b) { return a + a.builder().full_like(a, b); }
Value operator-(Value a, Number b) { return a - a.builder().full_like(a, b); }
Value operator*(Value a, Number b) { return a * a.builder().full_like(a, b); }
Value operator/(Value a, Number b) { return a / a.builder().full_like(a, b); }
Value operator+(Number a, Value b) { return b.builder().full_like(b, a) + b; }
Value operator-(Number a, Value b) { return b.builder().full_like(b, a) - b; }
Value operator*(Number a, Value b) { return b.builder().full_like(b, a) * b; }
Value operator/(Number a, Value b) { return b.builder().full_like(b, a) / b; }

}  // namespace torch_xla::stablehlo
