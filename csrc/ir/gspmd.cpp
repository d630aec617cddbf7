#include "ir/gspmd.h"

namespace torch_xla::ir {
namespace {

using stablehlo::Builder;
using stablehlo::TensorType;
using stablehlo::Value;
using stablehlo::Values;

constexpr const char* kManual = "{manual}";

Value call(Builder& builder, const char* target, Value x, const TensorType& type,
           const std::string& sharding) {
  stablehlo::CustomCallOptions options;
  options.api_version = 1;
  options.extra = "mhlo.sharding = \"" + sharding + '"';
  return builder.custom_call(target, {x}, {type}, options).front();
}

}  // namespace

Value gspmd_constraint(Builder& builder, Value x, const std::string& sharding) {
  return call(builder, "Sharding", x, x.type(), sharding);
}

Values gspmd_manual_computation(Builder& builder, const Values& xs,
                                const std::vector<std::string>& in_shardings,
                                const std::vector<TensorType>& locals,
                                const std::vector<std::string>& out_shardings,
                                const std::vector<TensorType>& results,
                                const stablehlo::ValuesRegion& body) {
  Values pieces;
  for (size_t i = 0; i < xs.size(); ++i) {
    const Value cut = gspmd_constraint(builder, xs[i], in_shardings[i]);
    pieces.push_back(call(builder, "SPMDFullToShardShape", cut, locals[i], kManual));
  }
  const Values given = body(pieces);
  Values wholes;
  for (size_t i = 0; i < given.size(); ++i) {
    const Value piece = gspmd_constraint(builder, given[i], kManual);
    wholes.push_back(call(builder, "SPMDShardToFullShape", piece, results[i], out_shardings[i]));
  }
  return wholes;
}

}  // namespace torch_xla::ir
