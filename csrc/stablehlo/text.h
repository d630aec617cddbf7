// Small helpers that write MLIR text and error messages. Only the .cpp files here include this.

#pragma once

#include <charconv>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "stablehlo/types.h"

namespace torch_xla::stablehlo {

inline void append_to(std::string& text, std::string_view part) { text += part; }
inline void append_to(std::string& text, const Dims& dims) { text += to_string(dims); }
inline void append_to(std::string& text, int64_t value) {
  char digits[24];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}
inline void append_to(std::string& text, int value) { append_to(text, int64_t{value}); }
inline void append_to(std::string& text, uint32_t value) { append_to(text, int64_t{value}); }
inline void append_to(std::string& text, size_t value) {
  append_to(text, static_cast<int64_t>(value));
}

template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::string text;
  (append_to(text, parts), ...);
  return text;
}

// Throws std::logic_error "op: parts...".
template <typename... Parts>
[[noreturn]] void fail(std::string_view op, const Parts&... parts) {
  throw std::logic_error(cat(op, ": ", parts...));
}

// A quoted MLIR string.
std::string quote(std::string_view text);

// The inside of an attribute dictionary, one entry a call.
class Attributes {
 public:
  Attributes& raw(std::string_view name, std::string_view value) {
    key(name);
    text_ += value;
    return *this;
  }
  // A unit attribute: present or not.
  Attributes& unit(std::string_view name) {
    if (!text_.empty()) text_ += ", ";
    text_ += name;
    return *this;
  }
  Attributes& integer(std::string_view name, int64_t value, std::string_view type = "i64") {
    key(name);
    append_to(text_, value);
    text_ += " : ";
    text_ += type;
    return *this;
  }
  Attributes& boolean(std::string_view name, bool value) {
    return raw(name, value ? "true" : "false");
  }
  // array<i64: 1, 2>
  Attributes& array(std::string_view name, const Dims& values);
  // array<i1: true, false>
  Attributes& bool_array(std::string_view name, const Dims& values);
  // dense<[[l0, h0], [l1, h1]]> : tensor<2x2xi64>
  Attributes& pairs(std::string_view name, const Dims& first, const Dims& second);
  // Entries already in MLIR text; nothing when empty.
  Attributes& append(std::string_view entries) {
    if (entries.empty()) return *this;
    if (!text_.empty()) text_ += ", ";
    text_ += entries;
    return *this;
  }

  operator std::string_view() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  void key(std::string_view name) {
    if (!text_.empty()) text_ += ", ";
    text_ += name;
    text_ += " = ";
  }
  std::string text_;
};

// The inside of #stablehlo.gather<...> and its like: "name = [1, 2]" an entry.
class DimensionNumbers {
 public:
  DimensionNumbers& list(std::string_view name, const Dims& values) {
    if (values.empty()) return *this;  // The parsers take absence for an empty list.
    key(name);
    append_to(text_, values);
    return *this;
  }
  DimensionNumbers& integer(std::string_view name, int64_t value) {
    key(name);
    append_to(text_, value);
    return *this;
  }
  std::string wrap(std::string_view mnemonic) const {
    return cat("#stablehlo.", mnemonic, "<", text_, ">");
  }

 private:
  void key(std::string_view name) {
    if (!text_.empty()) text_ += ", ";
    text_ += name;
    text_ += " = ";
  }
  std::string text_;
};

// Throws unless every axis is in [0, rank) and none comes twice.
void check_axes(std::string_view op, std::string_view what, const Dims& axes, size_t rank);

}  // namespace torch_xla::stablehlo
