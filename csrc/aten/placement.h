#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace torch_xla::aten {

// The memory where the results of a kernel are wanted, for kernels that allocate their results
// themselves: while one lives, torch's allocations on this thread are counted, and those that were
// results when the same kernel ran before give that memory. At most one lives on a thread at a
// time, and it outlives what was allocated, which is freed on that thread.
class Placement {
 public:
  struct Block {
    void* data;  // aligned as torch's own memory, to 64 bytes
    size_t bytes;
  };
  // For each result the number of its allocation, from 0. What a kernel allocates depends on its
  // arguments: they have one of these for each.
  using Order = std::vector<size_t>;

  // One block a result. `order` is empty before the first run.
  Placement(std::span<const Block> blocks, const Order& order);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // The kernel is done, and these are the addresses of its results. What is allocated from now on
  // is elsewhere. Returns the order of the next run.
  Order end(std::span<void* const> results);

 private:
  friend class PlacingAllocator;
  struct Slot {
    Block block;
    size_t number;
    bool is_taken = false;
  };

  std::vector<Slot> slots_;
  std::vector<void*> allocated_;  // in the order of their allocation
};

}  // namespace torch_xla::aten
