#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "ir/node.h"
#include "lazy/base.h"
#include "lazy/data.h"
#include "lazy/host_range.h"
#include "lazy/launch.h"
#include "lazy/program.h"
#include "lazy/random.h"
#include "lazy/storage.h"
#include "lazy/value_checks.h"

namespace torch_xla::lazy {

// A function of tensors that was traced once (capture.h), as one program: inputs to outputs,
// launched without tracing.
//
// What the function did to storages is what a launch does: inputs that it wrote are written, in
// place where nothing else can notice; results that are views of inputs, of each other or inputs
// themselves are so again.
class CompiledGraph {
 public:
  // Launches it. Returns its results, without autograd history; or nothing when an input is of
  // another dtype, shape or layout than the one captured, shares memory with another one
  // differently, or may hold wrong indices; then nothing was changed. Runs what is pending on the
  // inputs first. Throws what that or the launch throws.
  std::optional<std::vector<at::Tensor>> run(const std::vector<at::Tensor>& inputs);

  // Whether inputs hold indices that may be outside of what they index: then it is not launched,
  // and tracing it raises the error.
  bool may_be_out_of_bounds(const std::vector<at::Tensor>& inputs) const;

  // Which inputs it writes to.
  std::vector<size_t> written_inputs() const;

 private:
  friend class Capture;

  static constexpr size_t kNone = ~size_t{0};

  // Where contents after a launch come from.
  struct Source {
    enum class Kind { kProgram, kSlot, kConstant } kind = Kind::kProgram;
    size_t index = 0;  // of the program's output, or of the slot
    ir::Value constant;
  };
  struct Geometry {
    at::ScalarType dtype;
    at::DimVector sizes, strides;
    int64_t offset;
    bool conjugate, negative;
    explicit Geometry(const at::Tensor& tensor);
    bool fits(const at::Tensor& tensor) const;
    // An xla tensor of this geometry.
    at::Tensor on(const c10::Storage& storage) const;
  };
  struct Input {
    size_t slot;  // kNone: a number on the host
    Geometry geometry;
  };
  // A storage behind inputs.
  struct Slot {
    size_t input;  // the first of them
    Base base;
    bool read = false;  // by the program, or handed on
    bool written = false;
    bool donated = false;  // if nothing else refers to what it held
    Base base_after;
    Source after;
  };
  // What elements of an input must be.
  struct Bounds {
    size_t slot;
    IndexBounds bounds;
    bool hold(const ir::Value& value) const;
  };
  struct Parameter {
    size_t slot;  // kNone: the constant
    std::shared_ptr<DeviceData> constant;
  };
  struct Number {
    enum class Kind { kConstant, kInput, kSeed, kOffset } kind = Kind::kConstant;
    ScalarValue value;
    size_t index = 0;     // of the input or the stream
    uint64_t offset = 0;  // from where the stream is when the launch begins
  };
  struct Stream {
    c10::intrusive_ptr<XlaGenerator> generator;
    uint64_t advance = 0;  // by one launch
  };
  struct Fresh {
    Base base;
    size_t bytes;
    Source contents;
  };
  struct Result {
    enum class Kind { kInput, kSlot, kFresh } kind;
    size_t index;
    Geometry geometry;
  };

  // The inputs' storages by slot; empty when an input does not fit. Null for slots without one.
  bool match(const std::vector<at::Tensor>& inputs,
             std::vector<c10::intrusive_ptr<LazyStorage>>& storages) const;
  bool may_donate(const std::vector<ir::Value>& held) const;
  const Program& program(bool donate);
  std::vector<ScalarValue> numbers_now(const std::vector<at::Tensor>& inputs);
  std::vector<ir::Value> launch(const std::vector<at::Tensor>& inputs,
                                const std::vector<ir::Value>& held);
  at::Tensor make_result(const Result& result, const std::vector<at::Tensor>& inputs,
                         const std::vector<c10::Storage>& fresh) const;

  c10::Device device_{c10::kXLA, 0};
  std::vector<Input> inputs_;
  std::vector<Slot> slots_;
  std::vector<ir::Value> roots_;  // the program's outputs, without what checks add
  std::vector<ir::Value> begin_;  // what slots stood for
  std::vector<Before> befores_;   // which of that the roots are written over
  Guards guards_;
  std::vector<Parameter> parameters_;
  std::vector<Number> numbers_;
  std::vector<Stream> streams_;
  std::vector<Bounds> bounds_;
  std::vector<Fresh> fresh_;
  std::vector<Result> results_;
  bool writes_ = false;
  uint64_t owner_ = 0;                                // for reports of recompilations
  std::array<std::shared_ptr<Program>, 2> programs_;  // which keeps its inputs, which donates
  uint64_t settings_ = 0;                             // of which version the programs are
};

}  // namespace torch_xla::lazy
