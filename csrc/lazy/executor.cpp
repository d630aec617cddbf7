#include "lazy/executor.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ir/blocks.h"
#include "ir/graph.h"
#include "lazy/full.h"
#include "lazy/launch.h"
#include "lazy/look.h"
#include "lazy/metrics.h"
#include "lazy/program.h"
#include "lazy/recording.h"
#include "lazy/runtime.h"
#include "lazy/settings.h"
#include "lazy/spmd.h"
#include "lazy/storage.h"
#include "lazy/transfer.h"
#include "lazy/trimmed.h"
#include "lazy/unknown.h"
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
  // In SPMD mode, how each value is to be cut; null: as XLA sees fit. Two storages may hold one
  // value and want it cut differently: then it stands twice.
  std::vector<const sharding::Sharding*> shardings;
  // Constants that the values began as (LazyStorage::initial_fill). They are made beforehand and
  // given to the program, which is then the one of later steps, where they are device data.
  std::unordered_set<const ir::Node*> inputs;
  std::vector<ir::Value> fills;  // the same, each once
  std::vector<const sharding::Sharding*> fill_shardings;

  // What a storage holds when its value is `value`, now or later.
  ir::Value held(size_t storage, const ir::Value& value) const {
    return cuts[storage] ? with_computed(cuts[storage], value) : value;
  }
  const ir::Value& held(size_t storage) const {
    return cuts[storage] ? cuts[storage] : values[value_of[storage]];
  }
};

using CutValue = std::pair<ir::Value, const sharding::Sharding*>;
struct CutValueHash {
  size_t operator()(const CutValue& cut) const {
    return reinterpret_cast<uintptr_t>(cut.first.node.get()) / 16 + cut.first.index +
           (cut.second ? cut.second->layout() : 0);
  }
};

Roots gather_roots(Storages storages) {
  Roots roots;
  using Entry = std::pair<const CutValue, size_t>;
  std::unordered_map<CutValue, size_t, CutValueHash, std::equal_to<>, ir::BlockAllocator<Entry>>
      seen(storages.size());
  roots.storages.reserve(storages.size());
  roots.value_of.reserve(storages.size());
  roots.cuts.reserve(storages.size());
  roots.values.reserve(storages.size());
  for (auto& storage : storages) {
    const ir::Value contents = storage->value();
    const ir::Value& value = computed(contents);
    if (DeviceData::of(value)) continue;
    ir::Value fill = storage->initial_fill();
    const bool filled = number_of_full(fill).has_value();
    const sharding::Sharding* sharding = is_partitioned() ? storage->sharding() : nullptr;
    // What a step begins with lies as what it ends with, so that the next step is the same.
    if (is_partitioned() && filled && !sharding) sharding = replicated(value.dims().size());
    if (filled && roots.inputs.insert(fill.node.get()).second) {
      roots.fills.push_back(std::move(fill));
      roots.fill_shardings.push_back(sharding);
    }
    const auto [entry, fresh] = seen.emplace(CutValue(value, sharding), roots.values.size());
    if (fresh) {
      roots.values.push_back(value);
      roots.shardings.push_back(sharding);
    }
    roots.value_of.push_back(entry->second);
    roots.cuts.push_back(is_trimmed(contents) ? contents : ir::Value());
    roots.storages.push_back(std::move(storage));
  }
  return roots;
}

// One launch: from roots to programs to data.
class Launch {
 public:
  // How the results and the inputs that are no device data are to be cut; by nothing if empty.
  struct Cuts {
    std::vector<const sharding::Sharding*> roots;
    std::unordered_map<const ir::Node*, const sharding::Sharding*> inputs;
  };

  // `holders`: nodes that something will let go of before the launch, once for each reference.
  Launch(c10::Device device, std::span<const ir::Value> roots,
         const std::unordered_set<const ir::Node*>& inputs, bool may_donate, Cuts cuts = {},
         std::span<const ir::Node* const> holders = {})
      : device_(device),
        roots_(roots),
        inputs_(inputs),
        may_donate_(may_donate),
        holders_(holders) {
    static metrics::Metric nodes("TensorsGraphSize", metrics::Unit::kCount);
    graph_ = ir::walk(roots, inputs);
    nodes.add(static_cast<double>(graph_.order.size()));
    choose_donations();
    if (is_partitioned()) choose_placement(std::move(cuts));
  }

