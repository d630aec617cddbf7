#include "stablehlo/text.h"

namespace torch_xla::stablehlo {

std::string quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string quoted = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\' || c < 0x20 || c >= 0x7f) {
      quoted += '\\';
      quoted += kHex[c >> 4];
      quoted += kHex[c & 15];
    } else {
      quoted += static_cast<char>(c);
    }
  }
  return quoted += '"';
}

Attributes& Attributes::array(std::string_view name, const Dims& values) {
  key(name);
  text_ += "array<i64";
  for (size_t i = 0; i < values.size(); ++i) {
    text_ += i ? ", " : ": ";
    append_to(text_, values[i]);
  }
  text_ += '>';
  return *this;
}

Attributes& Attributes::bool_array(std::string_view name, const Dims& values) {
  key(name);
  text_ += "array<i1";
  for (size_t i = 0; i < values.size(); ++i) {
    text_ += i ? ", " : ": ";
    text_ += values[i] ? "true" : "false";
  }
  text_ += '>';
  return *this;
}

Attributes& Attributes::pairs(std::string_view name, const Dims& first, const Dims& second) {
  key(name);
  text_ += "dense<";
  for (size_t i = 0; i < first.size(); ++i) {
    text_ += i ? ", [" : "[[";
    append_to(text_, first[i]);
    text_ += ", ";
    append_to(text_, second[i]);
    text_ += ']';
  }
  if (!first.empty()) text_ += ']';
  text_ += "> : tensor<";
  append_to(text_, first.size());
  text_ += "x2xi64>";
  return *this;
}

void check_axes(std::string_view op, std::string_view what, const Dims& axes, size_t rank) {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || axes[i] >= static_cast<int64_t>(rank)) {
      fail(op, what, " ", axes, " out of range for rank ", rank);
    }
    for (size_t j = 0; j < i; ++j) {
      if (axes[i] == axes[j]) fail(op, what, " ", axes, " repeat");
    }
  }
}

}  // namespace torch_xla::stablehlo
