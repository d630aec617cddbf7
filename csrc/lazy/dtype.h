#pragma once

#include <c10/core/ScalarType.h>

#include <array>

#include "pjrt/buffer_type.h"
#include "stablehlo/types.h"

namespace torch_xla::lazy {

// The three names of one element type: torch's, StableHLO's and PJRT's.
// Each throws c10::TypeError for a dtype that has no counterpart (quantized, 4-bit packed, ...).
inline stablehlo::ElementType element_type(at::ScalarType type);
stablehlo::ElementType element_type(pjrt::BufferType type);
at::ScalarType scalar_type(stablehlo::ElementType type);
pjrt::BufferType buffer_type(stablehlo::ElementType type);

namespace internal {
// By torch's type; kNoElementType where there is none.
constexpr auto kNoElementType = static_cast<stablehlo::ElementType>(-1);
extern const std::array<stablehlo::ElementType, static_cast<size_t>(at::ScalarType::NumOptions)>
    kElementTypes;
[[noreturn]] void throw_no_element_type(at::ScalarType type);
}  // namespace internal

// Several times an op: a look into a table.
inline stablehlo::ElementType element_type(at::ScalarType type) {
  const auto index = static_cast<size_t>(type);
  if (index < internal::kElementTypes.size()) [[likely]] {
    const stablehlo::ElementType found = internal::kElementTypes[index];
    if (found != internal::kNoElementType) [[likely]]
      return found;
  }
  internal::throw_no_element_type(type);
}

}  // namespace torch_xla::lazy
