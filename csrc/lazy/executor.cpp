#include "lazy/executor.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ir/blocks.h"
#include "ir/graph.h"
#include "lazy/dry_run.h"
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
#include "lazy/untold.h"
#include "lazy/value_checks.h"
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
  std::vector<LazyStorage::Past> pasts;  // what the contents of each storage were written over
  // The same for each value; nothing where its storages held different things.
  std::vector<Before> befores;
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
  // A node for each reference that this has to what was written over.
  std::vector<const ir::Node*> holders() const {
    std::vector<const ir::Node*> nodes;
    for (const LazyStorage::Past& past : pasts) {
      if (past.data) nodes.push_back(past.data.node.get());
    }
    return nodes;
  }
  // Lets go of arrays that the program of `graph` does not take, where they are large: its results
  // need room. Requires the marks of the graph's walk.
  void let_go(const ir::Graph& graph) {
    constexpr int64_t kMostKept = 64 << 20;  // bytes of all together
    int64_t kept = 0;
    for (size_t i = 0; i < pasts.size(); ++i) {
      ir::Value& data = pasts[i].data;
      if (!data || graph.contains(*data.node)) continue;
      kept += data.shape().num_elements() * stablehlo::byte_size(data.type());
      if (kept <= kMostKept) continue;
      befores[value_of[i]].data = nullptr;
      data = {};
    }
  }
};

// What makes one of the values. Storages whose old contents differ hold different things where
// checks of values find something.
struct CutValue {
  ir::Value value;
  const sharding::Sharding* sharding;
  const ir::Node* before;
  bool operator==(const CutValue&) const = default;
};
struct CutValueHash {
  size_t operator()(const CutValue& cut) const {
    return reinterpret_cast<uintptr_t>(cut.value.node.get()) / 16 + cut.value.index +
           (cut.sharding ? cut.sharding->layout() : 0) +
           reinterpret_cast<uintptr_t>(cut.before) / 16;
  }
};

