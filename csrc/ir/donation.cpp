#include "ir/donation.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace torch_xla::ir {
namespace {

constexpr uint32_t kMostOps = 8;  // of an update; an AdamW step's has three

struct Pair {
  uint32_t ops;
  size_t root;
  int64_t parameter;
};

constexpr int64_t kNone = -1;  // no parameter
constexpr int64_t kKept = -2;  // one that may not be overwritten

// The index of each node's parameter, by position, or one of the above.
std::vector<int64_t> donated_parameters(const Graph& graph, const std::vector<bool>& donated) {
  std::vector<int64_t> parameters(graph.order.size(), kNone);
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    parameters[graph.parameters[i]->visit.position] = donated[i] ? static_cast<int64_t>(i) : kKept;
  }
  return parameters;
}

// Element by element, as far as shapes tell: a gradient that uses the weight does not update it.
bool is_pointwise(const Node& node, std::span<const int64_t> dims) {
  return std::ranges::all_of(node.operands(), [&](const Value& operand) {
    return operand.shape().num_elements() == 1 || std::ranges::equal(operand.dims(), dims);
  });
}

// The nearest donated parameters of the root's shape, breadth first through operands of that shape:
// in `p.mul_(a).add_(q)` p is nearer than what q is made of.
void find_updated(const Value& root, size_t index, const std::vector<int64_t>& parameters,
                  std::vector<Pair>& pairs) {
  const ShapeRef shape = root.shape();
  std::vector<const Node*> level = {root.node.get()}, next;
  std::unordered_set<const Node*> seen(level.begin(), level.end());
  for (uint32_t ops = 0; ops <= kMostOps && !level.empty(); ++ops) {
    for (const Node* node : level) {
      const int64_t parameter = parameters[node->visit.position];
      if (parameter >= 0) pairs.push_back({ops, index, parameter});
      if (parameter != kNone) continue;
      if (node->op().updates) {
        const Node* base = node->operand(0).node.get();
        if (seen.insert(base).second) next.push_back(base);
        continue;
      }
      if (!is_pointwise(*node, shape.dims)) continue;
      for (const Value& operand : node->operands()) {
        if (operand.shape() == shape && seen.insert(operand.node.get()).second) {
          next.push_back(operand.node.get());
        }
      }
    }
    level.swap(next);
    next.clear();
  }
}

// Users of each parameter that a root takes over, by parameter.
std::vector<std::vector<const Node*>> readers_of(const Graph& graph,
                                                 std::span<const int64_t> takers) {
  std::vector<int64_t> parameters(graph.order.size(), kNone);
  for (size_t i = 0; i < takers.size(); ++i) {
    if (takers[i] >= 0) {
      parameters[graph.parameters[i]->visit.position] = static_cast<int64_t>(i);
    }
  }
  std::vector<std::vector<const Node*>> readers(takers.size());
  for (const Node* node : graph.order) {
    for (const Value& operand : node->operands()) {
      const int64_t parameter = parameters[operand.node->visit.position];
      if (parameter < 0) continue;
      auto& list = readers[static_cast<size_t>(parameter)];
      if (list.empty() || list.back() != node) list.push_back(node);
    }
  }
  return readers;
}

// Puts the updates of parameters behind all other readers.
class Ordering {
 public:
  Ordering(const Graph& graph, std::span<const Value> roots, std::span<const int64_t> takers)
      : graph_(graph), roots_(roots), marks_(graph.order.size()) {
    for (const Node* parameter : graph.parameters) {
      parameters_.insert(parameter);
    }
    const auto readers = readers_of(graph, takers);
    for (size_t i = 0; i < takers.size(); ++i) {
      if (takers[i] < 0) continue;
      add_wait(*graph.parameters[i], *roots[static_cast<size_t>(takers[i])].node, readers[i]);
    }
  }

  OrderedGraph ordered() && {
    OrderedGraph result;
    if (waits_.empty()) {
      result.order.assign(graph_.order.begin(), graph_.order.end());
      return result;
    }
    ++epoch_;
    for (const Value& root : roots_) append_from(root.node.get(), result.order);
    result.waits = std::move(waits_);
    return result;
  }

 private:
  // Calls `visit` for each node that must come before `node`.
  template <class Visit>
  void before(const Node* node, const Visit& visit) const {
    if (parameters_.contains(node)) return;
    for (const Value& operand : node->operands()) visit(operand.node.get());
    const auto wait = waits_.find(node);
    if (wait == waits_.end()) return;
    for (const Value& value : wait->second.values) visit(value.node.get());
  }

