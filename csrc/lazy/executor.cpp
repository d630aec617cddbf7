#include "lazy/executor.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "ir/blocks.h"
#include "ir/graph.h"
#include "lazy/capture.h"
#include "lazy/full.h"
#include "lazy/launch.h"
#include "lazy/look.h"
#include "lazy/metrics.h"
#include "lazy/program.h"
#include "lazy/recording.h"
#include "lazy/runtime.h"
#include "lazy/settings.h"
#include "lazy/storage.h"
#include "lazy/transfer.h"
#include "lazy/trimmed.h"
#include "pjrt/error.h"
#include "pjrt/fork_guard.h"

namespace torch_xla::lazy {
namespace {

using Storages = std::vector<c10::intrusive_ptr<LazyStorage>>;

// What the pending storages of a device hold, each distinct value once.
struct Roots {
  Storages storages;
  std::vector<size_t> value_of;  // index into `values` for each storage
  std::vector<ir::Value> cuts;   // what a storage holds of its value, where that is trimmed
  std::vector<ir::Value> values;
  // Constants that the values began as (LazyStorage::initial_fill). They are made beforehand and
  // given to the program, which is then the one of later steps, where they are device data.
  std::unordered_set<const ir::Node*> inputs;
  std::vector<ir::Value> fills;  // the same, each once

  // What a storage holds when its value is `value`, now or later.
  ir::Value held(size_t storage, const ir::Value& value) const {
    return cuts[storage] ? with_computed(cuts[storage], value) : value;
  }
  const ir::Value& held(size_t storage) const {
    return cuts[storage] ? cuts[storage] : values[value_of[storage]];
  }
};

struct ValueHash {
  size_t operator()(const ir::Value& value) const {
    return reinterpret_cast<uintptr_t>(value.node.get()) / 16 + value.index;
  }
};

Roots gather_roots(Storages storages) {
  Roots roots;
  using Entry = std::pair<const ir::Value, size_t>;
  std::unordered_map<ir::Value, size_t, ValueHash, std::equal_to<>, ir::BlockAllocator<Entry>> seen(
      storages.size());
  roots.storages.reserve(storages.size());
  roots.values.reserve(storages.size());
  for (auto& storage : storages) {
    const ir::Value contents = storage->value();
    const ir::Value& value = computed(contents);
    if (DeviceData::of(value)) continue;
    if (ir::Value fill = storage->initial_fill(); number_of_full(fill)) {
      if (roots.inputs.insert(fill.node.get()).second) roots.fills.push_back(std::move(fill));
    }
    const auto [entry, fresh] = seen.emplace(value, roots.values.size());
    if (fresh) roots.values.push_back(value);
    roots.value_of.push_back(entry->second);
    roots.cuts.push_back(is_trimmed(contents) ? contents : ir::Value());
    roots.storages.push_back(std::move(storage));
  }
  return roots;
}

// One launch: from roots to programs to data.
class Launch {
 public:
  Launch(c10::Device device, std::span<const ir::Value> roots,
         const std::unordered_set<const ir::Node*>& inputs, bool may_donate)
      : device_(device), roots_(roots), inputs_(inputs), may_donate_(may_donate) {
    static metrics::Metric nodes("TensorsGraphSize", metrics::Unit::kCount);
    graph_ = ir::walk(roots, inputs);
    nodes.add(static_cast<double>(graph_.order.size()));
    choose_donations();
  }

  // Looked up, loaded or compiled. Requires the graph's marks.
  void prepare() { program_ = program_for(graph_, roots_, donated_, device_); }

  // `fill` gives the buffer of an input that is no device data.
  template <class Fill>
  Buffers execute(const Fill& fill) {
    std::vector<pjrt::Buffer*> arguments;
    arguments.reserve(graph_.parameters.size() + 3);
    for (ir::Node* leaf : graph_.parameters) {
      arguments.push_back(is_data(*leaf) ? &static_cast<DeviceData*>(leaf->payload())->buffer()
                                         : fill(leaf));
    }
    Buffers outputs = lazy::execute(*program_, std::move(arguments), numbers(), device_);
    for (size_t i = 0; i < donated_.size(); ++i) {
      const ir::Node& leaf = *graph_.parameters[i];
      if (donated_[i] && is_data(leaf)) static_cast<DeviceData*>(leaf.payload())->give_up();
    }
    return outputs;
  }

