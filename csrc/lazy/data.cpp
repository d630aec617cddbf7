#include "lazy/data.h"

#include <array>
#include <limits>

#include "pjrt/fork_guard.h"

namespace torch_xla::lazy {
namespace {

struct Account {
  std::atomic<int64_t> now{0};
  std::atomic<int64_t> peak{0};

  void add(int64_t bytes) {
    const int64_t sum = now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (seen < sum && !peak.compare_exchange_weak(seen, sum, std::memory_order_relaxed)) {
    }
  }
};

Account& account_of(c10::DeviceIndex device) {
  // Never destroyed: data may outlive static destructors.
  static auto* accounts = new std::array<Account, std::numeric_limits<c10::DeviceIndex>::max() + 1>;
  return (*accounts)[static_cast<size_t>(device < 0 ? 0 : device)];
}

}  // namespace

DeviceData::~DeviceData() { give_up(); }

void DeviceData::give_up() { account_of(device_.index()).add(-bytes_.exchange(0)); }

void DeviceData::fulfil(std::unique_ptr<pjrt::Buffer> buffer) {
  buffer_ = std::move(buffer);
  bytes_ = static_cast<int64_t>(buffer_->host_bytes());
  account_of(device_.index()).add(bytes_);
  state_.store(State::kReady, std::memory_order_release);
  state_.notify_all();
}

void DeviceData::fail(std::exception_ptr error) {
  error_ = std::move(error);
  state_.store(State::kFailed, std::memory_order_release);
  state_.notify_all();
}

LiveBytes live_bytes(c10::DeviceIndex device) {
  const Account& account = account_of(device);
  return {account.now.load(), account.peak.load()};
}

ir::Value DeviceData::leaf(ir::ShapeRef shape, std::shared_ptr<DeviceData> data) {
  return ir::Node::leaf(ir::kDeviceData, shape, std::move(data));
}

DeviceData* DeviceData::of(const ir::Value& value) {
  if (!value || &value.node->op() != &ir::kDeviceData) return nullptr;
  return static_cast<DeviceData*>(value.node->payload());
}

pjrt::Buffer& DeviceData::buffer() const {
  pjrt::check_not_forked();  // here nobody would ever keep the promise
  state_.wait(State::kPromised, std::memory_order_acquire);
  if (failed()) std::rethrow_exception(error_);
  return *buffer_;
}

}  // namespace torch_xla::lazy
