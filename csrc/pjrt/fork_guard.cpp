#include "pjrt/fork_guard.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "pjrt/error.h"

namespace torch_xla::pjrt {
namespace {

std::atomic<bool> armed{false};
std::atomic<bool> forked{false};

}  // namespace

void arm_fork_guard() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] {
      if (armed.load(std::memory_order_relaxed)) forked.store(true, std::memory_order_relaxed);
    });
  });
  armed.store(true, std::memory_order_relaxed);
}

bool forked_with_client() noexcept { return forked.load(std::memory_order_relaxed); }

void check_not_forked() {
  if (!forked_with_client()) return;
  throw Error(
      ErrorCode::kFailedPrecondition,
      "XLA cannot be used in a process made by fork() after the parent had used XLA: the "
      "threads that run programs do not exist here. Start workers with the 'spawn' method "
      "(multiprocessing.get_context('spawn'), DataLoader(multiprocessing_context='spawn')), "
      "or fork before the first use of an XLA device.");
}

}  // namespace torch_xla::pjrt
