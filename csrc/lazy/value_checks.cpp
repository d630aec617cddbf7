#include "lazy/value_checks.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "ir/lowering.h"
#include "lazy/untold.h"

namespace torch_xla::lazy {
namespace {

using ir::ElementType;
using stablehlo::Dims;

constexpr int64_t kReportSize = 2;

uint64_t bit_of(size_t check) { return uint64_t{1} << std::min<size_t>(check, 63); }

// Few, and all there before the first check is made.
std::vector<CheckKind>& kinds() {
  static auto* kinds = new std::vector<CheckKind>;
  return *kinds;
}

const CheckKind* kind_of(const ir::Node& node) {
  for (const CheckKind& kind : kinds()) {
    if (kind.lower == node.op().lower) return &kind;
  }
  return nullptr;
}

// Graphs need not be searched before a check was ever made.
std::atomic<bool> any_checks{false};

// Operands: reports. Gives s64[n, 2].
const ir::Op kReports{"xla::reports", [](ir::Lowering& l, const ir::Node&) -> ir::Results {
                        std::vector<stablehlo::Value> rows;
                        for (const stablehlo::Value& row : l.operands()) {
                          rows.push_back(l->reshape(row, {1, kReportSize}));
                        }
                        return l->concatenate(rows, 0);
                      }};

// Operands: reports. Whether nothing is wrong.
const ir::Op kNothingWrong{"xla::nothing_wrong",
                           [](ir::Lowering& l, const ir::Node&) -> ir::Results {
                             std::vector<stablehlo::Value> flags;
                             for (const stablehlo::Value& row : l.operands()) {
                               flags.push_back(l->slice(row, {0}, {1}));
                             }
                             const stablehlo::Value all = l->concatenate(flags, 0);
                             return l->not_(l->reduce_or(l->ne(all, l->zeros_like(all)), {0}));
                           }};

// Operands: whether nothing is wrong, new contents, old contents.
const ir::Op kUpdateIf{"xla::update_if", [](ir::Lowering& l, const ir::Node&) -> ir::Results {
                         const stablehlo::Value updated = l.operand(1);
                         return l->select(l->broadcast_to(l.operand(0), updated.dims()), updated,
                                          l.operand(2));
                       }};

// Puts what checks found between a step's results and the storages that it updates.
class Guarding {
 public:
  Guarding(const ir::Graph& graph, const std::unordered_set<const ir::Node*>& inputs)
      : graph_(graph), inputs_(inputs) {
    for (const ir::Node* node : graph.order) {
      if (kind_of(*node)) checks_.push_back(node);
    }
    if (!checks_.empty()) find_masks();
  }

  bool any() const { return !checks_.empty(); }
  uint64_t mask(const ir::Value& value) const { return masks_[value.node->visit.position]; }

  std::shared_ptr<const CheckSites> sites() const {
    auto sites = std::make_shared<CheckSites>();
    for (const ir::Node* node : checks_) {
      const auto words = node->attribute_words();
      sites->push_back({kind_of(*node), {words.begin(), words.end()}, node->location()});
    }
    return sites;
  }

  ir::Value reports() const {
    const auto all = reports_in(~uint64_t{0});
    const std::array<int64_t, 2> dims{static_cast<int64_t>(all.size()), kReportSize};
    return ir::Node::make(kReports, all, {}, ir::ShapeRef{ElementType::kS64, dims});
  }

  ir::Value update(const ir::Value& value, ir::Value before) {
    ir::Value& right = nothing_wrong_[mask(value)];
    if (!right) {
      right = ir::Node::make(kNothingWrong, reports_in(mask(value)), {},
                             ir::ShapeRef{ElementType::kPred, {}});
    }
    return ir::Node::make(kUpdateIf, {right, value, std::move(before)}, {}, value.shape());
  }

 private:
  void find_masks() {
    masks_.resize(graph_.order.size());
    size_t checks = 0;
    for (size_t i = 0; i < graph_.order.size(); ++i) {
      const ir::Node* node = graph_.order[i];
      if (inputs_.contains(node)) continue;
      uint64_t mask = 0;
      if (checks < checks_.size() && checks_[checks] == node) mask = bit_of(checks++);
      for (const ir::Value& operand : node->operands()) {
        mask |= masks_[operand.node->visit.position];
      }
      masks_[i] = mask;
    }
  }

  std::vector<ir::Value> reports_in(uint64_t mask) const {
    std::vector<ir::Value> reports;
    for (size_t i = 0; i < checks_.size(); ++i) {
      if ((mask & bit_of(i)) == 0) continue;
      reports.emplace_back(ir::NodePtr(const_cast<ir::Node*>(checks_[i])),
                           static_cast<uint32_t>(checks_[i]->num_outputs() - 1));
    }
    return reports;
  }

