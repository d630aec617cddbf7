#include "pjrt/device.h"

#include "pjrt/call.h"
#include "pjrt/named_values.h"

namespace torch_xla::pjrt {

DeviceDescription DeviceDescription::read(const abi::Api* api,
                                          abi::DeviceDescription* description) {
  auto id = make<abi::DeviceDescription_Id_Args>();
  id.device_description = description;
  TORCH_XLA_PJRT_CALL(api, DeviceDescription_Id, id);
  auto process = make<abi::DeviceDescription_ProcessIndex_Args>();
  process.device_description = description;
  TORCH_XLA_PJRT_CALL(api, DeviceDescription_ProcessIndex, process);
  auto kind = make<abi::DeviceDescription_Kind_Args>();
  kind.device_description = description;
  TORCH_XLA_PJRT_CALL(api, DeviceDescription_Kind, kind);
  auto debug = make<abi::DeviceDescription_DebugString_Args>();
  debug.device_description = description;
  TORCH_XLA_PJRT_CALL(api, DeviceDescription_DebugString, debug);
  auto text = make<abi::DeviceDescription_ToString_Args>();
  text.device_description = description;
  TORCH_XLA_PJRT_CALL(api, DeviceDescription_ToString, text);
  auto attributes = make<abi::DeviceDescription_Attributes_Args>();
  attributes.device_description = description;
  TORCH_XLA_PJRT_CALL(api, DeviceDescription_Attributes, attributes);
  return {id.id,
          process.process_index,
          std::string(kind.device_kind, kind.device_kind_size),
          std::string(debug.debug_string, debug.debug_string_size),
          std::string(text.to_string, text.to_string_size),
          to_attributes(attributes.attributes, attributes.num_attributes)};
}

Memory::Memory(const abi::Api* api, abi::Memory* memory) : memory_(memory) {
  auto id = make<abi::Memory_Id_Args>();
  id.memory = memory;
  TORCH_XLA_PJRT_CALL(api, Memory_Id, id);
  id_ = id.id;
  auto kind = make<abi::Memory_Kind_Args>();
  kind.memory = memory;
  TORCH_XLA_PJRT_CALL(api, Memory_Kind, kind);
  kind_.assign(kind.kind, kind.kind_size);
  auto debug = make<abi::Memory_DebugString_Args>();
  debug.memory = memory;
  TORCH_XLA_PJRT_CALL(api, Memory_DebugString, debug);
  debug_string_.assign(debug.debug_string, debug.debug_string_size);
}

Device::Device(const abi::Api* api, abi::Device* device) : api_(api), device_(device) {
  auto args = make<abi::Device_GetDescription_Args>();
  args.device = device;
  TORCH_XLA_PJRT_CALL(api, Device_GetDescription, args);
  description_ = DeviceDescription::read(api, args.device_description);
}

std::optional<MemoryStats> Device::memory_stats() const {
  auto args = make<abi::Device_MemoryStats_Args>();
  args.device = device_;
  if (!call_if_supported(api_, &abi::Api::Device_MemoryStats, args)) return std::nullopt;
  auto known = [](int64_t value, bool is_set) {
    return is_set ? std::optional<int64_t>(value) : std::nullopt;
  };
  MemoryStats stats;
  stats.bytes_in_use = args.bytes_in_use;
  stats.peak_bytes_in_use = known(args.peak_bytes_in_use, args.peak_bytes_in_use_is_set);
  stats.num_allocs = known(args.num_allocs, args.num_allocs_is_set);
  stats.largest_alloc_size = known(args.largest_alloc_size, args.largest_alloc_size_is_set);
  stats.bytes_limit = known(args.bytes_limit, args.bytes_limit_is_set);
  stats.bytes_reserved = known(args.bytes_reserved, args.bytes_reserved_is_set);
  stats.peak_bytes_reserved = known(args.peak_bytes_reserved, args.peak_bytes_reserved_is_set);
  stats.bytes_reservable_limit =
      known(args.bytes_reservable_limit, args.bytes_reservable_limit_is_set);
  stats.largest_free_block_bytes =
      known(args.largest_free_block_bytes, args.largest_free_block_bytes_is_set);
  stats.pool_bytes = known(args.pool_bytes, args.pool_bytes_is_set);
  stats.peak_pool_bytes = known(args.peak_pool_bytes, args.peak_pool_bytes_is_set);
  return stats;
}

Memory* Device::memory(const std::string& kind) const {
  for (Memory* memory : memories_) {
    if (memory->kind() == kind) return memory;
  }
  return nullptr;
}

}  // namespace torch_xla::pjrt
