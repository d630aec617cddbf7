// Small ops for tests of the IR itself.

#pragma once

#include "ir/lowering.h"
#include "ir/node.h"

namespace torch_xla::ir::testing {

// x + y, of equal shapes.
extern const Op kAdd;
// Elements moved round by attribute 0 along dim 0.
extern const Op kRotate;
// Two outputs: x + y and x - y.
extern const Op kBoth;

Value add(const Value& x, const Value& y);
Value rotate(const Value& x, int64_t by);
std::pair<Value, Value> both(const Value& x, const Value& y);

}  // namespace torch_xla::ir::testing
