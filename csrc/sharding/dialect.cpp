#include "sharding/dialect.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace torch_xla::sharding {
namespace {

// PJRT plugins learnt Shardy while StableHLO was at 1.8, late in 2024.
constexpr std::array<int64_t, 2> kFirstWithShardy = {1, 9};

std::atomic<Dialect> g_dialect{Dialect::kShardy};
std::atomic<bool> g_chosen{false};

}  // namespace

Dialect dialect() { return g_dialect.load(std::memory_order_relaxed); }

void set_dialect_of_plugin(Dialect dialect) {
  if (!g_chosen.load()) g_dialect.store(dialect);
}

void choose_dialect(Dialect dialect) {
  g_chosen.store(true);
  g_dialect.store(dialect);
}

Dialect dialect_for(std::span<const int64_t> version) {
  const bool is_older = std::lexicographical_compare(
      version.begin(), version.end(), kFirstWithShardy.begin(), kFirstWithShardy.end());
  return is_older ? Dialect::kGspmd : Dialect::kShardy;
}

}  // namespace torch_xla::sharding
