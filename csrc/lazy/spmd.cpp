#include "lazy/spmd.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <exception>
#include <mutex>
#include <numeric>
#include <string>

#include "lazy/dtype.h"
#include "lazy/launch.h"
#include "lazy/metrics.h"

namespace torch_xla::lazy {
namespace {

using sharding::Mesh;
using sharding::Range;
using sharding::Sharding;

const std::vector<pjrt::Device*>& devices() {
  return Runtime::get().client().addressable_devices();
}

pjrt::BufferType buffer_type_of(const at::Tensor& tensor) {
  return buffer_type(element_type(tensor.scalar_type()));
}

std::vector<int64_t> sizes_of(const at::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

// A device's tile of the tensor: dense, and zeros where the tensor has ended.
at::Tensor tile_of(const at::Tensor& tensor, const Sharding& sharding, size_t device) {
  const std::vector<int64_t> sizes = sizes_of(tensor);
  const std::vector<int64_t> tile = sharding.tile_dims(sizes);
  const at::Tensor part = part_of(tensor, sharding.ranges(sizes, device));
  if (part.sizes() == at::IntArrayRef(tile)) return part.contiguous();
  at::Tensor padded = at::zeros(tile, tensor.options());
  std::vector<Range> corner;
  for (int64_t size : part.sizes()) corner.push_back({0, size});
  part_of(padded, corner).copy_(part);
  return padded;
}

// The buffer reads the tensor's own memory where the plugin can, and keeps it alive meanwhile.
std::unique_ptr<pjrt::Buffer> buffer_on(pjrt::Device* device, const at::Tensor& dense) {
  const auto semantics = Runtime::get().is_cpu()
                             ? pjrt::HostBufferSemantics::kImmutableZeroCopy
                             : pjrt::HostBufferSemantics::kImmutableUntilTransferCompletes;
  return Runtime::get().client().buffer_from_host(dense.const_data_ptr(), buffer_type_of(dense),
                                                  {dense.sizes().data(), dense.sizes().size()}, {},
                                                  device, semantics, /*on_done=*/[dense] {});
}

// Starts a copy of each of these shards into a tensor of its tile.
std::vector<at::Tensor> copy_tiles(const Array& array, const std::vector<size_t>& shards,
                                   at::ScalarType dtype) {
  std::vector<at::Tensor> tiles;
  std::vector<pjrt::Event> copied;
  for (size_t i : shards) {
    const pjrt::Buffer& buffer = array.shard(i);
    const std::span<const int64_t> dims = buffer.dims();
    tiles.push_back(at::empty({dims.data(), dims.size()}, at::TensorOptions(dtype)));
    copied.push_back(buffer.copy_to_host(tiles.back().mutable_data_ptr(), tiles.back().nbytes()));
  }
  // Copies into these tiles may be under way until the last one is over.
  std::exception_ptr error;
  for (pjrt::Event& event : copied) {
    try {
      event.wait();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  return tiles;
}

at::Tensor without_padding(const at::Tensor& tile, const std::vector<Range>& ranges) {
  std::vector<Range> corner;
  for (const Range& range : ranges) corner.push_back({0, range.limit - range.start});
  return part_of(tile, corner);
}

}  // namespace

at::Tensor part_of(const at::Tensor& tensor, const std::vector<Range>& ranges) {
  at::Tensor part = tensor;
  for (size_t d = 0; d < ranges.size(); ++d) {
    part = part.narrow(static_cast<int64_t>(d), ranges[d].start, ranges[d].limit - ranges[d].start);
  }
  return part;
}

const Sharding* replicated(size_t rank) {
  static const Mesh* mesh = [] {
    std::vector<int64_t> all(num_partitions());
    std::iota(all.begin(), all.end(), 0);
    const auto count = static_cast<int64_t>(all.size());
    return Mesh::get({"devices"}, {count}, std::move(all));
  }();
  return Sharding::replicated(mesh, rank);
}

void use_spmd() {
  std::lock_guard lock(launch_mutex());
  if (is_spmd()) return;
  finish_launch();
  const auto& all = devices();
  for (size_t i = 1; i < all.size(); ++i) {
    TORCH_CHECK(live_bytes(static_cast<c10::DeviceIndex>(i)).now == 0,
                "use_spmd: there are tensors on xla:", i,
                ". In SPMD mode xla:0 stands for all devices: call use_spmd() before tensors are "
                "made on others, or let go of them");
  }
  // All copies first: if one cannot be made, nothing has changed.
  std::vector<std::vector<std::unique_ptr<pjrt::Buffer>>> copies;
  DeviceData::each(0, [&](DeviceData& data) {
    copies.emplace_back(1);  // a place for the first
    for (size_t i = 1; i < all.size(); ++i) {
      copies.back().push_back(data.array().buffer().copy_to_device(all[i]));
    }
  });
  set_spmd(all.size());
  if (all.size() == 1) return;
  auto next = copies.begin();
  DeviceData::each(0, [&](DeviceData& data) {
    const size_t rank = data.array().buffer().dims().size();
    next->front() = data.release().release();
    data.fulfil(Array(replicated(rank), std::move(*next++)));
  });
}

Array place(const at::Tensor& dense, const Sharding* sharding, c10::Device device) {
  static metrics::Metric bytes("OutboundData", metrics::Unit::kBytes);
  if (!is_partitioned()) {
    bytes.add(static_cast<double>(dense.nbytes()));
    return buffer_on(Runtime::get().device(device), dense);
  }
  if (!sharding) sharding = replicated(static_cast<size_t>(dense.dim()));
  std::vector<at::Tensor> tiles(static_cast<size_t>(sharding->num_tiles()));
  std::vector<std::unique_ptr<pjrt::Buffer>> shards;
  for (size_t p = 0; p < devices().size(); ++p) {
    at::Tensor& tile = tiles[static_cast<size_t>(sharding->tile_of()[p])];
    if (!tile.defined()) tile = tile_of(dense, *sharding, p);
    shards.push_back(buffer_on(devices()[p], tile));
    bytes.add(static_cast<double>(tile.nbytes()));
  }
  return Array(sharding, std::move(shards));
}

void fetch(const Array& array, const at::Tensor& into) {
  const Sharding* sharding = array.sharding();
  if (!sharding || sharding->num_tiles() == 1) {  // of pieces that differ, the first device's
    array.buffer().copy_to_host(into.mutable_data_ptr(), into.nbytes()).wait();
    return;
  }
  const std::vector<size_t>& holders = sharding->holders();
  const std::vector<at::Tensor> tiles = copy_tiles(array, holders, into.scalar_type());
  for (size_t t = 0; t < tiles.size(); ++t) {
    const std::vector<Range> ranges = sharding->ranges(sizes_of(into), holders[t]);
    part_of(into, ranges).copy_(without_padding(tiles[t], ranges));
  }
}

std::vector<at::Tensor> fetch_shards(const Array& array, const std::vector<size_t>& devices,
                                     at::IntArrayRef sizes, at::ScalarType dtype) {
  std::vector<at::Tensor> tiles = copy_tiles(array, devices, dtype);
  if (const Sharding* sharding = array.sharding()) {
    for (size_t i = 0; i < tiles.size(); ++i) {
      if (sharding->is_manual()) {
        tiles[i] = tiles[i].reshape(sizes);  // one of a stack
        continue;
      }
      const auto ranges = sharding->ranges({sizes.data(), sizes.size()}, devices[i]);
      tiles[i] = without_padding(tiles[i], ranges).contiguous();
    }
  }
  return tiles;
}

}  // namespace torch_xla::lazy
