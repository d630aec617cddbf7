#pragma once

#include <cstdint>
#include <string>

namespace torch_xla::ir {

// Where in the user's program a node was made. An index into a table kept by whoever traces (the
// Python bindings intern code objects and lines); 0 means unknown.
using Location = uint32_t;

struct LocationProvider {
  Location (*current)() = nullptr;
  std::string (*describe)(Location) = nullptr;  // "forward@model.py:12", or "" when unknown
};

// Set once at start-up, before the first node is made.
void set_location_provider(LocationProvider provider);
Location current_location();
std::string describe(Location location);

}  // namespace torch_xla::ir
