#include "lazy/compiled_graph.h"

#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/as_strided.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "ir/graph.h"
#include "lazy/dtype.h"
#include "lazy/executor.h"
#include "lazy/metrics.h"
#include "lazy/recompiles.h"
#include "lazy/recording.h"
#include "lazy/settings.h"
#include "lazy/tensor.h"
#include "lazy/unknown.h"
#include "lazy/untold.h"
#include "pjrt/fork_guard.h"

namespace torch_xla::lazy {
namespace {

using stablehlo::Dims;

c10::intrusive_ptr<LazyStorage> shared_storage(const at::Tensor& tensor) {
  return c10::intrusive_ptr<LazyStorage>::reclaim_copy(&storage_of(tensor));
}

bool same(at::IntArrayRef a, const at::DimVector& b) { return a == at::IntArrayRef(b); }

bool any_equal(std::vector<const LazyStorage*> storages) {
  std::sort(storages.begin(), storages.end());
  return std::adjacent_find(storages.begin(), storages.end()) != storages.end();
}

}  // namespace

CompiledGraph::Geometry::Geometry(const at::Tensor& tensor)
    : dtype(tensor.scalar_type()),
      sizes(tensor.sizes().begin(), tensor.sizes().end()),
      strides(tensor.strides().begin(), tensor.strides().end()),
      offset(tensor.storage_offset()),
      conjugate(tensor.is_conj()),
      negative(tensor.is_neg()) {}

bool CompiledGraph::Geometry::fits(const at::Tensor& tensor) const {
  return dtype == tensor.scalar_type() && same(tensor.sizes(), sizes) &&
         same(tensor.strides(), strides) && offset == tensor.storage_offset() &&
         conjugate == tensor.is_conj() && negative == tensor.is_neg();
}

at::Tensor CompiledGraph::Geometry::on(const c10::Storage& storage) const {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::XLA),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  tensor._set_conj(conjugate);
  tensor._set_neg(negative);
  return tensor;
}

std::vector<size_t> CompiledGraph::written_inputs() const {
  std::vector<size_t> written;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].slot != kNone && slots_[inputs_[i].slot].written) written.push_back(i);
  }
  return written;
}

bool CompiledGraph::match(const std::vector<at::Tensor>& inputs,
                          std::vector<c10::intrusive_ptr<LazyStorage>>& storages) const {
  if (inputs.size() != inputs_.size()) return false;
  storages.resize(slots_.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& tensor = inputs[i];
    const Input& input = inputs_[i];
    if (!tensor.defined() || !input.geometry.fits(tensor)) return false;
    if (input.slot == kNone) {
      if (!tensor.device().is_cpu()) return false;
      continue;
    }
    if (!is_xla(tensor) || tensor.device() != device_) return false;
    auto storage = shared_storage(tensor);
    auto& known = storages[input.slot];
    if (known ? known != storage : !slots_[input.slot].base.fits(*storage)) return false;
    known = std::move(storage);
  }
  if (!writes_) return true;
  // A tensor that is written must not be seen through an input captured as another one.
  std::vector<const LazyStorage*> all;
  for (const auto& storage : storages) all.push_back(storage.get());
  return !any_equal(std::move(all));
}

bool CompiledGraph::Bounds::hold(const ir::Value& value) const {
  const std::optional<Range> range = known_range(value);
  return !range || bounds.hold(*range);
}

bool CompiledGraph::may_be_out_of_bounds(const std::vector<at::Tensor>& inputs) const {
  std::vector<c10::intrusive_ptr<LazyStorage>> storages;
  if (!match(inputs, storages)) return false;
  return std::any_of(bounds_.begin(), bounds_.end(), [&](const Bounds& bounds) {
    return !bounds.hold(storages[bounds.slot]->value());
  });
}

