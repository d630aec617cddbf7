#pragma once

namespace torch_xla::lazy {

// A lock of short sections that is free in every child of fork(): the thread that forks holds it
// meanwhile. A child computes nothing on devices (pjrt/fork_guard.h), but lets go of tensors, and
// threads that are not in it may have been about that too.
class ForkLock {
 public:
  // In the order in which the locks are taken: who holds one may take a later one.
  enum class Order { kLaunch, kData, kStorages, kUntold, kLeftovers, kBlocks, kCount };
  // To be made while the process starts, once for each place in the order.
  ForkLock(Order order, void (*lock)(), void (*unlock)());
};

}  // namespace torch_xla::lazy
