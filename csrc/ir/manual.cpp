#include "ir/manual.h"

#include <algorithm>

#include "ir/lowering.h"

namespace torch_xla::ir {
namespace {

using sharding::AxisPart;
using sharding::Mesh;
using sharding::Sharding;

// Parts are lowered as a whole (Lowering::lower_part), and their boundaries with them.
Results refuse_boundary(Lowering&, const Node&) {
  throw std::logic_error("the boundary of a part that is written for one device");
}
const Op kEnter{"xla::enable_manual_sharding", refuse_boundary};
const Op kLeave{"xla::disable_manual_sharding", refuse_boundary};

stablehlo::CollectiveOptions options_of(Lowering& l, const Node& node, AttributeReader& reader) {
  stablehlo::CollectiveOptions options;
  const int64_t count = reader.integer();
  for (int64_t i = 0; i < count; ++i) {
    const std::span<const int64_t> group = reader.list();
    options.groups.emplace_back();
    for (const int64_t device : group) {
      options.groups.back().push_back(l.meshes().partition_of(device));
    }
  }
  options.channel = node.visit.position + 1;  // each collective has its own
  options.use_global_device_ids = true;
  return options;
}

stablehlo::BinaryRegion body_of(Lowering& l, Reduction reduction) {
  return [&l, reduction](stablehlo::Value a, stablehlo::Value b) {
    switch (reduction) {
      case Reduction::kProduct:
        return l->multiply(a, b);
      case Reduction::kMin:
        return l->minimum(a, b);
      case Reduction::kMax:
        return l->maximum(a, b);
      default:
        return l->add(a, b);
    }
  };
}

const Op kReduce{"xla::manual_all_reduce", [](Lowering& l, const Node& node) -> Results {
                   AttributeReader reader = node.attributes();
                   const auto reduction = reader.enumeration<Reduction>();
                   return l->all_reduce(l.operand(0), body_of(l, reduction),
                                        options_of(l, node, reader));
                 }};

const Op kReduceScatter{"xla::manual_reduce_scatter", [](Lowering& l, const Node& node) -> Results {
                          AttributeReader reader = node.attributes();
                          const auto reduction = reader.enumeration<Reduction>();
                          const int64_t dim = reader.integer();
                          const auto options = options_of(l, node, reader);
                          const auto shards = static_cast<int64_t>(options.groups.at(0).size());
                          return l->reduce_scatter(l.operand(0), dim, shards, body_of(l, reduction),
                                                   options);
                        }};

const Op kGather{"xla::manual_all_gather", [](Lowering& l, const Node& node) -> Results {
                   AttributeReader reader = node.attributes();
                   const int64_t dim = reader.integer();
                   auto options = options_of(l, node, reader);
                   const auto shards = static_cast<int64_t>(options.groups.at(0).size());
                   return l->all_gather(l.operand(0), dim, shards, options);
                 }};

bool is_collective(const Node& node) {
  return &node.op() == &kReduce || &node.op() == &kReduceScatter || &node.op() == &kGather;
}

// `value` with one size changed.
Value resized(const Op& op, Value piece, Attributes attributes, int64_t dim, int64_t size) {
  std::vector<int64_t> dims(piece.dims().begin(), piece.dims().end());
  dims[static_cast<size_t>(dim)] = size;
  const ElementType type = piece.type();
  return Node::make(op, {std::move(piece)}, attributes, ShapeRef{type, dims});
}

Attributes with_groups(Attributes attributes, const Groups& groups) {
  attributes.add(groups.size());
  for (const auto& group : groups) attributes.add(group);
  return attributes;
}

}  // namespace

Value enter_manual(Value whole, const Sharding* sharding) {
  const std::vector<int64_t> dims = sharding->tile_dims(whole.dims());
  const ElementType type = whole.type();
  // Shardings are unique and live on, so the address stands for one.
  return Node::make(kEnter, {std::move(whole)},
                    Attributes::of(reinterpret_cast<intptr_t>(sharding)), ShapeRef{type, dims});
}

Value leave_manual(Value piece, const Sharding* sharding) {
  std::vector<int64_t> dims(piece.dims().begin(), piece.dims().end());
  for (size_t d = 0; d < dims.size(); ++d) dims[d] *= sharding->tiles()[d];
  const ElementType type = piece.type();
  return Node::make(kLeave, {std::move(piece)},
                    Attributes::of(reinterpret_cast<intptr_t>(sharding)), ShapeRef{type, dims});
}

const Sharding* entered_by(const Node& node) {
  if (&node.op() != &kEnter) return nullptr;
  return reinterpret_cast<const Sharding*>(node.attributes().integer());
}

const Sharding* left_by(const Node& node) {
  if (&node.op() != &kLeave) return nullptr;
  return reinterpret_cast<const Sharding*>(node.attributes().integer());
}

Value reduce_manual(Value piece, Reduction reduction, const Groups& groups) {
  const ShapeRef shape = piece.shape();
  const std::vector<int64_t> dims(shape.dims.begin(), shape.dims.end());
  return Node::make(kReduce, {std::move(piece)}, with_groups(Attributes::of(reduction), groups),
                    ShapeRef{shape.type, dims});
}

Value reduce_scatter_manual(Value piece, Reduction reduction, int64_t dim, const Groups& groups) {
  const auto shards = static_cast<int64_t>(groups.at(0).size());
  const int64_t size = piece.dims()[static_cast<size_t>(dim)] / shards;
  return resized(kReduceScatter, std::move(piece),
                 with_groups(Attributes::of(reduction, dim), groups), dim, size);
}

Value gather_manual(Value piece, int64_t dim, const Groups& groups) {
  const auto shards = static_cast<int64_t>(groups.at(0).size());
  const int64_t size = piece.dims()[static_cast<size_t>(dim)] * shards;
  return resized(kGather, std::move(piece), with_groups(Attributes::of(dim), groups), dim, size);
}

const Sharding* in_whole_axes(const Mesh* mesh, const Sharding* sharding) {
  const Sharding* same = sharding->mesh() == mesh
                             ? sharding
                             : Sharding::of_tiles(mesh, sharding->tiles(), sharding->tile_of());
  if (same->mesh() != mesh) return nullptr;
  for (const auto& parts : same->dims()) {
    for (const AxisPart& part : parts) {
      if (part.size != mesh->sizes()[part.axis]) return nullptr;
    }
  }
  return same;
}

const Sharding* stacked(const Mesh* mesh, size_t rank) {
  std::vector<std::vector<AxisPart>> dims(rank + 1);
  for (size_t k = 0; k < mesh->sizes().size(); ++k) dims[0].push_back({k, 1, mesh->sizes()[k]});
  return Sharding::get(mesh, std::move(dims));
}

ManualParts::ManualParts(const Graph& graph, std::span<const Value> roots,
                         const Placement& placement) {
  if (!placement.is_partitioned()) return;
  const bool enters = std::any_of(graph.order.begin(), graph.order.end(), [](const Node* node) {
    return entered_by(*node) || left_by(*node) || is_collective(*node);
  });
  const bool reads = std::any_of(placement.parameters.begin(), placement.parameters.end(),
                                 [](const Sharding* cut) { return cut->is_manual(); });
  if (!enters && !reads) return;
  const size_t count = graph.order.size();
  is_leaf_.resize(count);
  is_piece_.resize(count);
  is_constant_.resize(count);
  level_.resize(count);
  levels_.resize(1);
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    const Node& leaf = *graph.parameters[i];
    const Sharding* cut = placement.parameters[i];
    is_leaf_[leaf.visit.position] = true;
    is_piece_[leaf.visit.position] = cut->is_manual();
    if (cut->is_manual()) leaf_mesh_ = cut->mesh();
    // What a step begins with from nothing is made of a number.
    is_constant_[leaf.visit.position] = &leaf.op() != &kDeviceData;
  }
  for (const Node* node : graph.order) add(*node);
  for (const Value& root : roots) {
    if (has(root)) keep(root);
  }
}

