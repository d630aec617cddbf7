// Element types of device buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace torch_xla::pjrt {

// Values are those of PJRT_Buffer_Type.
enum class BufferType : uint32_t {
  kInvalid = 0,
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 13,
  kC64 = 14,
  kC128 = 15,
  kF8E5M2 = 16,
  kF8E4M3FN = 17,
  kF8E4M3B11FNUZ = 18,
  kF8E5M2FNUZ = 19,
  kF8E4M3FNUZ = 20,
  kS4 = 21,
  kU4 = 22,
  kToken = 23,
  kS2 = 24,
  kU2 = 25,
  kF8E4M3 = 26,
  kF8E3M4 = 27,
  kF8E8M0FNU = 28,
  kF4E2M1FN = 29,
};

// Bytes of one element on the host. Types of less than 8 bits take a whole byte there, whatever the
// device does; a token and an invalid type take none.
size_t host_element_size(BufferType type);

// Bytes of a dense array on the host. Throws Error on a negative dimension or on overflow.
size_t host_bytes(BufferType type, std::span<const int64_t> dims);

// StableHLO's spelling: "f32", "bf16", "i1", "complex<f32>", "f8E4M3FN".
const char* to_string(BufferType type);

}  // namespace torch_xla::pjrt
