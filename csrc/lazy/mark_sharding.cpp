#include "lazy/mark_sharding.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "ir/manual.h"
#include "ir/sharding.h"
#include "lazy/dtype.h"
#include "lazy/full.h"
#include "lazy/spmd.h"
#include "lazy/storage.h"
#include "lazy/tensor.h"

namespace torch_xla::lazy {
namespace {

using sharding::Sharding;
using stablehlo::Dims;

std::string sizes_text(const at::Tensor& tensor) {
  std::string text = "(";
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    text += (d ? ", " : "") + std::to_string(tensor.size(d));
  }
  return text + ')';
}

void check(const at::Tensor& tensor, const Sharding& sharding) {
  check_sharding("mark_sharding", tensor, sharding);
}

// For each dimension of the storage's base the dimension of the tensor that runs along it, where
// the tensor is the whole base with its dimensions in some order.
std::optional<std::vector<size_t>> permutation(const at::Tensor& tensor, LazyStorage& storage) {
  const Dims& sizes = storage.sizes();
  if (tensor.storage_offset() != 0 || static_cast<size_t>(tensor.dim()) != sizes.size() ||
      storage.type() != element_type(tensor.scalar_type())) {
    return std::nullopt;
  }
  Dims strides = storage.strides();
  if (strides.empty()) {
    strides = sizes;
    int64_t stride = 1;
    for (size_t d = sizes.size(); d-- > 0; stride *= std::max<int64_t>(sizes[d], 1)) {
      strides[d] = stride;
    }
  }
  std::vector<size_t> order;
  std::vector<bool> taken(sizes.size(), false);
  for (size_t b = 0; b < sizes.size(); ++b) {
    size_t t = 0;
    const auto runs_along = [&] {
      const auto d = static_cast<int64_t>(t);
      return !taken[t] && tensor.size(d) == sizes[b] &&
             (sizes[b] == 1 || tensor.stride(d) == strides[b]);
    };
    while (t < sizes.size() && !runs_along()) ++t;
    if (t == sizes.size()) return std::nullopt;
    taken[t] = true;
    order.push_back(t);
  }
  return order;
}

// `sharding` of a tensor as that of the base, by permutation().
const Sharding* of_base(const Sharding* sharding, const std::vector<size_t>& order) {
  if (sharding->is_manual()) return sharding;
  auto dims = sharding->dims();
  for (size_t b = 0; b < order.size(); ++b) dims[b] = sharding->dims()[order[b]];
  return Sharding::get(sharding->mesh(), std::move(dims));
}

const Sharding* of_tensor(const Sharding* sharding, const std::vector<size_t>& order) {
  if (sharding->is_manual()) return sharding;
  auto dims = sharding->dims();
  for (size_t b = 0; b < order.size(); ++b) dims[order[b]] = sharding->dims()[b];
  return Sharding::get(sharding->mesh(), std::move(dims));
}

// Makes the storage's base that of a tensor which covers it in another shape.
bool take_base_of(const at::Tensor& tensor, LazyStorage& storage) {
  if (tensor.storage_offset() != 0 || tensor.nbytes() != tensor.storage().nbytes() ||
      !tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg() ||
      tensor.scalar_type() == at::kComplexHalf) {
    return false;
  }
  ir::Value value = read(tensor);
  storage.rebase(value.type(), Dims(tensor.sizes()), {});
  storage.set_value(std::move(value));
  return true;
}

// The value as it is to lie: moved to the devices, or by the next program.
ir::Value moved(ir::Value value, DeviceData& data, const Sharding* sharding) {
  if (data.place(sharding)) return value;
  const Sharding* now = data.sharding();
  if (!is_partitioned() || (now && now->layout() == sharding->layout())) return value;
  return ir::constrain(std::move(value), sharding);
}

void move_contents(LazyStorage& storage, const Sharding* sharding) {
  if (!is_partitioned()) return;
  const ir::Value value = storage.value();
  if (is_full(value)) return;  // made as told
  DeviceData* data = DeviceData::of(value);
  storage.set_value(data ? moved(value, *data, sharding) : ir::constrain(value, sharding));
}

// A device's piece is of a program that cuts by hand (manual.h); what is written over it need be
// none.
const Sharding* unless_manual(const Sharding* sharding) {
  return sharding && sharding->is_manual() ? nullptr : sharding;
}

}  // namespace

void check_sharding(const char* caller, const at::Tensor& tensor, const Sharding& sharding) {
  TORCH_CHECK(is_spmd(), caller, ": call torch_xla.runtime.use_spmd() first");
  TORCH_CHECK_VALUE(static_cast<size_t>(tensor.dim()) == sharding.rank(), caller,
                    ": a partition spec of ", sharding.rank(), " entries for a tensor of shape ",
                    sizes_text(tensor), ", which has ", tensor.dim(), " dimensions");
  TORCH_CHECK_VALUE(static_cast<size_t>(sharding.num_devices()) == num_partitions(), caller,
                    ": a mesh of ", sharding.num_devices(), " devices, while programs run on ",
                    num_partitions());
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const int64_t tiles = sharding.tiles()[static_cast<size_t>(d)];
    TORCH_CHECK_VALUE(tiles == 1 || tensor.size(d) >= tiles, caller, ": dimension ", d,
                      " of a tensor of shape ", sizes_text(tensor), " is to be cut into ", tiles,
                      " parts and has only ", tensor.size(d), " elements");
  }
}

