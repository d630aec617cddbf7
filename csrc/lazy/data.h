#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "ir/node.h"
#include "lazy/array.h"

namespace torch_xla::lazy {

class CheckReport;

// An array on a device, or the promise of one: what a device-data leaf of the IR stands for.
// Its contents never change; an in-place update of a tensor makes its storage point elsewhere.
class DeviceData final : public ir::Payload {
 public:
  // `location` is the Python line that makes the contents, for errors about memory.
  DeviceData(c10::Device device, ir::Location location);
  DeviceData(c10::Device device, ir::Location location, Array array)
      : DeviceData(device, location) {
    fulfil(std::move(array));
  }
  // Still on the host: `place` brings it to the devices, cut as it is told, once that is known or
  // the data is needed (then whole, by null). For SPMD mode, where each device gets its part only.
  using Place = std::function<Array(const sharding::Sharding*)>;
  DeviceData(c10::Device device, ir::Location location, Place place);
  ~DeviceData() override;

  // The leaf node for new data of this shape.
  static ir::Value leaf(ir::ShapeRef shape, std::shared_ptr<DeviceData> data);
  // The data behind a value, or null when it is not a device-data leaf.
  static DeviceData* of(const ir::Value& value);

  c10::Device device() const { return device_; }
  // No other data of the process has it, nor had.
  uint64_t id() const { return id_; }

  // Blocks while another thread compiles the program that makes it, and where checks of values
  // (value_checks.h) decide about it until that program is over. Throws what they threw.
  const Array& array() const;
  // `report`: what the program's checks find, those in `mask`; null where it is right in any case.
  // `is_right`: so is this, but whoever reads it should be told first of what they found.
  void fulfil(Array array, std::shared_ptr<CheckReport> report = nullptr, uint64_t mask = 0,
              bool is_right = false);
  // Cuts data that is still on the host. Returns false for all other data, as it is.
  bool place(const sharding::Sharding* sharding);
  // What brings data to the devices that is on the host yet; empty for all other data.
  Place place_of_host();
  // How it is cut, known before the array is there; null for data that is on the host yet, and
  // outside SPMD mode.
  const sharding::Sharding* sharding() const { return sharding_.load(std::memory_order_acquire); }
  // For promises: how their program will cut them.
  void expect(const sharding::Sharding* sharding) { sharding_.store(sharding); }
  // Takes the array out, for one in its place.
  Array release() { return std::move(array_); }
  // Calls `change` for all data of the device that is there. No data may come or go meanwhile.
  static void each(c10::DeviceIndex device, const std::function<void(DeviceData&)>& change);
  bool on_host() const { return state_.load(std::memory_order_acquire) == State::kOnHost; }
  // Its buffer was donated: the memory is another's from here on.
  void give_up();
  // `instead`: what storages that were to hold it hold in its place; empty: nothing is left.
  void fail(std::exception_ptr error, ir::Value instead = {});
  // What a storage should hold that was to hold this: `leaf`, which is its own, or what stands in
  // for it since it failed. Empty if that is gone too.
  static ir::Value standing(const ir::Value& leaf);
  // Whether checks decide about it, and have not been asked yet.
  bool is_unsettled() const { return state_.load(std::memory_order_acquire) == State::kUnchecked; }
  // Asks them whether it failed; blocks until its program is over.
  void settle();
  bool failed() const { return state_.load(std::memory_order_acquire) == State::kFailed; }
  // Why it failed, null if it did not. Unlike array() tells nobody.
  std::exception_ptr error() const;
  // To be called before a user sees the contents: blocks until they are there (unless a signal ends
  // that, interrupt.h) and throws what the checks of its program found and nobody was told of yet.
  void about_to_be_read();
  // Whether it is there, and needs no other thread's program.
  bool has_array() const {
    const State state = state_.load(std::memory_order_acquire);
    return state == State::kReady || state == State::kUnchecked || state == State::kOnHost;
  }
  // Blocks until it is there if its program was launched, whatever checks find. Throws the plugin's
  // error. `may_end`: a signal may end that (interrupt.h).
  void wait(bool may_end = false) const;
  // Whether its memory was donated, or lost in a launch that failed.
  bool is_gone() const;

  // Storages whose current contents this is. At zero only graphs use it, and a program that runs
  // them may take the buffer for its outputs.
  std::atomic<int32_t> storages{0};

 private:
  enum class State { kPromised, kOnHost, kUnchecked, kReady, kFailed };

  friend struct Account;

  const uint64_t id_;
  c10::Device device_;
  ir::Location location_;
  Array array_;
  Place place_;
  std::shared_ptr<CheckReport> report_;  // while unchecked, and where it has something to tell
  uint64_t mask_ = 0;
  ir::Value instead_;
  std::atomic<const sharding::Sharding*> sharding_{nullptr};
  std::atomic<int64_t> bytes_{0};  // in the device's account
  std::exception_ptr error_;
  std::atomic<State> state_{State::kPromised};  // what may be read of the above
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
