#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_set>
#include <vector>

#include "ir/hash.h"
#include "ir/node.h"

namespace torch_xla::ir {

// The graph below some roots, in the order in which it is lowered.
//
// The key is made in the walk: every node mixes its local hash with the positions of its operands,
// so it tells apart a + a from a + b, and a shared subgraph from a repeated one. Equal keys mean
// one compiled program serves both, with parameters and scalars bound by position.
struct Graph {
  std::vector<Node*> order;       // operands before users; leaves included
  std::vector<Node*> parameters;  // device data leaves and `inputs`, by first use
  std::vector<Node*> scalars;     // scalar leaves, by first use
  Hash128 key;
};

// Walks mark nodes, so two walks must not run at once: hold this while one runs and while the
// marks (Node::visit) are read.
std::mutex& graph_mutex();

// Post-order walk from `roots` (not owned; they must outlive the graph). Iterative: depth is
// bounded by memory only. The nodes of `inputs` (of one output) are taken for device data leaves:
// the walk stops at them, and the key is that of a graph that has leaves in their place.
Graph walk(std::span<const Value> roots, const std::unordered_set<const Node*>& inputs = {});

}  // namespace torch_xla::ir
