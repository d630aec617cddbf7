#include "sharding/op_sharding.h"

#include <stdexcept>
#include <string>

#include "sharding/product.h"
#include "sharding/wire.h"

namespace torch_xla::sharding {
namespace {

// Field numbers of xla.OpSharding.
enum Field : uint64_t {
  kType = 1,
  kTileDimensions = 3,
  kTileDevices = 4,
  kIotaReshape = 9,
  kIotaTranspose = 10,
};
enum Type : uint64_t { kReplicated = 0, kOther = 3 };

[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument("an OpSharding " + why);
}

struct OpSharding {
  uint64_t type = kReplicated;
  Dims tiles, devices, reshape, transpose;
};

OpSharding read(std::string_view proto) {
  OpSharding result;
  WireReader reader(proto, "an OpSharding");
  reader.fields([&](uint64_t field, uint64_t wire_type) {
    switch (field) {
      case kType:
        result.type = reader.varint();
        break;
      case kTileDimensions:
        reader.numbers(wire_type, result.tiles);
        break;
      case kTileDevices:
        reader.numbers(wire_type, result.devices);
        break;
      case kIotaReshape:
        reader.numbers(wire_type, result.reshape);
        break;
      case kIotaTranspose:
        reader.numbers(wire_type, result.transpose);
        break;
      default:
        reader.skip(wire_type);
    }
  });
  return result;
}

// 0, 1, 2, ... in the shape `reshape`, transposed: the devices in the order of tiles.
Dims iota_devices(const Dims& reshape, const Dims& transpose) {
  const size_t rank = reshape.size();
  if (transpose.size() != rank) refuse("with a permutation of another rank");
  Dims strides(rank, 1), sizes(rank), steps(rank);
  for (size_t k = rank; k-- > 1;) strides[k - 1] = strides[k] * reshape[k];
  for (size_t k = 0; k < rank; ++k) {
    const auto from = static_cast<size_t>(transpose[k]);
    if (from >= rank) refuse("with a permutation that is none");
    sizes[k] = reshape[from];
    steps[k] = strides[from];
  }
  Dims devices(static_cast<size_t>(product(sizes)));
  for (size_t i = 0; i < devices.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    for (size_t k = rank; k-- > 0;) {
      devices[i] += rest % sizes[k] * steps[k];
      rest /= sizes[k];
    }
  }
  return devices;
}

}  // namespace

const Sharding* parse_op_sharding(std::string_view proto, const Mesh* mesh, size_t rank) {
  OpSharding op = read(proto);
  if (op.type == kReplicated) return Sharding::replicated(mesh, rank);
  if (op.type != kOther) refuse("of type " + std::to_string(op.type) + " cuts no array");
  if (op.devices.empty()) op.devices = iota_devices(op.reshape, op.transpose);
  const auto count = static_cast<int64_t>(op.devices.size());
  if (count != mesh->num_devices() || product(op.tiles) != count || op.tiles.size() < rank) {
    refuse("over " + std::to_string(count) + " devices does not fit an array of rank " +
           std::to_string(rank) + " on " + std::to_string(mesh->num_devices()));
  }
  // What lies behind the array's own dimensions are copies.
  const Dims tiles(op.tiles.begin(), op.tiles.begin() + static_cast<std::ptrdiff_t>(rank));
  const int64_t copies = count / product(tiles);
  Dims tile_of(op.devices.size(), -1);
  for (size_t i = 0; i < op.devices.size(); ++i) {
    const int64_t device = op.devices[i];
    if (device < 0 || device >= count) refuse("names device " + std::to_string(device));
    tile_of[static_cast<size_t>(device)] = static_cast<int64_t>(i) / copies;
  }
  return Sharding::of_tiles(mesh, tiles, tile_of);
}

}  // namespace torch_xla::sharding
