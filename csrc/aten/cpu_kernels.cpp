#include "aten/cpu_kernels.h"

#include <atomic>

#include "lazy/runtime.h"

namespace torch_xla::aten {
namespace {

std::atomic<CpuKernels> g_use{CpuKernels::kWhereFaster};

}  // namespace

void set_cpu_kernels(CpuKernels use) { g_use = use; }

bool prefers_cpu_kernel(int64_t multiply_adds, int64_t least) {
  if (lazy::is_partitioned()) return false;
  switch (g_use.load(std::memory_order_relaxed)) {
    case CpuKernels::kNever:
      return false;
    case CpuKernels::kWhereFaster:
      return multiply_adds >= least;
    case CpuKernels::kAlways:
      return multiply_adds > 0;
  }
  return false;
}

}  // namespace torch_xla::aten
