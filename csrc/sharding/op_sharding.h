// The form in which XLA says a sharding.
#pragma once

#include <string_view>

#include "sharding/sharding.h"

namespace torch_xla::sharding {

// Reads a serialized xla.OpSharding (OpenXLA, xla_data.proto) of an array of `rank` dimensions over
// the devices of `mesh`. Throws std::invalid_argument for bytes that are none, and for shardings
// that leave arrays on some devices only, or to be cut by hand.
const Sharding* parse_op_sharding(std::string_view proto, const Mesh* mesh, size_t rank);

}  // namespace torch_xla::sharding
