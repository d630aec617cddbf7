#pragma once

#include <functional>
#include <numeric>

#include "sharding/mesh.h"

namespace torch_xla::sharding {

inline int64_t product(const Dims& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{1}, std::multiplies<int64_t>());
}

}  // namespace torch_xla::sharding
