#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include "lazy/unknown.h"

namespace torch_xla::lazy {

// Tracing a step without running it, to compile its program before the step is called.
//
// Between the constructor and finish() or cancel() the calling thread traces, as a call of the step
// would, with stand-ins for its arguments; nothing may run in it. Then all storages hold again what
// they held before, and the device's generator stands where it would without. Other threads trace
// and draw on, and wait if they sync; they must not use what the step writes.
class Rehearsal {
 public:
  // What is pending should have been synced: it would be no part of the program that a call of the
  // step syncs. Throws c10::Error where nothing may run (in another rehearsal, say), and in SPMD
  // mode.
  explicit Rehearsal(c10::Device device);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;

  // A tensor of this dtype, sizes and strides whose contents cannot be had. Integers are taken for
  // indices and labels that came from the host, in the range that they must be in.
  at::Tensor stand_in(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides);

  // `tensors`, over one storage: a call would have dropped them by its end; here Python keeps them
  // to put them back. What the storage held may then be donated, as it would be. Does nothing if
  // anything else refers to them or to their storage.
  void forget(const std::vector<at::Tensor>& tensors);

  // Ends it: the program of what was traced is compiled behind (compile_behind.h), unless it is
  // known. Results that a call would return must still be alive. Throws LoweringError.
  void finish();
  // Ends it, and compiles nothing.
  void cancel();

 private:
  class Journal;

  const c10::Device device_;
  std::unique_lock<std::mutex> lock_;  // of launches: a sync must not meet what is traced here
  std::optional<TracingOnly> tracing_only_;
  std::unique_ptr<Journal> journal_;
  std::unordered_set<const ir::Node*> stand_ins_;
  std::vector<ir::Value> kept_;  // the same
  uint64_t seed_ = 0, offset_ = 0;
};

}  // namespace torch_xla::lazy
