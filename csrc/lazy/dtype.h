#pragma once

#include <c10/core/ScalarType.h>

#include "pjrt/buffer_type.h"
#include "stablehlo/types.h"

namespace torch_xla::lazy {

// The three names of one element type: torch's, StableHLO's and PJRT's.
// Each throws c10::TypeError for a dtype that has no counterpart (quantized, 4-bit packed, ...).
stablehlo::ElementType element_type(at::ScalarType type);
stablehlo::ElementType element_type(pjrt::BufferType type);
at::ScalarType scalar_type(stablehlo::ElementType type);
pjrt::BufferType buffer_type(stablehlo::ElementType type);

}  // namespace torch_xla::lazy
