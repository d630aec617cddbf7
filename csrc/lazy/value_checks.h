#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"
#include "ir/node.h"
#include "lazy/array.h"
#include "lazy/data.h"

namespace torch_xla::lazy {

// Looking inside programs at numbers that only the device knows (an index that it computed).
//
// A check is a node whose last output is a report: s64[2], whether something is wrong and a number
// for the message; its other outputs do no harm then. A program with checks goes on to its end, and
// gives all reports as one more result. If one is bad then
// - each tensor that the step updates, and whose new contents depend on that check, holds what it
//   held before: the program itself selects the old contents, or leaves out the update;
// - each new tensor that began as a constant, and that the step wrote over, is that constant, and
//   whoever reads it is told first: the state of an optimizer begins so;
// - everything else that depends on it is an error when it is read;
// - what does not depend on it is right.

// A kind of checks: the ops that are lowered so.
struct CheckKind {
  ir::Op::LowerFunction lower;
  // Throws. `attributes`: the node's, and behind them its operands that are integers known to the
  // host (ir::scalar). `line`: "f@model.py:12", or "" where it is not known.
  void (*fail)(ir::AttributeReader attributes, const std::string& line, int64_t number);
};
// To be called once for each kind, while the process starts.
void register_checks(CheckKind kind);

// Whether any check was ever made: graphs need not be searched before.
bool any_checks_made();

// A node of such an op. `outputs`: without the report, which comes behind them.
ir::NodePtr make_check(const ir::Op& op, std::span<const ir::Value> operands,
                       const ir::Attributes& attributes, std::span<const ir::ShapeRef> outputs);
// For its lowering. `wrong` is of rank 0, `number` s64 of rank 0.
stablehlo::Value report(stablehlo::Builder& b, stablehlo::Value wrong, stablehlo::Value number);

// A check of a program, in the step that was launched: its line is that step's, whoever compiled.
struct CheckSite {
  const CheckKind* kind;
  std::vector<int64_t> attributes;  // as for CheckKind::fail
  ir::Location location;
};
using CheckSites = std::vector<CheckSite>;

// Which checks each result of a program depends on: bit i for check i, the last one for all from 63
// on. 0: whatever they find, the result is right.
struct Guards {
  std::shared_ptr<const CheckSites> sites;  // null: it has none
  std::vector<uint64_t> masks;
  // The same for results that are the constant they began as if those find something.
  std::vector<uint64_t> begun;
};

// What storages held before the step that overwrites them: device data, a leaf; or the constant
// that they begin as, which the step is given. Both may be null. The nodes are somebody else's.
struct Before {
  ir::Node* data = nullptr;
  ir::Node* fill = nullptr;
  bool is_stand_in = false;  // `data` has no contents, and each launch puts some in its place
  bool operator==(const Before&) const = default;
};

// The same as a value that a program can take: what the graph has of it first. Empty where nothing
// is left of it, or it has another shape. Requires the marks of the graph's walk.
ir::Value contents_before(const ir::Graph& graph, const Before& before, ir::ShapeRef shape);

// `roots` as a program with checks computes them, and its reports behind them. Without roots if
// there are no checks. `befores` may be empty. Requires the marks of the walk from the roots, to
// which it adds what is new.
struct GuardedRoots {
  std::vector<ir::Value> roots;
  Guards guards;
};
GuardedRoots guard(ir::Graph& graph, std::span<const ir::Value> roots,
                   const std::unordered_set<const ir::Node*>& inputs,
                   std::span<const Before> befores);

// What the checks of one launch found.
class CheckReport {
 public:
  CheckReport(std::shared_ptr<const CheckSites> sites, Array array)
      : sites_(std::move(sites)), array_(std::move(array)) {}

  // Whether error() need not wait.
  bool is_there();
  // Blocks until the program is over. The error of the first check in `mask` that found something,
  // null if none did, or if the program failed altogether: then whatever it gives has that error.
  std::exception_ptr error(uint64_t mask);
  // The same of all checks in `mask` that nobody was told of, as one error; with this somebody is.
  std::exception_ptr take_untold(uint64_t mask);

  // Somebody is being told of what depends on the checks in `mask`, or of this error of one.
  void tell(uint64_t mask);
  void tell(const std::exception_ptr& error);

 private:
  void await();
  void look();  // requires the lock
  // A new one each time; `more` is said behind it.
  std::exception_ptr make_error(size_t site, const std::string& more) const;

  std::mutex mutex_;  // not held while anybody waits
  const std::shared_ptr<const CheckSites> sites_;
  Array array_;                             // until it was looked at
  std::vector<int64_t> numbers_;            // for the messages, by site
  std::vector<std::exception_ptr> errors_;  // by site; empty if there are none
  uint64_t told_ = 0;                       // as masks
};

// Keeps the promises of a launch with what it gave: a result for each, and the reports if it has
// any.
void hand_over(std::vector<Array> results, std::span<const std::shared_ptr<DeviceData>> promises,
               const Guards& guards, c10::Device device);

}  // namespace torch_xla::lazy
