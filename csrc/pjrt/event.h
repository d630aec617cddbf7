// Completion of something asynchronous.
#pragma once

#include <exception>
#include <functional>

#include "pjrt/abi.h"

namespace torch_xla::pjrt {

// Owns a PJRT_Event. An empty one counts as ready. Safe to use from several threads at a time.
class Event {
 public:
  Event() = default;
  Event(const abi::Api* api, abi::Event* event) : api_(api), event_(event) {}
  ~Event() { reset(); }
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  bool is_ready() const;

  // Blocks until ready. Throws Error with the plugin's text if the work failed.
  void wait() const;

  // Calls `callback` once: at once when already ready, else on a thread of the plugin. It gets null
  // on success, else an exception_ptr of Error. It must not throw (std::terminate) nor block. The
  // event itself may be destroyed before.
  void on_ready(std::function<void(std::exception_ptr)> callback) const;

 private:
  void reset() noexcept;

  const abi::Api* api_ = nullptr;
  abi::Event* event_ = nullptr;
};

}  // namespace torch_xla::pjrt
