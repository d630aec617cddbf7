#pragma once

#include <atomic>
#include <thread>

namespace torch_xla::lazy {

// For a few instructions at a time: taken and released without a call into the kernel.
class SpinLock {
 public:
  void lock() {
    while (flag_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_;
};

}  // namespace torch_xla::lazy
