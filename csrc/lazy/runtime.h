#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>

#include "pjrt/client.h"

namespace torch_xla::lazy {

// Which plugin to drive and how. Chosen by the Python package from the environment.
struct RuntimeConfig {
  std::string device_type;  // "CPU", "TPU", "CUDA", ...: what PJRT_DEVICE says
  std::string plugin_path;  // a shared library with GetPjrtApi
  pjrt::Options client_options;
};

// Called once, at the first use of a device. It may throw; the next use asks again.
void set_runtime_configurator(std::function<RuntimeConfig()> configurator);

// SPMD mode (spmd.h): one program runs on all devices of the client, and to torch there is one
// device, xla:0. Devices that a program runs on: 1 outside that mode.
bool is_spmd();
size_t num_partitions();
inline bool is_partitioned() { return num_partitions() > 1; }
// For spmd.h, which makes what exists already fit: from here on `partitions` devices are one.
void set_spmd(size_t partitions);

// The one PJRT client of the process. torch device xla:i is its i-th addressable device.
class Runtime {
 public:
  // Made at the first call. Throws the configurator's or the plugin's error.
  static Runtime& get();
  static bool is_initialized();

  const std::string& device_type() const { return config_.device_type; }
  const RuntimeConfig& config() const { return config_; }
  pjrt::Client& client() { return *client_; }
  // Whether the devices are the host's own CPU, and their memory the host's.
  bool is_cpu() const { return is_cpu_; }
  // As torch sees them: one in SPMD mode.
  int device_count() const;
  // Throws c10::Error when there is no such device.
  pjrt::Device* device(c10::Device device) const;

 private:
  explicit Runtime(RuntimeConfig config);

  RuntimeConfig config_;
  std::shared_ptr<pjrt::Client> client_;
  bool is_cpu_ = false;
};

// Bytes that one device has in all: what its plugin says, or where it keeps no account (CPU), the
// memory of the machine.
int64_t memory_limit(c10::DeviceIndex device);

// The device that "xla" without an index means in this thread.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
// With an index, and checked to be an xla device.
c10::Device normalize(c10::Device device);

}  // namespace torch_xla::lazy
