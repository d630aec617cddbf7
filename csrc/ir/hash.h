#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace torch_xla::ir {

// Mixes two words through a full 64x64 multiplication (the folded multiply of wyhash; Wang Yi,
// github.com/wangyi-fudan/wyhash).
inline uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a ^ 0x9e3779b97f4a7c15u) *
                       static_cast<unsigned __int128>(b ^ 0xd1b54a32d192ed03u);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_text(std::string_view text) {
  uint64_t hash = text.size();
  for (unsigned char c : text) hash = mix(hash, c);
  return hash;
}

// 128 bits: two graphs that meet in one cache never collide in practice.
struct Hash128 {
  uint64_t low = 0x243f6a8885a308d3u;
  uint64_t high = 0x13198a2e03707344u;

  void add(uint64_t word) {
    low = mix(low, word);
    high = mix(high ^ 0xa4093822299f31d0u, word + low);
  }
  bool operator==(const Hash128&) const = default;
};

}  // namespace torch_xla::ir

template <>
struct std::hash<torch_xla::ir::Hash128> {
  size_t operator()(const torch_xla::ir::Hash128& hash) const { return hash.low; }
};
