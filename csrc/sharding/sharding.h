// How an array is cut over the devices of a mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sharding/mesh.h"

namespace torch_xla::sharding {

// The part of an array that one device holds: along each dimension, from start to limit. Empty
// where the array ends before the device's turn.
struct Range {
  int64_t start;
  int64_t limit;
  bool operator==(const Range&) const = default;
};

// A sharding of arrays of one rank. Each dimension is cut into tiles of equal size, the last ones
// shorter or empty where the size is no multiple; each device holds one tile, and devices that
// differ only in mesh axes that cut nothing hold the same.
//
// Immutable and unique: equal shardings of one mesh are one object, which lives as long as the
// process.
class Sharding {
 public:
  // `dims[d]` are the axes, most significant first, that cut dimension d. Throws
  // std::invalid_argument for a part of an axis that the mesh has not, and for one that is used
  // twice.
  static const Sharding* get(const Mesh* mesh, std::vector<std::vector<AxisPart>> dims);
  // The whole array on each device.
  static const Sharding* replicated(const Mesh* mesh, size_t rank);
  // One array on each device, and not the same one: what a part of a program computes that is
  // written for one device. `rank` is that of these arrays. As tiles go it is whole everywhere.
  static const Sharding* manual(const Mesh* mesh, size_t rank);
  // From tiles: dimension d is cut into `tiles[d]`, and `tile_of[p]` is the row-major index of the
  // tile that partition p holds. In the axes of `mesh` where they can say it, else of a mesh of its
  // own. Throws std::invalid_argument if the numbers do not fit, or not all tiles are held alike.
  static const Sharding* of_tiles(const Mesh* mesh, Dims tiles, std::vector<int64_t> tile_of);

  // The same cut over Mesh::renumbered(numbers).
  const Sharding* renumbered(const std::vector<int64_t>& numbers) const;

  const Mesh* mesh() const { return mesh_; }
  const std::vector<std::vector<AxisPart>>& dims() const { return dims_; }
  size_t rank() const { return dims_.size(); }
  int64_t num_devices() const { return mesh_->num_devices(); }

  const Dims& tiles() const { return tiles_; }
  const std::vector<int64_t>& tile_of() const { return tile_of_; }
  bool is_replicated() const { return num_tiles_ == 1 && !is_manual_; }
  bool is_manual() const { return is_manual_; }
  int64_t num_tiles() const { return num_tiles_; }
  // Equal for shardings that put the same parts on the same devices, in whatever mesh they are
  // said. Differs from process to process.
  uint64_t layout() const { return layout_; }

  // Of a device's tile, padding included: what XLA has in memory. Sizes of an array of this rank.
  Dims tile_dims(std::span<const int64_t> sizes) const;
  // What of the array is in a device's tile.
  std::vector<Range> ranges(std::span<const int64_t> sizes, size_t device) const;
  // The devices of which each holds another tile, one for each tile; the lowest of its holders.
  const std::vector<size_t>& holders() const { return holders_; }

  // Shardy's text, with a name for the mesh: #sdy.sharding<@mesh, [{"x"}, {}]>. All dimensions are
  // closed: propagation may cut no further.
  std::string shardy(const std::string& mesh_name) const;
  // XLA's: {replicated}, {devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}, {manual}.
  const std::string& hlo() const { return hlo_; }

 private:
  Sharding(const Mesh* mesh, std::vector<std::vector<AxisPart>> dims, bool is_manual = false);
  static const Sharding* unique(const Mesh* mesh, std::vector<std::vector<AxisPart>> dims,
                                bool is_manual);

  const Mesh* mesh_;
  std::vector<std::vector<AxisPart>> dims_;
  Dims tiles_;
  std::vector<int64_t> tile_of_;  // by partition
  std::vector<size_t> holders_;
  int64_t num_tiles_ = 1;
  const bool is_manual_;
  uint64_t layout_ = 0;
  std::string hlo_;
};

}  // namespace torch_xla::sharding
