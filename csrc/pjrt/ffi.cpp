#include "pjrt/ffi.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>

#include "pjrt/call.h"

namespace torch_xla::pjrt {
namespace {

// XLA_FFI_DataType agrees with BufferType up to bf16's number, then does not.
BufferType to_buffer_type(uint32_t dtype) {
  if (dtype >= 1 && dtype <= 12) return static_cast<BufferType>(dtype);
  switch (dtype) {
    case 15:
      return BufferType::kC64;
    case 16:
      return BufferType::kBF16;
    case 17:
      return BufferType::kToken;
    case 18:
      return BufferType::kC128;
    case 19:
      return BufferType::kF8E5M2;
    case 20:
      return BufferType::kF8E4M3FN;
    case 21:
      return BufferType::kS4;
    case 22:
      return BufferType::kU4;
    case 23:
      return BufferType::kF8E4M3B11FNUZ;
    case 24:
      return BufferType::kF8E5M2FNUZ;
    case 25:
      return BufferType::kF8E4M3FNUZ;
    case 26:
      return BufferType::kS2;
    case 27:
      return BufferType::kU2;
    case 28:
      return BufferType::kF8E4M3;
    case 29:
      return BufferType::kF8E3M4;
    case 32:
      return BufferType::kF4E2M1FN;
    case 33:
      return BufferType::kF8E8M0FNU;
    default:
      throw Error(ErrorCode::kUnimplemented,
                  "custom call: unknown element type " + std::to_string(dtype));
  }
}

FfiBuffer to_buffer(const char* what, size_t i, int64_t size, void** items) {
  if (i >= static_cast<size_t>(size)) {
    throw Error(ErrorCode::kOutOfRange, std::string("custom call: ") + what + " " +
                                            std::to_string(i) + " of " + std::to_string(size));
  }
  const auto* buffer = static_cast<const ffi_abi::Buffer*>(items[i]);
  return {to_buffer_type(buffer->dtype),
          {buffer->dims, static_cast<size_t>(buffer->rank)},
          buffer->data};
}

struct Attr {
  ffi_abi::AttrType type;
  const void* value;
};

const Attr* find(const ffi_abi::Attrs& attrs, std::string_view name, Attr& result) {
  for (int64_t i = 0; i < attrs.size; ++i) {
    if (std::string_view(attrs.names[i]->ptr, attrs.names[i]->len) == name) {
      result = {attrs.types[i], attrs.attrs[i]};
      return &result;
    }
  }
  return nullptr;
}

template <class T>
const T& get(const ffi_abi::Attrs& attrs, std::string_view name, ffi_abi::AttrType type,
             const char* type_name) {
  Attr attr;
  if (find(attrs, name, attr) == nullptr) {
    throw Error(ErrorCode::kNotFound, "custom call: no attribute '" + std::string(name) + "'");
  }
  if (attr.type != type) {
    throw Error(ErrorCode::kInvalidArgument,
                "custom call: attribute '" + std::string(name) + "' is not " + type_name);
  }
  return *static_cast<const T*>(attr.value);
}

[[noreturn]] void throw_type(std::string_view name, const char* wanted, BufferType type) {
  throw Error(ErrorCode::kInvalidArgument, "custom call: attribute '" + std::string(name) +
                                               "' is " + to_string(type) + ", not " + wanted);
}

const ffi_abi::Scalar& scalar(const ffi_abi::CallFrame* frame, std::string_view name) {
  return get<ffi_abi::Scalar>(frame->attrs, name, ffi_abi::kScalar, "a scalar");
}

// The question a plugin asks when a handler is registered.
bool answer_metadata(ffi_abi::CallFrame* frame) {
  for (auto* e = frame->head.extension_start; e != nullptr; e = e->next) {
    if (e->type != ffi_abi::kMetadata) continue;
    ffi_abi::Metadata* metadata = reinterpret_cast<ffi_abi::Metadata_Extension*>(e)->metadata;
    metadata->api_version.major_version = ffi_abi::kMajorVersion;
    metadata->api_version.minor_version = ffi_abi::kMinorVersion;
    metadata->traits = 0;
    return true;
  }
  return false;
}

void drop_error(const ffi_abi::Api* api, ffi_abi::Error* error) {
  ffi_abi::Error_Destroy_Args args{};
  args.head.struct_size = sizeof args;
  args.error = error;
  api->Error_Destroy(&args);
}

// Older plugins have a shorter table.
bool has_threads(const ffi_abi::Api* api) {
  return api->head.struct_size >= sizeof(ffi_abi::Api) && api->ThreadPool_Schedule != nullptr &&
         api->ThreadPool_NumThreads != nullptr && api->Error_Destroy != nullptr;
}

// Tasks that several threads take from. A thread that comes late finds none left, maybe after the
// call that made them is over: hence shared.
class Tasks {
 public:
  Tasks(size_t count, const std::function<void(size_t)>& task) : count_(count), task_(task) {}

