#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "ir/node.h"
#include "pjrt/buffer.h"

namespace torch_xla::lazy {

// An array on a device, or the promise of one: what a device-data leaf of the IR stands for.
// Its contents never change; an in-place update of a tensor makes its storage point elsewhere.
class DeviceData final : public ir::Payload {
 public:
  // `location` is the Python line that makes the contents, for errors about memory.
  DeviceData(c10::Device device, ir::Location location);
  DeviceData(c10::Device device, ir::Location location, std::unique_ptr<pjrt::Buffer> buffer)
      : DeviceData(device, location) {
    fulfil(std::move(buffer));
  }
  ~DeviceData() override;

  // The leaf node for new data of this shape.
  static ir::Value leaf(ir::ShapeRef shape, std::shared_ptr<DeviceData> data);
  // The data behind a value, or null when it is not a device-data leaf.
  static DeviceData* of(const ir::Value& value);

  c10::Device device() const { return device_; }

  // Blocks while another thread compiles the program that makes it. Throws what that threw.
  pjrt::Buffer& buffer() const;
  void fulfil(std::unique_ptr<pjrt::Buffer> buffer);
  // Its buffer was donated: the memory is another's from here on.
  void give_up();
  void fail(std::exception_ptr error);
  bool failed() const { return state_.load(std::memory_order_acquire) == State::kFailed; }
  bool has_buffer() const { return state_.load(std::memory_order_acquire) == State::kReady; }

  // Storages whose current contents this is. At zero only graphs use it, and a program that runs
  // them may take the buffer for its outputs.
  std::atomic<int32_t> storages{0};

 private:
  enum class State { kPromised, kReady, kFailed };

  friend struct Account;

  c10::Device device_;
  ir::Location location_;
  std::unique_ptr<pjrt::Buffer> buffer_;
  std::atomic<int64_t> bytes_{0};  // in the device's account
  std::exception_ptr error_;
  std::atomic<State> state_{State::kPromised};  // what may be read of the two above
  DeviceData* previous_ = nullptr;              // in the device's account
  DeviceData* next_ = nullptr;
};

// Bytes held by the device data of a device, for plugins that keep no account themselves. What a
// running program uses on the way is not in it.
struct LiveBytes {
  int64_t now = 0;
  int64_t peak = 0;  // since the process began
};
LiveBytes live_bytes(c10::DeviceIndex device);

// `what`, and what holds the device's memory now: its largest arrays with the Python lines that
// made them. For c10::OutOfMemoryError.
std::string memory_error(const std::string& what, c10::Device device);

}  // namespace torch_xla::lazy
