#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/location.h"
#include "ir/node.h"

namespace torch_xla::ir {

// What is remembered of a compiled graph so that a later one can be held against it: the walk's
// order with each node's op, attributes, shapes, wiring and Python line, and no node itself.
class Signature {
 public:
  Signature() = default;
  // Requires the marks of the walk (graph_mutex). `donated` has a flag for each parameter, or is
  // empty.
  Signature(const Graph& graph, std::span<const Value> roots, const std::vector<bool>& donated);

  size_t size() const { return entries_.size(); }

  // The share of nodes, by op, attributes and shapes, that both have: 0 to 1.
  double similarity(const Signature& other) const;

  // What sets this graph apart from `before`, with the Python line, and what a user can do: an
  // input's shape or dtype, an attribute, another op, other results, other donations. "" when
  // nothing does.
  std::string difference(const Signature& before) const;

 private:
  struct Entry {
    const Op* op;
    uint64_t local_hash;
    uint64_t wiring;    // of the operands' positions
    Location location;  // a leaf's is that of its first user
    uint32_t first_word;
    uint32_t num_attributes;
    uint32_t num_outputs;
    uint32_t user;  // of a leaf: position of its first user
  };

  std::span<const int64_t> attributes(const Entry& entry) const;
  std::vector<std::string> shapes(const Entry& entry) const;
  std::string where(const Entry& entry) const;
  std::string input_difference(const Signature& before) const;
  std::string node_difference(const Signature& before) const;
  std::vector<size_t> leaves() const;

  std::vector<Entry> entries_;
  std::vector<int64_t> words_;  // of each entry: attributes, then a type, a rank and dims an output
  std::vector<uint64_t> roots_;
  std::vector<bool> donated_;
};

}  // namespace torch_xla::ir
