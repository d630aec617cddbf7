#include "lazy/at_fork.h"

#include <pthread.h>

#include <array>
#include <cstddef>
#include <mutex>

#include "ir/blocks.h"

namespace torch_xla::lazy {
namespace {

struct Pair {
  void (*lock)() = nullptr;
  void (*unlock)() = nullptr;
};
using Pairs = std::array<Pair, static_cast<size_t>(ForkLock::Order::kCount)>;

Pairs& pairs() {
  static auto* pairs = new Pairs;
  return *pairs;
}

void before() {
  for (const Pair& pair : pairs()) {
    if (pair.lock) pair.lock();
  }
}

void after() {
  for (size_t i = pairs().size(); i-- > 0;) {
    if (pairs()[i].unlock) pairs()[i].unlock();
  }
}

const ForkLock g_blocks(
    ForkLock::Order::kBlocks, [] { ir::blocks_mutex().lock(); },
    [] { ir::blocks_mutex().unlock(); });

}  // namespace

ForkLock::ForkLock(Order order, void (*lock)(), void (*unlock)()) {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(before, after, after); });
  pairs()[static_cast<size_t>(order)] = {lock, unlock};
}

}  // namespace torch_xla::lazy
