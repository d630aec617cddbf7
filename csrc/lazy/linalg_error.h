#pragma once

#include <string_view>

namespace torch_xla::lazy {

// What a plugin reports of a failed program is text. This, in a text that a custom call wrote,
// makes the read of a result throw c10::LinAlgError instead of a plain error.
inline constexpr std::string_view kLinAlgError = "torch.linalg.LinAlgError: ";

}  // namespace torch_xla::lazy
