#include "pjrt/client.h"

#include <algorithm>

#include "pjrt/call.h"
#include "pjrt/named_values.h"

namespace torch_xla::pjrt {
namespace {

// The CPU plugins before API 0.115 read this option without a look at its type, and crash.
void check_cpu_device_count(const Options& options) {
  constexpr int64_t kMost = 4096;  // each device has two threads
  for (const auto& [name, option] : options) {
    if (name != "cpu_device_count") continue;
    const auto* count = std::get_if<int64_t>(&option);
    if (count == nullptr || *count < 1 || *count > kMost) {
      throw Error(ErrorCode::kInvalidArgument, "cpu_device_count must be an integer from 1 to " +
                                                   std::to_string(kMost) + ", got " +
                                                   to_string(option));
    }
  }
}

}  // namespace

std::shared_ptr<Client> Client::create(std::shared_ptr<Plugin> plugin, const Options& options) {
  check_not_forked();
  check_cpu_device_count(options);
  arm_fork_guard();
  const std::vector<abi::NamedValue> values = to_named_values(options);
  auto args = make<abi::Client_Create_Args>();
  args.create_options = values.data();
  args.num_options = values.size();
  TORCH_XLA_PJRT_CALL(plugin->api(), Client_Create, args);
  std::shared_ptr<Client> client(new Client(std::move(plugin), args.client));
  client->read_identity();
  client->read_memories();
  client->read_devices();
  return client;
}

Client::Client(std::shared_ptr<Plugin> plugin, abi::Client* client)
    : plugin_(std::move(plugin)), api_(plugin_->api()), client_(client) {}

Client::~Client() {
  auto args = make<abi::Client_Destroy_Args>();
  args.client = client_;
  destroy(api_, &abi::Api::Client_Destroy, args);
}

void Client::read_identity() {
  auto name = make<abi::Client_PlatformName_Args>();
  name.client = client_;
  TORCH_XLA_PJRT_CALL(api_, Client_PlatformName, name);
  platform_name_.assign(name.platform_name, name.platform_name_size);
  auto version = make<abi::Client_PlatformVersion_Args>();
  version.client = client_;
  TORCH_XLA_PJRT_CALL(api_, Client_PlatformVersion, version);
  platform_version_.assign(version.platform_version, version.platform_version_size);
  auto process = make<abi::Client_ProcessIndex_Args>();
  process.client = client_;
  TORCH_XLA_PJRT_CALL(api_, Client_ProcessIndex, process);
  process_index_ = process.process_index;
}

void Client::read_memories() {
  auto args = make<abi::Client_AddressableMemories_Args>();
  args.client = client_;
  if (!call_if_supported(api_, &abi::Api::Client_AddressableMemories, args)) return;
  for (size_t i = 0; i < args.num_addressable_memories; ++i) {
    abi::Memory* handle = args.addressable_memories[i];
    auto& memory = memory_of_[handle] = std::make_unique<Memory>(api_, handle);
    memories_.push_back(memory.get());
  }
}

void Client::read_devices() {
  auto all = make<abi::Client_Devices_Args>();
  all.client = client_;
  TORCH_XLA_PJRT_CALL(api_, Client_Devices, all);
  for (size_t i = 0; i < all.num_devices; ++i) {
    abi::Device* handle = all.devices[i];
    auto& device = device_of_[handle] = std::unique_ptr<Device>(new Device(api_, handle));
    devices_.push_back(device.get());
  }
  auto ours = make<abi::Client_AddressableDevices_Args>();
  ours.client = client_;
  TORCH_XLA_PJRT_CALL(api_, Client_AddressableDevices, ours);
  for (size_t i = 0; i < ours.num_addressable_devices; ++i) {
    Device* device = find(ours.addressable_devices[i]);
    if (device == nullptr) {
      throw Error(ErrorCode::kInternal,
                  "the plugin lists an addressable device that is not among "
                  "the client's devices");
    }
    device->addressable_ = true;
    auto hardware = make<abi::Device_LocalHardwareId_Args>();
    hardware.device = device->handle();
    if (call_if_supported(api_, &abi::Api::Device_LocalHardwareId, hardware)) {
      device->local_hardware_id_ = hardware.local_hardware_id;
    }
    auto memories = make<abi::Device_AddressableMemories_Args>();
    memories.device = device->handle();
    if (call_if_supported(api_, &abi::Api::Device_AddressableMemories, memories)) {
      for (size_t j = 0; j < memories.num_memories; ++j) {
        if (Memory* memory = find(memories.memories[j])) device->memories_.push_back(memory);
      }
      auto preferred = make<abi::Device_DefaultMemory_Args>();
      preferred.device = device->handle();
      if (call_if_supported(api_, &abi::Api::Device_DefaultMemory, preferred)) {
        device->default_memory_ = find(preferred.memory);
      }
    }
    addressable_devices_.push_back(device);
  }
  auto by_id = [](const Device* a, const Device* b) { return a->id() < b->id(); };
  std::sort(devices_.begin(), devices_.end(), by_id);
  std::sort(addressable_devices_.begin(), addressable_devices_.end(), by_id);
}

Device* Client::find(const abi::Device* device) const {
  auto found = device_of_.find(device);
  return found == device_of_.end() ? nullptr : found->second.get();
}

Memory* Client::find(const abi::Memory* memory) const {
  auto found = memory_of_.find(memory);
  return found == memory_of_.end() ? nullptr : found->second.get();
}

std::unique_ptr<Buffer> Client::buffer_from_host(const void* data, BufferType type,
                                                 std::span<const int64_t> dims,
                                                 std::span<const int64_t> byte_strides,
                                                 Device* device, HostBufferSemantics semantics,
                                                 std::function<void()> on_done) {
  auto args = make<abi::Client_BufferFromHostBuffer_Args>();
  args.data = data;
  args.type = static_cast<uint32_t>(type);
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.device = device->handle();
  args.host_buffer_semantics = static_cast<uint32_t>(semantics);
  return upload(args, byte_strides, std::move(on_done));
}

std::unique_ptr<Buffer> Client::buffer_from_host(const void* data, BufferType type,
                                                 std::span<const int64_t> dims,
                                                 std::span<const int64_t> byte_strides,
                                                 Memory* memory, HostBufferSemantics semantics,
                                                 std::function<void()> on_done) {
  auto args = make<abi::Client_BufferFromHostBuffer_Args>();
  args.data = data;
  args.type = static_cast<uint32_t>(type);
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.memory = memory->handle();
  args.host_buffer_semantics = static_cast<uint32_t>(semantics);
  return upload(args, byte_strides, std::move(on_done));
}

std::unique_ptr<Buffer> Client::upload(abi::Client_BufferFromHostBuffer_Args& args,
                                       std::span<const int64_t> byte_strides,
                                       std::function<void()> on_done) {
  const auto type = static_cast<BufferType>(args.type);
  const std::span dims(args.dims, args.num_dims);
  if (host_element_size(type) == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("cannot upload elements of type ") + to_string(type));
  }
  if (!byte_strides.empty() && byte_strides.size() != dims.size()) {
    throw Error(ErrorCode::kInvalidArgument, "upload: " + std::to_string(byte_strides.size()) +
                                                 " strides for " + std::to_string(dims.size()) +
                                                 " dimensions");
  }
  if (host_bytes(type, dims) == 0) {
    // Nothing is read, but some plugins refuse a null pointer, and strides of an empty array mean
    // nothing.
    static const char nothing = 0;
    args.data = &nothing;
    byte_strides = {};
  } else if (args.data == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "upload: null data for a non-empty array");
  }
  args.client = client_;
  args.byte_strides = byte_strides.empty() ? nullptr : byte_strides.data();
  args.num_byte_strides = byte_strides.size();
  TORCH_XLA_PJRT_CALL(api_, Client_BufferFromHostBuffer, args);
  Event done(api_, args.done_with_host_buffer);
  auto buffer = std::make_unique<Buffer>(shared_from_this(), args.buffer);
  if (on_done) done.on_ready([on_done = std::move(on_done)](std::exception_ptr) { on_done(); });
  return buffer;
}

std::shared_ptr<Executable> Client::compile(std::string_view stablehlo,
                                            const CompileOptions& options) {
  std::vector<int> ids;
  for (const Device* device : devices_) ids.push_back(device->id());
  check_assignment(options, ids);
  const std::string encoded = encode(options);
  constexpr std::string_view kFormat = "mlir";
  auto program = make<abi::Program>();
  program.code = const_cast<char*>(stablehlo.data());  // only read
  program.code_size = stablehlo.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  auto args = make<abi::Client_Compile_Args>();
  args.client = client_;
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  TORCH_XLA_PJRT_CALL(api_, Client_Compile, args);
  return std::make_shared<Executable>(shared_from_this(), args.executable);
}

std::shared_ptr<Executable> Client::load(std::string_view serialized) {
  auto args = make<abi::Executable_DeserializeAndLoad_Args>();
  args.client = client_;
  args.serialized_executable = serialized.data();
  args.serialized_executable_size = serialized.size();
  TORCH_XLA_PJRT_CALL(api_, Executable_DeserializeAndLoad, args);
  return std::make_shared<Executable>(shared_from_this(), args.loaded_executable);
}

}  // namespace torch_xla::pjrt
