#include "lazy/persistent_cache.h"

#include <c10/util/Exception.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include "ir/hash.h"
#include "lazy/cache_folder.h"
#include "lazy/metrics.h"
#include "lazy/runtime.h"
#include "pjrt/error.h"

namespace torch_xla::lazy {
namespace {

namespace fs = std::filesystem;

struct Cache {
  std::mutex mutex;
  PersistentCacheOptions options;
  std::shared_ptr<const CacheFolder> folder;  // null: none, or not opened yet
};
Cache& cache() {
  static auto* cache = new Cache;
  return *cache;
}

// What one call works with.
struct OpenCache {
  std::shared_ptr<const CacheFolder> folder;  // null: no cache
  PersistentCacheOptions options;
};

OpenCache open_cache() {
  std::lock_guard lock(cache().mutex);
  PersistentCacheOptions& options = cache().options;
  if (!cache().folder && !options.folder.empty()) {
    const std::string trouble =
        options.is_private ? make_private_folder(options.folder, options.readonly) : "";
    if (trouble.empty()) {
      cache().folder =
          std::make_shared<CacheFolder>(options.folder, options.readonly, options.max_bytes);
    } else {
      if (!options.readonly) {
        TORCH_WARN("torch_xla keeps no compiled programs in ", options.folder, ": ", trouble,
                   ". XLA_PERSISTENT_CACHE_PATH names another folder; "
                   "TORCH_XLA_PERSISTENT_CACHE=0 turns this off.");
      }
      options.folder.clear();
    }
  }
  return {cache().folder, options};
}

// The instruction sets that compiled code may use: code for another machine must not load.
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  }
  return "";
}

// XLA:CPU divides work by the number of threads while it compiles.
int usable_processors() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

// Everything outside of module and options that decides what a compilation gives.
std::string describe_compiler() {
  const Runtime& runtime = Runtime::get();
  pjrt::Client& client = Runtime::get().client();
  std::ostringstream text;
  const std::string& path = runtime.config().plugin_path;
  text << runtime.device_type() << '\n' << path;
  struct stat file;
  if (::stat(path.c_str(), &file) == 0) {
    text << ' ' << file.st_size << ' ' << file.st_mtim.tv_sec << ' ' << file.st_mtim.tv_nsec;
  }
  text << '\n' << client.platform_name() << '\n' << client.platform_version() << '\n';
  for (const auto& [name, value] : runtime.config().client_options) {
    text << name << '=' << pjrt::to_string(value) << '\n';
  }
  for (const pjrt::Device* device : client.devices()) text << device->description().kind << '\n';
  for (const char* name : {"XLA_FLAGS", "LIBTPU_INIT_ARGS"}) {
    const char* flags = std::getenv(name);
    text << name << '=' << (flags ? flags : "") << '\n';
  }
  text << usable_processors() << '\n' << processor();
  return text.str();
}

// Where in a line of the module a host call's own line number begins and ends (aten/host_call.cpp):
// `where = "at step@train.py:12"`. Its errors name that line, so function and file stay.
std::pair<size_t, size_t> line_number_of_host_call(std::string_view line) {
  constexpr std::string_view kWhere = "where = \"at ";
  const size_t where = line.find(kWhere);
  if (where == line.npos) return {0, 0};
  const size_t end = line.find('"', where + kWhere.size());
  if (end == line.npos) return {0, 0};
  size_t begin = end;
  while (std::isdigit(static_cast<unsigned char>(line[begin - 1]))) --begin;
  return {begin, end};
}

// The module without what says where operations come from: " loc(#loc12)" at the ends of lines and
// the lines "#loc12 = ..." that explain them. A text inside of the module has no line ends.
std::string without_locations(std::string_view module) {
  constexpr std::string_view kUse = " loc(#loc", kDefinition = "#loc";
  constexpr size_t kLongestUse = kUse.size() + 21;
  std::string text;
  text.reserve(module.size());
  while (!module.empty()) {
    const size_t end = std::min(module.find('\n'), module.size());
    std::string_view line = module.substr(0, end);
    module.remove_prefix(std::min(end + 1, module.size()));
    if (line.starts_with(kDefinition)) continue;
    if (line.ends_with(')')) {
      const size_t tail = line.size() - std::min(line.size(), kLongestUse);
      const size_t use = line.substr(tail).rfind(kUse);
      if (use != line.npos) line = line.substr(0, tail + use);
    }
    const auto [number, rest] = line_number_of_host_call(line);
    text += line.substr(0, number);
    text += line.substr(rest);
    text += '\n';
  }
  return text;
}

