#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "pjrt/buffer.h"
#include "sharding/sharding.h"

namespace torch_xla::lazy {

// An array in device memory: one buffer, or in SPMD mode (spmd.h) one on each device, in the order
// of the client's. Empty by default.
class Array {
 public:
  Array() = default;
  Array(std::unique_ptr<pjrt::Buffer> buffer) : first_(std::move(buffer)) {}  // NOLINT
  Array(const sharding::Sharding* sharding, std::vector<std::unique_ptr<pjrt::Buffer>> shards)
      : first_(std::move(shards.at(0))), rest_(std::make_unique<Rest>(sharding)) {
    for (size_t i = 1; i < shards.size(); ++i) rest_->buffers.push_back(std::move(shards[i]));
  }

  explicit operator bool() const { return first_ != nullptr; }
  // The only one, or that of the first device.
  pjrt::Buffer& buffer() const { return *first_; }
  // How it is cut; null for one buffer.
  const sharding::Sharding* sharding() const { return rest_ ? rest_->sharding : nullptr; }
  size_t num_shards() const { return rest_ ? rest_->buffers.size() + 1 : 1; }
  pjrt::Buffer& shard(size_t i) const { return i == 0 ? *first_ : *rest_->buffers[i - 1]; }
  // Gives up the buffer of the first device.
  std::unique_ptr<pjrt::Buffer> release() { return std::move(first_); }
  // On each device.
  size_t bytes() const { return first_->host_bytes(); }
  // Whether what any device has of it is gone.
  bool is_deleted() const {
    for (size_t i = 0; i < num_shards(); ++i) {
      if (shard(i).is_deleted()) return true;
    }
    return false;
  }
  // Blocks until the contents are there. Throws pjrt::Error if they cannot be made.
  void wait() const {
    for (size_t i = 0; i < num_shards(); ++i) shard(i).ready().wait();
  }

 private:
  struct Rest {
    explicit Rest(const sharding::Sharding* sharding) : sharding(sharding) {}
    const sharding::Sharding* sharding;
    std::vector<std::unique_ptr<pjrt::Buffer>> buffers;
  };
  std::unique_ptr<pjrt::Buffer> first_;
  std::unique_ptr<Rest> rest_;
};

}  // namespace torch_xla::lazy