  // Looked up, loaded or compiled. Requires the graph's marks.
  void prepare() { program_ = program_for(graph_, roots_, donated_, device_, placement_); }
  // The same for later, without waiting for it.
  void prepare_behind() { compile_program_behind(graph_, roots_, donated_, device_); }

  // `fill` gives the array of an input that is no device data.
  template <class Fill>
  Arrays execute(const Fill& fill) {
    std::vector<const Array*> arguments;
    arguments.reserve(graph_.parameters.size());
    for (ir::Node* leaf : graph_.parameters) {
      arguments.push_back(is_data(*leaf) ? &data_of(*leaf).array() : fill(leaf));
    }
    Arrays outputs = lazy::execute(*program_, arguments, numbers(), device_);
    for (size_t i = 0; i < donated_.size(); ++i) {
      const ir::Node& leaf = *graph_.parameters[i];
      if (donated_[i] && is_data(leaf)) data_of(leaf).give_up();
    }
    return outputs;
  }

  // Says of promises how the program will cut them.
  void expect(const std::vector<std::shared_ptr<DeviceData>>& promises) const {
    for (size_t i = 0; i < program_->output_shardings.size(); ++i) {
      promises[i]->expect(program_->output_shardings[i]);
    }
  }

  // Throws the error of an input that failed to be computed.
  void check_inputs() const {
    for (const ir::Node* leaf : graph_.parameters) {
      if (is_data(*leaf) && data_of(*leaf).failed()) data_of(*leaf).array();
    }
  }

  size_t num_parameters() const { return graph_.parameters.size(); }

  // What was launched, for a recording: all but the outputs' storages.
  LaunchRecord record() const {
    LaunchRecord record;
    record.device = device_;
    record.key = graph_.key;
    record.program = program_;
    for (const ir::Node* leaf : graph_.parameters) {
      record.inputs.push_back(
          is_data(*leaf) ? std::static_pointer_cast<DeviceData>(leaf->shared_payload()) : nullptr);
      record.input_dims.emplace_back(leaf->output().dims);
    }
    for (const ir::Value& root : roots_) {
      record.values.push_back({root.type(), stablehlo::Dims(root.dims())});
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
  static DeviceData& data_of(const ir::Node& leaf) {
    return *static_cast<DeviceData*>(leaf.payload());
  }

  // Data that is on the host yet is brought to the devices.
  void choose_placement(Cuts cuts) {
    placement_.outputs = std::move(cuts.roots);
    placement_.outputs.resize(roots_.size());
    for (const ir::Node* leaf : graph_.parameters) {
      placement_.parameters.push_back(is_data(*leaf) ? data_of(*leaf).array().sharding()
                                                     : cuts.inputs.at(leaf));
    }
  }

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
    for (const ir::Node* node : holders_) {
      const uint32_t position = node->visit.position;
      if (position < graph_.order.size() && graph_.order[position] == node) ++inside[position];
    }
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
    return data_of(leaf).storages.load() == 0 && leaf.shared_payload().use_count() == 1;
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
  const std::span<const ir::Node* const> holders_;
  ir::Graph graph_;
  std::vector<bool> donated_;
  ir::Placement placement_;  // in SPMD mode
  std::shared_ptr<Program> program_;
};

// Some values, without a change to anything else.
Arrays run_alone(c10::Device device, std::span<const ir::Value> values,
                 const std::vector<const sharding::Sharding*>& shardings = {}) {
  std::lock_guard lock(ir::graph_mutex());
  Launch launch(device, values, /*inputs=*/{}, /*may_donate=*/false, {shardings, {}});
  launch.check_inputs();
  launch.prepare();
  return launch.execute([](ir::Node*) -> const Array* { return nullptr; });
}

// The arrays of a step's fills. A CPU device takes the host's memory as it is; elsewhere a program
// of their own makes them all, since a transfer of them would cost more.
class Fills {
 public:
  Fills(c10::Device device, const Roots& roots) : device_(device) {
    for (size_t i = 0; i < roots.fills.size(); ++i) {
      shardings_[roots.fills[i].node.get()] = roots.fill_shardings[i];
    }
    if (roots.fills.empty() || Runtime::get().is_cpu()) return;
    Arrays made = run_alone(device, roots.fills, roots.fill_shardings);
    for (size_t i = 0; i < made.size(); ++i) {
      arrays_[roots.fills[i].node.get()] = std::move(made[i]);
    }
  }

  const Array* operator()(ir::Node* leaf) {
    Array& array = arrays_[leaf];
    if (!array) {
      const c10::Scalar number = *number_of_full(ir::Value(ir::NodePtr(leaf)));
      array = upload_full(number, leaf->output(), shardings_[leaf], device_);
    }
    return &array;
  }

  const std::unordered_map<const ir::Node*, const sharding::Sharding*>& shardings() const {
    return shardings_;
  }

 private:
  const c10::Device device_;
  std::unordered_map<const ir::Node*, const sharding::Sharding*> shardings_;
  std::unordered_map<const ir::Node*, Array> arrays_;
};

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

// After a program failed: finds the values that are to blame, by halves. Their promises fail, all
// others are kept: steps that were traced on top of them meanwhile are as good as ever.
class Isolation {
 public:
  Isolation(c10::Device device, const Roots& roots, const Promises& promises)
      : device_(device), roots_(roots), promises_(promises) {}

  void run(std::exception_ptr first) {
    first_ = first;
    if (trivial_program_works()) {
      divide(0, roots_.values.size(), first);
      return;
    }
    // An unknown XLA flag, say: no value is to blame. Whoever waits for a promise, or built a graph
    // on one, goes on when all storages hold again what they held.
    for (size_t v = 0; v < roots_.values.size(); ++v) put_back(v, roots_.values[v]);
    for (const auto& promise : promises_.data) promise->fail(first);
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
      return data->has_array() && data->array().is_deleted();
    });
  }

