// Reading messages of protocol buffers (protobuf.dev/programming-guides/encoding).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace torch_xla::sharding {

// One message, from its front. Throws std::invalid_argument, with the message's name, for bytes
// that are none.
class WireReader {
 public:
  WireReader(std::string_view bytes, const char* message) : bytes_(bytes), message_(message) {}

  bool done() const { return bytes_.empty(); }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) break;
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    refuse("that ends in the middle of a number");
  }
  std::string_view bytes(uint64_t size) {
    if (size > bytes_.size()) refuse("that ends in the middle of a field");
    const std::string_view part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return part;
  }
  // Of a field that has its own length.
  std::string_view bytes() { return bytes(varint()); }
  // Numbers of a field, packed or one at a time.
  void numbers(uint64_t wire_type, std::vector<int64_t>& into) {
    if (wire_type == 0) return into.push_back(static_cast<int64_t>(varint()));
    WireReader packed(bytes(), message_);
    while (!packed.done()) into.push_back(static_cast<int64_t>(packed.varint()));
  }
  void skip(uint64_t wire_type) {
    switch (wire_type) {
      case 0:
        varint();
        return;
      case 1:
        bytes(8);
        return;
      case 2:
        bytes();
        return;
      case 5:
        bytes(4);
        return;
      default:
        refuse("with a field of unknown type " + std::to_string(wire_type));
    }
  }
  // Calls `each(field number, wire type)` for each field, which it reads or skip()s.
  template <class Each>
  void fields(const Each& each) {
    while (!done()) {
      const uint64_t tag = varint();
      each(tag >> 3, tag & 7);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument(std::string(message_) + ' ' + why);
  }

  std::string_view bytes_;
  const char* message_;
};

}  // namespace torch_xla::sharding