// Held only by its storage, and so by nothing that is pending, in a transfer or in another thread.
bool CompiledGraph::may_donate(const std::vector<ir::Value>& held) const {
  bool any = false;
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (!slots_[s].donated) continue;
    any = true;
    const ir::Node& leaf = *held[s].node;
    // References: the storage's and that of `held`.
    if (leaf.use_count() != 2 || leaf.shared_payload().use_count() != 1 ||
        static_cast<DeviceData*>(leaf.payload())->storages.load() != 1) {
      return false;
    }
  }
  return any;
}

const Program& CompiledGraph::program(bool donate) {
  if (settings_ != settings_version()) {
    settings_ = settings_version();
    programs_ = {};
  }
  std::shared_ptr<Program>& program = programs_[donate ? 1 : 0];
  if (!program) {
    std::vector<bool> donated;
    for (const Parameter& parameter : parameters_) {
      donated.push_back(donate && parameter.slot != kNone && slots_[parameter.slot].donated);
    }
    const CompilationOwner owner(owner_);
    std::lock_guard lock(ir::graph_mutex());
    ir::Graph graph = ir::walk(roots_);
    const GuardedRoots guarded = guard(graph, roots_, {}, befores_);
    program = program_for(graph, guarded.guards.sites ? guarded.roots : roots_, donated, device_);
  }
  return *program;
}

std::vector<ScalarValue> CompiledGraph::numbers_now(const std::vector<at::Tensor>& inputs) {
  struct Position {
    uint64_t seed, offset;
  };
  std::vector<Position> positions;
  for (const Stream& stream : streams_) {
    std::lock_guard lock(stream.generator->mutex_);
    positions.push_back({stream.generator->current_seed(), stream.generator->get_offset()});
    stream.generator->set_offset(positions.back().offset + stream.advance);
  }
  std::vector<ScalarValue> values;
  values.reserve(numbers_.size());
  for (const Number& number : numbers_) {
    ScalarValue value = number.value;
    if (number.kind == Number::Kind::kSeed) {
      value.integer = static_cast<int64_t>(positions[number.index].seed);
    } else if (number.kind == Number::Kind::kOffset) {
      value.integer = static_cast<int64_t>(positions[number.index].offset + number.offset);
    } else if (number.kind == Number::Kind::kInput) {
      const at::Scalar scalar = at::_local_scalar_dense(inputs[number.index]);
      if (value.kind != ir::ScalarClass::kI64) {
        value.real = scalar.toDouble();
      } else if (inputs[number.index].scalar_type() == at::kUInt64) {
        value.integer = static_cast<int64_t>(scalar.toUInt64());
      } else {
        value.integer = scalar.to<int64_t>();
      }
    }
    values.push_back(value);
  }
  return values;
}

// The program's outputs. Requires launch_mutex().
std::vector<ir::Value> CompiledGraph::launch(const std::vector<at::Tensor>& inputs,
                                             const std::vector<ir::Value>& held) {
  const bool donate = may_donate(held);
  const Program& chosen = program(donate);
  std::vector<const Array*> arguments;
  arguments.reserve(parameters_.size());
  for (const Parameter& parameter : parameters_) {
    arguments.push_back(parameter.slot == kNone ? &parameter.constant->array()
                                                : &DeviceData::of(held[parameter.slot])->array());
  }
  // For a step around this one, which is being recorded, this is a program of its own.
  if (current_recording()) current_recording()->emplace_back();
  Arrays results = execute(chosen, arguments, numbers_now(inputs), device_);
  if (donate) {
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (slots_[s].donated) DeviceData::of(held[s])->give_up();
    }
  }
  std::vector<std::shared_ptr<DeviceData>> data;
  for (size_t i = 0; i < results.size() - (guards_.sites ? 1 : 0); ++i) {
    data.push_back(std::make_shared<DeviceData>(device_, roots_[i].node->location()));
  }
  hand_over(std::move(results), data, guards_, device_);
  std::vector<ir::Value> outputs;
  outputs.reserve(data.size());
  for (size_t i = 0; i < data.size(); ++i) {
    outputs.push_back(DeviceData::leaf(roots_[i].shape(), data[i]));
  }
  remember_launch(device_, data.back());
  return outputs;
}

