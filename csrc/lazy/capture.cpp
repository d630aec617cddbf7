#include "lazy/capture.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "ir/graph.h"
#include "lazy/dtype.h"
#include "lazy/full.h"
#include "lazy/launch.h"
#include "lazy/storage.h"
#include "lazy/tensor.h"

namespace torch_xla::lazy {
namespace {

thread_local Capture* t_current = nullptr;

constexpr char kRefusal[] =
    "a value is needed while a graph is captured, before its inputs have contents";

}  // namespace

Capture* Capture::current() { return t_current; }

Capture::Capture(c10::Device device, const std::vector<at::Tensor>& inputs, uint64_t owner)
    : device_(device) {
  check_may_run();
  graph_->device_ = device;
  graph_->owner_ = owner;
  for (const at::Tensor& input : inputs) {
    const bool is_number =
        input.defined() && input.device().is_cpu() && input.dim() == 0 && !input.is_complex();
    TORCH_CHECK(is_number || (is_xla(input) && input.device() == device),
                "a graph is captured for ", device, ", but an input is on ", input.device());
  }
  lock_ = std::unique_lock(launch_mutex());
  finish_launch();
  tracing_only_.emplace(kRefusal);
  for (const at::Tensor& input : inputs) {
    stand_ins_.push_back(is_xla(input) ? stand_in(input) : number_stand_in(input));
  }
  t_current = this;
}

Capture::~Capture() { cancel(); }

at::Tensor Capture::stand_in(const at::Tensor& input) {
  LazyStorage& storage = storage_of(input);
  const auto [entry, fresh] = slot_of_.emplace(&storage, graph_->slots_.size());
  const size_t slot = entry->second;
  if (fresh) {
    c10::Storage twin = LazyStorage::make(device_, storage.type(), storage.sizes(),
                                          storage.strides(), input.storage().nbytes());
    ir::Value leaf = unknown({storage.type(), storage.sizes()}, device_);
    leaf_slot_.emplace(leaf.node.get(), slot);
    LazyStorage::of(twin).set_value(leaf);
    begin_.push_back(std::move(leaf));
    storages_.push_back(std::move(twin));
    const Base base(storage);
    graph_->slots_.push_back({graph_->inputs_.size(), base, false, false, false, base, {}});
  }
  const Graph::Geometry geometry(input);
  graph_->inputs_.push_back({slot, geometry});
  return geometry.on(storages_[slot]);
}

at::Tensor Capture::number_stand_in(const at::Tensor& number) {
  const ir::ElementType type = element_type(number.scalar_type());
  const ir::Value leaf =
      stablehlo::is_float(type) ? ir::scalar(0.5, type) : ir::scalar(int64_t{1}, type);
  const auto& payload = *static_cast<const ir::ScalarPayload*>(leaf.node->payload());
  numbers_[leaf.node.get()] = {
      Graph::Number::Kind::kInput, {payload.kind, 0, 0}, graph_->inputs_.size(), 0};
  kept_.push_back(leaf);
  graph_->inputs_.push_back({Graph::kNone, Graph::Geometry(number)});
  return make(leaf, number.scalar_type(), device_);
}

void Capture::note_draw(XlaGenerator& generator, const ir::Value& seed, const ir::Value& offset,
                        int64_t count) {
  auto& streams = graph_->streams_;
  auto stream = std::find_if(streams.begin(), streams.end(), [&](const Graph::Stream& known) {
    return known.generator.get() == &generator;
  });
  if (stream == streams.end()) {
    streams.push_back({c10::intrusive_ptr<XlaGenerator>::reclaim_copy(&generator), 0});
    stream = streams.end() - 1;
  }
  const auto index = static_cast<size_t>(stream - streams.begin());
  const ScalarValue integer{ir::ScalarClass::kI64, 0, 0};
  numbers_[seed.node.get()] = {Graph::Number::Kind::kSeed, integer, index, 0};
  numbers_[offset.node.get()] = {Graph::Number::Kind::kOffset, integer, index, stream->advance};
  stream->advance += static_cast<uint64_t>(count);
  kept_.push_back(seed);
  kept_.push_back(offset);
}

void Capture::note_bounds(const ir::Value& index, const IndexBounds& bounds) {
  const DeviceData* data = selected_from(index);
  for (size_t slot = 0; data && slot < begin_.size(); ++slot) {
    if (DeviceData::of(begin_[slot]) == data) {
      graph_->bounds_.push_back({slot, bounds});
    }
  }
}

std::shared_ptr<CompiledGraph> Capture::finish(const std::vector<at::Tensor>& results) {
  TORCH_CHECK(t_current == this, "this capture is over, or belongs to another thread");
  for (size_t slot = 0; slot < storages_.size(); ++slot) {
    LazyStorage& storage = LazyStorage::of(storages_[slot]);
    const ir::Value value = storage.value();
    if (value == begin_[slot]) continue;
    graph_->writes_ = true;
    Graph::Slot& written = graph_->slots_[slot];
    written.written = true;
    written.base_after = Base(storage);
    written.after = source_of(value);
  }
  std::unordered_map<const LazyStorage*, size_t> fresh_of;
  for (const at::Tensor& result : results) add_result(result, fresh_of);
  set_parameters();
  auto graph = graph_;
  cancel();
  return graph;
}

void Capture::add_result(const at::Tensor& result,
                         std::unordered_map<const LazyStorage*, size_t>& fresh_of) {
  TORCH_CHECK(is_xla(result) && result.device() == device_, "a graph is captured for ", device_,
              ", but a result is on ", result.device());
  const Graph::Geometry geometry(result);
  for (size_t i = 0; i < stand_ins_.size(); ++i) {
    if (!stand_ins_[i].is_same(result)) continue;
    graph_->results_.push_back({Graph::Result::Kind::kInput, i, geometry});
    return;
  }
  LazyStorage& storage = storage_of(result);
  for (size_t slot = 0; slot < storages_.size(); ++slot) {
    if (&LazyStorage::of(storages_[slot]) != &storage) continue;
    graph_->results_.push_back({Graph::Result::Kind::kSlot, slot, geometry});
    return;
  }
  const auto [entry, fresh] = fresh_of.emplace(&storage, graph_->fresh_.size());
  if (fresh) {
    const ir::Value value = storage.value();
    graph_->fresh_.push_back({Base(storage), result.storage().nbytes(), source_of(value)});
  }
  graph_->results_.push_back({Graph::Result::Kind::kFresh, entry->second, geometry});
}

CompiledGraph::Source Capture::source_of(const ir::Value& value) {
  if (const auto leaf = leaf_slot_.find(value.node.get()); leaf != leaf_slot_.end()) {
    graph_->slots_[leaf->second].read = true;
    return {Graph::Source::Kind::kSlot, leaf->second, {}};
  }
  if (DeviceData::of(value)) return {Graph::Source::Kind::kConstant, 0, value};
  auto& roots = graph_->roots_;
  const auto root = std::find(roots.begin(), roots.end(), value);
  const auto index = static_cast<size_t>(root - roots.begin());
  if (root == roots.end()) roots.push_back(value);
  return {Graph::Source::Kind::kProgram, index, {}};
}

// What slots held that each root is written to; nothing for a root that others see too.
std::vector<Before> Capture::befores() const {
  std::vector<Before> befores(graph_->roots_.size());
  std::vector<size_t> takers(befores.size());
  const auto is_program = [](const Graph::Source& source) {
    return source.kind == Graph::Source::Kind::kProgram;
  };
  for (size_t slot = 0; slot < graph_->slots_.size(); ++slot) {
    const Graph::Slot& written = graph_->slots_[slot];
    if (!written.written || !is_program(written.after)) continue;
    befores[written.after.index] = {begin_[slot].node.get(), nullptr, /*is_stand_in=*/true};
    ++takers[written.after.index];
  }
  for (const Graph::Fresh& fresh : graph_->fresh_) {
    if (is_program(fresh.contents)) ++takers[fresh.contents.index];
  }
  for (size_t i = 0; i < befores.size(); ++i) {
    if (takers[i] > 1) befores[i] = {};
  }
  return befores;
}

void Capture::set_parameters() {
  std::vector<bool> handed_on(graph_->slots_.size(), false);
  const auto note = [&](const Graph::Source& source) {
    if (source.kind == Graph::Source::Kind::kSlot) handed_on[source.index] = true;
  };
  for (const Graph::Slot& slot : graph_->slots_) note(slot.after);
  for (const Graph::Fresh& fresh : graph_->fresh_) note(fresh.contents);

  std::lock_guard lock(ir::graph_mutex());
  ir::Graph graph = ir::walk(graph_->roots_);
  graph_->begin_ = begin_;
  graph_->befores_ = befores();
  GuardedRoots guarded = guard(graph, graph_->roots_, {}, graph_->befores_);
  graph_->guards_ = std::move(guarded.guards);
  for (const ir::Node* leaf : graph.parameters) {
    if (const auto entry = leaf_slot_.find(leaf); entry != leaf_slot_.end()) {
      Graph::Slot& slot = graph_->slots_[entry->second];
      slot.read = true;
      slot.donated = slot.written && !handed_on[entry->second] && leaf->output().num_elements() > 0;
      graph_->parameters_.push_back({entry->second, nullptr});
      continue;
    }
    auto data = std::static_pointer_cast<DeviceData>(leaf->shared_payload());
    data->array();  // throws now if it failed
    graph_->parameters_.push_back({Graph::kNone, std::move(data)});
  }
  for (const ir::Node* leaf : graph.scalars) {
    if (const auto entry = numbers_.find(leaf); entry != numbers_.end()) {
      graph_->numbers_.push_back(entry->second);
      continue;
    }
    graph_->numbers_.push_back({Graph::Number::Kind::kConstant, scalar_value(*leaf), 0, 0});
  }
}

void Capture::cancel() {
  if (!lock_.owns_lock()) return;
  fail_dependents(LazyStorage::all_pending(device_.index()), device_, [this](const ir::Node* node) {
    return leaf_slot_.contains(node) || numbers_.contains(node);
  });
  if (t_current == this) t_current = nullptr;
  tracing_only_.reset();
  lock_.unlock();
}

}  // namespace torch_xla::lazy