  void work() {
    for (size_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) {
      try {
        task_(i);
      } catch (...) {
        if (!failed_.exchange(true)) error_ = std::current_exception();
      }
      if (done_.fetch_add(1) + 1 == count_) done_.notify_all();
    }
  }

  // Others are at the last ones, not for long. Whoever goes to sleep meanwhile is woken late, and
  // may have lost its core.
  void finish() {
    constexpr std::chrono::microseconds kPatience(200);
    const auto begin = std::chrono::steady_clock::now();
    while (done_.load() < count_ && std::chrono::steady_clock::now() - begin < kPatience) {
    }
    for (size_t done = done_.load(); done < count_; done = done_.load()) done_.wait(done);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const size_t count_;
  const std::function<void(size_t)>& task_;  // used for tasks only, before finish() returns
  std::atomic<size_t> next_{0}, done_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

void help(void* data) {
  const std::unique_ptr<std::shared_ptr<Tasks>> tasks(static_cast<std::shared_ptr<Tasks>*>(data));
  (*tasks)->work();
}

ffi_abi::Error* make_error(const ffi_abi::CallFrame* frame, ErrorCode code, const char* message) {
  ffi_abi::Error_Create_Args args{};
  args.head.struct_size = ffi_abi::kErrorCreateSize;
  args.message = message;
  args.errc = static_cast<uint32_t>(code);
  return frame->api->Error_Create(&args);
}

}  // namespace

FfiBuffer FfiCall::arg(size_t i) const {
  return to_buffer("argument", i, frame_->args.size, frame_->args.args);
}

FfiBuffer FfiCall::result(size_t i) const {
  return to_buffer("result", i, frame_->rets.size, frame_->rets.rets);
}

bool FfiCall::has_attr(std::string_view name) const {
  Attr attr;
  return find(frame_->attrs, name, attr) != nullptr;
}

std::string_view FfiCall::string_attr(std::string_view name) const {
  const auto& text = get<ffi_abi::ByteSpan>(frame_->attrs, name, ffi_abi::kString, "a string");
  return {text.ptr, text.len};
}

int64_t FfiCall::int_attr(std::string_view name) const {
  const ffi_abi::Scalar& value = scalar(frame_, name);
  switch (const BufferType type = to_buffer_type(value.dtype)) {
    case BufferType::kS8:
      return *static_cast<const int8_t*>(value.value);
    case BufferType::kS16:
      return *static_cast<const int16_t*>(value.value);
    case BufferType::kS32:
      return *static_cast<const int32_t*>(value.value);
    case BufferType::kS64:
      return *static_cast<const int64_t*>(value.value);
    case BufferType::kU8:
      return *static_cast<const uint8_t*>(value.value);
    case BufferType::kU16:
      return *static_cast<const uint16_t*>(value.value);
    case BufferType::kU32:
      return *static_cast<const uint32_t*>(value.value);
    default:
      throw_type(name, "an integer that fits int64", type);
  }
}

double FfiCall::float_attr(std::string_view name) const {
  const ffi_abi::Scalar& value = scalar(frame_, name);
  switch (const BufferType type = to_buffer_type(value.dtype)) {
    case BufferType::kF32:
      return *static_cast<const float*>(value.value);
    case BufferType::kF64:
      return *static_cast<const double*>(value.value);
    default:
      throw_type(name, "f32 or f64", type);
  }
}

bool FfiCall::bool_attr(std::string_view name) const {
  const ffi_abi::Scalar& value = scalar(frame_, name);
  const BufferType type = to_buffer_type(value.dtype);
  if (type != BufferType::kPred) throw_type(name, "a bool", type);
  return *static_cast<const bool*>(value.value);
}

std::span<const int64_t> FfiCall::ints_attr(std::string_view name) const {
  const auto& array = get<ffi_abi::Array>(frame_->attrs, name, ffi_abi::kArray, "an array");
  const BufferType type = to_buffer_type(array.dtype);
  if (type != BufferType::kS64) throw_type(name, "array<i64>", type);
  return {static_cast<const int64_t*>(array.data), array.size};
}

size_t FfiCall::num_threads() const {
  if (!has_threads(frame_->api)) return 1;
  int64_t count = 1;
  ffi_abi::ThreadPool_NumThreads_Args args{};
  args.head.struct_size = sizeof args;
  args.ctx = frame_->ctx;
  args.num_threads = &count;
  if (ffi_abi::Error* error = frame_->api->ThreadPool_NumThreads(&args)) {
    drop_error(frame_->api, error);
    return 1;
  }
  return count > 1 ? static_cast<size_t>(count) : 1;
}

bool FfiCall::schedule(void (*task)(void*), void* data) const {
  ffi_abi::ThreadPool_Schedule_Args args{};
  args.head.struct_size = sizeof args;
  args.ctx = frame_->ctx;
  args.task = task;
  args.data = data;
  ffi_abi::Error* error = frame_->api->ThreadPool_Schedule(&args);
  if (error != nullptr) drop_error(frame_->api, error);
  return error == nullptr;
}

void FfiCall::in_parallel(size_t count, const std::function<void(size_t)>& task) const {
  const auto tasks = std::make_shared<Tasks>(count, task);
  const size_t helpers = count > 1 ? std::min(count, num_threads()) - 1 : 0;
  for (size_t i = 0; i < helpers; ++i) {
    auto shared = std::make_unique<std::shared_ptr<Tasks>>(tasks);
    if (!schedule(help, shared.get())) break;
    shared.release();  // help() has it
  }
  tasks->work();
  tasks->finish();
}

ffi_abi::Error* run_ffi_handler(void (*handler)(const FfiCall&),
                                ffi_abi::CallFrame* frame) noexcept {
  if (answer_metadata(frame) || frame->stage != ffi_abi::kExecute) return nullptr;
  try {
    handler(FfiCall(frame));
    return nullptr;
  } catch (const Error& error) {
    return make_error(frame, error.code(), error.what());
  } catch (const std::exception& error) {
    return make_error(frame, ErrorCode::kInternal, error.what());
  } catch (...) {
    return make_error(frame, ErrorCode::kUnknown, "custom call: unknown exception");
  }
}

void register_ffi_handler(const Plugin& plugin, std::string_view name, std::string_view platform,
                          FfiEntry entry) {
  check_not_forked();
  const auto* extension =
      reinterpret_cast<const abi::FFI_Extension*>(plugin.extension(abi::kExtensionFfi));
  if (extension == nullptr || extension->base.struct_size < sizeof(abi::FFI_Extension) ||
      extension->register_handler == nullptr) {
    throw Error(ErrorCode::kUnimplemented, "PJRT plugin '" + plugin.path() +
                                               "' has no FFI extension: it cannot call '" +
                                               std::string(name) + "'");
  }
  auto args = make<abi::FFI_Register_Handler_Args>();
  args.target_name = name.data();
  args.target_name_size = name.size();
  args.handler = reinterpret_cast<void*>(entry);
  args.platform_name = platform.data();
  args.platform_name_size = platform.size();
  if (abi::Error* error = extension->register_handler(&args)) {
    throw take_error(plugin.api(), error);
  }
}

}  // namespace torch_xla::pjrt