void ManualParts::add(const Node& node) {
  const uint32_t here = node.visit.position;
  if (is_leaf_[here]) return;
  bool has_piece = is_collective(node), is_constant = true;
  uint32_t level = 0;
  for (const Value& operand : node.operands()) {
    const uint32_t p = position(operand);
    level = std::max(level, level_[p]);
    has_piece = has_piece || is_piece_[p];
    is_constant = is_constant && is_constant_[p];
  }
  level_[here] = level;
  if (const Sharding* sharding = entered_by(node)) {
    if (has_piece) {
      throw LoweringError("enable_manual_sharding: " + describe_node(node) +
                          " is of what is one device's piece already");
    }
    boundaries_.push_back(sharding);
    is_piece_[here] = true;
    at(level).part.nodes.push_back(&node);
    return;
  }
  const Sharding* leaves = left_by(node);
  if (!leaves && !has_piece) {
    is_constant_[here] = is_constant;
    at(level).whole.push_back(&node);
    return;
  }
  for (const Value& operand : node.operands()) {
    const uint32_t p = position(operand);
    if (!is_piece_[p] && !is_constant_[p]) {
      throw LoweringError("cannot lower " + describe_node(node) + ": operand " +
                          std::to_string(&operand - node.operands().data()) +
                          " is a whole tensor in a part of the program that is written for one "
                          "device: enable_manual_sharding() it too");
    }
    const bool is_near = is_piece_[p] && !is_leaf_[p] && level_[p] == level;
    if (is_near) continue;
    add_input(level, operand);
    if (is_piece_[p]) keep(operand);
  }
  if (leaves) {
    boundaries_.push_back(leaves);
    level_[here] = level + 1;
    at(level + 1);
    at(level).part.leaving.push_back(&node);
  } else {
    is_piece_[here] = true;
    at(level).part.nodes.push_back(&node);
  }
}

ManualParts::Level& ManualParts::at(uint32_t level) {
  if (level >= levels_.size()) levels_.resize(level + 1);
  return levels_[level];
}

void ManualParts::add_input(uint32_t level, const Value& value) {
  if (inputs_.insert({level, {position(value), value.index}}).second) {
    at(level).part.inputs.push_back(value);
  }
}

// Leaves come from outside, and are there for all.
void ManualParts::keep(const Value& value) {
  if (is_leaf_[position(value)]) return;
  if (kept_.insert({position(value), value.index}).second) {
    at(level_[position(value)]).part.kept.push_back(value);
  }
}

const Mesh* ManualParts::mesh(const Mesh* first) const {
  std::vector<const Mesh*> candidates;
  if (first) candidates.push_back(first);
  for (const Sharding* sharding : boundaries_) candidates.push_back(sharding->mesh());
  if (leaf_mesh_) candidates.push_back(leaf_mesh_);
  for (const Mesh* mesh : candidates) {
    const bool says_all = std::all_of(boundaries_.begin(), boundaries_.end(),
                                      [mesh](const Sharding* s) { return in_whole_axes(mesh, s); });
    if (says_all) return mesh;
  }
  throw LoweringError(
      "enable_manual_sharding: parts of one program are cut over meshes that have no axes in "
      "common: use one mesh for all of them");
}

}  // namespace torch_xla::ir
