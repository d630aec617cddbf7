#include "lazy/interrupt.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>

#include "pjrt/error.h"

namespace torch_xla::lazy {
namespace {

constexpr std::chrono::milliseconds kPatience{50};

std::atomic<bool (*)()> g_applies{nullptr};
std::atomic<void (*)()> g_check{nullptr};

// Outlives whoever waits, if that one is interrupted.
struct Bell {
  std::mutex mutex;
  std::condition_variable rung;
  bool is_over = false;

  void ring() {
    std::lock_guard lock(mutex);
    is_over = true;
    rung.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex);
    return rung.wait_for(lock, kPatience, [&] { return is_over; });
  }
};

void wait_for(const pjrt::Event& event, void (*check)()) {
  if (event.is_ready()) return;
  auto bell = std::make_shared<Bell>();
  event.on_ready([bell](const std::exception_ptr&) { bell->ring(); });
  while (!bell->wait()) check();
}

}  // namespace

void set_interrupts(Interrupts interrupts) {
  g_check.store(interrupts.check);
  g_applies.store(interrupts.applies, std::memory_order_release);
}

void wait_or_interrupt(const Array& array) {
  const auto applies = g_applies.load(std::memory_order_acquire);
  const bool may_end = applies && applies();
  for (size_t i = 0; i < array.num_shards(); ++i) {
    try {
      const pjrt::Event ready = array.shard(i).ready();
      if (may_end) {
        wait_for(ready, g_check.load());
      } else {
        ready.wait();
      }
    } catch (const pjrt::Error&) {
      // It is over. Or another thread's step has taken it since.
    }
  }
}

}  // namespace torch_xla::lazy
