#include "lazy/value_checks.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <unordered_map>
#include <utility>

#include "ir/hash.h"
#include "ir/lowering.h"
#include "lazy/manual.h"
#include "lazy/untold.h"
#include "pjrt/error.h"

namespace torch_xla::lazy {
namespace {

using ir::ElementType;
using stablehlo::Dims;

constexpr int64_t kReportSize = 2;
constexpr uint64_t kManyChecks = uint64_t{1} << 63;  // the bit of all from the 64th on

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

// Of an operand that is an integer known to the host.
std::optional<int64_t> number_of(const ir::Value& value) {
  if (&value.node->op() != &ir::kScalar) return std::nullopt;
  const auto* number = static_cast<const ir::ScalarPayload*>(value.node->payload());
  if (number->kind != ir::ScalarClass::kI64) return std::nullopt;
  return number->integer;
}

// Puts what checks found between a step's results and the storages that it updates.
class Guarding {
 public:
  Guarding(const ir::Graph& graph, const std::unordered_set<const ir::Node*>& inputs)
      : graph_(graph), inputs_(inputs) {
    const auto is_check = [](const ir::Node* node) { return kind_of(*node) != nullptr; };
    if (std::any_of(graph.order.begin(), graph.order.end(), is_check)) find_checks();
  }

  bool any() const { return !checks_.empty(); }
  uint64_t mask(const ir::Value& value) const { return masks_[value.node->visit.position]; }

  std::shared_ptr<const CheckSites> sites() const {
    auto sites = std::make_shared<CheckSites>();
    for (const ir::Node* node : checks_) {
      const auto words = node->attribute_words();
      sites->push_back({kind_of(*node), {words.begin(), words.end()}, node->location()});
      for (const ir::Value& operand : node->operands()) {
        if (const auto number = number_of(operand)) sites->back().attributes.push_back(*number);
      }
    }
    return sites;
  }

  ir::Value reports() const {
    const auto all = reports_in(~uint64_t{0});
    const std::array<int64_t, 2> dims{static_cast<int64_t>(all.size()), kReportSize};
    return ir::Node::make(kReports, all, {}, ir::ShapeRef{ElementType::kS64, dims});
  }

  // `value`, or `before` if something is wrong with it.
  ir::Value update(const ir::Value& value, ir::Value before) {
    const ir::Value& right = nothing_wrong(mask(value));
    if (leaves_out(value, before, right)) return value;
    return ir::Node::make(kUpdateIf, {right, value, std::move(before)}, {}, value.shape());
  }

  // Updates of parts that are to be left out if something is wrong, each with its condition.
  const std::vector<std::pair<const ir::Node*, ir::Value>>& conditions() const {
    return conditions_;
  }

 private:
  // A check that looks at what another one has looked at finds the same: the first one tells.
  struct SameCheckHash {
    size_t operator()(const ir::Node* node) const {
      uint64_t hash = node->local_hash();
      for (const ir::Value& operand : node->operands()) {
        const auto number = number_of(operand);
        hash = ir::mix(hash, number ? static_cast<uint64_t>(*number)
                                    : uint64_t{operand.node->visit.position} << 16 | operand.index);
      }
      return hash;
    }
  };
  struct SameCheck {
    bool operator()(const ir::Node* a, const ir::Node* b) const {
      return a->local_hash() == b->local_hash() &&
             std::ranges::equal(a->operands(), b->operands(),
                                [](const ir::Value& x, const ir::Value& y) {
                                  const auto number = number_of(x);
                                  return x == y || (number && number == number_of(y));
                                }) &&
             std::ranges::equal(a->attribute_words(), b->attribute_words());
    }
  };

