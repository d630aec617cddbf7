#include "pjrt/plugin.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "pjrt/call.h"
#include "pjrt/named_values.h"

namespace torch_xla::pjrt {
namespace {

// Plugins write warnings about the machine and copies of the errors they return to stderr.
void silence_logs() {
  const char* wanted = std::getenv("TORCH_XLA_PLUGIN_LOGS");
  if (wanted != nullptr && *wanted != '\0' && std::strcmp(wanted, "0") != 0) return;
  constexpr int kKeepUserSetting = 0;
  setenv("TF_CPP_MIN_LOG_LEVEL", "3", kKeepUserSetting);
  setenv("TPU_MIN_LOG_LEVEL", "3", kKeepUserSetting);
  setenv("TPU_STDERR_LOG_LEVEL", "3", kKeepUserSetting);
}

// One spelling for each file. Throws if there is none that can be a library.
std::string resolve(const std::string& path) {
  char resolved[PATH_MAX];
  if (path.empty() || realpath(path.c_str(), resolved) == nullptr) {
    throw Error(ErrorCode::kNotFound, "PJRT plugin '" + path + "': " +
                                          (path.empty() ? "empty path" : std::strerror(errno)));
  }
  struct stat status;
  if (stat(resolved, &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument,
                "PJRT plugin '" + path + "' is not a file; give the path of a shared library");
  }
  return resolved;
}

bool has_elf_header(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::memcmp(magic,
                     "\x7f"
                     "ELF",
                     4) == 0;
}

const abi::Api* open_api(const std::string& path) {
  // Local, so that its symbols do not meet torch's; never unloaded, since its threads live on.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const std::string reason = dlerror();
    if (!has_elf_header(path)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "PJRT plugin '" + path + "' is not a shared library: " + reason);
    }
    throw Error(ErrorCode::kFailedPrecondition,
                "PJRT plugin '" + path + "' cannot be loaded: " + reason);
  }
  auto get_api = reinterpret_cast<const abi::Api* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "'" + path + "' is a shared library but not a PJRT plugin: no symbol GetPjrtApi");
  }
  return get_api();
}

std::string to_string(ApiVersion version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor);
}

// Before anything else of the table is read.
void check_version(const abi::Api* api, const std::string& name) {
  if (api == nullptr) {
    throw Error(ErrorCode::kInternal, "PJRT plugin '" + name + "': GetPjrtApi returned null");
  }
  const std::string known = to_string({abi::kMajorVersion, abi::kOldestMinorVersion}) +
                            " and later of " + std::to_string(abi::kMajorVersion) + ".x";
  if (api->struct_size < offsetof(abi::Api, Error_Destroy)) {
    throw Error(ErrorCode::kFailedPrecondition,
                "PJRT plugin '" + name + "': its function table of " +
                    std::to_string(api->struct_size) + " bytes has no version");
  }
  const ApiVersion version{api->pjrt_api_version.major_version,
                           api->pjrt_api_version.minor_version};
  if (version.major != abi::kMajorVersion || version.minor < abi::kOldestMinorVersion) {
    throw Error(ErrorCode::kFailedPrecondition, "PJRT plugin '" + name + "' speaks PJRT API " +
                                                    to_string(version) +
                                                    "; this torch_xla speaks " + known);
  }
  if (api->struct_size < offsetof(abi::Api, Client_Create)) {
    throw Error(ErrorCode::kFailedPrecondition, "PJRT plugin '" + name + "' says PJRT API " +
                                                    to_string(version) +
                                                    " but its function table has only " +
                                                    std::to_string(api->struct_size) + " bytes");
  }
}

}  // namespace

Plugin::Plugin(const abi::Api* api, const std::string& path) : api_(api), path_(path) {
  if (api->Plugin_Initialize != nullptr) {
    auto args = make<abi::Plugin_Initialize_Args>();
    TORCH_XLA_PJRT_CALL(api_, Plugin_Initialize, args);
  }
  auto args = make<abi::Plugin_Attributes_Args>();
  if (call_if_supported(api_, &abi::Api::Plugin_Attributes, args)) {
    attributes_ = to_attributes(args.attributes, args.num_attributes);
  }
}

std::shared_ptr<Plugin> Plugin::load(const std::string& path) {
  static std::mutex mutex;
  static auto& loaded = *new std::map<std::string, std::shared_ptr<Plugin>>;
  check_not_forked();
  std::lock_guard lock(mutex);
  const std::string resolved = resolve(path);
  std::shared_ptr<Plugin>& plugin = loaded[resolved];
  if (plugin == nullptr) {
    silence_logs();
    plugin = from_api(open_api(resolved), resolved);
  }
  return plugin;
}

std::shared_ptr<Plugin> Plugin::from_api(const abi::Api* api, const std::string& name) {
  check_version(api, name);
  return std::shared_ptr<Plugin>(new Plugin(api, name));
}

ApiVersion Plugin::api_version() const {
  return {api_->pjrt_api_version.major_version, api_->pjrt_api_version.minor_version};
}

std::vector<int> Plugin::extensions() const {
  std::vector<int> types;
  for (const auto* e = api_->extension_start; e != nullptr; e = e->next) types.push_back(e->type);
  return types;
}

const abi::ExtensionBase* Plugin::extension(abi::ExtensionType type) const {
  const abi::ExtensionBase* e = api_->extension_start;
  while (e != nullptr && e->type != type) e = e->next;
  return e;
}

}  // namespace torch_xla::pjrt
