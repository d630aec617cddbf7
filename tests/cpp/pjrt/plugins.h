// Runs a test against every CPU plugin named in TORCH_XLA_TEST_PLUGINS (paths separated by ':').
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "pjrt/client.h"
#include "pjrt/error.h"
#include "pjrt/plugin.h"

namespace torch_xla::pjrt::testing {

// One empty path where there is no plugin, so that tests show up as skipped.
inline std::vector<std::string> plugin_paths() {
  const char* variable = std::getenv("TORCH_XLA_TEST_PLUGINS");
  std::istringstream list(variable == nullptr ? "" : variable);
  std::vector<std::string> paths;
  for (std::string path; std::getline(list, path, ':');) {
    if (!path.empty()) paths.push_back(path);
  }
  if (paths.empty()) paths.emplace_back();
  return paths;
}

// "lammps_jax_pjrt_cpu" from ".../lammps_jax_pjrt_cpu/plugin.so".
inline std::string plugin_name(const ::testing::TestParamInfo<std::string>& info) {
  if (info.param.empty()) return "no_plugin";
  const size_t end = info.param.rfind('/');
  const size_t begin =
      end == 0 || end == std::string::npos ? 0 : info.param.rfind('/', end - 1) + 1;
  std::string name = info.param.substr(begin, end - begin);
  for (char& c : name) {
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

class PluginTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam().empty()) GTEST_SKIP() << "TORCH_XLA_TEST_PLUGINS names no PJRT plugin";
  }

  static std::shared_ptr<Plugin> plugin() { return Plugin::load(GetParam()); }

  // One client for each plugin and number of devices, shared by all tests.
  static const std::shared_ptr<Client>& client(int64_t num_devices = 2) {
    static auto& clients = *new std::map<std::pair<std::string, int64_t>, std::shared_ptr<Client>>;
    auto& result = clients[{GetParam(), num_devices}];
    if (result == nullptr) {
      result = Client::create(plugin(), {{"cpu_device_count", num_devices}});
    }
    return result;
  }

  static Device* device(size_t i = 0) { return client()->addressable_devices()[i]; }

  static std::shared_ptr<Executable> compile(const std::string& text, CompileOptions options = {}) {
    return client()->compile(text, options);
  }

  template <class T>
  static std::unique_ptr<Buffer> upload(const std::vector<T>& values, std::vector<int64_t> dims,
                                        BufferType type, Device* target = nullptr) {
    return client()->buffer_from_host(values.data(), type, dims, {},
                                      target == nullptr ? device() : target,
                                      HostBufferSemantics::kImmutableOnlyDuringCall);
  }

  static std::unique_ptr<Buffer> floats(const std::vector<float>& values,
                                        Device* target = nullptr) {
    return upload(values, {static_cast<int64_t>(values.size())}, BufferType::kF32, target);
  }

  template <class T = float>
  static std::vector<T> download(const Buffer& buffer) {
    std::vector<T> values(buffer.host_bytes() / sizeof(T));
    buffer.copy_to_host(values.data(), values.size() * sizeof(T)).wait();
    return values;
  }
};

// The message and code of the Error that `action` throws.
template <class Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::kOk, "");
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#define TORCH_XLA_FOR_EACH_PLUGIN(Suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(Plugins, Suite,                                                  \
                           ::testing::ValuesIn(::torch_xla::pjrt::testing::plugin_paths()), \
                           ::torch_xla::pjrt::testing::plugin_name)

}  // namespace torch_xla::pjrt::testing
