// Named values that cross the border to a plugin: create options, attributes, cost properties.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace torch_xla::pjrt {

using Option = std::variant<std::string, int64_t, bool, float, std::vector<int64_t>>;
using Options = std::vector<std::pair<std::string, Option>>;  // in the order given
using Attributes = std::map<std::string, Option>;

// "cpu", 4, true, 0.5, [1, 2]
std::string to_string(const Option& option);

}  // namespace torch_xla::pjrt
