#include "lazy/replay.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ir/blocks.h"
#include "ir/location.h"
#include "lazy/executor.h"
#include "lazy/metrics.h"
#include "lazy/random.h"
#include "lazy/runtime.h"
#include "lazy/tensor.h"
#include "lazy/unknown.h"
#include "lazy/untold.h"
#include "pjrt/error.h"
#include "pjrt/fork_guard.h"

namespace torch_xla::lazy {
namespace {

using stablehlo::Dims;

thread_local RecordedCall* t_recording = nullptr;

// From here on a launch takes longer than waking another thread.
constexpr size_t kManyArrays = 64;

std::shared_ptr<DeviceData> data_of(const ir::Value& value) {
  if (!DeviceData::of(value)) return nullptr;
  return std::static_pointer_cast<DeviceData>(value.node->shared_payload());
}

c10::intrusive_ptr<LazyStorage> shared_storage(const at::Tensor& tensor) {
  return c10::intrusive_ptr<LazyStorage>::reclaim_copy(&storage_of(tensor));
}

template <class Range>
at::DimVector dim_vector(const Range& range) {
  return at::DimVector(range.begin(), range.end());
}

std::string at_line(ir::Location location) {
  const std::string text = ir::describe(location);
  return text.empty() ? "" : " at " + text;
}

// Data that is on the host yet is brought to the devices.
bool lies_so(DeviceData& data, const sharding::Sharding& sharding) {
  data.place(&sharding);
  const sharding::Sharding* now = data.array().sharding();
  return now && now->layout() == sharding.layout();
}

std::string text_of(const ScalarValue& number) {
  return number.kind == ir::ScalarClass::kI64 ? std::to_string(number.integer)
                                              : std::to_string(number.real);
}

}  // namespace

// --- Recording ---

RecordedCall::RecordedCall(c10::Device device, std::vector<at::Tensor> arguments)
    : device_(device) {
  for (at::Tensor& tensor : arguments) {
    Argument argument{std::move(tensor), {}, {}};
    argument.storage = shared_storage(argument.tensor);
    if (argument.storage->has_value()) argument.data = data_of(argument.storage->value());
    arguments_.push_back(std::move(argument));
  }
  check_may_run();
  std::lock_guard lock(launch_mutex());
  TORCH_CHECK(current_recording() == nullptr,
              "torch_xla.compile(replay=True): another step is being recorded");
  begin_ = stream();
  current_recording() = &launches_;
  recording_ = true;
  t_recording = this;
}

RecordedCall::~RecordedCall() { stop(); }

void RecordedCall::stop() {
  if (!recording_) return;
  if (t_recording == this) t_recording = nullptr;
  std::lock_guard lock(launch_mutex());
  current_recording() = nullptr;
  recording_ = false;
}

RecordedCall* RecordedCall::current() { return t_recording; }

void RecordedCall::note_bounds(const ir::Value& index, const IndexBounds& bounds) {
  if (known_range(index)) bounds_.emplace_back(selected_from(index)->id(), bounds);
}

void RecordedCall::finish(std::vector<at::Tensor> results) {
  stop();
  end_ = stream();
  results_ = std::move(results);
  if (launches_.size() != 1) return;
  for (const LaunchRecord::Output& output : launches_[0].outputs) {
    const auto storage = output.storage.lock();
    given_.emplace_back(storage ? data_of(storage->value()) : nullptr);
  }
}

RecordedCall::Stream RecordedCall::stream() const {
  at::Generator generator = default_generator(device_.index());
  std::lock_guard lock(generator.mutex());
  return {generator.current_seed(), generator.get_offset()};
}

// --- From recordings to a replay ---

std::shared_ptr<Replay> Replay::make(const RecordedCall& before, const RecordedCall& now,
                                     std::string& reason) {
  for (const RecordedCall* call : {&before, &now}) {
    if (call->launches_.size() != 1) {
      reason = call->launches_.empty() ? "it computes nothing"
                                       : "it runs as " + std::to_string(call->launches_.size()) +
                                             " programs: something inside reads a value or syncs";
      return nullptr;
    }
    if (call->launches_[0].device != call->device_) {
      reason = "it runs on " + call->launches_[0].device.str() + ", not on the current device";
      return nullptr;
    }
  }
  const LaunchRecord& launch = now.launches_[0];
  if (!(before.launches_[0].key == launch.key)) {
    reason = "two calls in a row made different programs";
    return nullptr;
  }
  auto replay = std::shared_ptr<Replay>(new Replay);
  replay->device_ = now.device_;
  replay->program_ = launch.program;
  replay->donated_ = launch.donated;
  replay->guards_ = launch.guards;
  for (const LaunchRecord::Value& value : launch.values) {
    replay->values_.push_back({value.type, value.dims});
  }
  for (const RecordedCall::Argument& argument : now.arguments_) {
    const at::Tensor& tensor = argument.tensor;
    replay->arguments_.push_back({dim_vector(tensor.sizes()), dim_vector(tensor.strides()),
                                  tensor.storage_offset(), tensor.scalar_type(),
                                  Base(*argument.storage)});
  }
  for (const auto step :
       {&Replay::set_inputs, &Replay::set_numbers, &Replay::set_outputs, &Replay::set_results}) {
    reason = (replay.get()->*step)(before, now);
    if (!reason.empty()) return nullptr;
  }
  return replay;
}

std::string Replay::set_inputs(const RecordedCall& before, const RecordedCall& now) {
  const LaunchRecord& old = before.launches_[0];
  const LaunchRecord& launch = now.launches_[0];
  std::unordered_multimap<const DeviceData*, size_t> written;  // by the call before, to an output
  for (size_t i = 0; i < before.given_.size(); ++i) {
    if (const auto data = before.given_[i].lock()) written.emplace(data.get(), i);
  }
  for (size_t i = 0; i < launch.inputs.size(); ++i) {
    const std::shared_ptr<DeviceData>& data = launch.inputs[i];
    if (!data || !old.inputs[i]) return "it creates the state that it updates";
    Input input;
    input.dims = launch.input_dims[i];
    input.sharding = data->array().sharding();
    for (const auto& [index, bounds] : now.bounds_) {
      if (index == data->id()) input.bounds.push_back(bounds);
    }
    const auto is_argument = [&](size_t k) {
      return now.arguments_[k].data.lock() == data && k < before.arguments_.size() &&
             before.arguments_[k].data.lock() == old.inputs[i];
    };
    size_t k = 0;
    while (k < now.arguments_.size() && !is_argument(k)) ++k;
    if (k < now.arguments_.size()) {
      input.kind = Input::Kind::kArgument;
      input.argument = k;
    } else if (const auto output = written.find(data.get()); output != written.end()) {
      if (written.count(data.get()) > 1) return "two tensors that it keeps hold the same contents";
      input.kind = Input::Kind::kState;
      input.state = old.outputs[output->second].storage;
    } else if (data == old.inputs[i]) {
      if (launch.donated[i]) return "it overwrites a tensor that no call before it wrote";
      input.constant = data;
    } else {
      return "input " + std::to_string(i) +
             " of its program changes from call to call and is neither an argument nor what the "
             "call before wrote";
    }
    inputs_.push_back(std::move(input));
  }
  return "";
}

// Positions in the random stream are the only numbers that may change.
std::string Replay::set_numbers(const RecordedCall& before, const RecordedCall& now) {
  const LaunchRecord& old = before.launches_[0];
  const LaunchRecord& launch = now.launches_[0];
  seed_ = now.begin_.seed;
  recorded_offset_ = now.begin_.offset;
  advance_ = now.end_.offset - now.begin_.offset;
  if (before.begin_.seed != seed_ || before.end_.seed != seed_ || now.end_.seed != seed_ ||
      before.end_.offset - before.begin_.offset != advance_) {
    return "it seeds the random generator, or draws another number of random numbers each time";
  }
  numbers_ = launch.numbers;
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const ScalarValue &is = numbers_[i], &was = old.numbers[i];
    const bool in_stream = advance_ > 0 && is.kind == ir::ScalarClass::kI64 &&
                           static_cast<uint64_t>(is.integer) - now.begin_.offset < advance_ &&
                           static_cast<uint64_t>(is.integer) - now.begin_.offset ==
                               static_cast<uint64_t>(was.integer) - before.begin_.offset;
    follows_stream_.push_back(in_stream);
    if (!in_stream && !(is == was)) {
      return "a number changes from call to call, " + text_of(was) + " and then " + text_of(is) +
             at_line(launch.number_locations[i]) +
             ": keep it on the device (for an optimizer: fused=True or capturable=True)";
    }
  }
  return "";
}

