// Host functions that compiled programs call: StableHLO
//   stablehlo.custom_call @name(%x) {api_version = 4 : i32, backend_config = {axis = 1 : i64}}
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/buffer_type.h"
#include "pjrt/ffi_abi.h"
#include "pjrt/option.h"
#include "pjrt/plugin.h"

namespace torch_xla::pjrt {

// An operand or result: memory of the device, dense and row major unless the custom call asked for
// another layout. Valid during the call.
struct FfiBuffer {
  BufferType type;
  std::span<const int64_t> dims;
  void* data;
};

// One call of a handler. Reading throws Error, which becomes the error of the execution.
class FfiCall {
 public:
  explicit FfiCall(const ffi_abi::CallFrame* frame) : frame_(frame) {}

  size_t num_args() const { return static_cast<size_t>(frame_->args.size); }
  size_t num_results() const { return static_cast<size_t>(frame_->rets.size); }
  FfiBuffer arg(size_t i) const;
  FfiBuffer result(size_t i) const;

  bool has_attr(std::string_view name) const;
  // Attributes of backend_config. Integers of any width read as int64_t, f32 and f64 as double.
  std::string_view string_attr(std::string_view name) const;
  int64_t int_attr(std::string_view name) const;
  double float_attr(std::string_view name) const;
  bool bool_attr(std::string_view name) const;
  std::span<const int64_t> ints_attr(std::string_view name) const;  // array<i64: ...>

  // The threads that the plugin computes with; 1 where it does not tell.
  size_t num_threads() const;
  // Calls task(0) to task(count - 1), here and on those threads, each of them once and in any
  // order, and returns when all are done. Throws the first thing that one of them threw.
  void in_parallel(size_t count, const std::function<void(size_t)>& task) const;

 private:
  // Whether `task(data)` will be called on one of the plugin's threads.
  bool schedule(void (*task)(void*), void* data) const;

  const ffi_abi::CallFrame* frame_;
};

// What a plugin calls. Made by ffi_entry.
using FfiEntry = ffi_abi::Error* (*)(ffi_abi::CallFrame*);

// Runs `handler`, answers the plugin's questions about it, turns exceptions into errors.
ffi_abi::Error* run_ffi_handler(void (*handler)(const FfiCall&),
                                ffi_abi::CallFrame* frame) noexcept;

// Makes an entry from a function. A plugin gives handlers no data of their own, hence the template.
template <void (*Handler)(const FfiCall&)>
ffi_abi::Error* ffi_entry(ffi_abi::CallFrame* frame) {
  return run_ffi_handler(Handler, frame);
}

// Registers `entry` under `name`, for all clients of the plugin and as long as the process lives.
// platform: "Host" for CPU, "CUDA", "ROCM". Programs that call it may be compiled or loaded only
// afterwards. Throws Error if the plugin has no FFI extension or refuses.
void register_ffi_handler(const Plugin& plugin, std::string_view name, std::string_view platform,
                          FfiEntry entry);

}  // namespace torch_xla::pjrt
