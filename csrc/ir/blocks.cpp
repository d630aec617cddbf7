#include "ir/blocks.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace torch_xla::ir {
namespace {

constexpr size_t kStep = 32;  // sizes are rounded up to a multiple of it
constexpr size_t kClasses = 16;
constexpr uint32_t kBatch = 64;            // blocks that threads hand over at once
constexpr size_t kMostShared = 64u << 20;  // bytes; more goes back to malloc

// A block that nobody uses is a link of a list.
struct Block {
  Block* next;
  Block* next_batch;  // of the first of a batch
};
static_assert(sizeof(Block) <= kStep);

size_t class_of(size_t bytes) { return (bytes - 1) / kStep; }
size_t size_of(size_t kind) { return (kind + 1) * kStep; }

void free_all(Block* block) {
  while (block) std::free(std::exchange(block, block->next));
}

// Batches that no thread owns.
class Shared {
 public:
  // Never destroyed: nodes die until the very end of the process.
  static Shared& get() {
    static auto* shared = new Shared;
    return *shared;
  }
  Block* take(size_t kind) {
    std::lock_guard lock(mutex_);
    Block* batch = batches_[kind];
    if (!batch) return nullptr;
    batches_[kind] = batch->next_batch;
    bytes_ -= kBatch * size_of(kind);
    return batch;
  }
  std::mutex& mutex() { return mutex_; }
  void give(size_t kind, Block* batch) {
    {
      std::lock_guard lock(mutex_);
      if (bytes_ < kMostShared) {
        bytes_ += kBatch * size_of(kind);
        batch->next_batch = std::exchange(batches_[kind], batch);
        return;
      }
    }
    free_all(batch);
  }

 private:
  std::mutex mutex_;
  std::array<Block*, kClasses> batches_{};
  size_t bytes_ = 0;
};

// What a thread keeps for itself.
struct Own {
  struct List {
    Block* first = nullptr;
    uint32_t count = 0;
  };
  std::array<List, kClasses> lists;

  ~Own() {
    for (List& list : lists) free_all(list.first);
  }
};

// The calling thread's, null before its first block and at its end. Of the kind of thread-local
// memory that is read without a call. There is little of it for libraries that are loaded late, so
// this is a pointer only.
[[gnu::tls_model("initial-exec")]] constinit thread_local Own* t_own = nullptr;

// The calling thread's, made if need be; null while the thread ends.
Own* own() {
  if (t_own) [[likely]]
    return t_own;
  struct Holder {
    std::unique_ptr<Own> own{new (std::nothrow) Own};
    ~Holder() { t_own = nullptr; }
  };
  thread_local Holder holder;
  thread_local bool begun = false;
  if (!begun) t_own = holder.own.get();
  begun = true;
  return t_own;
}

}  // namespace

std::mutex& blocks_mutex() { return Shared::get().mutex(); }

void* take_block(size_t bytes) {
  const size_t kind = class_of(bytes);
  if (kind < kClasses) [[likely]] {
    if (Own* mine = own()) [[likely]] {
      Own::List& list = mine->lists[kind];
      if (!list.first) {
        list.first = Shared::get().take(kind);
        list.count = list.first ? kBatch : 0;
      }
      if (list.first) {
        --list.count;
        return std::exchange(list.first, list.first->next);
      }
    }
  }
  void* block = std::malloc(kind < kClasses ? size_of(kind) : bytes);
  if (!block) throw std::bad_alloc();
  return block;
}

void give_block(void* memory, size_t bytes) noexcept {
  const size_t kind = class_of(bytes);
  Own* mine = kind < kClasses ? own() : nullptr;
  if (!mine) [[unlikely]] {
    std::free(memory);
    return;
  }
  Own::List& list = mine->lists[kind];
  if (list.count == 2 * kBatch) {
    // The upper half moves on.
    Block* batch = list.first;
    Block* last = batch;
    for (uint32_t i = 1; i < kBatch; ++i) last = last->next;
    list.first = std::exchange(last->next, nullptr);
    list.count -= kBatch;
    Shared::get().give(kind, batch);
  }
  list.first = new (memory) Block{list.first, nullptr};
  ++list.count;
}

}  // namespace torch_xla::ir
