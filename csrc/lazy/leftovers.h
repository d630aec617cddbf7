#pragma once

#include "lazy/array.h"

namespace torch_xla::lazy {

// Destroys an array, or has it destroyed later where it is small: plugins take long for each buffer
// of each device, and whoever traces a step lets go of the gradients of the one before. At most a
// thousand arrays and 16 MB wait, until the thread that launches has time (launch.cpp).
void leave(Array array);

// Destroys what was left.
void destroy_leftovers();

}  // namespace torch_xla::lazy
