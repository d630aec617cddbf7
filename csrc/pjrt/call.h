// Calling the plugin's functions: sizes, missing slots, errors, the fork guard. Internal.
#pragma once

#include <cstddef>
#include <string>

#include "pjrt/abi.h"
#include "pjrt/error.h"
#include "pjrt/fork_guard.h"

namespace torch_xla::pjrt {

// Turns the plugin's error into ours and frees it.
Error take_error(const abi::Api* api, abi::Error* error);

// A zeroed struct that knows its size.
template <class T>
T make() {
  T args{};
  if constexpr (requires { args.head; }) {
    args.head.struct_size = abi::kStructSize<T>;
  } else {
    args.struct_size = abi::kStructSize<T>;
  }
  return args;
}

template <class Args>
bool has_slot(const abi::Api* api, abi::Function<Args> abi::Api::* slot) {
  const char* begin = reinterpret_cast<const char*>(api);
  const char* end = reinterpret_cast<const char*>(&(api->*slot)) + sizeof(void*);
  return static_cast<size_t>(end - begin) <= api->struct_size && api->*slot != nullptr;
}

[[noreturn]] void throw_missing(const char* function);

template <class Args>
void call(const abi::Api* api, abi::Function<Args> abi::Api::* slot, const char* name, Args& args) {
  check_not_forked();
  if (!has_slot(api, slot)) throw_missing(name);
  if (abi::Error* error = (api->*slot)(&args)) throw take_error(api, error);
}

// False where the plugin lacks the function or answers UNIMPLEMENTED; other errors throw.
template <class Args>
bool call_if_supported(const abi::Api* api, abi::Function<Args> abi::Api::* slot, Args& args) {
  check_not_forked();
  if (!has_slot(api, slot)) return false;
  abi::Error* raw = (api->*slot)(&args);
  if (raw == nullptr) return true;
  Error error = take_error(api, raw);
  if (error.code() == ErrorCode::kUnimplemented) return false;
  throw error;
}

// For destructors. In a forked child the object is left alone: its owner is the parent. A plugin
// has no way to refuse a destruction, so an error object that comes back is only freed.
template <class Args>
void destroy(const abi::Api* api, abi::Function<Args> abi::Api::* slot, Args args) noexcept {
  if (forked_with_client() || !has_slot(api, slot)) return;
  if (abi::Error* error = (api->*slot)(&args)) {
    auto free_args = make<abi::Error_Destroy_Args>();
    free_args.error = error;
    api->Error_Destroy(&free_args);
  }
}

#define TORCH_XLA_PJRT_CALL(api, Name, args) \
  ::torch_xla::pjrt::call(api, &::torch_xla::pjrt::abi::Api::Name, "PJRT_" #Name, args)

}  // namespace torch_xla::pjrt
