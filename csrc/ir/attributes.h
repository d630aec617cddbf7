#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace torch_xla::ir {

// What decides the structure of an op beyond its operands: dims, flags, modes, numbers that change
// the algorithm. Values that only feed the arithmetic are scalars (node.h), never attributes.
//
// Encoded as 64-bit words in the order written; a list or a string is preceded by its length. The
// lowering reads them back in the same order with AttributeReader.
class Attributes {
 public:
  Attributes() = default;

  // Any mix of integers, booleans, enums, doubles, spans of int64 and strings.
  template <class... Items>
  static Attributes of(const Items&... items) {
    Attributes attributes;
    (attributes.add(items), ...);
    return attributes;
  }

  template <class T>
    requires(std::is_integral_v<T> || std::is_enum_v<T>)
  void add(T item) {
    push(static_cast<int64_t>(item));
  }
  void add(double item) { push(std::bit_cast<int64_t>(item)); }
  void add(std::span<const int64_t> items) {
    push(static_cast<int64_t>(items.size()));
    for (int64_t item : items) push(item);
  }
  void add(const std::vector<int64_t>& items) { add(std::span<const int64_t>(items)); }
  void add(std::initializer_list<int64_t> items) {
    add(std::span<const int64_t>(items.begin(), items.size()));
  }
  void add(std::string_view text);

  std::span<const int64_t> words() const {
    return spilled_.empty() ? std::span(inline_.data(), size_) : std::span<const int64_t>(spilled_);
  }

 private:
  void push(int64_t word) {
    if (spilled_.empty() && size_ < inline_.size()) {
      inline_[size_++] = word;
    } else {
      spill(word);
    }
  }
  void spill(int64_t word);

  std::array<int64_t, 24> inline_;
  size_t size_ = 0;
  std::vector<int64_t> spilled_;
};

// Reads a node's attribute words in the order Attributes wrote them. Reading past the end or a
// wrong kind is a programming error: the reader throws std::logic_error where it can tell.
class AttributeReader {
 public:
  explicit AttributeReader(std::span<const int64_t> words) : words_(words) {}

  int64_t integer();
  bool boolean() { return integer() != 0; }
  double real() { return std::bit_cast<double>(integer()); }
  template <class E>
  E enumeration() {
    return static_cast<E>(integer());
  }
  std::span<const int64_t> list();
  std::string string();
  bool done() const { return position_ == words_.size(); }

 private:
  std::span<const int64_t> words_;
  size_t position_ = 0;
};

}  // namespace torch_xla::ir
