#pragma once

#include <cstdint>

namespace torch_xla::aten {

// Operators that XLA compiles for CPU too, and that torch's own CPU kernels compute faster from
// some size on (docs/performance.md has the measurements). Without effect on other plugins, and in
// SPMD mode, where XLA cuts its own operations over the devices and no calls.

enum class CpuKernels {
  kNever,
  kWhereFaster,  // the default
  kAlways,       // whatever the size, so that tests reach them with small ones
};

// For calls from here on.
void set_cpu_kernels(CpuKernels use);

// Whether a call of this many multiply-adds is to become a host node (host_call.h), where they were
// measured to be faster from `least` on.
bool prefers_cpu_kernel(int64_t multiply_adds, int64_t least);

}  // namespace torch_xla::aten
