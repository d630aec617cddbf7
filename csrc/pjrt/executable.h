// Compiled programs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pjrt/abi.h"
#include "pjrt/buffer.h"
#include "pjrt/option.h"
#include "pjrt/plugin.h"

namespace torch_xla::pjrt {

// Bytes per device.
struct CompiledMemoryStats {
  int64_t generated_code_size = 0;
  int64_t argument_size = 0;
  int64_t output_size = 0;
  int64_t alias_size = 0;  // of outputs that reuse an argument's memory
  int64_t temp_size = 0;
  int64_t host_generated_code_size = 0;
  int64_t host_argument_size = 0;
  int64_t host_output_size = 0;
  int64_t host_alias_size = 0;
  int64_t host_temp_size = 0;
  int64_t peak_memory = 0;  // 0 where the plugin does not say
};

struct OptimizedProgram {
  std::string format;  // for example "hlo_with_config": a serialized HloModuleProtoWithConfig
  std::string code;
};

// What is known of a compiled program, loaded on devices or not. Owns a PJRT_Executable.
class CompiledProgram {
 public:
  // Takes ownership. The client, if any, is kept alive as long as the program.
  CompiledProgram(std::shared_ptr<Plugin> plugin, std::shared_ptr<Client> client,
                  abi::Executable* executable);
  virtual ~CompiledProgram();
  CompiledProgram(const CompiledProgram&) = delete;
  CompiledProgram& operator=(const CompiledProgram&) = delete;

  std::string name() const;
  size_t num_outputs() const { return num_outputs_; }
  size_t num_replicas() const;
  size_t num_partitions() const;
  std::vector<BufferType> output_types() const;
  std::vector<std::vector<int64_t>> output_dims() const;
  // One per output; nothing where the plugin does not say.
  std::optional<std::vector<std::string>> output_memory_kinds() const;
  // A serialized xla.OpSharding per output; nothing where the plugin does not say, or for a program
  // that was not partitioned.
  std::optional<std::vector<std::string>> output_shardings() const;
  // Equal for equal programs of one plugin; nothing where the plugin does not say.
  virtual std::optional<std::string> fingerprint() const;
  // For Client::load of the same plugin on the same kind of machine.
  std::string serialize() const;
  OptimizedProgram optimized_program() const;
  std::optional<CompiledMemoryStats> memory_stats() const;
  // XLA's estimates, for example "flops" and "bytes accessed"; nothing where unsupported.
  std::optional<Attributes> cost_analysis() const;

 protected:
  std::shared_ptr<Plugin> plugin_;
  std::shared_ptr<Client> client_;
  const abi::Api* api_;

 private:
  abi::Executable* executable_;
  size_t num_outputs_;
};

// Whether programs of the plugin say how their outputs are cut.
bool tells_shardings(const Plugin& plugin);

struct ExecuteOptions {
  // Inputs that the program may donate but that must survive this call: they are copied.
  std::vector<int64_t> non_donatable_input_indices = {};
  // Executions on several devices that talk to each other must share a non-zero id when they are
  // launched one device at a time; zero is fine otherwise.
  int launch_id = 0;
  // For execute() only: which device of the program's, or any device for a portable program.
  Device* execute_device = nullptr;
  // When set, receives one event per device, ready when the execution is over: for programs without
  // outputs.
  std::vector<Event>* done = nullptr;
};

// A program loaded on devices. Keeps its client alive. Executing from several threads is safe; then
// the order on a device is not defined.
class Executable : public CompiledProgram {
 public:
  // Takes ownership.
  Executable(std::shared_ptr<Client> client, abi::LoadedExecutable* executable);
  ~Executable() override;

  std::optional<std::string> fingerprint() const override;
  const std::vector<Device*>& addressable_devices() const { return devices_; }

  // Enqueues the program on one device and returns its outputs, whose contents follow. Inputs that
  // the program donates are deleted. Throws Error if the plugin refuses the call (number, shape,
  // device or state of the arguments); what fails later comes through the outputs' events.
  std::vector<std::unique_ptr<Buffer>> execute(std::span<Buffer* const> args,
                                               const ExecuteOptions& options = {});

  // The same on all addressable_devices() at once, in their order: args[device][argument], result
  // [device][output].
  std::vector<std::vector<std::unique_ptr<Buffer>>> execute_sharded(
      std::span<const std::vector<Buffer*>> args, const ExecuteOptions& options = {});

  const std::shared_ptr<Client>& client() const { return client_; }

 private:
  using Outputs = std::vector<std::vector<std::unique_ptr<Buffer>>>;
  Outputs launch(std::span<const std::span<Buffer* const>> args, const ExecuteOptions& options);

  abi::LoadedExecutable* loaded_;
  std::vector<Device*> devices_;
};

}  // namespace torch_xla::pjrt
