// torch.autocast("xla"): torch ships the AutocastXLA key without kernels. Which op runs in which
// type is torch's own policy for accelerators, taken from the lists of the torch compiled against.

#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace {

// The lists write signatures with these.
using at::IntArrayRef, at::Scalar, at::ScalarType, at::Tensor;

#define LOW_PRECISION(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, lower_precision_fp)
#define FP32(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32)
#define FP32_SET_OPT_DTYPE(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32_set_opt_dtype)
#define PROMOTE(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, promote)
#define OTHER_SIGNATURE(...) \
  KERNEL_DIFFERENT_REDISPATCH_SIGNATURE(c10::DeviceType::XLA, __VA_ARGS__)

TORCH_LIBRARY_IMPL(_, AutocastXLA, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastXLA, m) {
  AT_FORALL_LOWER_PRECISION_FP(LOW_PRECISION)
  AT_FORALL_FP32(FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(OTHER_SIGNATURE)
  AT_FORALL_PROMOTE(PROMOTE)
  // Not in the shared list, because CUDA refuses it under autocast; the CPU computes it so.
  FP32(binary_cross_entropy)
}

}  // namespace
