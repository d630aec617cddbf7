#pragma once

#include <initializer_list>
#include <vector>

#include "stablehlo/builder.h"

namespace torch_xla::ir {

class Lowering;
class Node;

// What lowering a node gives: one StableHLO value for each of its outputs.
struct Results {
  std::vector<stablehlo::Value> values;
  Results(stablehlo::Value value) : values{value} {}  // NOLINT: one output is the usual case
  Results(std::initializer_list<stablehlo::Value> list) : values(list) {}
  Results(std::vector<stablehlo::Value> list) : values(std::move(list)) {}  // NOLINT
};

// One operation of the IR: its printed name and its meaning in StableHLO. Ops are constants with
// static storage; a node refers to its op by address and mixes in its hash.
struct Op {
  using LowerFunction = Results (*)(Lowering&, const Node&);

  Op(const char* name, LowerFunction lower, bool updates = false);
  Op(const Op&) = delete;

  const char* name;  // as printed in dumps and errors: "aten::mm", "xla::device_data"
  LowerFunction lower;
  // It gives its first operand with a part replaced, in place where it can; and as it is where
  // Lowering::condition() is false.
  bool updates;
  uint64_t hash;  // of the name, and of which op of that name it is
};

}  // namespace torch_xla::ir
