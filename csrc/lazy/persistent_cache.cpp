#include "lazy/persistent_cache.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "ir/hash.h"
#include "lazy/executor.h"
#include "lazy/metrics.h"
#include "lazy/runtime.h"
#include "pjrt/error.h"

namespace torch_xla::lazy {
namespace {

namespace fs = std::filesystem;

struct Folder {
  std::mutex mutex;
  fs::path path;
  bool readonly = false;
};
Folder& folder() {
  static auto* folder = new Folder;
  return *folder;
}

// The instruction sets that compiled code may use: an entry from another machine must not load.
std::string cpu_features() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  }
  return "";
}

std::string plugin_identity() {
  const std::string& path = Runtime::get().config().plugin_path;
  std::error_code ignored;
  std::ostringstream text;
  text << path << '|' << fs::file_size(path, ignored) << '|'
       << Runtime::get().client().platform_version();
  return text.str();
}

std::string entry_name(std::string_view module, const pjrt::CompileOptions& options) {
  ir::Hash128 key;
  for (std::string_view part :
       {module, std::string_view(pjrt::encode(options)), std::string_view(plugin_identity()),
        std::string_view(cpu_features())}) {
    key.add(ir::hash_text(part));
    key.high = ir::mix(key.high, std::hash<std::string_view>()(part));
  }
  std::ostringstream name;
  name << std::hex << key.high << key.low << ".xla";
  return name.str();
}

// An entry is its checksum and then the serialized program, so that a torn file is noticed.
std::string read_entry(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t checksum = 0;
  if (!file.read(reinterpret_cast<char*>(&checksum), sizeof(checksum))) return "";
  std::string program((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return ir::hash_text(program) == checksum ? program : "";
}

// Written under a name of its own and then renamed: other processes see all of it or nothing.
void write_entry(const fs::path& path, const std::string& program) {
  const fs::path partial = path.string() + '.' + std::to_string(::getpid()) + ".part";
  const uint64_t checksum = ir::hash_text(program);
  std::ofstream file(partial, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  file.write(program.data(), static_cast<std::streamsize>(program.size()));
  file.close();
  std::error_code error;
  if (file) fs::rename(partial, path, error);
  if (!file || error) {
    fs::remove(partial, error);
    TORCH_WARN_ONCE("torch_xla: cannot write to the compilation cache at ", path.parent_path());
  }
}

}  // namespace

void set_persistent_cache(const std::string& path, bool readonly) {
  if (!path.empty() && !readonly) fs::create_directories(path);
  std::lock_guard lock(folder().mutex);
  folder().path = path;
  folder().readonly = readonly;
}

std::shared_ptr<pjrt::Executable> compile_or_load(pjrt::Client& client, std::string_view module,
                                                  const pjrt::CompileOptions& options) {
  static metrics::Counter hits("PersistentCacheHit"), misses("PersistentCacheMiss");
  fs::path path;
  bool readonly;
  {
    std::lock_guard lock(folder().mutex);
    path = folder().path;
    readonly = folder().readonly;
  }
  if (path.empty()) return client.compile(module, options);
  path /= entry_name(module, options);
  if (const std::string program = read_entry(path); !program.empty()) {
    try {
      auto executable = client.load(program);
      hits.add();
      return executable;
    } catch (const pjrt::Error& error) {
      TORCH_WARN("torch_xla: compiling anew, the cached program does not load: ", error.what());
    }
  }
  misses.add();
  auto executable = client.compile(module, options);
  if (!readonly) write_entry(path, executable->serialize());
  return executable;
}

}  // namespace torch_xla::lazy
