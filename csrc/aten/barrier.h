#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch_xla::aten {

// Puts all of `tensors` behind one barrier, in place: XLA moves no computation across it, so the
// values are made before anything that uses one of them. All must be on one xla device.
void optimization_barrier_(const std::vector<at::Tensor>& tensors);

}  // namespace torch_xla::aten