// `reader`: one of the storages that is there for the sake of a read only. What it held decides
// nothing.
Roots gather_roots(Storages storages, const LazyStorage* reader = nullptr) {
  Roots roots;
  std::vector<bool> only_read;  // by value
  using Entry = std::pair<const CutValue, size_t>;
  std::unordered_map<CutValue, size_t, CutValueHash, std::equal_to<>, ir::BlockAllocator<Entry>>
      seen(storages.size());
  roots.storages.reserve(storages.size());
  roots.value_of.reserve(storages.size());
  roots.cuts.reserve(storages.size());
  roots.values.reserve(storages.size());
  roots.pasts.reserve(storages.size());
  for (auto& storage : storages) {
    auto [contents, past, sharding] = storage->contents();
    const ir::Value& value = computed(contents);
    if (DeviceData::of(value)) continue;
    const ir::Value& fill = past.fill;
    const bool filled = number_of_full(fill).has_value();
    const Before before{past.data.node.get(), filled ? fill.node.get() : nullptr};
    if (!is_partitioned()) sharding = nullptr;
    // What a step begins with lies as what it ends with, so that the next step is the same.
    if (is_partitioned() && filled && !sharding) sharding = replicated(value.dims().size());
    if (filled && roots.inputs.insert(fill.node.get()).second) {
      roots.fills.push_back(fill);
      roots.fill_shardings.push_back(sharding);
    }
    const bool reads = storage.get() == reader;
    const CutValue cut{value, sharding, any_checks_made() && !reads ? before.data : nullptr};
    auto entry = seen.find(cut);
    if (reads)
      entry = std::find_if(seen.begin(), seen.end(), [&](const Entry& each) {
        return each.first.value == value && each.first.sharding == sharding;
      });
    const bool fresh = entry == seen.end();
    if (fresh) entry = seen.emplace(cut, roots.values.size()).first;
    const size_t v = entry->second;
    if (fresh) {
      roots.values.push_back(value);
      roots.shardings.push_back(sharding);
      roots.befores.push_back(before);
      only_read.push_back(reads);
    } else if (only_read[v]) {
      roots.befores[v] = before;
      only_read[v] = false;
    } else if (!reads && !(roots.befores[v] == before)) {
      roots.befores[v] = {};
    }
    roots.value_of.push_back(v);
    roots.cuts.push_back(is_trimmed(contents) ? contents : ir::Value());
    roots.pasts.push_back(std::move(past));
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
  // `befores`: what storages of the roots held, if known.
  Launch(c10::Device device, std::span<const ir::Value> roots,
         const std::unordered_set<const ir::Node*>& inputs, bool may_donate, Cuts cuts = {},
         std::span<const ir::Node* const> holders = {}, std::span<const Before> befores = {})
      : device_(device),
        asked_(roots),
        roots_(roots),
        inputs_(inputs),
        may_donate_(may_donate),
        holders_(holders) {
    static metrics::Metric nodes("TensorsGraphSize", metrics::Unit::kCount);
    graph_ = ir::walk(roots, inputs);
    guarded_ = guard(graph_, roots, inputs_, befores);
    if (guarded_.guards.sites) roots_ = guarded_.roots;
    nodes.add(static_cast<double>(graph_.order.size()));
    choose_donations();
    if (is_partitioned()) choose_placement(std::move(cuts));
  }

  // Looked up, loaded or compiled. Requires the graph's marks.
  void prepare() { program_ = program_for(graph_, roots_, donated_, device_, placement_); }
  // The same for later, without waiting for it.
  void prepare_behind() { compile_program_behind(graph_, roots_, donated_, device_); }

  // Runs it, and keeps a promise for each of the roots. `fill` gives the array of an input that is
  // no device data.
  template <class Fill>
  void execute(const Fill& fill, std::span<const std::shared_ptr<DeviceData>> promises) {
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
    hand_over(std::move(outputs), promises, guarded_.guards, device_);
  }

  // What a dry run tells of the program.
  DryProgram described() const { return describe(graph_, roots_, donated_, placement_, *program_); }

  // Says of promises how the program will cut them.
  void expect(const std::vector<std::shared_ptr<DeviceData>>& promises) const {
    if (program_->output_shardings.empty()) return;
    for (size_t i = 0; i < promises.size(); ++i) {
      promises[i]->expect(program_->output_shardings[i]);
    }
  }

  // Inputs that checks decide about which have to be waited for.
  std::vector<std::shared_ptr<DeviceData>> unsettled_inputs() const {
    std::vector<std::shared_ptr<DeviceData>> inputs;
    for (const ir::Node* leaf : graph_.parameters) {
      if (!is_data(*leaf) || !data_of(*leaf).is_unsettled()) continue;
      inputs.push_back(std::static_pointer_cast<DeviceData>(leaf->shared_payload()));
    }
    return inputs;
  }

  // Throws the error of an input that failed to be computed.
  void check_inputs() const {
    if (is_dry_run()) return;  // nothing is ever computed
    for (const ir::Node* leaf : graph_.parameters) {
      if (!is_data(*leaf)) continue;
      data_of(*leaf).settle();
      if (data_of(*leaf).failed()) data_of(*leaf).array();
    }
  }

  const ir::Graph& graph() const { return graph_; }
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
    for (const ir::Value& root : asked_) {
      record.values.push_back({root.type(), stablehlo::Dims(root.dims())});
    }
    record.guards = guarded_.guards;
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
    if (guarded_.guards.sites) placement_.outputs.back() = replicated(2);
    for (const ir::Node* leaf : graph_.parameters) {
      placement_.parameters.push_back(is_data(*leaf) ? cut_of(*leaf) : cuts.inputs.at(leaf));
    }
  }

  static const sharding::Sharding* cut_of(const ir::Node& leaf) {
    const DeviceData& data = data_of(leaf);
    if (!is_dry_run()) return data.array().sharding();
    return data.sharding() ? data.sharding() : replicated(leaf.output().dims.size());
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
    if (guarded_.guards.sites) {
      for (const ir::Value& root : asked_) ++inside[root.node->visit.position];
    }
    for (const ir::Node* node : holders_) {
      const uint32_t position = node->visit.position;
      if (graph_.contains(*node)) ++inside[position];
    }
    for (const auto& [update, condition] : graph_.conditions) {
      ++inside[condition.node->visit.position];
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
  const std::span<const ir::Value> asked_;
  std::span<const ir::Value> roots_;  // of the program: the same, or those of guarded_
  GuardedRoots guarded_;
  const std::unordered_set<const ir::Node*> inputs_;
  const bool may_donate_;
  const std::span<const ir::Node* const> holders_;
  ir::Graph graph_;
  std::vector<bool> donated_;
  ir::Placement placement_;  // in SPMD mode
  std::shared_ptr<Program> program_;
};

// Makes a launch, by `emplace`, whose inputs are all settled. The graph is not locked while that
// takes an earlier program's end.
template <class Emplace>
void settle_inputs(std::optional<Launch>& launch, std::unique_lock<std::mutex>& graph_lock,
                   const Emplace& emplace) {
  emplace();
  if (is_dry_run()) return;
  std::vector<std::shared_ptr<DeviceData>> inputs = launch->unsettled_inputs();
  if (inputs.empty()) return;
  launch.reset();
  graph_lock.unlock();
  for (const auto& input : inputs) input->settle();
  inputs.clear();  // or they could not be donated
  graph_lock.lock();
  emplace();
}

// Computes some values, without a change to anything else, and keeps a promise for each.
void run_alone(c10::Device device, std::span<const ir::Value> values,
               std::span<const std::shared_ptr<DeviceData>> promises,
               const std::vector<const sharding::Sharding*>& shardings = {},
               std::span<const Before> befores = {}) {
  const InEarnest in_earnest;
  std::unique_lock lock(ir::graph_mutex());
  std::optional<Launch> launch;
  settle_inputs(launch, lock, [&] {
    launch.emplace(device, values, std::unordered_set<const ir::Node*>(), /*may_donate=*/false,
                   Launch::Cuts{shardings, {}}, std::span<const ir::Node* const>(), befores);
  });
  launch->check_inputs();
  launch->prepare();
  launch->execute([](ir::Node*) -> const Array* { return nullptr; }, promises);
}

std::vector<std::shared_ptr<DeviceData>> promises_of(c10::Device device,
                                                     std::span<const ir::Value> values) {
  std::vector<std::shared_ptr<DeviceData>> promises;
  promises.reserve(values.size());
  for (const ir::Value& value : values) {
    promises.push_back(std::allocate_shared<DeviceData>(ir::BlockAllocator<DeviceData>(), device,
                                                        value.node->location()));
  }
  return promises;
}

// The arrays of a step's fills. A CPU device takes the host's memory as it is; elsewhere a program
// of their own makes them all, since a transfer of them would cost more.
class Fills {
 public:
  Fills(c10::Device device, const Roots& roots) : device_(device) {
    for (size_t i = 0; i < roots.fills.size(); ++i) {
      shardings_[roots.fills[i].node.get()] = roots.fill_shardings[i];
    }
    if (roots.fills.empty() || Runtime::get().is_cpu() || is_dry_run()) return;
    const auto made = promises_of(device, roots.fills);
    run_alone(device, roots.fills, made, roots.fill_shardings);
    for (size_t i = 0; i < made.size(); ++i) {
      arrays_[roots.fills[i].node.get()] = made[i]->release();
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
  promises.data = promises_of(device, roots.values);
  promises.held.reserve(roots.storages.size());
  std::vector<ir::Value> leaves;
  leaves.reserve(roots.values.size());
  for (size_t v = 0; v < roots.values.size(); ++v) {
    leaves.push_back(DeviceData::leaf(roots.values[v].shape(), promises.data[v]));
  }
  for (size_t i = 0; i < roots.storages.size(); ++i) {
    promises.held.push_back(roots.held(i, leaves[roots.value_of[i]]));
    roots.storages[i]->replace_value(roots.held(i), promises.held[i]);
  }
  return promises;
}

// After a program failed: finds the values that are to blame, with few other programs. Their
// promises fail, and tensors that they were to update hold again what they held. All other promises
// are kept: steps that were traced on top of them meanwhile are as good as ever.
class Isolation {
 public:
  Isolation(c10::Device device, const Roots& roots, const Promises& promises)
      : device_(device), roots_(roots), promises_(promises) {}

  // What failed: making the program, or launching it, in the caller or behind it. Then nobody is
  // told by an exception.
  enum class Failed { kMaking, kLaunch, kLaunchBehind };

  void run(std::exception_ptr first, Failed failed) {
    first_ = first;
    failed_ = failed;
    look(first);
    Group rest;
    for (size_t v = 0; v < roots_.values.size(); ++v) {
      if (errors_[v]) {
        fail(v, errors_[v]);
      } else {
        rest.push_back(v);
      }
    }
    if (rest.empty()) return;
    const bool input_to_blame = rest.size() < roots_.values.size();
    if (!input_to_blame && !trivial_program_works()) {
      // An unknown XLA flag, say: no value is to blame.
      give_back(rest);
      return;
    }
    // Dividing finds one value to blame of n in log2(n) failures; each may cost a compilation.
    out_of_memory_ = is_out_of_memory(first);
    failures_left_ = out_of_memory_ ? 3 : 2 * std::bit_width(rest.size());
    if (input_to_blame || (failed_ != Failed::kMaking && !out_of_memory_)) {
      compute(rest);
    } else {
      divide(rest, first);
    }
  }

 private:
  using Group = std::vector<size_t>;  // of values

  // Learns of the graph: what the values read that failed or is gone, and what they replace.
  void look(const std::exception_ptr& first) {
    std::lock_guard lock(ir::graph_mutex());
    const ir::Graph graph = ir::walk(roots_.values, roots_.inputs);
    std::vector<std::exception_ptr> errors(graph.order.size());
    std::vector<double> bytes(graph.order.size());  // of the largest array on the way
    for (size_t i = 0; i < graph.order.size(); ++i) {
      const ir::Node& node = *graph.order[i];
      for (size_t o = 0; o < node.num_outputs(); ++o) {
        const ir::ShapeRef shape = node.output(o);
        bytes[i] = std::max(bytes[i], static_cast<double>(shape.num_elements()) *
                                          static_cast<double>(stablehlo::byte_size(shape.type)));
      }
      if (&node.op() == &ir::kDeviceData) errors[i] = error_of(node, first);
      if (roots_.inputs.contains(&node)) continue;
      for (const ir::Value& operand : node.operands()) {
        const size_t at = operand.node->visit.position;
        if (!errors[i]) errors[i] = errors[at];
        bytes[i] = std::max(bytes[i], bytes[at]);
      }
    }
    for (size_t v = 0; v < roots_.values.size(); ++v) {
      const ir::Value& value = roots_.values[v];
      errors_.push_back(errors[value.node->visit.position]);
      largest_.push_back(bytes[value.node->visit.position]);
      before_.push_back(
          DeviceData::standing(contents_before(graph, roots_.befores[v], value.shape())));
    }
  }

  // A plugin that fails in the middle of a launch may have given up what was donated to it: then
  // the error of that launch is the cause.
  static std::exception_ptr error_of(const ir::Node& leaf, const std::exception_ptr& first) {
    auto& data = *static_cast<DeviceData*>(leaf.payload());
    data.settle();
    if (data.is_gone()) return first;
    return data.error();
  }

  static bool is_out_of_memory(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const c10::OutOfMemoryError&) {
      return true;
    } catch (...) {
      return false;
    }
  }

  bool trivial_program_works() const {
    const ir::Value one = full(1, ir::ElementType::kF32, {});
    try {
      run_alone(device_, std::span(&one, 1), promises_of(device_, std::span(&one, 1)));
      return true;
    } catch (...) {
      return false;
    }
  }

  // All are pending again. Not behind the caller, who may be about the next step: of what that
  // updates a part would begin with this step's results, and a part without.
  void give_back(const Group& all) {
    for (size_t i = 0; i < roots_.storages.size() && failed_ != Failed::kLaunchBehind; ++i) {
      roots_.storages[i]->restore(promises_.held[i], roots_.held(i), roots_.pasts[i]);
    }
    for (size_t v : all) {
      if (failed_ == Failed::kLaunchBehind) {
        fail(v, first_);
      } else {
        promises_.data[v]->fail(first_, before_[v]);
      }
    }
  }

  // `error`: of computing all of `group` together.
  void divide(Group group, const std::exception_ptr& error) {
    if (group.size() == 1 || failures_left_ == 0) {
      for (size_t v : group) fail(v, error);
      return;
    }
    Group::iterator middle = group.begin() + static_cast<std::ptrdiff_t>(group.size() / 2);
    if (out_of_memory_) {
      // What has the largest array on its way, if that tells them apart.
      const size_t worst =
          *std::ranges::max_element(group, {}, [&](size_t v) { return largest_[v]; });
      const auto split = std::stable_partition(
          group.begin(), group.end(), [&](size_t v) { return largest_[v] == largest_[worst]; });
      if (split != group.end()) middle = split;
    }
    compute(Group(group.begin(), middle));
    compute(Group(middle, group.end()));
  }

  void compute(const Group& group) {
    std::vector<ir::Value> values;
    std::vector<std::shared_ptr<DeviceData>> promises;
    std::vector<const sharding::Sharding*> shardings;
    std::vector<Before> befores;
    for (size_t v : group) {
      values.push_back(roots_.values[v]);
      promises.push_back(promises_.data[v]);
      shardings.push_back(roots_.shardings[v]);
      befores.push_back(roots_.befores[v]);
    }
    try {
      run_alone(device_, values, promises, shardings, befores);
    } catch (...) {
      if (failures_left_ > 0) --failures_left_;
      divide(group, std::current_exception());
    }
  }

  void fail(size_t v, const std::exception_ptr& error) {
    // Before somebody can read it.
    if (failed_ == Failed::kLaunchBehind && !is_noted_) note_untold(device_, first_);
    is_noted_ = true;
    if (before_[v]) put_back(v, before_[v]);
    promises_.data[v]->fail(failed_ == Failed::kMaking ? error : first_, before_[v]);
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
  // By value: the error of what it reads, the most bytes of an array that it is made of, and what
  // its storages held before, if that is still there.
  std::vector<std::exception_ptr> errors_;
  std::vector<double> largest_;
  std::vector<ir::Value> before_;
  std::exception_ptr first_;
  Failed failed_ = Failed::kMaking;
  bool out_of_memory_ = false;
  int failures_left_ = 0;
  bool is_noted_ = false;
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
      const std::vector<const ir::Node*> holders = roots_.holders();
      std::unique_lock lock(ir::graph_mutex());
      settle_inputs(launch_, lock, [&] {
        launch_.emplace(device_, roots_.values, roots_.inputs, /*may_donate=*/true,
                        Launch::Cuts{roots_.shardings, fills_->shardings()}, holders,
                        roots_.befores);
      });
      launch_->check_inputs();  // before anything is compiled for nothing
      launch_->prepare();
      launch_->expect(results());
      record();
      roots_.let_go(launch_->graph());
    } catch (...) {
      isolate(std::current_exception(), Isolation::Failed::kMaking);
      throw;
    }
  }

  // Keeps the promises. Returns the error if they could not be kept at once. `behind`: the caller
  // will not be told of it.
  std::exception_ptr launch(bool behind) noexcept {
    try {
      if (is_dry_run()) {
        for (const auto& result : results()) result->fail(not_computed());
        tell_of_program(launch_->described());
        return nullptr;
      }
      launch_->execute(std::ref(*fills_), results());
      return nullptr;
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      isolate(error, behind ? Isolation::Failed::kLaunchBehind : Isolation::Failed::kLaunch);
      return error;
    }
  }

 private:
  static constexpr size_t kManyArrays = 64;

  void isolate(const std::exception_ptr& error, Isolation::Failed failed) noexcept {
    try {
      Isolation(device_, roots_, promises_).run(error, failed);
    } catch (...) {
      // Whoever waits for a promise gets the first error.
      for (const auto& result : results()) {
        if (!result->has_array() && !result->failed()) result->fail(error);
      }
    }
  }

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
  Roots roots_;
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
  const auto promises = promises_of(device, std::span(&value, 1));
  run_alone(device, std::span(&value, 1), promises);
  return promises.front();
}

}  // namespace

namespace {

// Runs what is pending, and returns what it gives; nothing where `behind` and the step is large, so
// that it is started on another thread once its program is there. `reader` as for gather_roots().
std::vector<std::shared_ptr<DeviceData>> run_pending(c10::Device device, bool behind,
                                                     const LazyStorage* reader = nullptr) {
  pjrt::check_not_forked();
  check_may_run();  // before the lock, which a capture holds
  std::lock_guard one_sync(launch_mutex());
  finish_launch();
  auto step = std::make_shared<Step>(
      device, gather_roots(LazyStorage::all_pending(device.index()), reader));
  if (step->empty()) return {};
  check_may_execute();
  Runtime::get();  // Before anything changes: no device, no loss.
  step->prepare();
  remember_launch(device, step->results().back());
  if (behind && !is_dry_run() && step->is_large()) {
    // An error is thrown by the tensors that it is the end of, when they are read, and once by the
    // next sync.
    launch_behind([step = std::move(step)] { step->launch(/*behind=*/true); });
    return {};
  }
  if (const auto error = step->launch(/*behind=*/false)) std::rethrow_exception(error);
  return step->results();
}

}  // namespace

void sync(c10::Device device, bool wait) {
  pjrt::check_not_forked();
  // Of earlier steps: this one is launched all the same.
  std::exception_ptr untold;
  if (!wait) {
    finish_launch();
    untold = take_untold(device, /*wait=*/false);
  }
  std::vector<std::shared_ptr<DeviceData>> results;
  try {
    results = run_pending(device, /*behind=*/!wait);
  } catch (...) {
    if (untold && untold != std::current_exception()) note_untold(device, untold);
    throw;
  }
  if (untold) std::rethrow_exception(untold);
  if (!wait) return;
  for (const auto& result : results) {
    try {
      result->wait(/*may_end=*/true);
    } catch (const pjrt::Error&) {
      break;  // wait_device() throws it
    }
  }
  wait_device(device);
}

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
  for (const ir::Node* node : roots.holders())
    holders.insert(holders.end(), 2, node);  // and theirs
  std::lock_guard lock(ir::graph_mutex());
  Launch(device, roots.values, roots.inputs, /*may_donate=*/true, {}, holders, roots.befores)
      .prepare_behind();
}

std::shared_ptr<DeviceData> materialize(ir::Value value, c10::Device device) {
  if (DeviceData::of(value)) {
    return std::static_pointer_cast<DeviceData>(value.node->shared_payload());
  }
  check_may_run();
  if (is_look(value) || is_dry_run()) {
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
    run_pending(device, /*behind=*/false, holder);
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
