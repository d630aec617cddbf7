// A connection to the devices of one plugin.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pjrt/buffer.h"
#include "pjrt/compile_options.h"
#include "pjrt/device.h"
#include "pjrt/executable.h"
#include "pjrt/option.h"
#include "pjrt/plugin.h"

namespace torch_xla::pjrt {

// Owns a PJRT_Client with its devices and memories. Safe to use from several threads at a time.
// After a fork, a client of the parent is dead in the child: every call throws (see fork_guard.h).
class Client : public std::enable_shared_from_this<Client> {
 public:
  // Options depend on the plugin; `cpu_device_count` (int64) is common to the CPU ones. Throws
  // Error, for example when there is no such hardware.
  static std::shared_ptr<Client> create(std::shared_ptr<Plugin> plugin,
                                        const Options& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const std::shared_ptr<Plugin>& plugin() const { return plugin_; }
  const std::string& platform_name() const { return platform_name_; }  // "cpu", "tpu", "cuda"
  const std::string& platform_version() const { return platform_version_; }
  int process_index() const { return process_index_; }

  // All devices, then those of this process. By id.
  const std::vector<Device*>& devices() const { return devices_; }
  const std::vector<Device*>& addressable_devices() const { return addressable_devices_; }
  const std::vector<Memory*>& memories() const { return memories_; }

  // Makes a buffer from host memory.
  // dims: sizes, outermost first; none for a scalar.
  // byte_strides: one per dimension, or none for dense row major. `data` points at element zero.
  // on_done: called once when the plugin needs `data` no more (with zero copy: when the buffer is
  //   gone), on any thread; must not throw. Not called if this throws.
  // Zero copy happens only where the plugin can: on CPU, dense and 64-byte aligned.
  // Throws Error.
  std::unique_ptr<Buffer> buffer_from_host(const void* data, BufferType type,
                                           std::span<const int64_t> dims,
                                           std::span<const int64_t> byte_strides, Device* device,
                                           HostBufferSemantics semantics,
                                           std::function<void()> on_done = nullptr);
  // The same into a given memory of a device.
  std::unique_ptr<Buffer> buffer_from_host(const void* data, BufferType type,
                                           std::span<const int64_t> dims,
                                           std::span<const int64_t> byte_strides, Memory* memory,
                                           HostBufferSemantics semantics,
                                           std::function<void()> on_done = nullptr);

  // Compiles StableHLO, as text or bytecode, and loads it. Blocks. Throws Error with the compiler's
  // text.
  std::shared_ptr<Executable> compile(std::string_view stablehlo,
                                      const CompileOptions& options = {});

  // Loads what CompiledProgram::serialize gave. Throws Error, also for bytes that are none.
  std::shared_ptr<Executable> load(std::string_view serialized);

  // Our object for the plugin's, or null.
  Device* find(const abi::Device* device) const;
  Memory* find(const abi::Memory* memory) const;

  const abi::Api* api() const { return api_; }
  abi::Client* handle() const { return client_; }

 private:
  Client(std::shared_ptr<Plugin> plugin, abi::Client* client);
  void read_identity();
  void read_memories();
  void read_devices();
  std::unique_ptr<Buffer> upload(abi::Client_BufferFromHostBuffer_Args& args,
                                 std::span<const int64_t> byte_strides,
                                 std::function<void()> on_done);

  std::shared_ptr<Plugin> plugin_;
  const abi::Api* api_;
  abi::Client* client_;
  std::string platform_name_;
  std::string platform_version_;
  int process_index_ = 0;
  std::unordered_map<const abi::Memory*, std::unique_ptr<Memory>> memory_of_;
  std::unordered_map<const abi::Device*, std::unique_ptr<Device>> device_of_;
  std::vector<Device*> devices_;
  std::vector<Device*> addressable_devices_;
  std::vector<Memory*> memories_;
};

}  // namespace torch_xla::pjrt
