#include "ir/sharding.h"

#include <algorithm>

#include "ir/gspmd.h"
#include "ir/lowering.h"
#include "ir/manual.h"
#include "sharding/dialect.h"

namespace torch_xla::ir {
namespace {

using sharding::Mesh;
using sharding::Sharding;

const Op kShardingConstraint{
    "xla::sharding_constraint", [](Lowering& l, const Node& node) -> Results {
      if (l.is_in_part()) {
        throw std::runtime_error(
            "mark_sharding of what is one device's piece: disable_manual_sharding() it first");
      }
      const std::string text = l.meshes().text(constraint_of(node));
      if (sharding::dialect() == sharding::Dialect::kGspmd) {
        return gspmd_constraint(l.builder(), l.operand(0), text);
      }
      return l->sharding_constraint(l.operand(0), text);
    }};

size_t cutting_axes(const Mesh& mesh) {
  return static_cast<size_t>(std::count_if(mesh.sizes().begin(), mesh.sizes().end(),
                                           [](int64_t size) { return size > 1; }));
}

}  // namespace

Value constrain(Value value, const Sharding* sharding) {
  const ShapeRef shape = value.shape();
  // Shardings are unique and live on, so the address stands for one.
  return Node::make(kShardingConstraint, {std::move(value)},
                    Attributes::of(reinterpret_cast<intptr_t>(sharding)), shape);
}

const Sharding* constraint_of(const Node& node) {
  if (&node.op() != &kShardingConstraint) return nullptr;
  return reinterpret_cast<const Sharding*>(node.attributes().integer());
}

MeshNames::MeshNames(const Graph& graph, const Placement& placement) {
  const auto consider = [this](const Sharding* sharding) {
    if (!sharding) return;
    const bool cuts_more = main_ && sharding->num_tiles() > 1 &&
                           cutting_axes(*sharding->mesh()) > cutting_axes(*main_);
    if (!main_ || cuts_more) main_ = sharding->mesh();
  };
  for (bool replicated : {false, true}) {
    const auto all = [&](const auto& shardings) {
      for (const Sharding* sharding : shardings) {
        if (sharding && (sharding->num_tiles() == 1) == replicated) consider(sharding);
      }
    };
    all(placement.parameters);
    all(placement.outputs);
    std::vector<const Sharding*> inside;
    for (const Node* node : graph.order) {
      for (const Sharding* s : {constraint_of(*node), entered_by(*node), left_by(*node)}) {
        if (s) inside.push_back(s);
      }
    }
    all(inside);
  }
  if (!main_ || std::is_sorted(main_->devices().begin(), main_->devices().end())) return;
  partitions_.resize(main_->devices().size());
  for (size_t p = 0; p < partitions_.size(); ++p) {
    partitions_[static_cast<size_t>(main_->devices()[p])] = static_cast<int64_t>(p);
  }
}

const Mesh* MeshNames::mesh_of_partitions() const {
  return partitions_.empty() ? main_ : main_->renumbered(partitions_);
}

int64_t MeshNames::partition_of(int64_t device) const {
  return partitions_.empty() ? device : partitions_.at(static_cast<size_t>(device));
}

const Sharding* MeshNames::of_partitions(const Sharding* sharding) const {
  return partitions_.empty() ? sharding : sharding->renumbered(partitions_);
}

const Sharding* MeshNames::of_devices(const Sharding* sharding) const {
  return partitions_.empty() ? sharding : sharding->renumbered(main_->devices());
}

std::string MeshNames::text(const Sharding* sharding) {
  if (sharding->mesh() != main_ && sharding::dialect() == sharding::Dialect::kShardy) {
    const Sharding* same = Sharding::of_tiles(main_, sharding->tiles(), sharding->tile_of());
    if (same->mesh() == main_) sharding = same;
  }
  return text_in_own_mesh(sharding);
}

std::string MeshNames::text_in_own_mesh(const Sharding* sharding) {
  sharding = of_partitions(sharding);
  if (sharding::dialect() == sharding::Dialect::kGspmd) return sharding->hlo();
  auto at = std::find(meshes_.begin(), meshes_.end(), sharding->mesh());
  if (at == meshes_.end()) at = meshes_.insert(at, sharding->mesh());
  const auto number = at - meshes_.begin();
  return sharding->shardy(number == 0 ? "mesh" : "mesh_" + std::to_string(number));
}

std::vector<std::string> MeshNames::declarations() const {
  std::vector<std::string> lines;
  for (size_t i = 0; i < meshes_.size(); ++i) {
    lines.push_back("sdy.mesh @mesh" + (i == 0 ? std::string() : '_' + std::to_string(i)) + " = " +
                    meshes_[i]->text());
  }
  return lines;
}

}  // namespace torch_xla::ir
