#pragma once

#include <string_view>

namespace torch_xla::lazy {

// What a plugin reports of a failed program is text. One of these, in a text that a custom call
// wrote, makes the read of a result throw c10::LinAlgError or c10::IndexError instead of a plain
// error, without these words.
inline constexpr std::string_view kLinAlgError = "torch.linalg.LinAlgError: ";
inline constexpr std::string_view kIndexError = "IndexError: ";

}  // namespace torch_xla::lazy
