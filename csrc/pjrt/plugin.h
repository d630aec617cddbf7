// A PJRT plugin: a shared library that exports GetPjrtApi.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "pjrt/abi.h"
#include "pjrt/option.h"

namespace torch_xla::pjrt {

struct ApiVersion {
  int major;
  int minor;
};

class Plugin {
 public:
  // Loads and initialises the plugin at `path`, which may be relative or a symbolic link. A second
  // load of the same file gives the same object. A plugin stays in memory until the process ends:
  // its threads and thread-local data do not survive an unload.
  // Throws Error: no such file, not a shared library, unresolved libraries (the loader's text), not
  // a PJRT plugin, another major version or one older than 0.81, or what its initialisation says.
  // The plugin's own log lines are silenced, unless TORCH_XLA_PLUGIN_LOGS=1 or the user has set
  // TF_CPP_MIN_LOG_LEVEL or the variable of the plugin in question.
  static std::shared_ptr<Plugin> load(const std::string& path);

  // The same for a table that is already in memory, for example of a plugin linked in. `name` only
  // appears in messages.
  static std::shared_ptr<Plugin> from_api(const abi::Api* api, const std::string& name);

  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const std::string& path() const { return path_; }
  ApiVersion api_version() const;
  // What the plugin says about itself, for example xla_version and stablehlo_current_version.
  const Attributes& attributes() const { return attributes_; }
  // Types of the extensions in the order of the plugin's list (5 = FFI).
  std::vector<int> extensions() const;
  const abi::ExtensionBase* extension(abi::ExtensionType type) const;

  // Whether the plugin's table reaches as far as this slot and fills it, for example
  // has_function(&abi::Api::Executable_GetCompiledMemoryStats).
  template <class Slot>
  bool has_function(Slot abi::Api::* slot) const {
    const char* begin = reinterpret_cast<const char*>(api_);
    const char* end = reinterpret_cast<const char*>(&(api_->*slot)) + sizeof(Slot);
    return static_cast<size_t>(end - begin) <= api_->struct_size && api_->*slot != nullptr;
  }

  const abi::Api* api() const { return api_; }

 private:
  Plugin(const abi::Api* api, const std::string& path);

  const abi::Api* api_;
  std::string path_;
  Attributes attributes_;
};

}  // namespace torch_xla::pjrt
