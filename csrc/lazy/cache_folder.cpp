#include "lazy/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

namespace torch_xla::lazy {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".xla";
constexpr std::string_view kPartialSuffix = ".part";

// In front of the contents, so that a torn or foreign file is noticed.
struct Header {
  char format[8] = {'t', 'x', 'l', 'a', 'p', 'r', 'g', '1'};
  ir::Hash128 checksum;
};

bool is_ours(const Header& header) {
  return std::memcmp(header.format, Header().format, sizeof(header.format)) == 0;
}

// No two writers share one, in whatever container or machine they run.
fs::path partial_name(const fs::path& path) {
  std::random_device random;
  std::ostringstream name;
  name << path.string() << '.' << std::hex << random() << random() << kPartialSuffix;
  return name.str();
}

std::string system_message(int error) { return std::generic_category().message(error); }

}  // namespace

ir::Hash128 digest(std::string_view bytes) {
  ir::Hash128 hash;
  hash.add(bytes.size());
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t taken = std::min(bytes.size(), sizeof(word));
    std::memcpy(&word, bytes.data(), taken);
    hash.add(word);
    bytes.remove_prefix(taken);
  }
  return hash;
}

CacheFolder::CacheFolder(fs::path path, bool readonly, int64_t max_bytes)
    : path_(std::move(path)), readonly_(readonly), max_bytes_(max_bytes) {}

std::optional<std::string> CacheFolder::read(const std::string& name) const {
  const fs::path path = path_ / (name + std::string(kSuffix));
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return std::nullopt;
  Header header;
  std::string contents(size < sizeof(header) ? 0 : size - sizeof(header), '\0');
  const bool whole = file.read(reinterpret_cast<char*>(&header), sizeof(header)) &&
                     file.read(contents.data(), static_cast<std::streamsize>(contents.size()));
  if (!whole || !is_ours(header) || digest(contents) != header.checksum) {
    remove(name);
    return std::nullopt;
  }
  // An error costs nothing but the order in which files leave.
  if (!readonly_) fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return contents;
}

void CacheFolder::write(const std::string& name, std::string_view contents) const {
  Header header;
  header.checksum = digest(contents);
  if (readonly_ || static_cast<int64_t>(contents.size() + sizeof(header)) > max_bytes_) return;
  const fs::path path = path_ / (name + std::string(kSuffix));
  const fs::path partial = partial_name(path);
  std::ofstream file(partial, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&header), sizeof(header));
  file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  file.close();
  if (!file || ::rename(partial.c_str(), path.c_str()) != 0) {
    const int cause = errno;
    ::unlink(partial.c_str());
    throw std::runtime_error(system_message(cause));
  }
  evict();
}

void CacheFolder::remove(const std::string& name) const {
  std::error_code ignored;  // another process may have been first
  if (!readonly_) fs::remove(path_ / (name + std::string(kSuffix)), ignored);
}

// Reads the whole folder, which takes milliseconds, after a compilation that took longer. Files
// that vanish meanwhile were evicted by another process.
void CacheFolder::evict() const {
  struct File {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  int64_t total = 0;
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    std::error_code gone;
    const auto used = fs::last_write_time(path, gone);
    const auto bytes = static_cast<int64_t>(fs::file_size(path, gone));
    if (gone) continue;
    if (path.extension() == kSuffix) {
      files.push_back({used, bytes, path});
      total += bytes;
    } else if (path.extension() == kPartialSuffix && used < long_ago) {
      fs::remove(path, gone);  // of a process that was killed
    }
  }
  if (total <= max_bytes_) return;
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (total <= max_bytes_) break;
    fs::remove(file.path, error);
    total -= file.bytes;
  }
}

std::string make_private_folder(const fs::path& path, bool readonly) {
  struct stat status;
  fs::path existing = path;
  while (::stat(existing.c_str(), &status) != 0) {
    if (errno != ENOENT || readonly) return system_message(errno);
    existing = existing.parent_path();
  }
  // What root makes below another user's folder, that user could not use.
  if (existing != path && ::geteuid() == 0 && status.st_uid != 0) {
    return existing.string() + " belongs to another user";
  }
  fs::path made = existing;
  for (const fs::path& part : path.lexically_relative(existing)) {
    made /= part;
    if (part != "." && ::mkdir(made.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
      return system_message(errno);
    }
  }
  if (::stat(path.c_str(), &status) != 0) return system_message(errno);
  if (!S_ISDIR(status.st_mode)) return "it is not a folder";
  if (status.st_uid != ::geteuid()) return "it belongs to another user";
  if (status.st_mode & (S_IWGRP | S_IWOTH)) return "other users may write to it";
  return "";
}

}  // namespace torch_xla::lazy
