// The part of the PJRT C ABI that this project uses, declared in our own words.
//
// Facts, not text, come from OpenXLA's pjrt_c_api.h (API 0.114): the order of the function table
// and the order and type of each struct's members, whose names are kept so that tests can compare
// them. The ABI only ever grows at the end: of the table, and of each struct. A caller says how
// much it knows through `struct_size`; a plugin says so through Api::struct_size. A plugin takes
// more than it knows, but refuses less than some size of its choice: structs are declared in full.
// tests/cpp/pjrt/test_abi_layout.py compares every size and offset with an independent description.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_xla::pjrt::abi {

// Version of the description above, and the oldest plugin that is tested.
inline constexpr int kMajorVersion = 0;
inline constexpr int kMinorVersion = 114;
inline constexpr int kOldestMinorVersion = 81;

// Objects of the plugin; only pointers to them cross the border.
struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct DeviceAttributes;
struct Memory;
struct Buffer;
struct Executable;
struct LoadedExecutable;
struct SerializedExecutable;
struct TopologyDescription;
struct ExecuteContext;

enum ExtensionType : uint32_t { kExtensionFfi = 5, kExtensionShardings = 19 };

struct ExtensionBase {
  size_t struct_size;
  ExtensionType type;
  ExtensionBase* next;
};

// First two members of every struct.
struct Head {
  size_t struct_size;
  ExtensionBase* extension_start;
};

// What to write into Head::struct_size: the end of the last member, without padding, so that a
// later member which fits into today's padding is not taken for set. Specialised below where they
// differ.
template <class T>
inline constexpr size_t kStructSize = sizeof(T);

struct Version {
  Head head;
  int major_version;
  int minor_version;
};

enum NamedValueType : uint32_t { kString = 0, kInt64 = 1, kInt64List = 2, kFloat = 3, kBool = 4 };

