#include "aten/placement.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <limits>

namespace torch_xla::aten {
namespace {

constexpr size_t kUnknown = std::numeric_limits<size_t>::max();

// What other threads free is never a placement's.
thread_local Placement* t_placement = nullptr;
thread_local bool t_is_placing = false;

}  // namespace

// Torch's allocator of host memory, which torch asks first. All but the thread that has a Placement
// get what they always got.
class PlacingAllocator final : public c10::Allocator {
 public:
  // Where somebody asked for a higher priority than the usual one his allocator stays, and nothing
  // is placed.
  static void install() {
    static const bool done = [] {
      usual() = c10::GetCPUAllocator();
      auto* placing = new PlacingAllocator;
      std::atomic_thread_fence(std::memory_order_release);  // other threads allocate meanwhile
      if (usual()->raw_deleter()) c10::SetCPUAllocator(placing);
      return true;
    }();
    static_cast<void>(done);
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (!t_is_placing) return usual()->allocate(bytes);
    Placement& placement = *t_placement;
    const size_t number = placement.allocated_.size();
    for (Placement::Slot& slot : placement.slots_) {
      if (slot.number != number || slot.block.bytes != bytes || slot.is_taken) continue;
      slot.is_taken = true;
      placement.allocated_.push_back(slot.block.data);
      return {slot.block.data, slot.block.data, release, c10::DeviceType::CPU};
    }
    c10::DataPtr data = usual()->allocate(bytes);
    placement.allocated_.push_back(data.get());
    return data;
  }

  c10::DeleterFnPtr raw_deleter() const override { return release; }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return usual()->is_simple_data_ptr(data);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    usual()->copy_data(to, from, bytes);
  }

 private:
  static c10::Allocator*& usual() {
    static c10::Allocator* allocator = nullptr;
    return allocator;
  }

  // Memory of a placement, or what raw_allocate gave.
  static void release(void* data) {
    if (t_placement) {
      for (Placement::Slot& slot : t_placement->slots_) {
        if (slot.is_taken && slot.block.data == data) {
          slot.is_taken = false;
          return;
        }
      }
    }
    usual()->raw_deleter()(data);
  }
};

Placement::Placement(std::span<const Block> blocks, const Order& order) : slots_(blocks.size()) {
  PlacingAllocator::install();
  for (size_t i = 0; i < blocks.size(); ++i) {
    slots_[i].block = blocks[i];
    slots_[i].number = order.empty() ? kUnknown : order[i];
  }
  TORCH_INTERNAL_ASSERT(!t_placement);
  t_placement = this;
  t_is_placing = true;
}

Placement::Order Placement::end(std::span<void* const> results) {
  t_is_placing = false;
  Order order;
  for (void* result : results) {
    // The last one: freed memory is allocated again.
    const auto found = std::find(allocated_.rbegin(), allocated_.rend(), result);
    order.push_back(
        found == allocated_.rend() ? kUnknown : static_cast<size_t>(allocated_.rend() - found) - 1);
  }
  return order;
}

Placement::~Placement() {
  t_is_placing = false;
  t_placement = nullptr;
}

}  // namespace torch_xla::aten
