#include "ir/signature.h"

#include <algorithm>
#include <unordered_map>

#include "ir/hash.h"
#include "sharding/sharding.h"

namespace torch_xla::ir {
namespace {

constexpr std::string_view kConstraint = "xla::sharding_constraint";  // see constrain()
constexpr uint32_t kNoUser = ~uint32_t{0};

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string numbers(std::span<const int64_t> words) {
  std::string text = "[";
  for (size_t i = 0; i < words.size(); ++i) text += (i ? ", " : "") + std::to_string(words[i]);
  return text + "]";
}

}  // namespace

Signature::Signature(const Graph& graph, std::span<const Value> roots,
                     const std::vector<bool>& donated)
    : donated_(donated) {
  entries_.reserve(graph.order.size());
  std::vector<bool> is_input(graph.order.size());
  for (const Node* leaf : graph.parameters) is_input[leaf->visit.position] = true;
  for (const Node* node : graph.order) {
    Entry entry{&node->op(),
                node->local_hash(),
                0,
                node->location(),
                static_cast<uint32_t>(words_.size()),
                static_cast<uint32_t>(node->attribute_words().size()),
                static_cast<uint32_t>(node->num_outputs()),
                kNoUser};
    // Operands of a node that the walk took for an input lie outside the graph.
    const auto operands = is_input[entries_.size()] ? std::span<const Value>() : node->operands();
    for (const Value& operand : operands) {
      const uint32_t position = operand.node->visit.position;
      entry.wiring = mix(entry.wiring, uint64_t{position} << 16 | operand.index);
      if (entries_[position].user == kNoUser && entries_[position].location == 0) {
        entries_[position].user = static_cast<uint32_t>(entries_.size());
        entries_[position].location = node->location();
      }
    }
    if (is_input[entries_.size()]) {
      entry.op = &kDeviceData;
      entry.local_hash = Node::leaf(kDeviceData, node->output(), nullptr)->local_hash();
      entry.location = 0;
      entry.num_attributes = 0;
    }
    const auto words = node->attribute_words().first(entry.num_attributes);
    words_.insert(words_.end(), words.begin(), words.end());
    for (size_t i = 0; i < node->num_outputs(); ++i) {
      const ShapeRef shape = node->output(i);
      words_.push_back(static_cast<int64_t>(shape.type));
      words_.push_back(static_cast<int64_t>(shape.dims.size()));
      words_.insert(words_.end(), shape.dims.begin(), shape.dims.end());
    }
    entries_.push_back(entry);
  }
  for (const Value& root : roots) {
    roots_.push_back(uint64_t{root.node->visit.position} << 16 | root.index);
  }
}

double Signature::similarity(const Signature& other) const {
  if (entries_.empty() || other.entries_.empty()) return entries_.size() == other.entries_.size();
  std::unordered_map<uint64_t, int64_t> counts;
  for (const Entry& entry : entries_) ++counts[entry.local_hash];
  size_t common = 0;
  for (const Entry& entry : other.entries_) common += counts[entry.local_hash]-- > 0 ? 1 : 0;
  return static_cast<double>(common) /
         static_cast<double>(std::max(entries_.size(), other.entries_.size()));
}

std::span<const int64_t> Signature::attributes(const Entry& entry) const {
  return std::span(words_).subspan(entry.first_word, entry.num_attributes);
}

std::vector<std::string> Signature::shapes(const Entry& entry) const {
  std::vector<std::string> shapes;
  size_t at = entry.first_word + entry.num_attributes;
  for (uint32_t i = 0; i < entry.num_outputs; ++i) {
    std::string text(stablehlo::hlo_name(static_cast<ElementType>(words_[at])));
    const auto rank = static_cast<size_t>(words_[at + 1]);
    text += '[';
    for (size_t k = 0; k < rank; ++k) {
      text += (k ? "," : "") + std::to_string(words_[at + 2 + k]);
    }
    shapes.push_back(text + ']');
    at += 2 + rank;
  }
  return shapes;
}

std::string Signature::where(const Entry& entry) const {
  const std::string place = describe(entry.location);
  return place.empty() ? "" : " at " + place;
}

std::vector<size_t> Signature::leaves() const {
  std::vector<size_t> positions;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].op == &kDeviceData) positions.push_back(i);
  }
  return positions;
}

