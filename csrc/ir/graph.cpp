#include "ir/graph.h"

#include <atomic>

namespace torch_xla::ir {
namespace {

uint64_t next_epoch() {
  static std::atomic<uint64_t> epoch{0};
  return ++epoch;
}

// Depth-first without recursion: a frame is a node and the operand to look at next.
struct Frame {
  Node* node;
  uint32_t next_operand;
};

class Walker {
 public:
  Walker(Graph& graph, const std::unordered_set<const Node*>& inputs)
      : graph_(graph), inputs_(inputs), epoch_(graph.epoch) {}

  void visit_from(Node* root) {
    enter(root);
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      const auto operands = frame.node->operands();
      if (frame.next_operand < operands.size()) {
        Node* operand = operands[frame.next_operand++].node.get();
        enter(operand);
      } else {
        Node* node = frame.node;
        stack_.pop_back();
        leave(node);
      }
    }
  }

 private:
  void enter(Node* node) {
    if (node->visit.epoch == epoch_) return;
    node->visit = {epoch_, 0, 0};
    if (is_input(node)) {
      leave_input(node);
    } else if (node->operands().empty()) {
      leave(node);
    } else {
      stack_.push_back({node, 0});
    }
  }

  bool is_input(const Node* node) const { return !inputs_.empty() && inputs_.contains(node); }

  void leave_input(Node* node) {
    node->visit.position = static_cast<uint32_t>(graph_.order.size());
    graph_.order.push_back(node);
    graph_.parameters.push_back(node);
    graph_.key.add(Node::leaf(kDeviceData, node->output(), nullptr)->local_hash());
  }

  void leave(Node* node) {
    node->visit.position = static_cast<uint32_t>(graph_.order.size());
    graph_.order.push_back(node);
    uint64_t hash = node->local_hash();
    for (const Value& operand : node->operands()) {
      ++operand.node->visit.uses;
      hash = mix(hash, uint64_t{operand.node->visit.position} << 16 | operand.index);
    }
    graph_.key.add(hash);
    if (&node->op() == &kDeviceData) {
      graph_.parameters.push_back(node);
    } else if (&node->op() == &kScalar) {
      graph_.scalars.push_back(node);
    }
  }

  Graph& graph_;
  const std::unordered_set<const Node*>& inputs_;
  const uint64_t epoch_;
  std::vector<Frame> stack_;
};

}  // namespace

std::mutex& graph_mutex() {
  static std::mutex mutex;
  return mutex;
}

Graph walk(std::span<const Value> roots, const std::unordered_set<const Node*>& inputs) {
  Graph graph;
  graph.epoch = next_epoch();
  extend(graph, roots, inputs);
  return graph;
}

void extend(Graph& graph, std::span<const Value> roots,
            const std::unordered_set<const Node*>& inputs) {
  Walker walker(graph, inputs);
  for (const Value& root : roots) walker.visit_from(root.node.get());
  for (const Value& root : roots) {
    graph.key.add(uint64_t{root.node->visit.position} << 16 | root.index);
  }
}

void set_condition(Graph& graph, const Node& update, Value condition) {
  graph.key.add(uint64_t{update.visit.position} << 32 | condition.node->visit.position);
  graph.conditions.emplace(&update, std::move(condition));
}

}  // namespace torch_xla::ir