std::string Replay::set_outputs(const RecordedCall& before, const RecordedCall& now) {
  std::unordered_map<const LazyStorage*, size_t> argument_of, fresh_of;
  for (size_t k = 0; k < now.arguments_.size(); ++k) {
    argument_of.emplace(now.arguments_[k].storage.get(), k);
  }
  for (size_t k = 0; k < now.results_.size(); ++k) {
    const LazyStorage* storage = &storage_of(now.results_[k]);
    const bool lasting = k < before.results_.size() && &storage_of(before.results_[k]) == storage;
    if (!lasting && !argument_of.contains(storage)) fresh_of.emplace(storage, fresh_of.size());
  }
  num_fresh_ = fresh_of.size();
  std::vector<bool> made(num_fresh_, false);
  for (const LaunchRecord::Output& output : now.launches_[0].outputs) {
    const auto storage = output.storage.lock();
    if (!storage) continue;
    Output made_of{Output::Kind::kState, output.value, 0, output.storage, Base(*storage)};
    if (const auto argument = argument_of.find(storage.get()); argument != argument_of.end()) {
      made_of.kind = Output::Kind::kArgument;
      made_of.index = argument->second;
    } else if (const auto fresh = fresh_of.find(storage.get()); fresh != fresh_of.end()) {
      made_of.kind = Output::Kind::kFresh;
      made_of.index = fresh->second;
      made[fresh->second] = true;
    }
    outputs_.push_back(std::move(made_of));
  }
  if (std::find(made.begin(), made.end(), false) != made.end()) {
    return "it returns a tensor that is new in each call and not computed by it";
  }
  return "";
}