// Inputs are compared in their order: where one has another shape or dtype, that is the cause of
// whatever else differs.
std::string Signature::input_difference(const Signature& before) const {
  const std::vector<size_t> now = leaves(), old = before.leaves();
  if (now.size() != old.size()) return "";
  std::string first;
  size_t others = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    const Entry& entry = entries_[now[i]];
    const Entry& was = before.entries_[old[i]];
    if (entry.local_hash == was.local_hash) continue;
    if (!first.empty()) {
      ++others;
      continue;
    }
    first = "an input";
    if (entry.user != kNoUser) first += std::string(" of ") + entries_[entry.user].op->name;
    first += where(entry) + " is " + join(shapes(entry)) + " and was " + join(before.shapes(was));
  }
  if (others > 0) first += " (and " + std::to_string(others) + " more inputs)";
  if (!first.empty()) {
    first +=
        ". Give every step inputs of the same shapes and dtypes: pad them, or drop the last "
        "batch.";
  }
  return first;
}

// The first node, in the order of computation, that the other graph does not have at its place.
std::string Signature::node_difference(const Signature& before) const {
  const size_t common = std::min(entries_.size(), before.entries_.size());
  size_t i = 0;
  while (i < common && entries_[i].local_hash == before.entries_[i].local_hash &&
         entries_[i].wiring == before.entries_[i].wiring) {
    ++i;
  }
  if (i == common) {
    if (entries_.size() == before.entries_.size()) return "";
    const bool longer = entries_.size() > common;
    const Entry& extra = longer ? entries_[i] : before.entries_[i];
    return std::string(longer ? "it goes on with " : "it ends before ") + extra.op->name +
           where(extra) + ". Let every step run the same ops up to its sync.";
  }
  const Entry& now = entries_[i];
  const Entry& was = before.entries_[i];
  if (now.op != was.op) {
    return std::string(now.op->name) + where(now) + " stands where " + was.op->name + where(was) +
           " stood. Let every step take the same path, or expect one program a path.";
  }
  const auto attributes_now = attributes(now), attributes_before = before.attributes(was);
  if (!std::ranges::equal(attributes_now, attributes_before)) {
    if (now.op->name == kConstraint) {
      const auto text = [](std::span<const int64_t> attributes) {
        return reinterpret_cast<const sharding::Sharding*>(attributes[0])->hlo();
      };
      return std::string(now.op->name) + where(now) + " cuts as " + text(attributes_now) +
             " and cut as " + text(attributes_before) +
             ". Mark the tensors of a step in the same way each time.";
    }
    return std::string(now.op->name) + where(now) + " has the attributes " +
           numbers(attributes_now) + " and had " + numbers(attributes_before) +
           ". A Python number that decides a shape or a position is part of the program: keep it "
           "the same, or pass it as a tensor.";
  }
  if (now.local_hash != was.local_hash) {
    return std::string(now.op->name) + where(now) + " gives " + join(shapes(now)) + " and gave " +
           join(before.shapes(was)) + ". Keep the shapes of a step the same.";
  }
  return std::string(now.op->name) + where(now) +
         " takes other operands. Let every step take the same path, or expect one program a path.";
}

std::string Signature::difference(const Signature& before) const {
  if (std::string text = input_difference(before); !text.empty()) return text;
  if (std::string text = node_difference(before); !text.empty()) return text;
  if (roots_ != before.roots_) {
    return "it has " + std::to_string(roots_.size()) + " results and had " +
           std::to_string(before.roots_.size()) +
           ": other tensors are alive at the sync. Let go of what a step leaves behind, or keep "
           "the same tensors each time.";
  }
  if (donated_ != before.donated_) {
    return "its inputs are overwritten in other places: a tensor that earlier steps updated is "
           "still referred to, or the reverse. Keep no second reference to old values.";
  }
  return "";
}

}  // namespace torch_xla::ir
