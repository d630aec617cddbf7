#include "lazy/settings.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <mutex>

namespace torch_xla::lazy {
namespace {

struct Settings {
  std::mutex mutex;
  std::map<std::string, pjrt::Option> overrides;
  std::string precision = "default";
  std::string graph_name = "SyncTensorsGraph";
  std::atomic<bool> allow_execution{true};
  std::atomic<uint64_t> version{0};
};

Settings& settings() {
  static auto* settings = new Settings;
  return *settings;
}

}  // namespace

void set_compile_overrides(std::map<std::string, pjrt::Option> overrides) {
  std::lock_guard lock(settings().mutex);
  settings().overrides = std::move(overrides);
  ++settings().version;
}

std::map<std::string, pjrt::Option> compile_overrides() {
  std::lock_guard lock(settings().mutex);
  return settings().overrides;
}

void set_matmul_precision(const std::string& precision) {
  TORCH_CHECK(precision == "default" || precision == "high" || precision == "highest",
              "matmul precision must be 'default', 'high' or 'highest', got '", precision, "'");
  std::lock_guard lock(settings().mutex);
  settings().precision = precision;
  ++settings().version;
}

std::string matmul_precision() {
  std::lock_guard lock(settings().mutex);
  return settings().precision;
}

uint64_t settings_version() { return settings().version; }

void set_graph_name(std::string name) {
  std::lock_guard lock(settings().mutex);
  settings().graph_name = std::move(name);
}

std::string graph_name() {
  std::lock_guard lock(settings().mutex);
  return settings().graph_name;
}

void set_allow_execution(bool allow) { settings().allow_execution = allow; }
bool allow_execution() { return settings().allow_execution; }

}  // namespace torch_xla::lazy