std::string Replay::set_results(const RecordedCall& before, const RecordedCall& now) {
  if (before.results_.size() != now.results_.size()) {
    return "it returns another number of tensors each time";
  }
  std::unordered_map<const LazyStorage*, size_t> fresh_of;
  for (size_t k = 0; k < now.results_.size(); ++k) {
    const at::Tensor& tensor = now.results_[k];
    Result result{Result::Kind::kKept,
                  0,
                  {},
                  dim_vector(tensor.sizes()),
                  dim_vector(tensor.strides()),
                  tensor.storage_offset(),
                  tensor.scalar_type()};
    const auto argument =
        std::find_if(now.arguments_.begin(), now.arguments_.end(),
                     [&](const auto& candidate) { return candidate.tensor.is_same(tensor); });
    const LazyStorage* storage = &storage_of(tensor);
    if (argument != now.arguments_.end()) {
      result.kind = Result::Kind::kArgument;
      result.index = static_cast<size_t>(argument - now.arguments_.begin());
    } else if (&storage_of(before.results_[k]) == storage) {
      result.kept = tensor;
    } else {
      const bool of_argument =
          std::any_of(now.arguments_.begin(), now.arguments_.end(),
                      [&](const auto& candidate) { return candidate.storage.get() == storage; });
      if (of_argument) return "it returns a view of an argument";
      result.kind = Result::Kind::kFresh;
      result.index = fresh_of.emplace(storage, fresh_of.size()).first->second;
    }
    results_.push_back(std::move(result));
  }
  return "";
}

// --- Replaying ---

std::string Replay::check_arguments(const std::vector<at::Tensor>& arguments) const {
  if (arguments.size() != arguments_.size()) return "other arguments";
  for (size_t k = 0; k < arguments.size(); ++k) {
    const at::Tensor& tensor = arguments[k];
    const ArgumentShape& shape = arguments_[k];
    if (!is_xla(tensor) || tensor.device() != device_ || tensor.scalar_type() != shape.dtype ||
        tensor.sizes() != at::IntArrayRef(shape.sizes) ||
        tensor.strides() != at::IntArrayRef(shape.strides) ||
        tensor.storage_offset() != shape.offset || !shape.base.fits(storage_of(tensor))) {
      return "argument " + std::to_string(k) + " has another shape, dtype or layout";
    }
  }
  return "";
}

std::vector<ScalarValue> Replay::numbers_at(uint64_t offset) const {
  std::vector<ScalarValue> numbers = numbers_;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!follows_stream_[i]) continue;
    numbers[i].integer =
        static_cast<int64_t>(static_cast<uint64_t>(numbers[i].integer) - recorded_offset_ + offset);
  }
  return numbers;
}

// A step that is about to be launched, or is being launched: what it reads, and the promises that
// storages hold in the place of what it writes.
class Replay::Launch {
 public:
  struct Target {
    c10::intrusive_ptr<LazyStorage> storage;  // null for a tensor that is new, or gone
    ir::Value before;                         // its contents then
  };

  explicit Launch(const Replay& replay) : replay_(replay) {}

  bool behind = false;  // the caller, whom nobody tells of an error

