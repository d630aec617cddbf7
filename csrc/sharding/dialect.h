// Shardings are said to a plugin in Shardy's words, or in those of GSPMD, which came before it.
#pragma once

#include <cstdint>
#include <span>

namespace torch_xla::sharding {

enum class Dialect : uint8_t {
  kShardy,  // sdy.mesh, sdy.sharding, sdy.manual_computation
  kGspmd,   // mhlo.sharding, and custom calls Sharding, SPMDFullToShardShape, SPMDShardToFullShape
};

// What programs of this process are written in: what choose_dialect() said (TORCH_XLA_SHARDY), else
// what suits the plugin, else kShardy.
Dialect dialect();
void set_dialect_of_plugin(Dialect dialect);
void choose_dialect(Dialect dialect);

// For a plugin that reports this version of StableHLO: major, minor, patch; empty if it reports
// none.
Dialect dialect_for(std::span<const int64_t> stablehlo_version);

}  // namespace torch_xla::sharding
