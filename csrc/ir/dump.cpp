#include "ir/dump.h"

#include <vector>

#include "ir/graph.h"

namespace torch_xla::ir {
namespace {

std::string shapes_of(const Node& node) {
  if (node.num_outputs() == 1) return node.output().to_string();
  std::string text = "(";
  for (size_t i = 0; i < node.num_outputs(); ++i) {
    if (i) text += ", ";
    text += node.output(i).to_string();
  }
  return text + ")";
}

std::vector<std::string> root_marks(const Graph& graph, std::span<const Value> roots) {
  std::vector<std::string> marks(graph.order.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    marks[roots[i].node->visit.position] += ", ROOT=" + std::to_string(i);
  }
  return marks;
}

}  // namespace

std::string to_text(std::span<const Value> roots, bool locations) {
  std::lock_guard lock(graph_mutex());
  const Graph graph = walk(roots);
  const std::vector<std::string> marks = root_marks(graph, roots);
  std::string text = "IR {\n";
  for (const Node* node : graph.order) {
    const std::string shapes = shapes_of(*node);
    text += "  %" + std::to_string(node->visit.position) + " = " + shapes + ' ' + node->op().name;
    text += '(';
    for (size_t i = 0; i < node->operands().size(); ++i) {
      const Value& operand = node->operand(i);
      if (i) text += ", ";
      text += '%' + std::to_string(operand.node->visit.position);
      if (operand.node->num_outputs() > 1) text += '.' + std::to_string(operand.index);
    }
    text += ')';
    if (locations && node->location() != 0) text += ", location=" + describe(node->location());
    text += ", xla_shape=" + shapes + marks[node->visit.position] + '\n';
  }
  return text + "}\n";
}

std::string to_dot(std::span<const Value> roots) {
  std::lock_guard lock(graph_mutex());
  const Graph graph = walk(roots);
  const std::vector<std::string> marks = root_marks(graph, roots);
  std::string text = "digraph G {\n";
  for (const Node* node : graph.order) {
    const std::string shapes = shapes_of(*node);
    text += "  node" + std::to_string(node->visit.position) + " [label=\"" + node->op().name +
            "\\n" + shapes + "\\nxla_shape=" + shapes + marks[node->visit.position] + "\"]\n";
  }
  for (const Node* node : graph.order) {
    for (size_t i = 0; i < node->operands().size(); ++i) {
      text += "  node" + std::to_string(node->operand(i).node->visit.position) + " -> node" +
              std::to_string(node->visit.position);
      if (node->operands().size() > 1) text += " [label=\"i=" + std::to_string(i) + "\"]";
      text += '\n';
    }
  }
  return text + "}\n";
}

}  // namespace torch_xla::ir
