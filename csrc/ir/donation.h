#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace torch_xla::ir {

// For each parameter of `graph` the root that should take over its memory, or kNoDonation or
// kAnyDonation, as lower() wants them (LoweringOptions::parameter_aliases). `donated[i]`: whether
// parameter i may be overwritten.
//
// A parameter goes to the root that updates it: the one reached from it by the fewest ops on values
// of its shape. XLA itself pairs by shape alone, a weight with a gradient for instance, and then
// copies the weight at the start of every step.
//
// Requires the marks of the walk that made `graph`.
std::vector<int64_t> pair_donations(const Graph& graph, std::span<const Value> roots,
                                    const std::vector<bool>& donated);

inline constexpr int64_t kNoDonation = -1;
inline constexpr int64_t kAnyDonation = -2;

// A node that should be computed after some values, although it does not use them: the update of a
// parameter in its own memory comes after all else that reads the parameter (the gradient of a
// layer's input, say). XLA overwrites a parameter only where the graph itself shows that order, and
// copies it otherwise.
struct Wait {
  size_t operand;  // of the node, of rank 0: it is to be had only when the values are there
  std::vector<Value> values;
};

// The graph in an order in which each node comes after its operands and after what it waits for.
struct OrderedGraph {
  std::vector<const Node*> order;
  std::unordered_map<const Node*, Wait> waits;
};

// `takers` as pair_donations gives them. An update without an operand of rank 0, or one that
// another reader of the old contents depends on, waits for nothing.
//
// Requires the marks of the walk that made `graph`.
OrderedGraph order_updates(const Graph& graph, std::span<const Value> roots,
                           std::span<const int64_t> takers);

}  // namespace torch_xla::ir
