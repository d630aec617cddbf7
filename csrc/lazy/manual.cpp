#include "lazy/manual.h"

#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "ir/manual.h"
#include "lazy/data.h"
#include "lazy/mark_sharding.h"
#include "lazy/runtime.h"
#include "lazy/spmd.h"
#include "lazy/tensor.h"

namespace torch_xla::lazy {
namespace {

std::atomic<bool> g_has_parts{false};

using sharding::Sharding;

at::Tensor like(const at::Tensor& tensor, ir::Value value) {
  return make(std::move(value), tensor.scalar_type(), tensor.device());
}

ir::Reduction reduction_of(const char* caller, const std::string& name, const at::Tensor& piece) {
  TORCH_CHECK_VALUE(piece.scalar_type() != at::kBool, caller, ": of numbers, not of bools");
  if (name == "sum") return ir::Reduction::kSum;
  if (name == "mul") return ir::Reduction::kProduct;
  TORCH_CHECK_VALUE(name == "min" || name == "max", caller,
                    ": reduce_type is 'sum', 'mul', 'min' or 'max', got '", name, "'");
  TORCH_CHECK_VALUE(!piece.is_complex(), caller, ": complex numbers have no '", name, "'");
  return name == "min" ? ir::Reduction::kMin : ir::Reduction::kMax;
}

DeviceGroups checked(const char* caller, DeviceGroups groups) {
  TORCH_CHECK(is_spmd(), caller, ": call torch_xla.runtime.use_spmd() first");
  const auto count = static_cast<int64_t>(num_partitions());
  if (groups.empty()) {
    groups.emplace_back(count);
    std::iota(groups[0].begin(), groups[0].end(), 0);
  }
  std::vector<int64_t> all;
  for (const auto& group : groups) {
    TORCH_CHECK_VALUE(group.size() == groups[0].size(), caller, ": groups of ", groups[0].size(),
                      " and of ", group.size(), " devices");
    all.insert(all.end(), group.begin(), group.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<int64_t> wanted(static_cast<size_t>(count));
  std::iota(wanted.begin(), wanted.end(), 0);
  TORCH_CHECK_VALUE(all == wanted, caller, ": groups must name devices 0 to ", count - 1,
                    ", each once");
  return groups;
}

int64_t dim_of(const at::Tensor& piece, int64_t dim) {
  return c10::maybe_wrap_dim(dim, piece.dim(), /*wrap_scalar=*/false);
}

}  // namespace

bool has_manual_parts() { return g_has_parts.load(std::memory_order_relaxed); }

at::Tensor enter_manual(const at::Tensor& whole, const Sharding* sharding) {
  constexpr const char* kCaller = "enable_manual_sharding";
  check_sharding(kCaller, whole, *sharding);
  for (int64_t d = 0; d < whole.dim(); ++d) {
    const int64_t tiles = sharding->tiles()[static_cast<size_t>(d)];
    TORCH_CHECK_VALUE(whole.size(d) % tiles == 0, kCaller, ": dimension ", d, " has ",
                      whole.size(d), " elements, which is no multiple of ", tiles,
                      ": all devices run one program, on pieces of one size");
  }
  ir::Value value = read(whole);
  if (!is_partitioned()) return like(whole, std::move(value));
  g_has_parts.store(true);
  if (DeviceData* data = DeviceData::of(value)) data->place(sharding);
  return like(whole, ir::enter_manual(std::move(value), sharding));
}

at::Tensor leave_manual(const at::Tensor& piece, const std::vector<int64_t>& sizes,
                        const Sharding* sharding) {
  constexpr const char* kCaller = "disable_manual_sharding";
  check_sharding(kCaller, piece, *Sharding::replicated(sharding->mesh(), sharding->rank()));
  std::vector<int64_t> whole = piece.sizes().vec();
  for (size_t d = 0; d < whole.size(); ++d) whole[d] *= sharding->tiles()[d];
  TORCH_CHECK_VALUE(sizes == whole, kCaller, ": pieces of shape ", piece.sizes(), ", cut as ",
                    sharding->hlo(), ", make a tensor of shape ", at::IntArrayRef(whole), ", not ",
                    at::IntArrayRef(sizes));
  ir::Value value = read(piece);
  if (is_partitioned()) value = ir::leave_manual(std::move(value), sharding);
  return like(piece, std::move(value));
}

void mark_manual(const at::Tensor& tensor) {
  const Sharding* now = sharding_of(tensor);
  if (now && now->is_manual()) return;
  TORCH_CHECK(is_spmd(), "annotate_manual_sharding: call torch_xla.runtime.use_spmd() first");
  if (!is_partitioned()) return;
  g_has_parts.store(true);
  write(tensor, ir::enter_manual(read(tensor), replicated(static_cast<size_t>(tensor.dim()))));
}

at::Tensor reduce_manual(const std::string& reduce_type, const at::Tensor& piece,
                         DeviceGroups groups) {
  constexpr const char* kCaller = "manual_all_reduce";
  const ir::Reduction reduction = reduction_of(kCaller, reduce_type, piece);
  groups = checked(kCaller, std::move(groups));
  if (groups[0].size() == 1) return like(piece, read(piece));
  return like(piece, ir::reduce_manual(read(piece), reduction, groups));
}

at::Tensor reduce_scatter_manual(const std::string& reduce_type, const at::Tensor& piece,
                                 int64_t dim, int64_t shard_count, DeviceGroups groups) {
  constexpr const char* kCaller = "manual_reduce_scatter";
  const ir::Reduction reduction = reduction_of(kCaller, reduce_type, piece);
  groups = checked(kCaller, std::move(groups));
  dim = dim_of(piece, dim);
  const auto members = static_cast<int64_t>(groups[0].size());
  TORCH_CHECK_VALUE(shard_count == members, kCaller, ": groups of ", members, " devices for ",
                    shard_count, " shards");
  TORCH_CHECK_VALUE(piece.size(dim) % members == 0, kCaller, ": dimension ", dim, " has ",
                    piece.size(dim), " elements, which is no multiple of ", members);
  if (members == 1) return like(piece, read(piece));
  return like(piece, ir::reduce_scatter_manual(read(piece), reduction, dim, groups));
}

at::Tensor gather_manual(const at::Tensor& piece, int64_t dim, DeviceGroups groups) {
  groups = checked("manual_all_gather", std::move(groups));
  dim = dim_of(piece, dim);
  if (groups[0].size() == 1) return like(piece, read(piece));
  return like(piece, ir::gather_manual(read(piece), dim, groups));
}

}  // namespace torch_xla::lazy
