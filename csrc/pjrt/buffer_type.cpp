#include "pjrt/buffer_type.h"

#include "pjrt/error.h"

namespace torch_xla::pjrt {
namespace {

struct TypeInfo {
  const char* name;
  size_t bytes;
};

// In the order of BufferType.
constexpr TypeInfo kTypes[] = {
    {"invalid", 0},       {"i1", 1},     {"i8", 1},       {"i16", 2},           {"i32", 4},
    {"i64", 8},           {"ui8", 1},    {"ui16", 2},     {"ui32", 4},          {"ui64", 8},
    {"f16", 2},           {"f32", 4},    {"f64", 8},      {"bf16", 2},          {"complex<f32>", 8},
    {"complex<f64>", 16}, {"f8E5M2", 1}, {"f8E4M3FN", 1}, {"f8E4M3B11FNUZ", 1}, {"f8E5M2FNUZ", 1},
    {"f8E4M3FNUZ", 1},    {"i4", 1},     {"ui4", 1},      {"token", 0},         {"i2", 1},
    {"ui2", 1},           {"f8E4M3", 1}, {"f8E3M4", 1},   {"f8E8M0FNU", 1},     {"f4E2M1FN", 1},
};

const TypeInfo& info(BufferType type) {
  const auto index = static_cast<size_t>(type);
  return kTypes[index < std::size(kTypes) ? index : 0];
}

}  // namespace

size_t host_element_size(BufferType type) { return info(type).bytes; }

size_t host_bytes(BufferType type, std::span<const int64_t> dims) {
  size_t bytes = host_element_size(type);
  bool empty = false;
  for (int64_t dim : dims) {
    if (dim < 0) {
      throw Error(ErrorCode::kInvalidArgument, "negative dimension " + std::to_string(dim));
    }
    empty |= dim == 0;
  }
  if (empty) return 0;
  for (int64_t dim : dims) {
    // Half of the address space: sizes are also held as int64.
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(dim), &bytes) ||
        bytes > static_cast<size_t>(INT64_MAX)) {
      throw Error(ErrorCode::kInvalidArgument, "array of more than 2^63 bytes");
    }
  }
  return bytes;
}

const char* to_string(BufferType type) { return info(type).name; }

}  // namespace torch_xla::pjrt
