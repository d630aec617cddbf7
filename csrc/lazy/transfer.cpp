#include "lazy/transfer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/narrow.h>

#include "lazy/dry_run.h"
#include "lazy/dtype.h"
#include "lazy/executor.h"
#include "lazy/host_range.h"
#include "lazy/launch.h"
#include "lazy/metrics.h"
#include "lazy/program_error.h"
#include "lazy/runtime.h"
#include "lazy/spmd.h"
#include "lazy/storage.h"
#include "lazy/tensor.h"
#include "lazy/trimmed.h"
#include "lazy/untold.h"
#include "pjrt/error.h"

namespace torch_xla::lazy {
namespace {

at::Tensor empty_cpu(ir::ShapeRef shape) {
  return at::empty({shape.dims.data(), shape.dims.size()},
                   at::TensorOptions(scalar_type(shape.type)).device(at::kCPU));
}

// A tensor that stays on the host until it is known how it is to be cut.
struct OnHost {
  at::Tensor dense;
  c10::Device device;
  Array operator()(const sharding::Sharding* sharding) const {
    return place(dense, sharding, device);
  }
};

// Blocks until `data` is in `cpu`, which is row-major.
void fetch(DeviceData& data, const at::Tensor& cpu) {
  if (const DeviceData::Place place = data.place_of_host()) {
    if (const auto* host = place.target<OnHost>()) {
      cpu.copy_(host->dense);  // no device needs it for that
      return;
    }
  }
  static metrics::Metric time("TransferFromDeviceTime", metrics::Unit::kNanoseconds);
  static metrics::Metric bytes("InboundData", metrics::Unit::kBytes);
  metrics::Timer timer(time);
  const size_t size = cpu.nbytes();
  if (size == 0) return;
  help_launch();
  data.about_to_be_read();
  fetch(data.array(), cpu);
  bytes.add(static_cast<double>(size));
}

}  // namespace

ir::Value upload(const at::Tensor& cpu, c10::Device device) {
  static metrics::Metric time("TransferToDeviceTime", metrics::Unit::kNanoseconds);
  static metrics::Metric bytes("OutboundData", metrics::Unit::kBytes);
  metrics::Timer timer(time);
  const ir::ElementType type = element_type(cpu.scalar_type());
  // Bits that the tensor only carries, and strides the plugin need not know.
  const at::Tensor dense = cpu.to(scalar_type(type)).resolve_conj().resolve_neg().contiguous();
  const at::IntArrayRef sizes = dense.sizes();
  if (is_partitioned() || is_dry_run()) {
    // How it is to be cut may be said yet.
    at::Tensor own = dense.is_alias_of(cpu) ? dense.clone() : dense;
    auto data = std::make_shared<DeviceData>(device, ir::current_location(), OnHost{own, device});
    remember_range(dense, data);
    return DeviceData::leaf({type, {sizes.data(), sizes.size()}}, std::move(data));
  }
  Runtime& runtime = Runtime::get();
  auto buffer = runtime.client().buffer_from_host(
      dense.const_data_ptr(), buffer_type(type), {sizes.data(), sizes.size()}, {},
      runtime.device(device), pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
  bytes.add(static_cast<double>(dense.nbytes()));
  auto data = std::make_shared<DeviceData>(device, ir::current_location(), std::move(buffer));
  remember_range(dense, data);
  return DeviceData::leaf({type, {sizes.data(), sizes.size()}}, std::move(data));
}

Array upload_full(const c10::Scalar& number, ir::ShapeRef shape, const sharding::Sharding* sharding,
                  c10::Device device) {
  const std::vector<int64_t> dims = sharding ? sharding->tile_dims(shape.dims)
                                             : std::vector(shape.dims.begin(), shape.dims.end());
  const auto on = [&](pjrt::Device* target) {
    const at::Tensor cpu = at::full(dims, number, at::TensorOptions(scalar_type(shape.type)));
    return Runtime::get().client().buffer_from_host(
        cpu.mutable_data_ptr(), buffer_type(shape.type), dims, {}, target,
        pjrt::HostBufferSemantics::kMutableZeroCopy, /*on_done=*/[cpu] {});
  };
  if (!sharding) return on(Runtime::get().device(device));
  std::vector<std::unique_ptr<pjrt::Buffer>> shards;
  for (pjrt::Device* each : Runtime::get().client().addressable_devices()) {
    shards.push_back(on(each));
  }
  return Array(sharding, std::move(shards));
}

at::Tensor download(ir::Value value, c10::Device device) {
  const ir::ShapeRef shape = value.shape();
  at::Tensor cpu = empty_cpu(shape);
  if (shape.num_elements() == 0) return cpu;
  if (const auto cut = trimmed(value)) {
    value = {};
    return download(cut->whole, device).narrow(cut->dim, 0, cut->size).clone();
  }
  const bool launches = !DeviceData::of(value);
  try {
    fetch(*materialize(std::move(value), device), cpu);
  } catch (const pjrt::Error& error) {
    throw_as_cpu_does(error);
  }
  if (!launches) return cpu;
  // A program may have failed for others: CPU would not have come this far.
  if (const auto untold = take_untold(device, /*wait=*/false)) std::rethrow_exception(untold);
  return cpu;
}

at::Tensor download(const at::Tensor& tensor) {
  LazyStorage& storage = storage_of(tensor);
  const bool whole_as_bytes = tensor.scalar_type() == at::kByte && tensor.dim() == 1 &&
                              tensor.storage_offset() == 0 && tensor.is_contiguous() &&
                              tensor.nbytes() == tensor.storage().nbytes();
  if (whole_as_bytes && storage.type() != ir::ElementType::kU8 && storage.strides().empty()) {
    const at::Tensor elements = download(storage.value(), tensor.device()).reshape({-1});
    if (elements.nbytes() == tensor.nbytes()) return elements.view(at::kByte);
  }
  return download(read(tensor), tensor.device()).to(tensor.scalar_type());
}

std::vector<at::Tensor> download(at::TensorList tensors) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor cpu = download(tensor);
    if (!tensor.is_contiguous() && is_dense(tensor.sizes(), tensor.strides())) {
      at::Tensor strided = at::empty_strided(tensor.sizes(), tensor.strides(), cpu.options());
      strided.copy_(cpu);
      cpu = strided;
    }
    results.push_back(std::move(cpu));
  }
  return results;
}

}  // namespace torch_xla::lazy