  void find_checks() {
    masks_.resize(graph_.order.size());
    std::unordered_map<const ir::Node*, size_t, SameCheckHash, SameCheck> known;
    for (size_t i = 0; i < graph_.order.size(); ++i) {
      const ir::Node* node = graph_.order[i];
      if (inputs_.contains(node)) continue;
      uint64_t mask = 0;
      for (const ir::Value& operand : node->operands()) {
        mask |= masks_[operand.node->visit.position];
      }
      if (kind_of(*node)) {
        const auto [entry, fresh] = known.emplace(node, checks_.size());
        if (fresh) checks_.push_back(node);
        mask |= bit_of(entry->second);
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

  const ir::Value& nothing_wrong(uint64_t mask) {
    ir::Value& right = nothing_wrong_[mask];
    if (!right) {
      right =
          ir::Node::make(kNothingWrong, reports_in(mask), {}, ir::ShapeRef{ElementType::kPred, {}});
    }
    return right;
  }

  // A selection over the whole would keep the old contents for it, and XLA would copy them (a cache
  // of keys, of which a step writes one row). Where `value` is `before` with parts updated, only
  // those depend on what checks found.
  bool leaves_out(const ir::Value& value, const ir::Value& before, const ir::Value& right) {
    const uint64_t wanted = mask(value);
    // The condition must not depend on the update. And parts for one device see no other's.
    if ((wanted & kManyChecks) != 0 || has_manual_parts()) return false;
    std::vector<const ir::Node*> updates;
    const ir::Value* at = &value;
    while (!(*at == before)) {
      const ir::Node& node = *at->node;
      if (!node.op().updates || mask(*at) != wanted) return false;
      updates.push_back(&node);
      at = &node.operand(0);
    }
    for (const ir::Node* node : updates) conditions_.emplace_back(node, right);
    return true;
  }

  const ir::Graph& graph_;
  const std::unordered_set<const ir::Node*>& inputs_;
  std::vector<const ir::Node*> checks_;  // each that looks at something else, in the graph's order
  std::vector<uint64_t> masks_;          // by position
  std::unordered_map<uint64_t, ir::Value> nothing_wrong_;
  std::vector<std::pair<const ir::Node*, ir::Value>> conditions_;
};

}  // namespace

bool any_checks_made() { return any_checks.load(std::memory_order_relaxed); }

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

ir::Value contents_before(const ir::Graph& graph, const Before& before, ir::ShapeRef shape) {
  ir::Value found;
  if (before.data && (before.is_stand_in || graph.contains(*before.data))) {
    found = ir::NodePtr(before.data);
  } else if (before.fill && graph.contains(*before.fill)) {
    found = ir::NodePtr(before.fill);
  } else if (before.data) {
    // Overwritten as a whole.
    found = DeviceData::standing(ir::NodePtr(before.data));
    const DeviceData* data = DeviceData::of(found);
    if (!data || !data->has_array()) return {};
  }
  return found && found.shape() == shape ? found : ir::Value();
}

GuardedRoots guard(ir::Graph& graph, std::span<const ir::Value> roots,
                   const std::unordered_set<const ir::Node*>& inputs,
                   std::span<const Before> befores) {
  GuardedRoots result;
  if (!any_checks_made()) return result;
  Guarding guarding(graph, inputs);
  if (!guarding.any()) return result;
  for (size_t i = 0; i < roots.size(); ++i) {
    uint64_t mask = guarding.mask(roots[i]), begun = 0;
    ir::Value root = roots[i];
    if (mask != 0 && i < befores.size()) {
      if (ir::Value before = contents_before(graph, befores[i], root.shape())) {
        if (before.node.get() == befores[i].fill) begun = mask;
        root = guarding.update(root, std::move(before));
        mask = 0;
      }
    }
    result.roots.push_back(std::move(root));
    result.guards.masks.push_back(mask);
    result.guards.begun.push_back(begun);
  }
  result.roots.push_back(guarding.reports());
  result.guards.sites = guarding.sites();
  ir::extend(graph, result.roots, inputs);
  for (const auto& [update, right] : guarding.conditions()) {
    ir::extend(graph, std::span(&right, 1), inputs);
    ir::set_condition(graph, *update, right);
  }
  return result;
}

bool CheckReport::is_there() {
  std::lock_guard lock(mutex_);
  return !array_ || array_.buffer().ready().is_ready();
}

std::exception_ptr CheckReport::error(uint64_t mask) {
  await();
  std::lock_guard lock(mutex_);
  look();
  for (size_t i = 0; i < errors_.size(); ++i) {
    if (errors_[i] && (mask & bit_of(i)) != 0) return errors_[i];
  }
  return nullptr;
}

std::exception_ptr CheckReport::take_untold(uint64_t mask) {
  await();
  std::lock_guard lock(mutex_);
  look();
  std::vector<size_t> found;
  for (size_t i = 0; i < errors_.size(); ++i) {
    if (errors_[i] && (mask & bit_of(i) & ~told_) != 0) found.push_back(i);
  }
  told_ |= mask;
  if (found.size() < 2) return found.empty() ? nullptr : errors_[found.front()];
  std::string more = "and of the same step ";
  if (found.size() > 2) more += std::to_string(found.size() - 1) + " more, first ";
  try {
    std::rethrow_exception(errors_[found[1]]);
  } catch (const c10::Error& error) {
    more += error.msg();
  } catch (const std::exception& error) {
    more += error.what();
  }
  return make_error(found.front(), more);
}

std::exception_ptr CheckReport::make_error(size_t site, const std::string& more) const {
  const CheckSite& at = (*sites_)[site];
  try {
    at.kind->fail(ir::AttributeReader(at.attributes), ir::describe(at.location), numbers_[site]);
  } catch (c10::Error& error) {
    if (!more.empty()) error.add_context(more);
    return std::current_exception();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void CheckReport::tell(uint64_t mask) {
  std::lock_guard lock(mutex_);
  told_ |= mask;
}

void CheckReport::tell(const std::exception_ptr& error) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < errors_.size(); ++i) {
    if (errors_[i] == error) told_ |= bit_of(i);
  }
}

void CheckReport::await() {
  pjrt::Event ready;
  {
    std::lock_guard lock(mutex_);
    if (array_) ready = array_.buffer().ready();
  }
  try {
    ready.wait();
  } catch (const pjrt::Error&) {
    // Met again, and dealt with, where the report is read.
  }
}

void CheckReport::look() {
  if (!array_) return;
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
    numbers_.resize(sites_->size());
    numbers_[i] = rows[kReportSize * i + 1];
    errors_[i] = make_error(i, "");
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
    const uint64_t begun = report ? guards.begun[i] : 0;
    promises[i]->fulfil(std::move(results[i]), mask | begun ? report : nullptr, mask | begun,
                        /*is_right=*/mask == 0);
  }
}

}  // namespace torch_xla::lazy