struct NamedValue {
  Head head;
  const char* name;
  size_t name_size;
  NamedValueType type;
  union {
    const char* string_value;
    int64_t int64_value;
    const int64_t* int64_array_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size;  // characters or elements; 1 for a scalar
};

// ---- errors ----

struct Error_Destroy_Args {
  Head head;
  Error* error;
};

struct Error_Message_Args {
  Head head;
  const Error* error;
  const char* message;  // out, lives as long as the error
  size_t message_size;
};

struct Error_GetCode_Args {
  Head head;
  const Error* error;
  uint32_t code;  // out
};
template <>
inline constexpr size_t kStructSize<Error_GetCode_Args> = offsetof(Error_GetCode_Args, code) + 4;

// ---- plugin ----

struct Plugin_Initialize_Args {
  Head head;
};

struct Plugin_Attributes_Args {
  Head head;
  const NamedValue* attributes;  // out, lives as long as the plugin
  size_t num_attributes;
};

// ---- events ----

struct Event_Destroy_Args {
  Head head;
  Event* event;
};

struct Event_IsReady_Args {
  Head head;
  Event* event;
  bool is_ready;  // out
};
template <>
inline constexpr size_t kStructSize<Event_IsReady_Args> =
    offsetof(Event_IsReady_Args, is_ready) + 1;

struct Event_Await_Args {
  Head head;
  Event* event;
};

// The callback owns the error, which is null on success.
using EventCallback = void (*)(Error* error, void* user_arg);

struct Event_OnReady_Args {
  Head head;
  Event* event;
  EventCallback callback;
  void* user_arg;
};

// ---- client ----

struct Client_Create_Args {
  Head head;
  const NamedValue* create_options;
  size_t num_options;
  void* kv_get_callback;  // the key-value store of multi-process clients; not used
  void* kv_get_user_arg;
  void* kv_put_callback;
  void* kv_put_user_arg;
  Client* client;  // out
  void* kv_try_get_callback;
  void* kv_try_get_user_arg;
};

struct Client_Destroy_Args {
  Head head;
  Client* client;
};

struct Client_PlatformName_Args {
  Head head;
  Client* client;
  const char* platform_name;  // out
  size_t platform_name_size;
};

struct Client_ProcessIndex_Args {
  Head head;
  Client* client;
  int process_index;  // out
};
template <>
inline constexpr size_t kStructSize<Client_ProcessIndex_Args> =
    offsetof(Client_ProcessIndex_Args, process_index) + 4;

struct Client_PlatformVersion_Args {
  Head head;
  Client* client;
  const char* platform_version;  // out
  size_t platform_version_size;
};

struct Client_TopologyDescription_Args {
  Head head;
  Client* client;
  TopologyDescription* topology;  // out, owned by the client
};

struct Client_Devices_Args {
  Head head;
  Client* client;
  Device* const* devices;  // out
  size_t num_devices;
};

struct Client_AddressableDevices_Args {
  Head head;
  Client* client;
  Device* const* addressable_devices;  // out
  size_t num_addressable_devices;
};

struct Client_AddressableMemories_Args {
  Head head;
  Client* client;
  Memory* const* addressable_memories;  // out
  size_t num_addressable_memories;
};

struct Program {
  Head head;
  char* code;  // in, or out buffer when asking for the optimized program
  size_t code_size;
  const char* format;
  size_t format_size;
};

struct Client_Compile_Args {
  Head head;
  Client* client;
  const Program* program;
  const char* compile_options;  // a serialized CompileOptionsProto
  size_t compile_options_size;
  LoadedExecutable* executable;  // out
};

enum MemoryLayoutType : uint32_t { kTiled = 0, kStrides = 1 };

struct Buffer_MemoryLayout_Tiled {
  Head head;
  const int64_t* minor_to_major;
  size_t minor_to_major_size;
  const int64_t* tile_dims;
  const size_t* tile_dim_sizes;
  size_t num_tiles;
};

struct Buffer_MemoryLayout_Strides {
  Head head;
  const int64_t* byte_strides;
  size_t num_byte_strides;
};

struct Buffer_MemoryLayout {
  Head head;
  union {
    Buffer_MemoryLayout_Tiled tiled;
    Buffer_MemoryLayout_Strides strides;
  };
  MemoryLayoutType type;
};
template <>
inline constexpr size_t kStructSize<Buffer_MemoryLayout> = offsetof(Buffer_MemoryLayout, type) + 4;

struct Client_BufferFromHostBuffer_Args {
  Head head;
  Client* client;
  const void* data;
  uint32_t type;
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides;  // none: dense, row major
  size_t num_byte_strides;
  uint32_t host_buffer_semantics;
  Device* device;
  Memory* memory;  // wins over the device
  Buffer_MemoryLayout* device_layout;
  Event* done_with_host_buffer;  // out
  Buffer* buffer;                // out
};

// ---- devices and memories ----

struct Device_GetDescription_Args {
  Head head;
  Device* device;
  DeviceDescription* device_description;  // out
};

struct DeviceDescription_Id_Args {
  Head head;
  DeviceDescription* device_description;
  int id;  // out
};
template <>
inline constexpr size_t kStructSize<DeviceDescription_Id_Args> =
    offsetof(DeviceDescription_Id_Args, id) + 4;

struct DeviceDescription_ProcessIndex_Args {
  Head head;
  DeviceDescription* device_description;
  int process_index;  // out
};
template <>
inline constexpr size_t kStructSize<DeviceDescription_ProcessIndex_Args> =
    offsetof(DeviceDescription_ProcessIndex_Args, process_index) + 4;

struct DeviceDescription_Attributes_Args {
  Head head;
  DeviceDescription* device_description;
  size_t num_attributes;         // out
  const NamedValue* attributes;  // out
};

struct DeviceDescription_Kind_Args {
  Head head;
  DeviceDescription* device_description;
  const char* device_kind;  // out
  size_t device_kind_size;
};

struct DeviceDescription_DebugString_Args {
  Head head;
  DeviceDescription* device_description;
  const char* debug_string;  // out
  size_t debug_string_size;
};

struct DeviceDescription_ToString_Args {
  Head head;
  DeviceDescription* device_description;
  const char* to_string;  // out
  size_t to_string_size;
};

struct Device_LocalHardwareId_Args {
  Head head;
  Device* device;
  int local_hardware_id;  // out
};
template <>
inline constexpr size_t kStructSize<Device_LocalHardwareId_Args> =
    offsetof(Device_LocalHardwareId_Args, local_hardware_id) + 4;

struct Device_AddressableMemories_Args {
  Head head;
  Device* device;
  Memory* const* memories;  // out
  size_t num_memories;
};

struct Device_DefaultMemory_Args {
  Head head;
  Device* device;
  Memory* memory;  // out
};

struct Device_MemoryStats_Args {
  Head head;
  Device* device;
  int64_t bytes_in_use;  // all out
  int64_t peak_bytes_in_use;
  bool peak_bytes_in_use_is_set;
  int64_t num_allocs;
  bool num_allocs_is_set;
  int64_t largest_alloc_size;
  bool largest_alloc_size_is_set;
  int64_t bytes_limit;
  bool bytes_limit_is_set;
  int64_t bytes_reserved;
  bool bytes_reserved_is_set;
  int64_t peak_bytes_reserved;
  bool peak_bytes_reserved_is_set;
  int64_t bytes_reservable_limit;
  bool bytes_reservable_limit_is_set;
  int64_t largest_free_block_bytes;
  bool largest_free_block_bytes_is_set;
  int64_t pool_bytes;
  bool pool_bytes_is_set;
  int64_t peak_pool_bytes;
  bool peak_pool_bytes_is_set;
  int64_t peak_allocated_bytes;
  bool peak_allocated_bytes_is_set;
};
template <>
inline constexpr size_t kStructSize<Device_MemoryStats_Args> =
    offsetof(Device_MemoryStats_Args, peak_allocated_bytes_is_set) + 1;

struct Memory_Id_Args {
  Head head;
  Memory* memory;
  int id;  // out
};
template <>
inline constexpr size_t kStructSize<Memory_Id_Args> = offsetof(Memory_Id_Args, id) + 4;

struct Memory_Kind_Args {
  Head head;
  Memory* memory;
  const char* kind;  // out
  size_t kind_size;
};

struct Memory_DebugString_Args {
  Head head;
  Memory* memory;
  const char* debug_string;  // out
  size_t debug_string_size;
};

// ---- compiled programs ----

struct Executable_Destroy_Args {
  Head head;
  Executable* executable;
};

struct Executable_Name_Args {
  Head head;
  Executable* executable;
  const char* executable_name;  // out
  size_t executable_name_size;
};

struct Executable_NumReplicas_Args {
  Head head;
  Executable* executable;
  size_t num_replicas;  // out
};

struct Executable_NumPartitions_Args {
  Head head;
  Executable* executable;
  size_t num_partitions;  // out
};

struct Executable_NumOutputs_Args {
  Head head;
  Executable* executable;
  size_t num_outputs;  // out
};

struct Executable_GetCostAnalysis_Args {
  Head head;
  Executable* executable;
  size_t num_properties;         // out
  const NamedValue* properties;  // out
};

struct Executable_OutputMemoryKinds_Args {
  Head head;
  Executable* executable;
  size_t num_outputs;               // out
  const char* const* memory_kinds;  // out
  const size_t* memory_kind_sizes;  // out
};

struct Executable_OptimizedProgram_Args {
  Head head;
  Executable* executable;
  Program* program;  // in and out
};

struct Executable_Serialize_Args {
  Head head;
  const Executable* executable;
  const char* serialized_bytes;  // out
  size_t serialized_bytes_size;
  SerializedExecutable* serialized_executable;  // out, owns the bytes
  void (*serialized_executable_deleter)(SerializedExecutable*);
};

struct Executable_OutputElementTypes_Args {
  Head head;
  Executable* executable;
  uint32_t* output_types;  // out
  size_t num_output_types;
};

struct Executable_OutputDimensions_Args {
  Head head;
  Executable* executable;
  size_t num_outputs;
  const int64_t* dims;      // out, all outputs' dimensions in a row
  const size_t* dim_sizes;  // out, rank of each output
};

struct Executable_Fingerprint_Args {
  Head head;
  Executable* executable;
  const char* executable_fingerprint;  // out
  size_t executable_fingerprint_size;
};

struct Executable_GetCompiledMemoryStats_Args {
  Head head;
  Executable* executable;
  int64_t generated_code_size_in_bytes;  // all out
  int64_t argument_size_in_bytes;
  int64_t output_size_in_bytes;
  int64_t alias_size_in_bytes;
  int64_t temp_size_in_bytes;
  int64_t host_generated_code_size_in_bytes;
  int64_t host_argument_size_in_bytes;
  int64_t host_output_size_in_bytes;
  int64_t host_alias_size_in_bytes;
  int64_t host_temp_size_in_bytes;
  int64_t peak_memory_in_bytes;
  int64_t total_size_in_bytes;
  int64_t total_allocation_bytes;
  int64_t indefinite_allocations;
  int64_t peak_unpadded_heap_bytes;
};

struct Executable_DeserializeAndLoad_Args {
  Head head;
  Client* client;
  const char* serialized_executable;
  size_t serialized_executable_size;
  LoadedExecutable* loaded_executable;  // out
  const char* overridden_serialized_compile_options;
  size_t overridden_serialized_compile_options_size;
  void* load_options;
};

struct LoadedExecutable_Destroy_Args {
  Head head;
  LoadedExecutable* executable;
};

struct LoadedExecutable_GetExecutable_Args {
  Head head;
  LoadedExecutable* loaded_executable;
  Executable* executable;  // out, owned by the caller
};

struct LoadedExecutable_AddressableDevices_Args {
  Head head;
  LoadedExecutable* executable;
  Device* const* addressable_devices;  // out
  size_t num_addressable_devices;
};

struct LoadedExecutable_Fingerprint_Args {
  Head head;
  LoadedExecutable* executable;
  const char* executable_fingerprint;  // out
  size_t executable_fingerprint_size;
};

struct ExecuteOptions {
  Head head;
  void** send_callbacks;
  void** recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t* non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  ExecuteContext* context;
  const char* call_location;
  size_t num_tasks;
  const int* task_ids;
  const int64_t* incarnation_ids;
  void* multi_slice_config;
  bool use_major_to_minor_data_layout_for_callbacks;
  void* hlo_output_callbacks;
  size_t num_hlo_output_callbacks;
};

struct LoadedExecutable_Execute_Args {
  Head head;
  LoadedExecutable* executable;
  ExecuteOptions* options;
  Buffer* const* const* argument_lists;  // [num_devices][num_args]
  size_t num_devices;
  size_t num_args;
  Buffer** const* output_lists;    // [num_devices][num_outputs], arrays given by the caller
  Event** device_complete_events;  // null, or [num_devices]
  Device* execute_device;          // only with num_devices 1
};

// ---- buffers ----

struct Buffer_Destroy_Args {
  Head head;
  Buffer* buffer;
};

struct Buffer_ElementType_Args {
  Head head;
  Buffer* buffer;
  uint32_t type;  // out
};
template <>
inline constexpr size_t kStructSize<Buffer_ElementType_Args> =
    offsetof(Buffer_ElementType_Args, type) + 4;

struct Buffer_Dimensions_Args {
  Head head;
  Buffer* buffer;
  const int64_t* dims;  // out
  size_t num_dims;
};

struct Buffer_UnpaddedDimensions_Args {
  Head head;
  Buffer* buffer;
  const int64_t* unpadded_dims;  // out
  size_t num_dims;
};

struct Buffer_OnDeviceSizeInBytes_Args {
  Head head;
  Buffer* buffer;
  size_t on_device_size_in_bytes;  // out
};

struct Buffer_Device_Args {
  Head head;
  Buffer* buffer;
  Device* device;  // out
};

struct Buffer_Memory_Args {
  Head head;
  Buffer* buffer;
  Memory* memory;  // out
};

struct Buffer_Delete_Args {
  Head head;
  Buffer* buffer;
};

struct Buffer_IsDeleted_Args {
  Head head;
  Buffer* buffer;
  bool is_deleted;  // out
};
template <>
inline constexpr size_t kStructSize<Buffer_IsDeleted_Args> =
    offsetof(Buffer_IsDeleted_Args, is_deleted) + 1;

struct Buffer_CopyToDevice_Args {
  Head head;
  Buffer* buffer;
  Device* dst_device;
  Buffer* dst_buffer;  // out
};

struct Buffer_CopyToMemory_Args {
  Head head;
  Buffer* buffer;
  Memory* dst_memory;
  Buffer* dst_buffer;  // out
};

struct Buffer_ToHostBuffer_Args {
  Head head;
  Buffer* src;
  Buffer_MemoryLayout* host_layout;
  void* dst;
  size_t dst_size;
  Event* event;  // out
};

struct Buffer_ReadyEvent_Args {
  Head head;
  Buffer* buffer;
  Event* event;  // out
};

struct Buffer_UnsafePointer_Args {
  Head head;
  Buffer* buffer;
  uintptr_t buffer_pointer;  // out
};

// ---- topologies ----

struct TopologyDescription_Create_Args {
  Head head;
  const char* topology_name;
  size_t topology_name_size;
  const NamedValue* create_options;
  size_t num_options;
  TopologyDescription* topology;  // out
};

struct TopologyDescription_Destroy_Args {
  Head head;
  TopologyDescription* topology;
};

struct TopologyDescription_PlatformName_Args {
  Head head;
  TopologyDescription* topology;
  const char* platform_name;  // out
  size_t platform_name_size;
};

struct TopologyDescription_PlatformVersion_Args {
  Head head;
  TopologyDescription* topology;
  const char* platform_version;  // out
  size_t platform_version_size;
};

struct TopologyDescription_GetDeviceDescriptions_Args {
  Head head;
  TopologyDescription* topology;
  DeviceDescription* const* descriptions;  // out
  size_t num_descriptions;
};

struct TopologyDescription_Attributes_Args {
  Head head;
  TopologyDescription* topology;
  const NamedValue* attributes;  // out
  size_t num_attributes;
};

struct Compile_Args {
  Head head;
  const TopologyDescription* topology;
  const Program* program;
  const char* compile_options;
  size_t compile_options_size;
  Client* client;          // optional
  Executable* executable;  // out
};

// ---- FFI extension ----

struct FFI_Register_Handler_Args {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  uint32_t traits;
};
template <>
inline constexpr size_t kStructSize<FFI_Register_Handler_Args> =
    offsetof(FFI_Register_Handler_Args, traits) + 4;

struct FFI_Extension {
  ExtensionBase base;
  void* type_register;
  void* user_data_add;
  Error* (*register_handler)(FFI_Register_Handler_Args*);
};

// ---- the shardings extension ----

// Each sharding is a serialized xla.OpSharding, owned by the executable. None at all (a null list)
// for a program that was not partitioned.
struct Shardings_PJRT_Executable_ParameterShardings_Args {
  Head head;
  Executable* executable;
  size_t num_parameters;
  const char* const* shardings;
  const size_t* sharding_sizes;
};
struct Shardings_PJRT_Executable_OutputShardings_Args {
  Head head;
  Executable* executable;
  size_t num_outputs;
  const char* const* shardings;
  const size_t* sharding_sizes;
};
struct Shardings_Extension {
  ExtensionBase base;
  Error* (*PJRT_Shardings_PJRT_Executable_ParameterShardings)(
      Shardings_PJRT_Executable_ParameterShardings_Args*);
  Error* (*PJRT_Shardings_PJRT_Executable_OutputShardings)(
      Shardings_PJRT_Executable_OutputShardings_Args*);
};

// ---- the function table ----

template <class Args>
using Function = Error* (*)(Args*);

// Slots that are not used stand as void*, in runs.
struct Api {
  size_t struct_size;
  ExtensionBase* extension_start;
  Version pjrt_api_version;

