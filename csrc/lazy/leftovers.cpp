#include "lazy/leftovers.h"

#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "lazy/at_fork.h"
#include "lazy/spin_lock.h"

namespace torch_xla::lazy {
namespace {

constexpr size_t kMost = 1024;
constexpr size_t kSmall = 1 << 16, kMostBytes = 1 << 24;

struct Leftovers {
  Leftovers() {
    arrays.reserve(kMost);
    // The plugin must not be at work while its static objects are destroyed.
    std::atexit([] {
      destroy_leftovers();
      std::lock_guard guard(all().lock);
      all().open = false;
    });
  }
  static Leftovers& all() {
    static auto* leftovers = new Leftovers;  // never destroyed: tensors may outlive it otherwise
    return *leftovers;
  }

  std::mutex destroying;
  SpinLock lock;  // of the rest
  std::vector<Array> arrays;
  size_t bytes = 0;
  bool open = true;
};

const ForkLock g_fork_lock(
    ForkLock::Order::kLeftovers,
    [] {
      Leftovers::all().destroying.lock();
      Leftovers::all().lock.lock();
    },
    [] {
      Leftovers::all().lock.unlock();
      Leftovers::all().destroying.unlock();
    });

// Whether it was left to somebody.
bool take(Array& array, size_t bytes) {
  Leftovers& all = Leftovers::all();
  std::lock_guard guard(all.lock);
  if (!all.open || all.arrays.size() == kMost || all.bytes + bytes > kMostBytes) return false;
  all.bytes += bytes;
  all.arrays.push_back(std::move(array));
  return true;
}

}  // namespace

void leave(Array array) {
  if (!array) return;
  const size_t bytes = array.bytes() * array.num_shards();
  if (bytes <= kSmall && !take(array, bytes)) {
    destroy_leftovers();
  }
}

void destroy_leftovers() {
  Leftovers& all = Leftovers::all();
  std::lock_guard destroying(all.destroying);
  std::vector<Array> arrays;
  arrays.reserve(kMost);
  {
    std::lock_guard guard(all.lock);
    arrays.swap(all.arrays);
    all.bytes = 0;
  }
}

}  // namespace torch_xla::lazy
