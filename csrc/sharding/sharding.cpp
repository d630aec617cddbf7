#include "sharding/sharding.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "sharding/product.h"

namespace torch_xla::sharding {
namespace {

using Parts = std::vector<AxisPart>;

// Equal tilings get equal numbers.
uint64_t layout_number(const Dims& tiles, const std::vector<int64_t>& tile_of, bool is_manual) {
  static std::mutex mutex;
  static auto* numbers = new std::map<std::tuple<Dims, std::vector<int64_t>, bool>, uint64_t>;
  std::lock_guard lock(mutex);
  return numbers->emplace(std::tuple(tiles, tile_of, is_manual), numbers->size() + 1).first->second;
}

// Partitions grouped by tile, in the order of tiles.
std::vector<std::vector<int64_t>> groups(const std::vector<int64_t>& tile_of, int64_t num_tiles) {
  std::vector<std::vector<int64_t>> holders(static_cast<size_t>(num_tiles));
  for (size_t p = 0; p < tile_of.size(); ++p) {
    holders[static_cast<size_t>(tile_of[p])].push_back(static_cast<int64_t>(p));
  }
  return holders;
}

std::string hlo_text(const Dims& tiles, const std::vector<int64_t>& tile_of, int64_t num_tiles) {
  if (num_tiles == 1) return "{replicated}";
  const auto holders = groups(tile_of, num_tiles);
  std::string text = "{devices=[";
  for (size_t d = 0; d < tiles.size(); ++d) text += (d ? "," : "") + std::to_string(tiles[d]);
  const bool replicates = holders[0].size() > 1;
  if (replicates) text += ',' + std::to_string(holders[0].size());
  text += ']';
  const char* separator = "";
  for (const auto& group : holders) {
    for (int64_t partition : group) {
      text += separator + std::to_string(partition);
      separator = ",";
    }
  }
  return text + (replicates ? " last_tile_dim_replicate}" : "}");
}

// The mesh's axes as digits of prime size. Their values at a place are its coordinates; a sharding
// is said in them where each tile index is a number of some of them.
std::vector<AxisPart> prime_digits(const Mesh& mesh, bool small_first) {
  std::vector<AxisPart> digits;
  for (size_t k = 0; k < mesh.sizes().size(); ++k) {
    std::vector<int64_t> primes;
    int64_t rest = mesh.sizes()[k];
    for (int64_t p = 2; rest > 1; ++p) {
      for (; rest % p == 0; rest /= p) primes.push_back(p);
    }
    if (!small_first) std::reverse(primes.begin(), primes.end());
    int64_t before = 1;
    for (int64_t p : primes) {
      digits.push_back({k, before, p});
      before *= p;
    }
  }
  return digits;
}

// Neighbouring digits of one axis are one part of it.
Parts merged(const Parts& digits) {
  Parts parts;
  for (const AxisPart& digit : digits) {
    if (!parts.empty() && parts.back().axis == digit.axis &&
        parts.back().before * parts.back().size == digit.before) {
      parts.back().size *= digit.size;
    } else {
      parts.push_back(digit);
    }
  }
  return parts;
}

// The axes of `mesh` that make a tiling, if there are such.
std::optional<std::vector<Parts>> express(const Mesh& mesh, const Dims& tiles,
                                          const std::vector<int64_t>& tile_of, bool small_first) {
  const std::vector<AxisPart> digits = prime_digits(mesh, small_first);
  const auto places = static_cast<int64_t>(mesh.devices().size());
  std::vector<Parts> dims(tiles.size());
  int64_t inner = product(tiles);
  for (size_t d = 0; d < tiles.size(); ++d) {
    inner /= tiles[d];
    const auto index = [&](int64_t place) {
      return tile_of[static_cast<size_t>(mesh.devices()[static_cast<size_t>(place)])] / inner %
             tiles[d];
    };
    // What each digit adds to the tile's index where it is the only one that is not zero.
    std::vector<std::pair<int64_t, size_t>> weights;
    if (index(0) != 0) return std::nullopt;
    for (size_t g = 0; g < digits.size(); ++g) {
      int64_t place = 0;
      while (place < places && [&] {
        for (size_t other = 0; other < digits.size(); ++other) {
          if (mesh.coordinate(digits[other], place) != (other == g ? 1 : 0)) return true;
        }
        return false;
      }()) {
        ++place;
      }
      if (place == places) return std::nullopt;
      if (const int64_t weight = index(place)) weights.emplace_back(weight, g);
    }
    std::sort(weights.rbegin(), weights.rend());
    int64_t weight = tiles[d];
    Parts parts;
    for (const auto& [found, g] : weights) {
      weight /= digits[g].size;
      if (found != weight) return std::nullopt;
      parts.push_back(digits[g]);
    }
    if (weight != 1) return std::nullopt;
    for (int64_t place = 0; place < places; ++place) {
      int64_t sum = 0;
      for (const AxisPart& part : parts) sum = sum * part.size + mesh.coordinate(part, place);
      if (sum != index(place)) return std::nullopt;
    }
    dims[d] = merged(parts);
  }
  return dims;
}

void check(const Mesh& mesh, const std::vector<Parts>& dims) {
  std::vector<AxisPart> seen;
  for (const Parts& parts : dims) {
    for (const AxisPart& part : parts) {
      if (part.axis >= mesh.axes().size() || part.before < 1 || part.size < 1 ||
          mesh.sizes()[part.axis] % (part.before * part.size) != 0) {
        throw std::invalid_argument("a mesh " + mesh.text() + " has no axis " +
                                    std::to_string(part.axis) + " with a factor " +
                                    std::to_string(part.size));
      }
      for (const AxisPart& other : seen) {
        const bool apart = other.axis != part.axis || other.before * other.size <= part.before ||
                           part.before * part.size <= other.before;
        if (!apart) {
          throw std::invalid_argument("mesh axis '" + mesh.axes()[part.axis] +
                                      "' cuts an array twice");
        }
      }
      seen.push_back(part);
    }
  }
}

}  // namespace

Sharding::Sharding(const Mesh* mesh, std::vector<Parts> dims, bool is_manual)
    : mesh_(mesh), dims_(std::move(dims)), tile_of_(mesh->devices().size()), is_manual_(is_manual) {
  for (const Parts& parts : dims_) {
    tiles_.push_back(1);
    for (const AxisPart& part : parts) tiles_.back() *= part.size;
  }
  num_tiles_ = product(tiles_);
  for (size_t place = 0; place < tile_of_.size(); ++place) {
    int64_t tile = 0;
    for (const Parts& parts : dims_) {
      for (const AxisPart& part : parts) {
        tile = tile * part.size + mesh->coordinate(part, static_cast<int64_t>(place));
      }
    }
    tile_of_[static_cast<size_t>(mesh->devices()[place])] = tile;
  }
  for (const auto& group : groups(tile_of_, num_tiles_)) {
    holders_.push_back(static_cast<size_t>(group.front()));
  }
  layout_ = layout_number(tiles_, tile_of_, is_manual_);
  hlo_ = is_manual_ ? "{manual}" : hlo_text(tiles_, tile_of_, num_tiles_);
}

const Sharding* Sharding::get(const Mesh* mesh, std::vector<Parts> dims) {
  // An axis of size one cuts nothing.
  for (Parts& parts : dims)
    std::erase_if(parts, [](const AxisPart& part) { return part.size == 1; });
  check(*mesh, dims);
  return unique(mesh, std::move(dims), /*is_manual=*/false);
}

const Sharding* Sharding::unique(const Mesh* mesh, std::vector<Parts> dims, bool is_manual) {
  std::vector<int64_t> key = {is_manual};
  for (const Parts& parts : dims) {
    key.push_back(static_cast<int64_t>(parts.size()));
    for (const AxisPart& part : parts) {
      key.insert(key.end(), {static_cast<int64_t>(part.axis), part.before, part.size});
    }
  }
  static std::mutex mutex;
  static auto* shardings =
      new std::map<std::pair<const Mesh*, std::vector<int64_t>>, std::unique_ptr<const Sharding>>;
  std::lock_guard lock(mutex);
  auto& sharding = (*shardings)[{mesh, std::move(key)}];
  if (!sharding) sharding.reset(new Sharding(mesh, std::move(dims), is_manual));
  return sharding.get();
}

const Sharding* Sharding::replicated(const Mesh* mesh, size_t rank) {
  return get(mesh, std::vector<Parts>(rank));
}

const Sharding* Sharding::manual(const Mesh* mesh, size_t rank) {
  return unique(mesh, std::vector<Parts>(rank), /*is_manual=*/true);
}

const Sharding* Sharding::of_tiles(const Mesh* mesh, Dims tiles, std::vector<int64_t> tile_of) {
  const int64_t num_tiles = product(tiles);
  const auto count = static_cast<int64_t>(tile_of.size());
  const bool known = std::all_of(tile_of.begin(), tile_of.end(),
                                 [&](int64_t tile) { return tile >= 0 && tile < num_tiles; });
  if (num_tiles < 1 || count % num_tiles != 0 || !known || count != mesh->num_devices()) {
    throw std::invalid_argument("a sharding of " + std::to_string(num_tiles) +
                                " tiles does not fit " + std::to_string(count) + " devices");
  }
  for (bool small_first : {true, false}) {
    if (auto dims = express(*mesh, tiles, tile_of, small_first)) return get(mesh, std::move(*dims));
  }
  const auto holders = groups(tile_of, num_tiles);
  std::vector<std::string> axes;
  std::vector<Parts> dims(tiles.size());
  for (size_t d = 0; d < tiles.size(); ++d) {
    axes.push_back("tile" + std::to_string(d));
    dims[d] = {{d, 1, tiles[d]}};
  }
  axes.push_back("copy");
  std::vector<int64_t> devices;
  for (const auto& group : holders) {
    if (group.size() != holders[0].size()) {
      throw std::invalid_argument("a sharding with tiles on " + std::to_string(group.size()) +
                                  " and on " + std::to_string(holders[0].size()) + " devices");
    }
    devices.insert(devices.end(), group.begin(), group.end());
  }
  tiles.push_back(static_cast<int64_t>(holders[0].size()));
  return get(Mesh::get(std::move(axes), std::move(tiles), std::move(devices)), std::move(dims));
}

const Sharding* Sharding::renumbered(const std::vector<int64_t>& numbers) const {
  return unique(mesh_->renumbered(numbers), dims_, is_manual_);
}

Dims Sharding::tile_dims(std::span<const int64_t> sizes) const {
  Dims result(sizes.begin(), sizes.end());
  for (size_t d = 0; d < result.size(); ++d) result[d] = (result[d] + tiles_[d] - 1) / tiles_[d];
  return result;
}

std::vector<Range> Sharding::ranges(std::span<const int64_t> sizes, size_t device) const {
  const Dims tile = tile_dims(sizes);
  std::vector<Range> result(sizes.size());
  int64_t index = tile_of_[device];
  for (size_t d = sizes.size(); d-- > 0;) {
    const int64_t along = index % tiles_[d];
    index /= tiles_[d];
    result[d].start = std::min(along * tile[d], sizes[d]);
    result[d].limit = std::min(result[d].start + tile[d], sizes[d]);
  }
  return result;
}

std::string Sharding::shardy(const std::string& mesh_name) const {
  std::string text = "#sdy.sharding<@" + mesh_name + ", [";
  for (size_t d = 0; d < dims_.size(); ++d) {
    text += d ? ", {" : "{";
    for (size_t i = 0; i < dims_[d].size(); ++i) {
      const AxisPart& part = dims_[d][i];
      text += (i ? ", \"" : "\"") + mesh_->axes()[part.axis] + '"';
      if (part.size != mesh_->sizes()[part.axis]) {
        text += ":(" + std::to_string(part.before) + ')' + std::to_string(part.size);
      }
    }
    text += '}';
  }
  return text + "]>";
}

}  // namespace torch_xla::sharding