  void (*Error_Destroy)(Error_Destroy_Args*);  // 0
  void (*Error_Message)(Error_Message_Args*);
  Function<Error_GetCode_Args> Error_GetCode;
  Function<Plugin_Initialize_Args> Plugin_Initialize;
  Function<Plugin_Attributes_Args> Plugin_Attributes;
  Function<Event_Destroy_Args> Event_Destroy;
  Function<Event_IsReady_Args> Event_IsReady;
  void* unused_7;
  Function<Event_Await_Args> Event_Await;
  Function<Event_OnReady_Args> Event_OnReady;
  Function<Client_Create_Args> Client_Create;  // 10
  Function<Client_Destroy_Args> Client_Destroy;
  Function<Client_PlatformName_Args> Client_PlatformName;
  Function<Client_ProcessIndex_Args> Client_ProcessIndex;
  Function<Client_PlatformVersion_Args> Client_PlatformVersion;
  Function<Client_Devices_Args> Client_Devices;
  Function<Client_AddressableDevices_Args> Client_AddressableDevices;
  void* unused_17[2];
  Function<Client_AddressableMemories_Args> Client_AddressableMemories;
  Function<Client_Compile_Args> Client_Compile;  // 20
  void* unused_21;
  Function<Client_BufferFromHostBuffer_Args> Client_BufferFromHostBuffer;
  Function<DeviceDescription_Id_Args> DeviceDescription_Id;
  Function<DeviceDescription_ProcessIndex_Args> DeviceDescription_ProcessIndex;
  Function<DeviceDescription_Attributes_Args> DeviceDescription_Attributes;
  Function<DeviceDescription_Kind_Args> DeviceDescription_Kind;
  Function<DeviceDescription_DebugString_Args> DeviceDescription_DebugString;
  Function<DeviceDescription_ToString_Args> DeviceDescription_ToString;
  Function<Device_GetDescription_Args> Device_GetDescription;
  void* unused_30;
  Function<Device_LocalHardwareId_Args> Device_LocalHardwareId;
  Function<Device_AddressableMemories_Args> Device_AddressableMemories;
  Function<Device_DefaultMemory_Args> Device_DefaultMemory;
  Function<Device_MemoryStats_Args> Device_MemoryStats;
  Function<Memory_Id_Args> Memory_Id;
  Function<Memory_Kind_Args> Memory_Kind;
  Function<Memory_DebugString_Args> Memory_DebugString;
  void* unused_38[2];
  Function<Executable_Destroy_Args> Executable_Destroy;  // 40
  Function<Executable_Name_Args> Executable_Name;
  Function<Executable_NumReplicas_Args> Executable_NumReplicas;
  Function<Executable_NumPartitions_Args> Executable_NumPartitions;
  Function<Executable_NumOutputs_Args> Executable_NumOutputs;
  void* unused_45;
  Function<Executable_GetCostAnalysis_Args> Executable_GetCostAnalysis;
  Function<Executable_OutputMemoryKinds_Args> Executable_OutputMemoryKinds;
  Function<Executable_OptimizedProgram_Args> Executable_OptimizedProgram;
  Function<Executable_Serialize_Args> Executable_Serialize;
  Function<LoadedExecutable_Destroy_Args> LoadedExecutable_Destroy;  // 50
  Function<LoadedExecutable_GetExecutable_Args> LoadedExecutable_GetExecutable;
  Function<LoadedExecutable_AddressableDevices_Args> LoadedExecutable_AddressableDevices;
  void* unused_53[2];
  Function<LoadedExecutable_Execute_Args> LoadedExecutable_Execute;
  Function<Executable_DeserializeAndLoad_Args> Executable_DeserializeAndLoad;
  Function<LoadedExecutable_Fingerprint_Args> LoadedExecutable_Fingerprint;
  Function<Buffer_Destroy_Args> Buffer_Destroy;
  Function<Buffer_ElementType_Args> Buffer_ElementType;
  Function<Buffer_Dimensions_Args> Buffer_Dimensions;  // 60
  Function<Buffer_UnpaddedDimensions_Args> Buffer_UnpaddedDimensions;
  void* unused_62[2];
  Function<Buffer_OnDeviceSizeInBytes_Args> Buffer_OnDeviceSizeInBytes;
  Function<Buffer_Device_Args> Buffer_Device;
  Function<Buffer_Memory_Args> Buffer_Memory;
  Function<Buffer_Delete_Args> Buffer_Delete;
  Function<Buffer_IsDeleted_Args> Buffer_IsDeleted;
  Function<Buffer_CopyToDevice_Args> Buffer_CopyToDevice;
  Function<Buffer_ToHostBuffer_Args> Buffer_ToHostBuffer;  // 70
  void* unused_71;
  Function<Buffer_ReadyEvent_Args> Buffer_ReadyEvent;
  Function<Buffer_UnsafePointer_Args> Buffer_UnsafePointer;
  void* unused_74[8];
  Function<TopologyDescription_Create_Args> TopologyDescription_Create;  // 82
  Function<TopologyDescription_Destroy_Args> TopologyDescription_Destroy;
  Function<TopologyDescription_PlatformName_Args> TopologyDescription_PlatformName;
  Function<TopologyDescription_PlatformVersion_Args> TopologyDescription_PlatformVersion;
  Function<TopologyDescription_GetDeviceDescriptions_Args>
      TopologyDescription_GetDeviceDescriptions;
  void* unused_87;
  Function<TopologyDescription_Attributes_Args> TopologyDescription_Attributes;
  Function<Compile_Args> Compile;
  Function<Executable_OutputElementTypes_Args> Executable_OutputElementTypes;  // 90
  Function<Executable_OutputDimensions_Args> Executable_OutputDimensions;
  Function<Buffer_CopyToMemory_Args> Buffer_CopyToMemory;
  void* unused_93;
  Function<Executable_Fingerprint_Args> Executable_Fingerprint;
  Function<Client_TopologyDescription_Args> Client_TopologyDescription;
  Function<Executable_GetCompiledMemoryStats_Args> Executable_GetCompiledMemoryStats;
};

}  // namespace torch_xla::pjrt::abi