  const ir::Graph& graph_;
  const std::unordered_set<const ir::Node*>& inputs_;
  std::vector<const ir::Node*> checks_;  // in the graph's order
  std::vector<uint64_t> masks_;          // by position
  std::unordered_map<uint64_t, ir::Value> nothing_wrong_;
};

}  // namespace

void register_checks(CheckKind kind) { kinds().push_back(kind); }

ir::NodePtr make_check(const ir::Op& op, std::span<const ir::Value> operands,
                       const ir::Attributes& attributes, std::span<const ir::ShapeRef> outputs) {
  any_checks.store(true, std::memory_order_relaxed);
  const std::array<int64_t, 1> dims{kReportSize};
  std::vector<ir::ShapeRef> all(outputs.begin(), outputs.end());
  all.push_back({ElementType::kS64, dims});
  return ir::Node::make(op, operands, attributes, all);
}

stablehlo::Value report(stablehlo::Builder& b, stablehlo::Value wrong, stablehlo::Value number) {
  return b.concatenate(
      {b.reshape(b.convert(wrong, ElementType::kS64), {1}), b.reshape(number, {1})}, 0);
}

OldContents::OldContents(const ir::Graph& graph) {
  for (ir::Node* leaf : graph.parameters) {
    if (&leaf->op() == &ir::kDeviceData) {
      data_.emplace(static_cast<const DeviceData*>(leaf->payload())->id(), leaf);
    } else {
      fills_.emplace(leaf, leaf);
    }
  }
}

ir::Value OldContents::find(const Before& before, ir::ShapeRef shape) const {
  ir::Node* found = nullptr;
  if (const auto data = data_.find(before.data); data != data_.end()) {
    found = data->second;
  } else if (const auto fill = fills_.find(before.fill); fill != fills_.end()) {
    found = fill->second;
  }
  return found && found->output() == shape ? ir::Value(ir::NodePtr(found)) : ir::Value();
}

GuardedRoots guard(const ir::Graph& graph, std::span<const ir::Value> roots,
                   const std::unordered_set<const ir::Node*>& inputs,
                   std::span<const Before> befores) {
  GuardedRoots result;
  if (!any_checks.load(std::memory_order_relaxed)) return result;
  Guarding guarding(graph, inputs);
  if (!guarding.any()) return result;
  const OldContents old(graph);
  for (size_t i = 0; i < roots.size(); ++i) {
    uint64_t mask = guarding.mask(roots[i]);
    ir::Value root = roots[i];
    if (mask != 0 && i < befores.size()) {
      if (ir::Value before = old.find(befores[i], root.shape())) {
        root = guarding.update(root, std::move(before));
        mask = 0;
      }
    }
    result.roots.push_back(std::move(root));
    result.guards.masks.push_back(mask);
  }
  result.roots.push_back(guarding.reports());
  result.guards.sites = guarding.sites();
  return result;
}

bool CheckReport::is_there() {
  std::lock_guard lock(mutex_);
  return !array_ || array_.buffer().ready().is_ready();
}

std::exception_ptr CheckReport::error(uint64_t mask) {
  std::lock_guard lock(mutex_);
  if (array_) look();
  for (size_t i = 0; i < errors_.size(); ++i) {
    if (errors_[i] && (mask & bit_of(i)) != 0) return errors_[i];
  }
  return nullptr;
}

void CheckReport::look() {
  std::vector<int64_t> rows(sites_->size() * kReportSize);
  try {
    array_.buffer().copy_to_host(rows.data(), rows.size() * sizeof(int64_t)).wait();
  } catch (...) {
    rows.assign(rows.size(), 0);
  }
  array_ = {};
  for (size_t i = 0; i < sites_->size(); ++i) {
    if (rows[kReportSize * i] == 0) continue;
    errors_.resize(sites_->size());
    const CheckSite& site = (*sites_)[i];
    try {
      site.kind->fail(ir::AttributeReader(site.attributes), ir::describe(site.location),
                      rows[kReportSize * i + 1]);
    } catch (...) {
      errors_[i] = std::current_exception();
    }
  }
}

void hand_over(std::vector<Array> results, std::span<const std::shared_ptr<DeviceData>> promises,
               const Guards& guards, c10::Device device) {
  std::shared_ptr<CheckReport> report;
  if (guards.sites) {
    report = std::make_shared<CheckReport>(guards.sites, std::move(results.back()));
    watch(device, report);
  }
  for (size_t i = 0; i < promises.size(); ++i) {
    const uint64_t mask = report ? guards.masks[i] : 0;
    promises[i]->fulfil(std::move(results[i]), mask ? report : nullptr, mask);
  }
}

}  // namespace torch_xla::lazy
