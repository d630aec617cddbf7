// Options in the plugin's form. Internal.
#pragma once

#include <vector>

#include "pjrt/abi.h"
#include "pjrt/option.h"

namespace torch_xla::pjrt {

// Points into `options`, which must outlive the result.
std::vector<abi::NamedValue> to_named_values(const Options& options);

// Copies: the plugin's values die with their owner.
Attributes to_attributes(const abi::NamedValue* values, size_t count);

}  // namespace torch_xla::pjrt