  std::vector<std::shared_ptr<DeviceData>> inputs;
  std::vector<ir::Value> overwritten;  // the leaves of inputs that are donated; others are empty
  std::vector<ScalarValue> numbers;
  std::vector<Target> targets;  // one for each output of the replay
  std::vector<std::shared_ptr<DeviceData>> results;
  std::vector<ir::Value> leaves;  // for these

  void promise() {
    results.reserve(replay_.values_.size());
    leaves.reserve(replay_.values_.size());
    for (const Shape& shape : replay_.values_) {
      results.push_back(std::allocate_shared<DeviceData>(ir::BlockAllocator<DeviceData>(),
                                                         replay_.device_, ir::Location()));
      leaves.push_back(DeviceData::leaf({shape.type, shape.dims}, results.back()));
    }
    const auto& shardings = replay_.program_->output_shardings;
    for (size_t i = 0; i < results.size() && !shardings.empty(); ++i) {
      results[i]->expect(shardings[i]);
    }
    for (size_t o = 0; o < targets.size(); ++o) {
      auto& [storage, before] = targets[o];
      if (!storage) continue;
      before = storage->swap_value(leaves[replay_.outputs_[o].value]);
    }
  }

  // The promises cannot be kept, for another reason than run() meets. Whoever may wait for one gets
  // the error, and storages hold again what they held.
  void abandon(const std::exception_ptr& error) { put_back(error); }

  // Keeps the promises. Returns the error if they cannot be kept.
  std::exception_ptr run() noexcept {
    try {
      std::vector<const Array*> arguments;
      arguments.reserve(inputs.size());
      for (const auto& input : inputs) arguments.push_back(&input->array());
      const std::vector<int64_t> kept = still_seen();
      Arrays arrays = execute(*replay_.program_, arguments, numbers, replay_.device_, kept);
      for (size_t i = 0, k = 0; i < inputs.size(); ++i) {
        if (k < kept.size() && kept[k] == static_cast<int64_t>(i)) {
          ++k;
        } else if (replay_.donated_[i]) {
          inputs[i]->give_up();
        }
      }
      hand_over(std::move(arrays), results, replay_.guards_, replay_.device_);
      return nullptr;
    } catch (...) {
      put_back(std::current_exception());
      return std::current_exception();
    }
  }

 private:
  // Inputs that another thread read before promises took their place: it holds the leaf, and may go
  // on from it.
  std::vector<int64_t> still_seen() const {
    std::vector<int64_t> seen;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ir::Node* leaf = overwritten[i].node.get();
      // References: `overwritten` and a target's contents before; for the data `inputs` and the
      // leaf.
      if (leaf && (leaf->use_count() != 2 || inputs[i].use_count() != 2)) {
        seen.push_back(static_cast<int64_t>(i));
      }
    }
    return seen;
  }

  // A plugin that fails in the middle of a launch may have given up what was donated to it: then
  // nothing is left of that.
  void put_back(const std::exception_ptr& error) {
    if (behind) note_untold(replay_.device_, error);  // before somebody can read it
    std::vector<ir::Value> instead(results.size());
    for (size_t o = 0; o < targets.size(); ++o) {
      const auto& [storage, before] = targets[o];
      const size_t value = replay_.outputs_[o].value;
      if (!storage) continue;
      const ir::Value standing = DeviceData::standing(before);
      if (!standing) continue;
      storage->replace_value(leaves[value], standing);
      instead[value] = standing;
    }
    for (size_t i = 0; i < results.size(); ++i) results[i]->fail(error, std::move(instead[i]));
  }

  const Replay& replay_;
};

std::string Replay::bind_outputs(const std::vector<at::Tensor>& arguments, Launch& launch) const {
  launch.targets.reserve(outputs_.size());
  for (const Output& output : outputs_) {
    c10::intrusive_ptr<LazyStorage> storage;
    if (output.kind == Output::Kind::kArgument) storage = shared_storage(arguments[output.index]);
    if (output.kind == Output::Kind::kState) storage = output.state.lock();
    if (storage && !output.base.fits(*storage))
      return "a tensor that it writes has another shape now";
    launch.targets.push_back({std::move(storage), {}});
  }
  return "";
}

