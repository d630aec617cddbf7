#pragma once

#include <cstddef>
#include <mutex>

namespace torch_xla::ir {

// Memory for the small objects of a graph. A step makes thousands of them and drops them at once;
// malloc would merge their blocks then, and split them again in the next step. These are kept, by
// size: in lists of the thread that dropped them, and past some hundred in lists for all threads,
// since a backward pass makes its nodes on a thread of its own.

// At least `bytes` bytes. Throws std::bad_alloc.
void* take_block(size_t bytes);
// Gives back what take_block(bytes) gave, on any thread.
void give_block(void* block, size_t bytes) noexcept;

// Of the lists for all threads.
std::mutex& blocks_mutex();

// For std::allocate_shared.
template <class T>
struct BlockAllocator {
  using value_type = T;
  BlockAllocator() = default;
  template <class U>
  BlockAllocator(const BlockAllocator<U>&) {}  // NOLINT: allocators convert
  T* allocate(size_t count) { return static_cast<T*>(take_block(count * sizeof(T))); }
  void deallocate(T* block, size_t count) noexcept { give_block(block, count * sizeof(T)); }
  bool operator==(const BlockAllocator&) const { return true; }
};

}  // namespace torch_xla::ir
