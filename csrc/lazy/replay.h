#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lazy/base.h"
#include "lazy/host_range.h"
#include "lazy/recording.h"

namespace torch_xla::lazy {

// Launching a step again without running or tracing it.
//
// A call of the step is recorded: what it launched, from which tensors, into which. Two recordings
// in a row that launched the same program tell what each input is (an argument, state that the step
// before wrote, a constant), what becomes of each output, and that no number changed but positions
// in the random stream, which move with the device's generator. That is all a launch needs.

// One call of a step, on one device.
class RecordedCall {
 public:
  // Starts to record. Tensors of `arguments` on other devices are left out of account. What is
  // pending must have been synced. Throws c10::Error when a recording is already under way.
  RecordedCall(c10::Device device, std::vector<at::Tensor> arguments);
  ~RecordedCall();
  RecordedCall(const RecordedCall&) = delete;

  // The calling thread's, or null.
  static RecordedCall* current();
  // Notes what elements of an index must be of which the host knows what they are: replays look.
  void note_bounds(const ir::Value& index, const IndexBounds& bounds);

  // Ends it; the step must have been synced. `results`: the xla tensors it returned.
  void finish(std::vector<at::Tensor> results);

 private:
  friend class Replay;
  struct Argument {
    at::Tensor tensor;
    c10::intrusive_ptr<LazyStorage> storage;
    std::weak_ptr<DeviceData> data;  // what it held when the call began
  };
  struct Stream {
    uint64_t seed = 0, offset = 0;
  };
  Stream stream() const;
  void stop();

  c10::Device device_;
  std::vector<Argument> arguments_;
  Stream begin_, end_;
  std::vector<at::Tensor> results_;
  std::vector<std::pair<uint64_t, IndexBounds>> bounds_;  // by DeviceData::id
  std::vector<LaunchRecord> launches_;
  std::vector<std::weak_ptr<DeviceData>> given_;  // what each output's storage got
  bool recording_ = false;
};

class Replay : public std::enable_shared_from_this<Replay> {
 public:
  // From two calls in a row. Null, with the reason in `reason`, where these cannot be replayed.
  static std::shared_ptr<Replay> make(const RecordedCall& before, const RecordedCall& now,
                                      std::string& reason);

  // Launches the step on these arguments, as many as were recorded, and updates its state. Returns
  // its results, without autograd history; or nothing, with the reason, when this call is not like
  // the recorded ones, and then nothing was changed.
  //
  // A step of many arrays is launched behind the caller's back. Where a launch fails the state is
  // again what it was, its results throw the error, and so does this or, behind, the next call if
  // nobody was told until then.
  std::optional<std::vector<at::Tensor>> run(const std::vector<at::Tensor>& arguments,
                                             std::string& reason);

 private:
  struct Shape {
    ir::ElementType type;
    stablehlo::Dims dims;
  };
  struct Input {
    enum class Kind { kArgument, kState, kConstant } kind = Kind::kConstant;
    size_t argument = 0;
    WeakStorage state{c10::intrusive_ptr<LazyStorage>()};
    std::shared_ptr<DeviceData> constant;
    stablehlo::Dims dims;
    const sharding::Sharding* sharding = nullptr;  // in SPMD mode
    std::vector<IndexBounds> bounds;               // of an index that came from the host
  };
  struct Output {
    enum class Kind { kArgument, kState, kFresh } kind;
    size_t value;
    size_t index = 0;  // of the argument, or of the fresh storage
    WeakStorage state;
    Base base;
  };
  struct Result {
    enum class Kind { kArgument, kKept, kFresh } kind;
    size_t index = 0;  // of the argument, or of the fresh storage
    at::Tensor kept;   // the tensor itself
    at::DimVector sizes, strides;
    int64_t offset = 0;
    at::ScalarType dtype = at::kFloat;
  };
  struct ArgumentShape {
    at::DimVector sizes, strides;
    int64_t offset;
    at::ScalarType dtype;
    Base base;
  };

  class Launch;

  Replay() = default;
  std::string set_inputs(const RecordedCall& before, const RecordedCall& now);
  std::string set_numbers(const RecordedCall& before, const RecordedCall& now);
  std::string set_outputs(const RecordedCall& before, const RecordedCall& now);
  std::string set_results(const RecordedCall& before, const RecordedCall& now);
  std::string check_arguments(const std::vector<at::Tensor>& arguments) const;
  std::string bind_outputs(const std::vector<at::Tensor>& arguments, Launch& launch) const;
  std::string bind_inputs(const std::vector<at::Tensor>& arguments, Launch& launch) const;
  std::vector<at::Tensor> take_results(const std::vector<at::Tensor>& arguments, Launch& launch);
  std::vector<ScalarValue> numbers_at(uint64_t offset) const;

  c10::Device device_{c10::kXLA, 0};
  std::shared_ptr<Program> program_;
  std::vector<ArgumentShape> arguments_;
  std::vector<Input> inputs_;
  std::vector<bool> donated_;
  std::vector<ScalarValue> numbers_;  // as recorded
  std::vector<bool> follows_stream_;  // which of them move with the generator's offset
  uint64_t seed_ = 0, recorded_offset_ = 0, advance_ = 0;
  std::vector<Shape> values_;  // of the program's results
  Guards guards_;
  std::vector<Output> outputs_;
  std::vector<Result> results_;
  size_t num_fresh_ = 0;
};

}  // namespace torch_xla::lazy
