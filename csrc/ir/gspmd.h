// What Shardy has operations for, in the custom calls that GSPMD knows instead
// (sharding/dialect.h). Shardings are HLO text, "{devices=[2,1]0,1}".
#pragma once

#include <string>
#include <vector>

#include "stablehlo/builder.h"

namespace torch_xla::ir {

// sdy.sharding_constraint.
stablehlo::Value gspmd_constraint(stablehlo::Builder& builder, stablehlo::Value x,
                                  const std::string& sharding);

// sdy.manual_computation over all axes; see Builder::manual_computation. `body` is written in line:
// that operations are each device's own they learn from their operands.
stablehlo::Values gspmd_manual_computation(stablehlo::Builder& builder, const stablehlo::Values& xs,
                                           const std::vector<std::string>& in_shardings,
                                           const std::vector<stablehlo::TensorType>& locals,
                                           const std::vector<std::string>& out_shardings,
                                           const std::vector<stablehlo::TensorType>& results,
                                           const stablehlo::ValuesRegion& body);

}  // namespace torch_xla::ir