void mark_sharding(const at::Tensor& tensor, const Sharding* sharding, bool again) {
  LazyStorage& storage = storage_of(tensor);
  check(tensor, *sharding);
  const Sharding* lies = sharding_of(tensor);
  TORCH_CHECK(
      !lies || !lies->is_manual(),
      "mark_sharding: the tensor is one device's piece: disable_manual_sharding() it first");
  auto order = permutation(tensor, storage);
  if (!order && !storage.marked() && take_base_of(tensor, storage)) {
    order = permutation(tensor, storage);
  }
  if (!order) {
    write(tensor, ir::constrain(read(tensor), sharding));
    return;
  }
  const Sharding* wanted = of_base(sharding, *order);
  const Sharding* before = storage.marked() ? storage.sharding() : nullptr;
  TORCH_CHECK(again || !before || before->is_replicated() || before->layout() == wanted->layout(),
              "mark_sharding: a tensor of shape ", sizes_text(tensor), " is to be cut as ",
              sharding->hlo(), ", and was told ", of_tensor(before, *order)->hlo(),
              " before: clear_sharding() it first");
  storage.mark(wanted);
  move_contents(storage, wanted);
}

void clear_sharding(const at::Tensor& tensor) {
  LazyStorage& storage = storage_of(tensor);
  if (!storage.marked()) return;
  const Sharding* whole = replicated(storage.sizes().size());
  storage.unmark();
  storage.set_sharding(whole);
  move_contents(storage, whole);
}

const Sharding* sharding_of(const at::Tensor& tensor) {
  LazyStorage& storage = storage_of(tensor);
  const auto order = permutation(tensor, storage);
  if (!order) return nullptr;
  const Sharding* sharding = storage.marked() ? storage.sharding() : nullptr;
  if (!sharding && storage.has_value()) {
    const ir::Value value = storage.value();
    const DeviceData* data = DeviceData::of(value);
    sharding = data ? data->sharding() : ir::constraint_of(*value.node);
    if (ir::entered_by(*value.node)) {
      sharding = Sharding::manual(replicated(0)->mesh(), value.dims().size());
    }
  }
  return sharding ? of_tensor(sharding, *order) : nullptr;
}

at::Tensor constrained(const at::Tensor& tensor, const Sharding* sharding) {
  check(tensor, *sharding);
  ir::Value value = read(tensor);
  if (is_partitioned()) value = ir::constrain(std::move(value), sharding);
  return make(std::move(value), tensor.scalar_type(), tensor.device());
}

at::Tensor from_shards(const std::vector<at::Tensor>& shards, at::IntArrayRef sizes,
                       const Sharding* sharding) {
  const c10::Device device(c10::kXLA, 0);
  TORCH_CHECK_VALUE(is_spmd(),
                    "shards make a tensor in SPMD mode only: call "
                    "torch_xla.runtime.use_spmd() first");
  TORCH_CHECK_VALUE(sharding->rank() == sizes.size() &&
                        static_cast<size_t>(sharding->num_devices()) == num_partitions(),
                    "a sharding of ", sharding->rank(), " dimensions over ",
                    sharding->num_devices(), " devices for a tensor of ", sizes.size(),
                    " dimensions on ", num_partitions());
  TORCH_CHECK(!sharding->is_manual(),
              "the tensor is one device's piece: disable_manual_sharding() it first");
  TORCH_CHECK_VALUE(shards.size() == num_partitions() && !shards.empty(), "got ", shards.size(),
                    " shards for ", num_partitions(), " devices");
  const at::ScalarType dtype = shards[0].scalar_type();
  at::Tensor whole = at::empty(sizes, shards[0].options().device(at::kCPU));
  for (size_t p : sharding->holders()) {
    const at::Tensor part = part_of(whole, sharding->ranges({sizes.data(), sizes.size()}, p));
    TORCH_CHECK_VALUE(shards[p].scalar_type() == dtype && shards[p].sizes() == part.sizes(),
                      "shard ", p, " has shape ", sizes_text(shards[p]), " and dtype ",
                      shards[p].scalar_type(), " instead of ", sizes_text(part), " and ", dtype);
    part.copy_(shards[p]);
  }
  auto data =
      std::make_shared<DeviceData>(device, ir::current_location(), place(whole, sharding, device));
  const ir::ElementType type = element_type(dtype);
  return make(DeviceData::leaf({type, {sizes.data(), sizes.size()}}, std::move(data)), dtype,
              device);
}

ir::Value fitting_in_spmd(ir::Value value, LazyStorage& storage) {
  const Sharding* sharding = unless_manual(storage.sharding());
  DeviceData* data = DeviceData::of(value);
  return data && sharding ? moved(std::move(value), *data, sharding) : value;
}

void inherit_sharding_in_spmd(const at::Tensor& like, const at::Tensor& tensor) {
  if (!is_xla(tensor) || !is_xla(like) || like.sizes() != tensor.sizes()) return;
  LazyStorage& storage = storage_of(like);
  LazyStorage& source = storage_of(tensor);
  const auto from = permutation(tensor, source);
  const auto to = permutation(like, storage);
  if (!from || !to) return;
  const Sharding* sharding = unless_manual(source.sharding());
  if (!sharding) {
    const Sharding* now = unless_manual(sharding_of(tensor));
    sharding = now ? of_base(now, *from) : nullptr;
  }
  if (sharding) storage.set_sharding(of_base(of_tensor(sharding, *from), *to));
}

}  // namespace torch_xla::lazy