  // What was launched, for a recording: all but the outputs' storages.
  LaunchRecord record() const {
    LaunchRecord record;
    record.device = device_;
    record.key = graph_.key;
    record.program = program_;
    for (const ir::Node* leaf : graph_.parameters) {
      record.inputs.push_back(
          is_data(*leaf) ? std::static_pointer_cast<DeviceData>(leaf->shared_payload()) : nullptr);
    }
    record.donated = donated_;
    record.numbers = numbers();
    for (const ir::Node* leaf : graph_.scalars) {
      record.number_locations.push_back(leaf->location());
    }
    return record;
  }

 private:
  static bool is_data(const ir::Node& leaf) { return &leaf.op() == &ir::kDeviceData; }

  // A buffer that no storage holds any more is only read by this graph: the step overwrote it. Nor
  // may another thread be reading it back, or hold a node that this graph shares and go on from it.
  void choose_donations() {
    donated_.assign(graph_.parameters.size(), false);
    if (!may_donate_) return;
    const std::vector<bool> exposed = exposed_nodes();
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      const ir::Node& leaf = *graph_.parameters[i];
      donated_[i] = leaf.output().num_elements() > 0 &&
                    (!is_data(leaf) || (!exposed[leaf.visit.position] && is_unread(leaf)));
    }
  }

  // Nodes that something outside the graph refers to, and all that those are computed from.
  std::vector<bool> exposed_nodes() const {
    std::vector<uint32_t> inside(graph_.order.size());
    for (const ir::Value& root : roots_) ++inside[root.node->visit.position];
    std::vector<bool> exposed(graph_.order.size());
    for (size_t i = graph_.order.size(); i-- > 0;) {
      const ir::Node& node = *graph_.order[i];
      if (!exposed[i] && node.use_count() <= node.visit.uses + inside[i]) continue;
      exposed[i] = true;
      if (inputs_.contains(&node)) continue;
      for (const ir::Value& operand : node.operands()) {
        exposed[operand.node->visit.position] = true;
      }
    }
    return exposed;
  }

  static bool is_unread(const ir::Node& leaf) {
    return static_cast<DeviceData*>(leaf.payload())->storages.load() == 0 &&
           leaf.shared_payload().use_count() == 1;
  }

  std::vector<ScalarValue> numbers() const {
    std::vector<ScalarValue> numbers;
    numbers.reserve(graph_.scalars.size());
    for (const ir::Node* leaf : graph_.scalars) numbers.push_back(scalar_value(*leaf));
    return numbers;
  }

  const c10::Device device_;
  const std::span<const ir::Value> roots_;
  const std::unordered_set<const ir::Node*> inputs_;
  const bool may_donate_;
  ir::Graph graph_;
  std::vector<bool> donated_;
  std::shared_ptr<Program> program_;
};

// Some values, without a change to anything else.
Buffers run_alone(c10::Device device, std::span<const ir::Value> values) {
  std::lock_guard lock(ir::graph_mutex());
  Launch launch(device, values, /*inputs=*/{}, /*may_donate=*/false);
  launch.prepare();
  return launch.execute([](ir::Node*) -> pjrt::Buffer* { return nullptr; });
}

// The buffers of a step's fills. A CPU device takes the host's memory as it is; elsewhere a program
// of their own makes them all, since a transfer of them would cost more.
class Fills {
 public:
  Fills(c10::Device device, const Roots& roots) : device_(device) {
    if (roots.fills.empty() || Runtime::get().is_cpu()) return;
    Buffers made = run_alone(device, roots.fills);
    for (size_t i = 0; i < made.size(); ++i) {
      buffers_[roots.fills[i].node.get()] = std::move(made[i]);
    }
  }

  pjrt::Buffer* operator()(ir::Node* leaf) {
    std::unique_ptr<pjrt::Buffer>& buffer = buffers_[leaf];
    if (!buffer) {
      const c10::Scalar number = *number_of_full(ir::Value(ir::NodePtr(leaf)));
      buffer = upload_full(number, leaf->output(), device_);
    }
    return buffer.get();
  }

