#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/donation.h"
#include "ir/graph.h"
#include "ir/manual.h"
#include "ir/node.h"
#include "ir/sharding.h"
#include "stablehlo/builder.h"

namespace torch_xla::ir {

// A program as the executor runs it. Its parameters are the graph's device data in order, then one
// packed vector for each scalar class in use (f32, f64, i64 in this order).
struct LoweredProgram {
  std::string module;  // StableHLO text
  std::vector<ScalarClass> scalar_parameters;
};

struct LoweringOptions {
  std::string name = "main";
  // parameter_aliases[i] >= 0: parameter i may be donated to that output (tf.aliasing_output).
  // -2: may be donated to any (jax.buffer_donor). Empty: none.
  std::vector<int64_t> parameter_aliases;
  // A custom call (typed FFI) that gives its first operand, of rank 0, once all are computed. Where
  // there is one, updates of parameters wait for what else reads these (donation.h); empty: none.
  std::string wait_call;
  // How parameters and outputs are cut; the packed scalars are whole on each device.
  Placement placement;
  // The f32 dot and convolution precision: "DEFAULT", "HIGH" or "HIGHEST".
  std::string matmul_precision = "DEFAULT";
  bool locations = false;  // emit loc("...") with op and Python line
};

// An op could not be lowered: names the op, its operand shapes and the Python line that made it.
class LoweringError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A node as errors name it: op, operand shapes, and the Python line that made it.
std::string describe_node(const Node& node);

// What an op's lowering sees: the builder and the StableHLO values of the node's operands.
class Lowering {
 public:
  stablehlo::Builder& builder() { return builder_; }
  stablehlo::Builder* operator->() { return &builder_; }

  stablehlo::Value operand(size_t i) const;
  // Converted to `type` first.
  stablehlo::Value operand(size_t i, ElementType type) const;
  size_t num_operands() const { return node_->operands().size(); }
  std::vector<stablehlo::Value> operands() const;

  // A rank-0 constant.
  stablehlo::Value number(double number, ElementType type) { return builder_.scalar(number, type); }
  stablehlo::Value leaf(const Node& node) const;
  // For ops that update (Op::updates): where this, of rank 0, is false the node gives its first
  // operand as it is. Empty: it updates in any case.
  std::optional<stablehlo::Value> condition();
  MeshNames& meshes() { return meshes_; }
  // Whether the node is of a part that is written for one device (manual.h).
  bool is_in_part() const { return is_in_part_; }
  const std::string& matmul_precision() const { return options_.matmul_precision; }

 private:
  friend LoweredProgram lower(const Graph&, std::span<const Value>, const LoweringOptions&);
  Lowering(const Graph& graph, std::span<const Value> roots, const LoweringOptions& options);

  void bind_leaves(const Graph& graph, LoweredProgram& program);
  const sharding::Sharding* placement_of(size_t parameter) const;
  // Shardy cuts a parameter or result only into parts of one size: where the sizes do not divide,
  // what crosses the boundary is padded at its end.
  stablehlo::Value parameter(ShapeRef shape, const stablehlo::ArgumentAttributes& attributes,
                             const sharding::Sharding* sharding);
  stablehlo::Value result(const Value& root, const sharding::Sharding* sharding);
  stablehlo::Value& slot(const Value& value);
  // Lowers what is not yet.
  stablehlo::Value made(const Value& value);
  void set_location(const Node& node);
  void lower_node(const Node& node);
  void lower_in_order(const Graph& graph, std::span<const Value> roots);
  void lower_by_levels();
  void lower_part(const ManualParts::Part& part);
  // How pieces of this rank lie that are stacked, one for each device.
  std::string pieces_text(size_t rank);
  void add_meshes();
  void lower_after(const Node& node, const Wait& wait);

  const LoweringOptions& options_;
  const std::unordered_map<const Node*, Value>& conditions_;
  stablehlo::Builder builder_;
  MeshNames meshes_;
  const ManualParts parts_;
  const sharding::Mesh* parts_mesh_ = nullptr;  // of all parts; null without any
  bool is_in_part_ = false;
  const Node* node_ = nullptr;
  std::optional<std::pair<size_t, stablehlo::Value>>
      waited_;                                         // an operand of node_, and its stand-in
  std::vector<std::vector<stablehlo::Value>> values_;  // by the node's position in the walk
};

// Requires the marks of the walk that made `graph` (hold graph_mutex since).
LoweredProgram lower(const Graph& graph, std::span<const Value> roots,
                     const LoweringOptions& options);

}  // namespace torch_xla::ir
