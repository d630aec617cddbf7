// Parts of a program that are written for one device: what each device computes of its own piece of
// each array, and says to the others by collectives of its own.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/node.h"
#include "ir/sharding.h"
#include "sharding/sharding.h"

namespace torch_xla::ir {

// A device's piece of `whole`. The sharding has the value's rank, and all its tiles one size.
Value enter_manual(Value whole, const sharding::Sharding* sharding);
// The array of which each device has a piece; where several have the same, they must be equal.
Value leave_manual(Value piece, const sharding::Sharding* sharding);
// What a node made by one of the two cuts by; null for any other.
const sharding::Sharding* entered_by(const Node& node);
const sharding::Sharding* left_by(const Node& node);

// Collectives between the devices of each group; all groups have one size, and hold all partitions.
enum class Reduction : uint8_t { kSum, kProduct, kMin, kMax };
using Groups = std::vector<std::vector<int64_t>>;
Value reduce_manual(Value piece, Reduction reduction, const Groups& groups);
// Each device gets an equal share of the result along `dim`, in the order of its group.
Value reduce_scatter_manual(Value piece, Reduction reduction, int64_t dim, const Groups& groups);
// The pieces of a group one behind the other along `dim`.
Value gather_manual(Value piece, int64_t dim, const Groups& groups);

// A graph's nodes in the order in which they can be computed: level by level first what is whole,
// then what is written for one device. What leaves a part is whole at the next level; a part that
// needs what an earlier one computed gets it piece by piece, and nothing moves.
class ManualParts {
 public:
  struct Part {
    std::vector<const Node*> nodes;  // in order; what enters is among them
    std::vector<const Node*> leaving;
    std::vector<Value> inputs;  // of earlier parts, leaves, and constants of the program
    std::vector<Value> kept;    // pieces that are needed later, or are results
  };
  struct Level {
    std::vector<const Node*> whole;
    Part part;
  };

  ManualParts() = default;
  // Requires the marks of the walk. Throws LoweringError where a part uses an array that is whole:
  // which of it each device is to use, only the program knows.
  ManualParts(const Graph& graph, std::span<const Value> roots, const Placement& placement);

  bool empty() const { return levels_.empty(); }
  const std::vector<Level>& levels() const { return levels_; }
  // Whether the value is a piece, and so another on each device.
  bool has(const Value& value) const { return !empty() && is_piece_[position(value)]; }
  // The mesh whose axes say all that enters and leaves: `first` if it can. Throws LoweringError if
  // no mesh can.
  const sharding::Mesh* mesh(const sharding::Mesh* first) const;

 private:
  static uint32_t position(const Value& value) { return value.node->visit.position; }
  void add(const Node& node);
  void add_input(uint32_t level, const Value& value);
  void keep(const Value& value);
  Level& at(uint32_t level);

  std::vector<Level> levels_;
  // By the node's position in the walk.
  std::vector<bool> is_leaf_, is_piece_, is_constant_;
  std::vector<uint32_t> level_;
  std::set<std::pair<uint32_t, std::pair<uint32_t, uint32_t>>> inputs_;  // level; position, index
  std::set<std::pair<uint32_t, uint32_t>> kept_;
  std::vector<const sharding::Sharding*> boundaries_;
  const sharding::Mesh* leaf_mesh_ = nullptr;
};

// The same cut in whole axes of `mesh`; null if these cannot say it.
const sharding::Sharding* in_whole_axes(const sharding::Mesh* mesh,
                                        const sharding::Sharding* sharding);
// Of pieces stacked along a new first dimension, one for each device; `rank` is that of a piece.
const sharding::Sharding* stacked(const sharding::Mesh* mesh, size_t rank);

}  // namespace torch_xla::ir