 private:
  const c10::Device device_;
  std::unordered_map<const ir::Node*, std::unique_ptr<pjrt::Buffer>> buffers_;
};

// Everything pending: what the step overwrites is donated.
Buffers run(c10::Device device, const Roots& roots) {
  Fills fills(device, roots);
  std::lock_guard lock(ir::graph_mutex());
  Launch launch(device, roots.values, roots.inputs, /*may_donate=*/true);
  launch.prepare();
  Buffers buffers = launch.execute(std::ref(fills));
  if (auto* recording = current_recording()) {
    recording->push_back(launch.record());
    for (size_t i = 0; i < roots.storages.size(); ++i) {
      recording->back().outputs.push_back({WeakStorage(roots.storages[i]), roots.value_of[i]});
    }
    // Sizes that depend on data were read, and decided what Python did.
    if (std::any_of(roots.cuts.begin(), roots.cuts.end(), is_trimmed)) {
      recording->emplace_back();
    }
  }
  return buffers;
}

// What the storages of `roots` hold while their program is made: promises of its outputs. Device
// data that only their old contents refer to can thus be donated.
struct Promises {
  std::vector<std::shared_ptr<DeviceData>> data;  // for each of roots.values
  std::vector<ir::Value> held;                    // for each of roots.storages
};

Promises put_promises(c10::Device device, const Roots& roots) {
  Promises promises;
  std::vector<ir::Value> leaves;
  promises.data.reserve(roots.values.size());
  leaves.reserve(roots.values.size());
  promises.held.reserve(roots.storages.size());
  for (const ir::Value& value : roots.values) {
    promises.data.push_back(std::allocate_shared<DeviceData>(ir::BlockAllocator<DeviceData>(),
                                                             device, value.node->location()));
    leaves.push_back(DeviceData::leaf(value.shape(), promises.data.back()));
  }
  for (size_t i = 0; i < roots.storages.size(); ++i) {
    promises.held.push_back(roots.held(i, leaves[roots.value_of[i]]));
    roots.storages[i]->replace_value(roots.held(i), promises.held[i]);
  }
  return promises;
}

// After a program failed: finds the values that are to blame, by halves. Their storages fail from
// here on, all others hold again what they held, or its result where it was computed on the way.
class Isolation {
 public:
  Isolation(c10::Device device, const Roots& roots, const Promises& promises)
      : device_(device), roots_(roots), promises_(promises) {}

  void run(std::exception_ptr first) {
    first_ = first;
    // Graphs of other threads that were built on the promises end here.
    for (const auto& promise : promises_.data) promise->fail(first);
    if (!trivial_program_works()) {
      // An unknown XLA flag, say: no value is to blame.
      for (size_t v = 0; v < roots_.values.size(); ++v) put_back(v, roots_.values[v]);
      return;
    }
    divide(0, roots_.values.size(), first);
  }

 private:
  bool trivial_program_works() const {
    const ir::Value one = full(1, ir::ElementType::kF32, {});
    try {
      run_alone(device_, std::span(&one, 1));
      return true;
    } catch (...) {
      return false;
    }
  }

  // A plugin that fails in the middle of a launch may have given up what was donated to it: then
  // the error of that launch is the cause.
  static bool lost_an_input(const ir::Value& value) {
    std::lock_guard lock(ir::graph_mutex());
    const ir::Graph graph = ir::walk(std::span(&value, 1));
    return std::any_of(graph.parameters.begin(), graph.parameters.end(), [](const ir::Node* leaf) {
      const auto* data = static_cast<const DeviceData*>(leaf->payload());
      return data->has_buffer() && data->buffer().is_deleted();
    });
  }

  // `error`: of computing all of [begin, end) together.
  void divide(size_t begin, size_t end, std::exception_ptr error) {
    if (end - begin == 1) {
      auto failed = std::make_shared<DeviceData>(device_, ir::Location());
      failed->fail(lost_an_input(roots_.values[begin]) ? first_ : error);
      put_back(begin, DeviceData::leaf(roots_.values[begin].shape(), failed));
      return;
    }
    const size_t middle = begin + (end - begin) / 2;
    compute(begin, middle);
    compute(middle, end);
  }

