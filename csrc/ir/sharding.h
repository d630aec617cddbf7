#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/node.h"
#include "sharding/sharding.h"

namespace torch_xla::ir {

// `value`, cut as told: a wish in the middle of a graph, which XLA fulfils by the collectives that
// it takes. `sharding` has the value's rank.
Value constrain(Value value, const sharding::Sharding* sharding);
// What a node made by constrain() wishes; null for any other.
const sharding::Sharding* constraint_of(const Node& node);

// How the arrays of a program that is cut over devices lie. Empty lists: it is not.
struct Placement {
  std::vector<const sharding::Sharding*> parameters;  // one for each
  std::vector<const sharding::Sharding*> outputs;     // one for each; null: as XLA sees fit

  bool is_partitioned() const { return !parameters.empty() || !outputs.empty(); }
};

// The meshes of one program, and shardings in the names that it has for them.
//
// All that can be said in the axes of one mesh is said in these: Shardy carries shardings from op
// to op only within a mesh. It is the one with the most axes among those that the program cuts by.
//
// Partition p is the device at place p of that mesh. In the program's own words its devices are so
// 0, 1, 2, ..., whatever their order: where they are not, XLA's partitioner exchanges the wrong
// pieces at times (seen of gathers in gradients, 2025).
class MeshNames {
 public:
  MeshNames() = default;
  MeshNames(const Graph& graph, const Placement& placement);

  // Null where nothing is cut.
  const sharding::Mesh* main() const { return main_; }
  // The same of partitions: in order.
  const sharding::Mesh* mesh_of_partitions() const;
  int64_t partition_of(int64_t device) const;
  // A sharding of devices as one of partitions, and back.
  const sharding::Sharding* of_partitions(const sharding::Sharding* sharding) const;
  const sharding::Sharding* of_devices(const sharding::Sharding* sharding) const;
  // Shardy's text. The mesh is among meshes() from here on.
  std::string text(const sharding::Sharding* sharding);
  // The same in the axes of the sharding's own mesh.
  std::string text_in_own_mesh(const sharding::Sharding* sharding);
  // One `sdy.mesh` line for each that text() named so far.
  std::vector<std::string> declarations() const;

 private:
  const sharding::Mesh* main_ = nullptr;
  std::vector<int64_t> partitions_;  // of each device; empty where both have the same numbers
  std::vector<const sharding::Mesh*> meshes_;  // of partitions
};

}  // namespace torch_xla::ir
