#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
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
  uint64_t epoch = 0;  // of the walk's marks
  // Updates (Op::updates) that are made only where a value of rank 0 is true. The graph has all
  // that this is computed from, and none of that is computed from the update.
  std::unordered_map<const Node*, Value> conditions;

  // Requires the marks.
  bool contains(const Node& node) const { return node.visit.epoch == epoch; }
};

// Walks mark nodes, so two walks must not run at once: hold this while one runs and while the
// marks (Node::visit) are read.
std::mutex& graph_mutex();

// Post-order walk from `roots` (not owned; they must outlive the graph). Iterative: depth is
// bounded by memory only. The nodes of `inputs` (of one output) are taken for device data leaves:
// the walk stops at them, and the key is that of a graph that has leaves in their place.
Graph walk(std::span<const Value> roots, const std::unordered_set<const Node*>& inputs = {});

// Goes on with a walk whose marks are there yet: what is below `roots` and new comes behind all
// else, and they are part of the key.
void extend(Graph& graph, std::span<const Value> roots,
            const std::unordered_set<const Node*>& inputs = {});

// Adds a condition, which is part of the key. Both are in the graph.
void set_condition(Graph& graph, const Node& update, Value condition);

}  // namespace torch_xla::ir
