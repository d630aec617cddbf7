#pragma once

#include <string_view>

#include "pjrt/ffi.h"

namespace torch_xla::lazy {

// Lets programs call `entry` by this name, as long as the process lives. False where they cannot:
// on devices other than the host's CPU, and on plugins without the FFI extension. Register before
// a program that calls it is compiled or loaded, and once.
bool register_host_function(std::string_view name, pjrt::FfiEntry entry);

}  // namespace torch_xla::lazy
