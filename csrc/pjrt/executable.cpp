#include "pjrt/executable.h"

#include <algorithm>

#include "pjrt/call.h"
#include "pjrt/client.h"
#include "pjrt/named_values.h"

namespace torch_xla::pjrt {
namespace {

// The description that belongs to a loaded program; a new object at each call.
abi::Executable* description_of(const abi::Api* api, abi::LoadedExecutable* loaded) {
  auto args = make<abi::LoadedExecutable_GetExecutable_Args>();
  args.loaded_executable = loaded;
  TORCH_XLA_PJRT_CALL(api, LoadedExecutable_GetExecutable, args);
  return args.executable;
}

const abi::Shardings_Extension* shardings_extension(const Plugin& plugin) {
  const auto* extension =
      reinterpret_cast<const abi::Shardings_Extension*>(plugin.extension(abi::kExtensionShardings));
  const bool known =
      extension != nullptr && extension->base.struct_size >= sizeof(abi::Shardings_Extension);
  return known ? extension : nullptr;
}

void destroy_loaded(const abi::Api* api, abi::LoadedExecutable* loaded) noexcept {
  auto args = make<abi::LoadedExecutable_Destroy_Args>();
  args.executable = loaded;
  destroy(api, &abi::Api::LoadedExecutable_Destroy, args);
}

}  // namespace

bool tells_shardings(const Plugin& plugin) { return shardings_extension(plugin) != nullptr; }

CompiledProgram::CompiledProgram(std::shared_ptr<Plugin> plugin, std::shared_ptr<Client> client,
                                 abi::Executable* executable)
    : plugin_(std::move(plugin)),
      client_(std::move(client)),
      api_(plugin_->api()),
      executable_(executable) {
  auto args = make<abi::Executable_NumOutputs_Args>();
  args.executable = executable_;
  try {
    TORCH_XLA_PJRT_CALL(api_, Executable_NumOutputs, args);
  } catch (...) {
    auto free_args = make<abi::Executable_Destroy_Args>();
    free_args.executable = executable_;
    destroy(api_, &abi::Api::Executable_Destroy, free_args);
    throw;
  }
  num_outputs_ = args.num_outputs;
}

CompiledProgram::~CompiledProgram() {
  auto args = make<abi::Executable_Destroy_Args>();
  args.executable = executable_;
  destroy(api_, &abi::Api::Executable_Destroy, args);
}

std::string CompiledProgram::name() const {
  auto args = make<abi::Executable_Name_Args>();
  args.executable = executable_;
  TORCH_XLA_PJRT_CALL(api_, Executable_Name, args);
  return {args.executable_name, args.executable_name_size};
}

size_t CompiledProgram::num_replicas() const {
  auto args = make<abi::Executable_NumReplicas_Args>();
  args.executable = executable_;
  TORCH_XLA_PJRT_CALL(api_, Executable_NumReplicas, args);
  return args.num_replicas;
}

size_t CompiledProgram::num_partitions() const {
  auto args = make<abi::Executable_NumPartitions_Args>();
  args.executable = executable_;
  TORCH_XLA_PJRT_CALL(api_, Executable_NumPartitions, args);
  return args.num_partitions;
}

std::vector<BufferType> CompiledProgram::output_types() const {
  auto args = make<abi::Executable_OutputElementTypes_Args>();
  args.executable = executable_;
  TORCH_XLA_PJRT_CALL(api_, Executable_OutputElementTypes, args);
  std::vector<BufferType> types;
  for (size_t i = 0; i < args.num_output_types; ++i) {
    types.push_back(static_cast<BufferType>(args.output_types[i]));
  }
  return types;
}

std::vector<std::vector<int64_t>> CompiledProgram::output_dims() const {
  auto args = make<abi::Executable_OutputDimensions_Args>();
  args.executable = executable_;
  TORCH_XLA_PJRT_CALL(api_, Executable_OutputDimensions, args);
  std::vector<std::vector<int64_t>> result;
  const int64_t* dims = args.dims;
  for (size_t i = 0; i < args.num_outputs; ++i) {
    result.emplace_back(dims, dims + args.dim_sizes[i]);
    dims += args.dim_sizes[i];
  }
  return result;
}

std::optional<std::vector<std::string>> CompiledProgram::output_memory_kinds() const {
  auto args = make<abi::Executable_OutputMemoryKinds_Args>();
  args.executable = executable_;
  if (!call_if_supported(api_, &abi::Api::Executable_OutputMemoryKinds, args)) return std::nullopt;
  std::vector<std::string> kinds;
  for (size_t i = 0; i < args.num_outputs; ++i) {
    kinds.emplace_back(args.memory_kinds[i], args.memory_kind_sizes[i]);
  }
  return kinds;
}

std::optional<std::vector<std::string>> CompiledProgram::output_shardings() const {
  const abi::Shardings_Extension* extension = shardings_extension(*plugin_);
  if (extension == nullptr) return std::nullopt;
  auto args = make<abi::Shardings_PJRT_Executable_OutputShardings_Args>();
  args.executable = executable_;
  check_not_forked();
  if (abi::Error* error = extension->PJRT_Shardings_PJRT_Executable_OutputShardings(&args)) {
    throw take_error(api_, error);
  }
  if (args.shardings == nullptr) return std::nullopt;
  std::vector<std::string> result;
  for (size_t i = 0; i < args.num_outputs; ++i) {
    result.emplace_back(args.shardings[i], args.sharding_sizes[i]);
  }
  return result;
}

std::optional<std::string> CompiledProgram::fingerprint() const {
  auto args = make<abi::Executable_Fingerprint_Args>();
  args.executable = executable_;
  if (!call_if_supported(api_, &abi::Api::Executable_Fingerprint, args)) return std::nullopt;
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

std::string CompiledProgram::serialize() const {
  auto args = make<abi::Executable_Serialize_Args>();
  args.executable = executable_;
  TORCH_XLA_PJRT_CALL(api_, Executable_Serialize, args);
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

OptimizedProgram CompiledProgram::optimized_program() const {
  auto program = make<abi::Program>();
  auto args = make<abi::Executable_OptimizedProgram_Args>();
  args.executable = executable_;
  args.program = &program;
  // The first call gives the size, the second fills the memory.
  TORCH_XLA_PJRT_CALL(api_, Executable_OptimizedProgram, args);
  std::string code(program.code_size, '\0');
  program.code = code.data();
  TORCH_XLA_PJRT_CALL(api_, Executable_OptimizedProgram, args);
  return {std::string(program.format, program.format_size), std::move(code)};
}

std::optional<CompiledMemoryStats> CompiledProgram::memory_stats() const {
  auto args = make<abi::Executable_GetCompiledMemoryStats_Args>();
  args.executable = executable_;
  if (!call_if_supported(api_, &abi::Api::Executable_GetCompiledMemoryStats, args)) {
    return std::nullopt;
  }
  return CompiledMemoryStats{
      .generated_code_size = args.generated_code_size_in_bytes,
      .argument_size = args.argument_size_in_bytes,
      .output_size = args.output_size_in_bytes,
      .alias_size = args.alias_size_in_bytes,
      .temp_size = args.temp_size_in_bytes,
      .host_generated_code_size = args.host_generated_code_size_in_bytes,
      .host_argument_size = args.host_argument_size_in_bytes,
      .host_output_size = args.host_output_size_in_bytes,
      .host_alias_size = args.host_alias_size_in_bytes,
      .host_temp_size = args.host_temp_size_in_bytes,
      .peak_memory = args.peak_memory_in_bytes,
  };
}

std::optional<Attributes> CompiledProgram::cost_analysis() const {
  auto args = make<abi::Executable_GetCostAnalysis_Args>();
  args.executable = executable_;
  if (!call_if_supported(api_, &abi::Api::Executable_GetCostAnalysis, args)) return std::nullopt;
  return to_attributes(args.properties, args.num_properties);
}

Executable::Executable(std::shared_ptr<Client> client, abi::LoadedExecutable* executable) try
    : CompiledProgram(client->plugin(), client, description_of(client->api(), executable)),
      loaded_(executable) {
  auto args = make<abi::LoadedExecutable_AddressableDevices_Args>();
  args.executable = loaded_;
  TORCH_XLA_PJRT_CALL(api_, LoadedExecutable_AddressableDevices, args);
  for (size_t i = 0; i < args.num_addressable_devices; ++i) {
    devices_.push_back(client_->find(args.addressable_devices[i]));
  }
} catch (...) {
  destroy_loaded(client->api(), executable);
  throw;
}

Executable::~Executable() { destroy_loaded(api_, loaded_); }

std::optional<std::string> Executable::fingerprint() const {
  if (auto value = CompiledProgram::fingerprint()) return value;
  auto args = make<abi::LoadedExecutable_Fingerprint_Args>();
  args.executable = loaded_;
  if (!call_if_supported(api_, &abi::Api::LoadedExecutable_Fingerprint, args)) return std::nullopt;
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

std::vector<std::unique_ptr<Buffer>> Executable::execute(std::span<Buffer* const> args,
                                                         const ExecuteOptions& options) {
  if (options.execute_device == nullptr && devices_.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "this program runs on " + std::to_string(devices_.size()) +
                    " devices: use execute_sharded, or name one in execute_device");
  }
  return std::move(launch(std::span(&args, 1), options)[0]);
}

std::vector<std::vector<std::unique_ptr<Buffer>>> Executable::execute_sharded(
    std::span<const std::vector<Buffer*>> args, const ExecuteOptions& options) {
  if (args.size() != devices_.size() || options.execute_device != nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "execute_sharded takes one list of arguments for each of the program's " +
                    std::to_string(devices_.size()) + " devices, and no execute_device; got " +
                    std::to_string(args.size()) + " lists");
  }
  std::vector<std::span<Buffer* const>> lists(args.begin(), args.end());
  return launch(lists, options);
}

Executable::Outputs Executable::launch(std::span<const std::span<Buffer* const>> args,
                                       const ExecuteOptions& options) {
  const size_t num_devices = args.size();
  const size_t num_args = num_devices == 0 ? 0 : args[0].size();
  std::vector<abi::Buffer*> arguments;
  arguments.reserve(num_devices * num_args);
  for (const auto& list : args) {
    if (list.size() != num_args) {
      throw Error(ErrorCode::kInvalidArgument, "execute_sharded: devices got " +
                                                   std::to_string(num_args) + " and " +
                                                   std::to_string(list.size()) + " arguments");
    }
    for (const Buffer* buffer : list) {
      if (buffer == nullptr) throw Error(ErrorCode::kInvalidArgument, "execute: null argument");
      // Another client of the same plugin would crash, of another plugin too.
      if (buffer->client() != client_) {
        throw Error(ErrorCode::kInvalidArgument, "execute: argument " +
                                                     std::to_string(arguments.size() % num_args) +
                                                     " belongs to another client than the program");
      }
      arguments.push_back(buffer->handle());
    }
  }
  for (int64_t index : options.non_donatable_input_indices) {
    if (index < 0 || static_cast<size_t>(index) >= num_args) {
      throw Error(ErrorCode::kInvalidArgument, "execute: non-donatable input " +
                                                   std::to_string(index) + " of " +
                                                   std::to_string(num_args) + " arguments");
    }
  }

  std::vector<abi::Buffer*> results(num_devices * num_outputs());
  std::vector<abi::Buffer* const*> argument_lists;
  std::vector<abi::Buffer**> output_lists;
  for (size_t i = 0; i < num_devices; ++i) {
    argument_lists.push_back(arguments.data() + i * num_args);
    output_lists.push_back(results.data() + i * num_outputs());
  }
  std::vector<abi::Event*> events(options.done == nullptr ? 0 : num_devices);

  auto execute_options = make<abi::ExecuteOptions>();
  execute_options.launch_id = options.launch_id;
  execute_options.non_donatable_input_indices = options.non_donatable_input_indices.data();
  execute_options.num_non_donatable_input_indices = options.non_donatable_input_indices.size();
  auto call_args = make<abi::LoadedExecutable_Execute_Args>();
  call_args.executable = loaded_;
  call_args.options = &execute_options;
  call_args.argument_lists = argument_lists.data();
  call_args.num_devices = num_devices;
  call_args.num_args = num_args;
  call_args.output_lists = output_lists.data();
  call_args.device_complete_events = events.empty() ? nullptr : events.data();
  call_args.execute_device =
      options.execute_device == nullptr ? nullptr : options.execute_device->handle();
  TORCH_XLA_PJRT_CALL(api_, LoadedExecutable_Execute, call_args);

  if (options.done != nullptr) {
    options.done->clear();
    for (abi::Event* event : events) options.done->emplace_back(api_, event);
  }
  Outputs outputs(num_devices);
  for (size_t i = 0; i < num_devices; ++i) {
    outputs[i].reserve(num_outputs());
    for (size_t j = 0; j < num_outputs(); ++j) {
      outputs[i].push_back(std::make_unique<Buffer>(client_, output_lists[i][j]));
    }
  }
  return outputs;
}

}  // namespace torch_xla::pjrt
