#include "pjrt/option.h"

#include <sstream>

#include "pjrt/call.h"
#include "pjrt/named_values.h"

namespace torch_xla::pjrt {
namespace {

Option to_option(const abi::NamedValue& value) {
  switch (value.type) {
    case abi::kString:
      return std::string(value.string_value, value.value_size);
    case abi::kInt64:
      return value.int64_value;
    case abi::kInt64List:
      return std::vector<int64_t>(value.int64_array_value,
                                  value.int64_array_value + value.value_size);
    case abi::kFloat:
      return value.float_value;
    case abi::kBool:
      return value.bool_value;
  }
  throw Error(ErrorCode::kUnimplemented,
              "the plugin gave a named value of unknown type " + std::to_string(value.type));
}

}  // namespace

std::string to_string(const Option& option) {
  std::ostringstream out;
  if (const auto* text = std::get_if<std::string>(&option)) {
    out << '"' << *text << '"';
  } else if (const auto* integer = std::get_if<int64_t>(&option)) {
    out << *integer;
  } else if (const auto* boolean = std::get_if<bool>(&option)) {
    out << (*boolean ? "true" : "false");
  } else if (const auto* number = std::get_if<float>(&option)) {
    out << *number;
  } else {
    const char* separator = "[";
    const auto& list = std::get<std::vector<int64_t>>(option);
    if (list.empty()) out << '[';
    for (int64_t item : list) {
      out << separator << item;
      separator = ", ";
    }
    out << ']';
  }
  return out.str();
}

Attributes to_attributes(const abi::NamedValue* values, size_t count) {
  Attributes result;
  for (size_t i = 0; i < count; ++i) {
    result.emplace(std::string(values[i].name, values[i].name_size), to_option(values[i]));
  }
  return result;
}

std::vector<abi::NamedValue> to_named_values(const Options& options) {
  std::vector<abi::NamedValue> result;
  result.reserve(options.size());
  for (const auto& [name, option] : options) {
    auto value = make<abi::NamedValue>();
    value.name = name.data();
    value.name_size = name.size();
    value.value_size = 1;
    if (const auto* text = std::get_if<std::string>(&option)) {
      value.type = abi::kString;
      value.string_value = text->data();
      value.value_size = text->size();
    } else if (const auto* integer = std::get_if<int64_t>(&option)) {
      value.type = abi::kInt64;
      value.int64_value = *integer;
    } else if (const auto* boolean = std::get_if<bool>(&option)) {
      value.type = abi::kBool;
      value.bool_value = *boolean;
    } else if (const auto* number = std::get_if<float>(&option)) {
      value.type = abi::kFloat;
      value.float_value = *number;
    } else {
      const auto& list = std::get<std::vector<int64_t>>(option);
      value.type = abi::kInt64List;
      value.int64_array_value = list.data();
      value.value_size = list.size();
    }
    result.push_back(value);
  }
  return result;
}

}  // namespace torch_xla::pjrt