  // `error`: of computing all of [begin, end) together.
  void divide(size_t begin, size_t end, std::exception_ptr error) {
    if (end - begin == 1) {
      promises_.data[begin]->fail(lost_an_input(roots_.values[begin]) ? first_ : error);
      return;
    }
    const size_t middle = begin + (end - begin) / 2;
    compute(begin, middle);
    compute(middle, end);
  }

  void compute(size_t begin, size_t end) {
    try {
      const std::span values = std::span(roots_.values).subspan(begin, end - begin);
      auto arrays = run_alone(device_, values,
                              {roots_.shardings.begin() + static_cast<std::ptrdiff_t>(begin),
                               roots_.shardings.begin() + static_cast<std::ptrdiff_t>(end)});
      for (size_t i = 0; i < arrays.size(); ++i) {
        promises_.data[begin + i]->fulfil(std::move(arrays[i]));
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

// Everything pending on a device: what it overwrites is donated.
class Step {
 public:
  Step(c10::Device device, Roots roots) : device_(device), roots_(std::move(roots)) {}

  bool empty() const { return roots_.values.empty(); }
  // From here on making the arrays takes longer than waking another thread.
  bool is_large() const { return launch_->num_parameters() + roots_.values.size() >= kManyArrays; }
  const std::vector<std::shared_ptr<DeviceData>>& results() const { return promises_.data; }

  // Puts promises in the place of what is pending, and finds or makes the program.
  void prepare() {
    promises_ = put_promises(device_, roots_);
    try {
      fills_.emplace(device_, roots_);
      std::lock_guard lock(ir::graph_mutex());
      launch_.emplace(device_, roots_.values, roots_.inputs, /*may_donate=*/true,
                      Launch::Cuts{roots_.shardings, fills_->shardings()});
      launch_->check_inputs();  // before anything is compiled for nothing
      launch_->prepare();
      launch_->expect(results());
      record();
    } catch (...) {
      Isolation(device_, roots_, promises_).run(std::current_exception());
      throw;
    }
  }

  // Keeps the promises. Returns the error if they cannot be kept.
  std::exception_ptr launch() noexcept {
    try {
      auto made = launch_->execute(std::ref(*fills_));
      for (size_t i = 0; i < made.size(); ++i) results()[i]->fulfil(std::move(made[i]));
      return nullptr;
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      try {
        Isolation(device_, roots_, promises_).run(error);
      } catch (...) {
        // Whoever waits for a promise gets the first error.
      }
      return error;
    }
  }

 private:
  static constexpr size_t kManyArrays = 64;

  void record() const {
    auto* recording = current_recording();
    if (!recording) return;
    recording->push_back(launch_->record());
    for (size_t i = 0; i < roots_.storages.size(); ++i) {
      recording->back().outputs.push_back({WeakStorage(roots_.storages[i]), roots_.value_of[i]});
    }
    // Sizes that depend on data were read, and decided what Python did.
    if (std::any_of(roots_.cuts.begin(), roots_.cuts.end(), is_trimmed)) {
      recording->emplace_back();
    }
  }

  const c10::Device device_;
  const Roots roots_;
  Promises promises_;
  std::optional<Fills> fills_;
  std::optional<Launch> launch_;  // refers to the two above
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
  finish_launch();  // which may need the graph's marks, if it fails
  check_may_execute();
  // No step can be launched again whose Python decides by what it reads.
  if (auto* recording = current_recording()) recording->emplace_back();
  return std::make_shared<DeviceData>(device, value.node->location(),
                                      std::move(run_alone(device, std::span(&value, 1)).front()));
}

}  // namespace

namespace {

// Runs what is pending. Where `behind`, a large step is started on another thread once its program
// is there.
void run_pending(c10::Device device, bool wait, bool behind) {
  pjrt::check_not_forked();
  check_may_run();  // before the lock, which a capture holds
  std::lock_guard one_sync(launch_mutex());
  finish_launch();
  auto step =
      std::make_shared<Step>(device, gather_roots(LazyStorage::all_pending(device.index())));
  if (step->empty()) return;
  check_may_execute();
  Runtime::get();  // Before anything changes: no device, no loss.
  step->prepare();
  remember_launch(device, step->results().back());
  if (behind && step->is_large()) {
    // An error is thrown by the tensors that it is the end of: when they are read, and by the next
    // step that needs them.
    launch_behind([step = std::move(step)] { step->launch(); });
    return;
  }
  if (const auto error = step->launch()) std::rethrow_exception(error);
  if (!wait) return;
  for (const auto& result : step->results()) result->array().wait();
}

}  // namespace

void sync(c10::Device device, bool wait) { run_pending(device, wait, /*behind=*/!wait); }

void prepare(c10::Device device, std::vector<c10::intrusive_ptr<LazyStorage>> storages,
             std::span<const ir::Node* const> held_by_caller) {
  // How inputs without contents will be cut is not known.
  if (is_partitioned()) return;
  const Roots roots = gather_roots(std::move(storages));
  if (roots.values.empty()) return;
  Runtime::get();
  // What the storages hold is what a sync replaces by promises.
  std::vector<const ir::Node*> holders(held_by_caller.begin(), held_by_caller.end());
  for (size_t i = 0; i < roots.storages.size(); ++i) holders.push_back(roots.held(i).node.get());
  std::lock_guard lock(ir::graph_mutex());
  Launch(device, roots.values, roots.inputs, /*may_donate=*/true, {}, holders).prepare_behind();
}

std::shared_ptr<DeviceData> materialize(ir::Value value, c10::Device device) {
  if (DeviceData::of(value)) {
    return std::static_pointer_cast<DeviceData>(value.node->shared_payload());
  }
  check_may_run();
  if (is_look(value)) {
    try {
      return compute_alone(value, device);
    } catch (const std::exception&) {
      // The sync meets the same error, and tells which tensors it is the end of.
    }
  }
  // Held by a storage, so that the sync computes it with everything else that is pending.
  const ir::ShapeRef shape = value.shape();
  const c10::Storage owner = LazyStorage::make(device, shape.type, stablehlo::Dims(shape.dims),
                                               stablehlo::Dims(), /*bytes=*/0, value);
  LazyStorage* const holder = &LazyStorage::of(owner);
  value = {};  // or it would keep what it was made from
  try {
    run_pending(device, /*wait=*/false, /*behind=*/false);
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
  const ir::Graph graph = ir::walk(roots);
  ir::Placement placement;
  if (is_partitioned()) {
    placement.outputs.resize(roots.size());
    for (const ir::Node* leaf : graph.parameters) {
      const auto& data = *static_cast<const DeviceData*>(leaf->payload());
      const bool there = data.has_array() && !data.on_host();
      placement.parameters.push_back(there ? data.array().sharding()
                                           : replicated(leaf->output().dims.size()));
    }
  }
  return lower_to_text(graph, roots, "IrToHlo", placement);
}

ir::Hash128 graph_key(std::span<const ir::Value> roots) {
  std::lock_guard lock(ir::graph_mutex());
  return ir::walk(roots).key;
}

}  // namespace torch_xla::lazy
