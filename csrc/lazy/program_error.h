#pragma once

#include <string_view>

#include "pjrt/error.h"

namespace torch_xla::lazy {

// What a plugin reports of a failed program is text. One of these, in a text that a custom call
// wrote, stands for the type of exception that CPU raises.
inline constexpr std::string_view kLinAlgError = "torch.linalg.LinAlgError: ";

// Throws it as c10::LinAlgError, without these words, where they stand in it; else as it is.
[[noreturn]] void throw_as_cpu_does(const pjrt::Error& error);

}  // namespace torch_xla::lazy