// What each input is now; donated only if nothing else could notice.
std::string Replay::bind_inputs(const std::vector<at::Tensor>& arguments, Launch& launch) const {
  launch.inputs.reserve(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    if (input.kind == Input::Kind::kConstant) {
      if (input.constant->storages.load() == 0) return "a tensor that it reads was written to";
      launch.inputs.push_back(input.constant);
      launch.overwritten.emplace_back();
      continue;
    }
    const auto storage = input.kind == Input::Kind::kArgument
                             ? shared_storage(arguments[input.argument])
                             : input.state.lock();
    const ir::Value value = storage ? storage->value_or_empty() : ir::Value();
    if (!value) return "a tensor that it updates is gone";
    std::shared_ptr<DeviceData> data = data_of(value);
    if (!data || data->failed() || !std::ranges::equal(value.dims(), input.dims)) {
      return "a tensor that it reads has another shape, or failed to be computed";
    }
    if (!input.bounds.empty()) {
      // The program does not look.
      const std::optional<Range> range = known_range(value);
      if (!range) return "an index that it is given was computed on the device";
      for (const IndexBounds& bounds : input.bounds) {
        if (!bounds.hold(*range)) return "an index that it is given may be out of range";
      }
    }
    if (input.sharding && !lies_so(*data, *input.sharding)) {
      return "a tensor that it reads is cut over the devices in another way";
    }
    if (donated_[i] && (data->storages.load() != 1 || value.node->use_count() != 2 ||
                        value.node->shared_payload().use_count() != 2)) {
      return "something else refers to the old contents of a tensor that it overwrites";
    }
    launch.inputs.push_back(std::move(data));
    launch.overwritten.push_back(donated_[i] ? value : ir::Value());
  }
  for (size_t i = 0; i < launch.inputs.size(); ++i) {
    if (donated_[i] && launch.inputs[i].use_count() != 2) {
      return "a tensor that it overwrites is given to it twice";
    }
  }
  return "";
}

std::vector<at::Tensor> Replay::take_results(const std::vector<at::Tensor>& arguments,
                                             Launch& launch) {
  std::vector<at::Tensor> fresh(num_fresh_);
  for (const Output& output : outputs_) {
    if (output.kind != Output::Kind::kFresh) continue;
    const Dims& strides = output.base.strides;
    const ir::Value& value = launch.leaves[output.value];
    fresh[output.index] = strides.empty()
                              ? lazy::make(value, device_)
                              : make_strided(value, {strides.data(), strides.size()}, device_);
  }
  std::vector<at::Tensor> tensors;
  for (const Result& result : results_) {
    switch (result.kind) {
      case Result::Kind::kArgument:
        tensors.push_back(arguments[result.index]);
        break;
      case Result::Kind::kKept:
        tensors.push_back(result.kept);
        break;
      case Result::Kind::kFresh:
        tensors.push_back(
            alias(fresh[result.index], result.sizes, result.strides, result.offset, result.dtype));
    }
  }
  return tensors;
}

std::optional<std::vector<at::Tensor>> Replay::run(const std::vector<at::Tensor>& arguments,
                                                   std::string& reason) {
  static metrics::Counter replayed("ReplayedStep");
  pjrt::check_not_forked();
  check_may_run();
  if (program_->output_shardings.empty() == is_partitioned()) {
    reason = "SPMD mode was turned on after it was recorded";
    return std::nullopt;
  }
  if (LazyStorage::any_pending(device_.index())) sync(device_);

  std::lock_guard lock(launch_mutex());
  finish_launch();
  // First of all: nothing is changed then.
  if (const auto error = take_untold(device_, /*wait=*/false)) std::rethrow_exception(error);
  reason = check_arguments(arguments);
  if (!reason.empty()) return std::nullopt;
  auto launch = std::make_shared<Launch>(*this);
  reason = bind_outputs(arguments, *launch);
  if (reason.empty()) reason = bind_inputs(arguments, *launch);
  if (!reason.empty()) return std::nullopt;
  // For a step around this one, which is being recorded, this is a program of its own.
  if (current_recording()) current_recording()->emplace_back();

  XlaGenerator& generator = generator_for(std::nullopt, device_);
  {
    std::lock_guard stream(generator.mutex_);
    if (generator.current_seed() != seed_) {
      reason = "the random generator was seeded";
      return std::nullopt;
    }
    const uint64_t offset = generator.get_offset();
    launch->numbers = numbers_at(offset);
    generator.set_offset(offset + advance_);
  }
  launch->promise();
  std::vector<at::Tensor> results;
  try {
    results = take_results(arguments, *launch);
  } catch (...) {
    launch->abandon(std::current_exception());
    throw;
  }
  if (!launch->results.empty()) remember_launch(device_, launch->results.back());
  replayed.add();
  if (inputs_.size() + values_.size() < kManyArrays) {
    if (const auto error = launch->run()) std::rethrow_exception(error);
  } else {
    launch->behind = true;
    launch_behind([self = shared_from_this(), launch = std::move(launch)] { launch->run(); });
  }
  return results;
}

}  // namespace torch_xla::lazy
