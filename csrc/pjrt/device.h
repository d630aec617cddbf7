// Devices and memory spaces. Both belong to their client and live as long as it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pjrt/abi.h"
#include "pjrt/option.h"

namespace torch_xla::pjrt {

class Client;

// What is known of a device without having it: an entry of a topology.
struct DeviceDescription {
  int id;             // unique among all processes
  int process_index;  // the process that may address it
  std::string kind;   // "cpu", "TPU v5 lite", "NVIDIA H100 80GB HBM3"
  std::string debug_string;
  std::string to_string;
  Attributes attributes;  // for example coords, core_on_chip

  // Reads one from the plugin. Throws Error.
  static DeviceDescription read(const abi::Api* api, abi::DeviceDescription* description);
};

// Bytes, where not said otherwise; a member is absent where the plugin does not say.
struct MemoryStats {
  int64_t bytes_in_use = 0;
  std::optional<int64_t> peak_bytes_in_use;
  std::optional<int64_t> num_allocs;  // a count
  std::optional<int64_t> largest_alloc_size;
  std::optional<int64_t> bytes_limit;
  std::optional<int64_t> bytes_reserved;
  std::optional<int64_t> peak_bytes_reserved;
  std::optional<int64_t> bytes_reservable_limit;
  std::optional<int64_t> largest_free_block_bytes;
  std::optional<int64_t> pool_bytes;
  std::optional<int64_t> peak_pool_bytes;
};

class Memory {
 public:
  Memory(const abi::Api* api, abi::Memory* memory);

  int id() const { return id_; }
  const std::string& kind() const { return kind_; }  // "device", "pinned_host", "unpinned_host"
  const std::string& debug_string() const { return debug_string_; }

  abi::Memory* handle() const { return memory_; }

 private:
  abi::Memory* memory_;
  int id_;
  std::string kind_;
  std::string debug_string_;
};

class Device {
 public:
  int id() const { return description_.id; }
  int process_index() const { return description_.process_index; }
  const std::string& kind() const { return description_.kind; }
  const std::string& debug_string() const { return description_.debug_string; }
  const std::string& to_string() const { return description_.to_string; }
  const Attributes& attributes() const { return description_.attributes; }
  const DeviceDescription& description() const { return description_; }

  bool is_addressable() const { return addressable_; }
  // The number the operating system or driver knows it by; -1 for a device of another process.
  int local_hardware_id() const { return local_hardware_id_; }

  // Now. Nothing where the plugin has no statistics (the CPU plugins). Throws Error.
  std::optional<MemoryStats> memory_stats() const;

  // Null where the plugin has no memory spaces, or for a device of another process.
  Memory* default_memory() const { return default_memory_; }
  const std::vector<Memory*>& memories() const { return memories_; }
  // The memory of this kind, or null.
  Memory* memory(const std::string& kind) const;

  abi::Device* handle() const { return device_; }

 private:
  friend class Client;
  Device(const abi::Api* api, abi::Device* device);

  const abi::Api* api_;
  abi::Device* device_;
  DeviceDescription description_;
  bool addressable_ = false;
  int local_hardware_id_ = -1;
  Memory* default_memory_ = nullptr;
  std::vector<Memory*> memories_;
};

}  // namespace torch_xla::pjrt
