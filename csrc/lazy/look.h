#pragma once

#include "ir/node.h"

namespace torch_xla::lazy {

// Whether a read of `value` is a look: one integer or bool that little work makes from integers and
// bools that are on the device (does this mask hide anything? how long is the longest line?). A
// look runs as a program of its own, so that it does not cut the step around it in two.
//
// Where a line asks for ever longer computations (a loop that counts up to something), the answer
// becomes no: what is pending has to be computed at some time.
bool is_look(const ir::Value& value);

}  // namespace torch_xla::lazy