  void compute(size_t begin, size_t end) {
    try {
      const std::span values = std::span(roots_.values).subspan(begin, end - begin);
      auto buffers = run_alone(device_, values);
      for (size_t i = 0; i < buffers.size(); ++i) {
        auto data = std::make_shared<DeviceData>(device_, values[i].node->location(),
                                                 std::move(buffers[i]));
        put_back(begin + i, DeviceData::leaf(values[i].shape(), std::move(data)));
      }
    } catch (...) {
      divide(begin, end, std::current_exception());
    }
  }

  // Storages that another thread has overwritten since keep what it wrote.
  void put_back(size_t v, const ir::Value& value) {
    for (size_t i = 0; i < roots_.storages.size(); ++i) {
      if (roots_.value_of[i] != v) continue;
      roots_.storages[i]->replace_value(promises_.held[i], roots_.held(i, value));
    }
  }

  const c10::Device device_;
  const Roots& roots_;
  const Promises& promises_;
  std::exception_ptr first_;
};

void check_may_execute() {
  TORCH_CHECK(allow_execution(),
              "a sync is not allowed here: execution was turned off "
              "(torch_xla.compile(full_graph=True) or _set_allow_execution(False))");
}

// `value` alone; whatever else is pending stays so.
std::shared_ptr<DeviceData> compute_alone(const ir::Value& value, c10::Device device) {
  pjrt::check_not_forked();
  std::lock_guard one_sync(launch_mutex());
  check_may_execute();
  // No step can be launched again whose Python decides by what it reads.
  if (auto* recording = current_recording()) recording->emplace_back();
  return std::make_shared<DeviceData>(device, value.node->location(),
                                      std::move(run_alone(device, std::span(&value, 1)).front()));
}

}  // namespace

void sync(c10::Device device, bool wait) {
  pjrt::check_not_forked();
  check_not_capturing();  // before the lock, which the capture holds
  std::lock_guard one_sync(launch_mutex());
  finish_launch();
  const Roots roots = gather_roots(LazyStorage::all_pending(device.index()));
  Promises promises;
  if (!roots.values.empty()) {
    check_may_execute();
    Runtime::get();  // Before anything changes: no device, no loss.
    promises = put_promises(device, roots);
    try {
      auto buffers = run(device, roots);
      for (size_t i = 0; i < buffers.size(); ++i) promises.data[i]->fulfil(std::move(buffers[i]));
    } catch (...) {
      Isolation(device, roots, promises).run(std::current_exception());
      throw;
    }
    remember_launch(device, promises.data.back());
  }
  if (wait) {
    for (const auto& promise : promises.data) promise->buffer().ready().wait();
  }
}

std::shared_ptr<DeviceData> materialize(ir::Value value, c10::Device device) {
  if (DeviceData::of(value)) {
    return std::static_pointer_cast<DeviceData>(value.node->shared_payload());
  }
  check_not_capturing();
  if (is_look(value)) {
    try {
      return compute_alone(value, device);
    } catch (const std::exception&) {
      // The sync meets the same error, and tells which tensors it is the end of.
    }
  }
  // Held by a storage, so that the sync computes it with everything else that is pending.
  const ir::ShapeRef shape = value.shape();
  const c10::Storage owner = LazyStorage::make(
      device, shape.type, stablehlo::Dims(shape.dims), stablehlo::Dims(), /*bytes=*/0, value);
  LazyStorage* const holder = &LazyStorage::of(owner);
  value = {};  // or it would keep what it was made from
  try {
    sync(device);
  } catch (...) {
    if (!allow_execution()) throw;
    // Another pending tensor may be to blame; this one can be had without it.
    if (holder->pending()) return compute_alone(holder->value(), device);
    DeviceData* data = DeviceData::of(computed(holder->value()));
    if (!data || !data->failed()) throw;
  }
  // What was computed is the whole: this cuts it.
  if (is_trimmed(holder->value())) return compute_alone(holder->value(), device);
  return std::static_pointer_cast<DeviceData>(holder->value().node->shared_payload());
}

std::string stablehlo_text(std::span<const ir::Value> roots) {
  std::lock_guard lock(ir::graph_mutex());
  return lower_to_text(ir::walk(roots), roots, "IrToHlo");
}

ir::Hash128 graph_key(std::span<const ir::Value> roots) {
  std::lock_guard lock(ir::graph_mutex());
  return ir::walk(roots).key;
}

}  // namespace torch_xla::lazy
