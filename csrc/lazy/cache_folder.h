#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "ir/hash.h"

namespace torch_xla::lazy {

// Files that processes leave for each other, found by name. Any number of processes may read, write
// and evict at once: a file is written under a name of its own and then renamed, so that others see
// all of it or nothing, and one that is deleted stays whole for whoever has it open.
class CacheFolder {
 public:
  // With `readonly`, nothing in the folder is changed. The files are kept below `max_bytes` in all.
  CacheFolder(std::filesystem::path path, bool readonly, int64_t max_bytes);

  const std::filesystem::path& path() const { return path_; }
  bool readonly() const { return readonly_; }

  // What was written by this name; it then counts as used last. Nothing when there is no such file,
  // or a damaged one, which is removed.
  std::optional<std::string> read(const std::string& name) const;

  // Throws std::runtime_error when the system refuses. Afterwards files leave, least recently used
  // first, until the rest fits. What would not fit alone is not written.
  void write(const std::string& name, std::string_view contents) const;

  void remove(const std::string& name) const;

 private:
  void evict() const;

  std::filesystem::path path_;
  bool readonly_;
  int64_t max_bytes_;
};

// Makes a folder, with those above it, for this user alone (mode 0700). Returns why it cannot be
// used, or "": it must belong to the user, and nobody else may write to it, since what is read from
// it will run. With `readonly`, only looks.
std::string make_private_folder(const std::filesystem::path& path, bool readonly);

// Of all bytes, eight at a time.
ir::Hash128 digest(std::string_view bytes);

}  // namespace torch_xla::lazy