at::Tensor CompiledGraph::make_result(const Result& result, const std::vector<at::Tensor>& inputs,
                                      const std::vector<c10::Storage>& fresh) const {
  if (result.kind == Result::Kind::kInput) return inputs[result.index];
  const Geometry& geometry = result.geometry;
  if (result.kind == Result::Kind::kFresh) return geometry.on(fresh[result.index]);
  const at::Tensor& base = inputs[slots_[result.index].input];
  at::Tensor tensor =
      base.scalar_type() == geometry.dtype
          ? at::as_strided(base, geometry.sizes, geometry.strides, geometry.offset)
          : alias(base, geometry.sizes, geometry.strides, geometry.offset, geometry.dtype);
  if (tensor.is_conj() != geometry.conjugate) tensor._set_conj(geometry.conjugate);
  if (tensor.is_neg() != geometry.negative) tensor._set_neg(geometry.negative);
  return tensor;
}

std::optional<std::vector<at::Tensor>> CompiledGraph::run(const std::vector<at::Tensor>& inputs) {
  static metrics::Counter launches("CompiledGraph");
  pjrt::check_not_forked();
  check_may_run();
  std::vector<c10::intrusive_ptr<LazyStorage>> storages;
  if (!match(inputs, storages)) return std::nullopt;
  // Of an earlier launch: nothing is changed then.
  if (const auto error = take_untold(device_, /*wait=*/false)) std::rethrow_exception(error);

  std::vector<ir::Value> held(slots_.size());
  const auto all_there = [&] {
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (!slots_[s].read) continue;
      held[s] = storages[s]->value();
      if (DeviceData::of(held[s])) continue;
      std::fill(held.begin(), held.end(), ir::Value());
      return false;
    }
    return true;
  };
  std::unique_lock lock(launch_mutex());
  finish_launch();
  while (!all_there()) {
    lock.unlock();
    sync(device_);
    for (size_t s = 0; s < slots_.size(); ++s) {
      // What the sync leaves in another form than the program takes.
      const ir::Value value = slots_[s].read ? storages[s]->value() : ir::Value();
      if (!value || DeviceData::of(value)) continue;
      auto data = materialize(value, device_);
      storages[s]->replace_value(value, DeviceData::leaf(value.shape(), std::move(data)));
    }
    lock.lock();
    finish_launch();
  }
  for (const Bounds& bounds : bounds_) {
    if (held[bounds.slot] && !bounds.hold(held[bounds.slot])) return std::nullopt;
  }

  std::vector<ir::Value> outputs;
  if (!roots_.empty()) outputs = launch(inputs, held);
  const auto contents = [&](const Source& source) {
    switch (source.kind) {
      case Source::Kind::kSlot:
        return held[source.index];
      case Source::Kind::kConstant:
        return source.constant;
      default:
        return outputs[source.index];
    }
  };
  for (size_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    if (!slot.written) continue;
    ir::Value value = contents(slot.after);
    if (!slot.base_after.fits(*storages[s])) {
      storages[s]->rebase(slot.base_after.type, slot.base_after.sizes, slot.base_after.strides);
    }
    storages[s]->set_value(std::move(value));
  }
  std::vector<c10::Storage> fresh;
  for (const Fresh& storage : fresh_) {
    fresh.push_back(LazyStorage::make(device_, storage.base.type, storage.base.sizes,
                                      storage.base.strides, storage.bytes));
    LazyStorage::of(fresh.back()).set_value(contents(storage.contents));
  }
  lock.unlock();
  launches.add();

  std::vector<at::Tensor> results;
  results.reserve(results_.size());
  for (const Result& result : results_) results.push_back(make_result(result, inputs, fresh));
  return results;
}

}  // namespace torch_xla::lazy