std::string entry_name(std::string_view module, const pjrt::CompileOptions& options,
                       const std::string& version) {
  static const std::string compiler = describe_compiler();
  ir::Hash128 key = digest(without_locations(module));
  for (const std::string& part : {pjrt::encode(options), compiler, version}) {
    const ir::Hash128 hash = digest(part);
    key.add(hash.low);
    key.add(hash.high);
  }
  std::ostringstream name;
  name << std::hex << std::setfill('0') << std::setw(16) << key.high << std::setw(16) << key.low;
  return name.str();
}

std::shared_ptr<pjrt::Executable> load(pjrt::Client& client, const CacheFolder& folder,
                                       const std::string& name) {
  static metrics::Metric time("PersistentCacheLoadTime", metrics::Unit::kNanoseconds);
  const auto start = std::chrono::steady_clock::now();
  const std::optional<std::string> program = folder.read(name);
  if (!program) return nullptr;
  try {
    auto executable = client.load(*program);
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    time.add(taken.count());
    return executable;
  } catch (const pjrt::Error& error) {
    folder.remove(name);
    TORCH_WARN("torch_xla: compiling anew, the cached program does not load: ", error.what());
    return nullptr;
  }
}

// Full disks and the like: the step goes on without. Once a process, not once a program.
void warn_unwritten(const std::string& subject, const char* cause) {
  static std::atomic<bool> warned{false};
  if (!warned.exchange(true)) {
    TORCH_WARN("torch_xla: ", subject, ": ", cause, ". Later processes will compile again.");
  }
}

void store(const CacheFolder& folder, const std::string& name, const pjrt::Executable& executable,
           bool is_private) {
  std::string program;
  try {
    program = executable.serialize();
  } catch (const pjrt::Error& error) {
    // A plugin that cannot is worth a word only to those who asked for a cache.
    if (!is_private) warn_unwritten("the plugin gives no program to cache", error.what());
    return;
  }
  try {
    folder.write(name, program);
  } catch (const std::exception& error) {
    warn_unwritten("cannot write to the compilation cache " + folder.path().string(), error.what());
  }
}

}  // namespace

void set_persistent_cache(const PersistentCacheOptions& options) {
  PersistentCacheOptions chosen = options;
  if (!chosen.folder.empty()) chosen.folder = fs::absolute(chosen.folder).lexically_normal();
  if (!chosen.folder.empty() && !chosen.readonly && !chosen.is_private) {
    std::error_code error;
    fs::create_directories(chosen.folder, error);
    TORCH_CHECK(!error && fs::is_directory(chosen.folder, error),
                "cannot make the folder of the compilation cache, ", chosen.folder, ": ",
                error ? error.message() : "it is not a folder");
  }
  std::lock_guard lock(cache().mutex);
  cache().options = std::move(chosen);
  cache().folder = nullptr;
}

CompiledOrLoaded load_or_compile(pjrt::Client& client, std::string_view module,
                                 const pjrt::CompileOptions& options) {
  static metrics::Counter hits("PersistentCacheHit"), misses("PersistentCacheMiss");
  const OpenCache cache = open_cache();
  if (!cache.folder) return {client.compile(module, options), false};
  const std::string name = entry_name(module, options, cache.options.version);
  if (auto executable = load(client, *cache.folder, name)) {
    hits.add();
    return {std::move(executable), true};
  }
  misses.add();
  const auto start = std::chrono::steady_clock::now();
  auto executable = client.compile(module, options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (!cache.folder->readonly() && seconds.count() >= cache.options.min_seconds) {
    store(*cache.folder, name, *executable, cache.options.is_private);
  }
  return {std::move(executable), false};
}

}  // namespace torch_xla::lazy
