#include "ir/node.h"

#include <algorithm>
#include <memory>
#include <new>
#include <stdexcept>

#include "ir/blocks.h"
#include "ir/hash.h"
#include "ir/lowering.h"

namespace torch_xla::ir {

int64_t ShapeRef::num_elements() const {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

bool ShapeRef::operator==(const ShapeRef& other) const {
  return type == other.type &&
         std::equal(dims.begin(), dims.end(), other.dims.begin(), other.dims.end());
}

std::string ShapeRef::to_string() const {
  std::string text(stablehlo::hlo_name(type));
  text += '[';
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i) text += ',';
    text += std::to_string(dims[i]);
  }
  text += ']';
  if (!dims.empty()) {
    text += '{';
    for (size_t i = dims.size(); i-- > 0;) {
      text += std::to_string(i);
      if (i) text += ',';
    }
    text += '}';
  }
  return text;
}

// Shapes behind the header: for each output a word type << 32 | rank, then its dims. Output i is
// found by walking the ones before it; nearly every node has one.
//
// The operands are left to the caller: nothing here reads them.
Node* Node::allocate(const Op& op, size_t operands, const Attributes& attributes,
                     std::span<const ShapeRef> outputs, Location location) {
  const std::span<const int64_t> words = attributes.words();
  size_t shape_words = 0;
  for (const ShapeRef& shape : outputs) shape_words += 1 + shape.dims.size();
  const size_t bytes =
      sizeof(Node) + operands * sizeof(Value) + (words.size() + shape_words) * sizeof(int64_t);
  Node* node = new (take_block(bytes))
      Node(op, static_cast<uint32_t>(operands), static_cast<uint32_t>(words.size()),
           static_cast<uint32_t>(outputs.size()));
  int64_t* word = std::copy(words.begin(), words.end(), node->word_data());
  for (const ShapeRef& shape : outputs) {
    *word++ = static_cast<int64_t>(shape.type) << 32 | static_cast<int64_t>(shape.dims.size());
    for (int64_t dim : shape.dims) *word++ = dim;
  }
  node->location_ = location;
  node->finish_hash();
  return node;
}

NodePtr Node::make(const Op& op, std::span<const Value> operands, const Attributes& attributes,
                   std::span<const ShapeRef> outputs) {
  Node* node = allocate(op, operands.size(), attributes, outputs, current_location());
  std::uninitialized_copy(operands.begin(), operands.end(), node->operand_data());
  return NodePtr::adopt(node);
}

NodePtr Node::take(const Op& op, std::span<Value> operands, const Attributes& attributes,
                   std::span<const ShapeRef> outputs) {
  Node* node = allocate(op, operands.size(), attributes, outputs, current_location());
  std::uninitialized_move(operands.begin(), operands.end(), node->operand_data());
  return NodePtr::adopt(node);
}

NodePtr Node::leaf(const Op& op, ShapeRef shape, std::shared_ptr<Payload> payload,
                   Location location) {
  Node* node = allocate(op, 0, {}, std::span(&shape, 1), location);
  node->payload_ = std::move(payload);
  return NodePtr::adopt(node);
}

void Node::finish_hash() {
  uint64_t hash = op_->hash;
  // Attribute words and shapes are contiguous.
  const int64_t* word = word_data();
  const int64_t* shapes = shape_data();
  while (word != shapes) hash = mix(hash, static_cast<uint64_t>(*word++));
  for (uint32_t i = 0; i < num_outputs_; ++i) {
    const auto rank = static_cast<uint32_t>(*word);
    for (uint32_t k = 0; k <= rank; ++k) hash = mix(hash, static_cast<uint64_t>(*word++));
  }
  local_hash_ = hash;
}

ShapeRef Node::output(size_t i) const {
  const int64_t* word = shape_data();
  for (; i > 0; --i) word += 1 + static_cast<uint32_t>(*word);
  return {static_cast<ElementType>(*word >> 32),
          std::span(word + 1, static_cast<size_t>(static_cast<uint32_t>(*word)))};
}

// A chain of thousands of nodes dies at once when its last tensor goes: no recursion. Nodes without
// references wait in a list, linked through the marks that no walk needs any more.
void Node::destroy(Node* node) {
  static_assert(sizeof(Visit::epoch) >= sizeof(Node*));
  Node* waiting = nullptr;
  const auto wait = [&](Node* dead) {
    dead->visit.epoch = reinterpret_cast<uintptr_t>(waiting);
    waiting = dead;
  };
  wait(node);
  while (waiting) {
    Node* dead = waiting;
    waiting = reinterpret_cast<Node*>(static_cast<uintptr_t>(dead->visit.epoch));
    for (uint32_t i = 0; i < dead->num_operands_; ++i) {
      Node* operand = dead->operand_data()[i].node.release();
      if (operand && operand->drop_reference()) wait(operand);
    }
    const int64_t* end = dead->shape_data();
    for (uint32_t i = 0; i < dead->num_outputs_; ++i) end += 1 + static_cast<uint32_t>(*end);
    const auto bytes = static_cast<size_t>(reinterpret_cast<const char*>(end) -
                                           reinterpret_cast<const char*>(dead));
    dead->~Node();
    give_block(dead, bytes);
  }
}

Value scalar(double number, ElementType type) {
  const bool wide = type == ElementType::kF64;
  return Value(Node::leaf(
      kScalar, {type, {}},
      std::allocate_shared<ScalarPayload>(BlockAllocator<ScalarPayload>(),
                                          wide ? ScalarClass::kF64 : ScalarClass::kF32, number)));
}

Value scalar(int64_t number, ElementType type) {
  return Value(
      Node::leaf(kScalar, {type, {}},
                 std::allocate_shared<ScalarPayload>(BlockAllocator<ScalarPayload>(), number)));
}

namespace {
Results lower_leaf(Lowering& lowering, const Node& node) { return lowering.leaf(node); }
}  // namespace

const Op kScalar{"prim::Constant", lower_leaf};
const Op kDeviceData{"xla::device_data", lower_leaf};

}  // namespace torch_xla::ir
