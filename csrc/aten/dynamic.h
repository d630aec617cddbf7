#pragma once

#include "aten/kernel.h"

namespace torch_xla::aten {

// torch.nonzero: the coordinates of the nonzero elements of `self` (any dtype and sizes), [their
// number, rank of self] of kLong, in row-major order. Computes what is pending and waits for the
// number; callers count that under the name of their operator.
at::Tensor wait_for_nonzero(const at::Tensor& self);

}  // namespace torch_xla::aten
