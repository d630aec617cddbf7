#include "ir/attributes.h"

#include <cstring>
#include <stdexcept>

namespace torch_xla::ir {

void Attributes::spill(int64_t word) {
  if (spilled_.empty()) spilled_.assign(inline_.begin(), inline_.begin() + size_);
  spilled_.push_back(word);
}

void Attributes::add(std::string_view text) {
  push(static_cast<int64_t>(text.size()));
  for (size_t at = 0; at < text.size(); at += sizeof(int64_t)) {
    int64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
    push(word);
  }
}

int64_t AttributeReader::integer() {
  if (position_ >= words_.size()) throw std::logic_error("attributes: read past the last one");
  return words_[position_++];
}

std::span<const int64_t> AttributeReader::list() {
  const auto length = static_cast<size_t>(integer());
  if (length > words_.size() - position_) throw std::logic_error("attributes: not a list");
  position_ += length;
  return words_.subspan(position_ - length, length);
}

std::string AttributeReader::string() {
  const auto length = static_cast<size_t>(integer());
  const size_t word_count = (length + sizeof(int64_t) - 1) / sizeof(int64_t);
  if (word_count > words_.size() - position_) throw std::logic_error("attributes: not a string");
  std::string text(length, '\0');
  std::memcpy(text.data(), words_.data() + position_, length);
  position_ += word_count;
  return text;
}

}  // namespace torch_xla::ir
