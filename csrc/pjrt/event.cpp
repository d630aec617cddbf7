#include "pjrt/event.h"

#include <memory>
#include <utility>

#include "pjrt/call.h"

namespace torch_xla::pjrt {
namespace {

using Callback = std::function<void(std::exception_ptr)>;

struct Waiter {
  const abi::Api* api;
  Callback callback;
};

void on_plugin_thread(abi::Error* error, void* user_arg) noexcept {
  std::unique_ptr<Waiter> waiter(static_cast<Waiter*>(user_arg));
  waiter->callback(error == nullptr ? nullptr
                                    : std::make_exception_ptr(take_error(waiter->api, error)));
}

}  // namespace

Event::Event(Event&& other) noexcept
    : api_(other.api_), event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    reset();
    api_ = other.api_;
    event_ = std::exchange(other.event_, nullptr);
  }
  return *this;
}

void Event::reset() noexcept {
  if (event_ == nullptr) return;
  auto args = make<abi::Event_Destroy_Args>();
  args.event = std::exchange(event_, nullptr);
  destroy(api_, &abi::Api::Event_Destroy, args);
}

bool Event::is_ready() const {
  if (event_ == nullptr) return true;
  auto args = make<abi::Event_IsReady_Args>();
  args.event = event_;
  TORCH_XLA_PJRT_CALL(api_, Event_IsReady, args);
  return args.is_ready;
}

void Event::wait() const {
  if (event_ == nullptr) return;
  auto args = make<abi::Event_Await_Args>();
  args.event = event_;
  TORCH_XLA_PJRT_CALL(api_, Event_Await, args);
}

void Event::on_ready(Callback callback) const {
  if (event_ == nullptr) {
    callback(nullptr);
    return;
  }
  auto waiter = std::make_unique<Waiter>(api_, std::move(callback));
  auto args = make<abi::Event_OnReady_Args>();
  args.event = event_;
  args.callback = on_plugin_thread;
  args.user_arg = waiter.get();
  TORCH_XLA_PJRT_CALL(api_, Event_OnReady, args);
  waiter.release();
}

}  // namespace torch_xla::pjrt
