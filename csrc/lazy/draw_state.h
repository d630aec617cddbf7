#pragma once

#include <c10/core/Device.h>

#include "ir/node.h"

namespace torch_xla::lazy {

// Drawing the same random numbers twice, with the state in between on the device (activation
// checkpoints of torch.compile).

// u64[2] {seed, counter}: where the device's default generator is. It does not move.
ir::Value draw_state(c10::Device device);

// From here on the calling thread draws from `state`, one draw after the other, and no generator
// moves; until it is set to an empty value.
void set_draw_state(ir::Value state);

}  // namespace torch_xla::lazy