  bool mark(const Node* node) {
    uint32_t& last = marks_[node->visit.position];
    return std::exchange(last, epoch_) != epoch_;
  }
  bool marked(const Node* node) const { return marks_[node->visit.position] == epoch_; }

  // Marks `node` and all that comes before it.
  void mark_before(const Node* node) {
    ++epoch_;
    std::vector<const Node*> stack = {node};
    mark(node);
    while (!stack.empty()) {
      const Node* top = stack.back();
      stack.pop_back();
      before(top, [&](const Node* next) {
        if (mark(next)) stack.push_back(next);
      });
    }
  }

  void add_wait(const Node& parameter, const Node& update,
                const std::vector<const Node*>& readers) {
    const auto [node, operand] = last_use_with_number(update, parameter);
    if (!node || waits_.contains(node)) return;
    mark_before(node);
    std::vector<Value> late;
    for (const Node* reader : readers) add_late_outputs(*reader, late);
    if (late.empty()) return;
    for (const Value& value : late) {
      mark_before(value.node.get());
      if (marked(node)) return;  // That reader needs the update: there is no such order.
    }
    waits_[node] = {operand, std::move(late)};
  }

  // What of a reader the marked nodes do not come after: each of its outputs may be computed alone.
  void add_late_outputs(const Node& reader, std::vector<Value>& late) const {
    const NodePtr node(const_cast<Node*>(&reader));
    if (!marked(&reader)) {
      late.push_back(Value(node));
    } else if (reader.num_outputs() > 1) {
      std::vector<bool> used(reader.num_outputs()), used_before(reader.num_outputs());
      for (const Node* user : graph_.order) {
        for (const Value& operand : user->operands()) {
          if (operand.node.get() != &reader) continue;
          used[operand.index] = true;
          if (marked(user)) used_before[operand.index] = true;
        }
      }
      for (uint32_t i = 0; i < used.size(); ++i) {
        if (used[i] && !used_before[i]) late.push_back(Value(node, i));
      }
    }
  }

  // The update, or the op before it on the way from the parameter, and its operand of rank 0.
  static std::pair<const Node*, size_t> last_use_with_number(const Node& update,
                                                             const Node& parameter) {
    const Node* node = &update;
    for (uint32_t ops = 0; ops < kMostOps && node != &parameter; ++ops) {
      const auto operands = node->operands();
      for (size_t i = 0; i < operands.size(); ++i) {
        if (operands[i].dims().empty()) return {node, i};
      }
      if (operands.empty()) break;
      node = operands[0].node.get();
    }
    return {nullptr, 0};
  }

  // Depth first, without recursion.
  void append_from(const Node* root, std::vector<const Node*>& order) {
    std::vector<std::pair<const Node*, bool>> stack = {{root, false}};
    while (!stack.empty()) {
      const auto [node, entered] = stack.back();
      stack.pop_back();
      if (entered) {
        order.push_back(node);
        continue;
      }
      if (!mark(node)) continue;
      stack.push_back({node, true});
      const size_t first = stack.size();
      before(node, [&](const Node* next) {
        if (!marked(next)) stack.push_back({next, false});
      });
      std::reverse(stack.begin() + static_cast<ptrdiff_t>(first), stack.end());
    }
  }

  const Graph& graph_;
  const std::span<const Value> roots_;
  std::unordered_set<const Node*> parameters_;
  std::unordered_map<const Node*, Wait> waits_;
  std::vector<uint32_t> marks_;  // by position: the last epoch that marked the node
  uint32_t epoch_ = 0;
};

}  // namespace

std::vector<int64_t> pair_donations(const Graph& graph, std::span<const Value> roots,
                                    const std::vector<bool>& donated) {
  std::vector<int64_t> taker(graph.parameters.size(), kNoDonation);
  if (std::find(donated.begin(), donated.end(), true) == donated.end()) return taker;
  for (size_t i = 0; i < donated.size(); ++i) {
    if (donated[i]) taker[i] = kAnyDonation;
  }
  const std::vector<int64_t> parameters = donated_parameters(graph, donated);
  std::vector<Pair> pairs;
  for (size_t i = 0; i < roots.size(); ++i) find_updated(roots[i], i, parameters, pairs);
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.ops < b.ops; });
  std::vector<bool> given(roots.size());
  for (const Pair& pair : pairs) {
    if (taker[pair.parameter] != kAnyDonation || given[pair.root]) continue;
    taker[pair.parameter] = static_cast<int64_t>(pair.root);
    given[pair.root] = true;
  }
  return taker;
}

OrderedGraph order_updates(const Graph& graph, std::span<const Value> roots,
                           std::span<const int64_t> takers) {
  return Ordering(graph, roots, takers).ordered();
}

}  // namespace torch_xla::ir
