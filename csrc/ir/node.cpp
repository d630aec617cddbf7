#include "ir/node.h"

#include <new>
#include <stdexcept>
#include <vector>

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
Node* Node::allocate(const Op& op, size_t operands, size_t attribute_words,
                     std::span<const ShapeRef> outputs) {
  size_t shape_words = 0;
  for (const ShapeRef& shape : outputs) shape_words += 1 + shape.dims.size();
  const size_t bytes =
      sizeof(Node) + operands * sizeof(Value) + (attribute_words + shape_words) * sizeof(int64_t);
  Node* node = new (take_block(bytes))
      Node(op, static_cast<uint32_t>(operands), static_cast<uint32_t>(attribute_words),
           static_cast<uint32_t>(outputs.size()));
  int64_t* word = node->shape_data();
  for (const ShapeRef& shape : outputs) {
    *word++ = static_cast<int64_t>(shape.type) << 32 | static_cast<int64_t>(shape.dims.size());
    for (int64_t dim : shape.dims) *word++ = dim;
  }
  return node;
}

NodePtr Node::make(const Op& op, std::span<const Value> operands, const Attributes& attributes,
                   std::span<const ShapeRef> outputs) {
  const std::span<const int64_t> words = attributes.words();
  Node* node = allocate(op, operands.size(), words.size(), outputs);
  Value* operand = node->operand_data();
  for (const Value& value : operands) new (operand++) Value(value);
  std::copy(words.begin(), words.end(), node->word_data());
  node->location_ = current_location();
  node->finish_hash();
  return NodePtr::adopt(node);
}

NodePtr Node::leaf(const Op& op, ShapeRef shape, std::shared_ptr<Payload> payload) {
  Node* node = allocate(op, 0, 0, std::span(&shape, 1));
  node->payload_ = std::move(payload);
  node->location_ = current_location();
  node->finish_hash();
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

// A chain of thousands of nodes dies at once when its last tensor goes: no recursion.
void Node::destroy(Node* node) {
  thread_local std::vector<Node*> pending;
  thread_local bool draining = false;
  pending.push_back(node);
  if (draining) return;
  draining = true;
  while (!pending.empty()) {
    Node* dead = pending.back();
    pending.pop_back();
    for (uint32_t i = 0; i < dead->num_operands_; ++i) dead->operand_data()[i].~Value();
    const int64_t* end = dead->shape_data();
    for (uint32_t i = 0; i < dead->num_outputs_; ++i) end += 1 + static_cast<uint32_t>(*end);
    const auto bytes = static_cast<size_t>(reinterpret_cast<const char*>(end) -
                                           reinterpret_cast<const char*>(dead));
    dead->~Node();
    give_block(dead, bytes);
  }
  draining = false;
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
