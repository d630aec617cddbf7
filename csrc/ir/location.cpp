#include "ir/location.h"

namespace torch_xla::ir {
namespace {
LocationProvider g_provider;
}  // namespace

void set_location_provider(LocationProvider provider) { g_provider = provider; }

Location current_location() { return g_provider.current ? g_provider.current() : 0; }

std::string describe(Location location) {
  return g_provider.describe && location != 0 ? g_provider.describe(location) : std::string();
}

}  // namespace torch_xla::ir
