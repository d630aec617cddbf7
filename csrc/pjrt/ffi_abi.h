// The part of the XLA FFI C ABI that handlers use, declared in our own words (facts: OpenXLA's
// xla/ffi/api/c_api.h). Handlers made here say version 0.1: every plugin takes the versions from
// 0.1 to its own, and nothing newer is needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_xla::pjrt::ffi_abi {

inline constexpr int kMajorVersion = 0;
inline constexpr int kMinorVersion = 1;

struct Error;
struct ExecutionContext;

enum ExtensionType : uint32_t { kMetadata = 1 };
enum ExecutionStage : uint32_t { kInstantiate = 0, kPrepare = 1, kInitialize = 2, kExecute = 3 };
enum AttrType : uint32_t { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };

struct ExtensionBase {
  size_t struct_size;
  ExtensionType type;
  ExtensionBase* next;
};

struct Head {
  size_t struct_size;
  ExtensionBase* extension_start;
};

struct Api_Version {
  Head head;
  int major_version;
  int minor_version;
};

struct Metadata {
  size_t struct_size;
  Api_Version api_version;
  uint32_t traits;
};

struct Metadata_Extension {
  ExtensionBase extension_base;
  Metadata* metadata;
};

struct ByteSpan {
  const char* ptr;
  size_t len;
};

struct Scalar {
  uint32_t dtype;
  void* value;
};

struct Array {
  uint32_t dtype;
  size_t size;
  void* data;
};

struct Buffer {
  Head head;
  uint32_t dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct Args {
  Head head;
  int64_t size;
  uint32_t* types;
  void** args;
};

struct Rets {
  Head head;
  int64_t size;
  uint32_t* types;
  void** rets;
};

struct Attrs {
  Head head;
  int64_t size;
  AttrType* types;
  ByteSpan** names;
  void** attrs;
};

struct Error_Create_Args {
  Head head;
  const char* message;
  uint32_t errc;
};
inline constexpr size_t kErrorCreateSize = offsetof(Error_Create_Args, errc) + 4;

struct Error_Destroy_Args {
  Head head;
  Error* error;
};

struct ThreadPool_Schedule_Args {
  Head head;
  ExecutionContext* ctx;
  void (*task)(void*);
  void* data;
};

struct ThreadPool_NumThreads_Args {
  Head head;
  ExecutionContext* ctx;
  int64_t* num_threads;
};

struct Api {
  Head head;
  Api_Version api_version;
  void* internal_api;
  Error* (*Error_Create)(Error_Create_Args*);
  void* Error_GetMessage;
  void (*Error_Destroy)(Error_Destroy_Args*);
  void* Handler_Register;
  void* Stream_Get;
  void* Type_Register;
  void* ExecutionContext_Get;
  void* State_Set;
  void* State_Get;
  void* DeviceMemory_Allocate;
  void* DeviceMemory_Free;
  Error* (*ThreadPool_Schedule)(ThreadPool_Schedule_Args*);
  Error* (*ThreadPool_NumThreads)(ThreadPool_NumThreads_Args*);
};

struct CallFrame {
  Head head;
  const Api* api;
  ExecutionContext* ctx;
  ExecutionStage stage;
  Args args;
  Rets rets;
  Attrs attrs;
};

}  // namespace torch_xla::pjrt::ffi_abi
