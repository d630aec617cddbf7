#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "pjrt/client.h"

namespace torch_xla::lazy {

// Compiled programs in a folder, for processes to come.
struct PersistentCacheOptions {
  std::string folder;     // "" for none
  bool readonly = false;  // nothing in the folder is changed
  // The user's own, which nobody asked for: made at the first use, and if it cannot be, there is a
  // warning and no cache. Otherwise the folder was named by the user, who answers for who else may
  // write to it, and is made at once.
  bool is_private = false;
  int64_t max_bytes = int64_t{2} << 30;  // of all files; least recently used ones leave
  double min_seconds = 0;                // programs that compile faster are not written
  std::string version;                   // of this package
};

// Replaces what was set before. Throws c10::Error when a named folder cannot be made.
void set_persistent_cache(const PersistentCacheOptions& options);

struct CompiledOrLoaded {
  std::shared_ptr<pjrt::Executable> executable;
  bool loaded;  // nothing was compiled
};

// Compiles, or loads what an earlier process compiled from the same text with the same options,
// plugin file, kind of devices and processor. Where operations come from (`loc`) is no part of the
// text: a loaded program shows, in profiles and in errors of host calls, the Python lines that it
// was first compiled for. Trouble with the folder never fails the call; a damaged file is removed.
// Throws pjrt::Error when compiling fails.
CompiledOrLoaded load_or_compile(pjrt::Client& client, std::string_view module,
                                 const pjrt::CompileOptions& options);

}  // namespace torch_xla::lazy
