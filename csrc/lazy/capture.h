#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lazy/compiled_graph.h"
#include "lazy/data.h"
#include "lazy/host_range.h"
#include "lazy/random.h"
#include "lazy/unknown.h"

namespace torch_xla::lazy {

// Tracing a function once, from stand-ins of its inputs, for a CompiledGraph.
//
// Between the constructor and finish() or cancel() the calling thread traces: nothing may run in
// it, since the stand-ins have no contents, and every attempt throws. Other threads trace on, and
// wait if they sync. Draws of random numbers move no generator.
class Capture {
 public:
  // `inputs`: xla tensors of one device, and CPU tensors of one real number, which each launch
  // reads anew. `owner`: the same number for captures that differ in shapes only, for reports of
  // recompilations. Throws c10::Error for other inputs, and when a capture is under way in this
  // thread.
  Capture(c10::Device device, const std::vector<at::Tensor>& inputs, uint64_t owner = 0);
  ~Capture();
  Capture(const Capture&) = delete;

  // For each input an xla tensor of its dtype, sizes, strides and offset; inputs that share a
  // storage have stand-ins that share one.
  const std::vector<at::Tensor>& stand_ins() const { return stand_ins_; }

  // Ends it. `results`: xla tensors made from the stand-ins. Throws c10::Error for results of
  // another device, and what is thrown by inputs that failed.
  std::shared_ptr<CompiledGraph> finish(const std::vector<at::Tensor>& results);
  // Ends it without a graph.
  void cancel();

  // The calling thread's, or null.
  static Capture* current();
  // Notes that the next draw of `generator`, of `count` numbers, reads these two scalar leaves.
  void note_draw(XlaGenerator& generator, const ir::Value& seed, const ir::Value& offset,
                 int64_t count);
  // Notes what elements of `index` must be. Launches look at inputs whose range the host knows.
  void note_bounds(const ir::Value& index, const IndexBounds& bounds);

 private:
  using Graph = CompiledGraph;

  at::Tensor stand_in(const at::Tensor& input);
  at::Tensor number_stand_in(const at::Tensor& number);
  void add_result(const at::Tensor& result,
                  std::unordered_map<const LazyStorage*, size_t>& fresh_of);
  Graph::Source source_of(const ir::Value& value);
  std::vector<Before> befores() const;
  void set_parameters();

  c10::Device device_;
  std::unique_lock<std::mutex> lock_;  // of launches: a sync must not meet what is traced here
  std::optional<TracingOnly> tracing_only_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  std::vector<at::Tensor> stand_ins_;
  std::vector<c10::Storage> storages_;  // of the stand-ins, by slot
  std::vector<ir::Value> begin_;        // what they held first
  std::unordered_map<const LazyStorage*, size_t> slot_of_;
  std::unordered_map<const ir::Node*, size_t> leaf_slot_;
  std::unordered_map<const ir::Node*, Graph::Number> numbers_;
  std::vector<ir::Value> kept_;  // the leaves of `numbers_`
};

}  // namespace torch_xla::lazy
