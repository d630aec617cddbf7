#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "pjrt/client.h"

namespace torch_xla::lazy {

// Compiles, or loads what an earlier process compiled from the same text with the same options,
// plugin file, platform version and machine type, when a folder is set (set_persistent_cache in
// executor.h). A damaged entry is compiled anew and replaced.
std::shared_ptr<pjrt::Executable> compile_or_load(pjrt::Client& client, std::string_view module,
                                                  const pjrt::CompileOptions& options);

}  // namespace torch_xla::lazy
