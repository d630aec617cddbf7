#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "ir/attributes.h"
#include "ir/location.h"
#include "ir/op.h"
#include "stablehlo/types.h"

namespace torch_xla::ir {

using stablehlo::ElementType;

// The type of one output: element type and dims, elements row-major in the logical order. A view
// of memory owned by a node or by the caller.
struct ShapeRef {
  ElementType type;
  std::span<const int64_t> dims;

  int64_t num_elements() const;
  bool operator==(const ShapeRef& other) const;
  std::string to_string() const;  // "f32[2,3]{1,0}", as XLA prints it
};

// What a leaf node stands for (device memory). The IR only keeps it alive.
class Payload {
 public:
  virtual ~Payload() = default;
};

class Node;

// Counted reference to a node.
class NodePtr {
 public:
  NodePtr() = default;
  explicit NodePtr(Node* node);  // adds a reference
  static NodePtr adopt(Node* node) {
    NodePtr pointer;
    pointer.node_ = node;
    return pointer;
  }
  NodePtr(const NodePtr& other) : NodePtr(other.node_) {}
  NodePtr(NodePtr&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  NodePtr& operator=(NodePtr other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~NodePtr();

  Node* get() const { return node_; }
  Node* operator->() const { return node_; }
  Node& operator*() const { return *node_; }
  explicit operator bool() const { return node_ != nullptr; }
  Node* release() { return std::exchange(node_, nullptr); }

 private:
  Node* node_ = nullptr;
};

// One output of a node.
struct Value {
  NodePtr node;
  uint32_t index = 0;

  Value() = default;
  Value(NodePtr node, uint32_t index = 0) : node(std::move(node)), index(index) {}  // NOLINT
  explicit operator bool() const { return static_cast<bool>(node); }
  bool operator==(const Value& other) const {
    return node.get() == other.node.get() && index == other.index;
  }
  ShapeRef shape() const;
  ElementType type() const { return shape().type; }
  std::span<const int64_t> dims() const { return shape().dims; }
};

// A node of the graph: an op applied to values. Immutable once made; one allocation holds the
// header and, behind it, operands, attribute words and output shapes.
class Node {
 public:
  static NodePtr make(const Op& op, std::span<const Value> operands, const Attributes& attributes,
                      std::span<const ShapeRef> outputs);
  static NodePtr make(const Op& op, std::span<const Value> operands, const Attributes& attributes,
                      ShapeRef output) {
    return make(op, operands, attributes, std::span(&output, 1));
  }
  // Takes over what `operands` hold: counting references to and fro is a good part of what making
  // a node costs.
  static NodePtr take(const Op& op, std::span<Value> operands, const Attributes& attributes,
                      std::span<const ShapeRef> outputs);
  // Operands in braces are taken over.
  template <size_t N>
  static NodePtr make(const Op& op, Value (&&operands)[N], const Attributes& attributes,
                      ShapeRef output) {
    return take(op, operands, attributes, std::span(&output, 1));
  }
  // A leaf of the graph: `payload` is what it stands for, and no part of its hash.
  static NodePtr leaf(const Op& op, ShapeRef shape, std::shared_ptr<Payload> payload,
                      Location location = current_location());

  Node(const Node&) = delete;

  const Op& op() const { return *op_; }
  std::span<const Value> operands() const { return {operand_data(), num_operands_}; }
  const Value& operand(size_t i) const { return operands()[i]; }
  std::span<const int64_t> attribute_words() const { return {word_data(), num_attribute_words_}; }
  AttributeReader attributes() const { return AttributeReader(attribute_words()); }
  size_t num_outputs() const { return num_outputs_; }
  ShapeRef output(size_t i = 0) const;
  // Of op, attributes and output shapes; not of the operands (see graph.h for the graph's key).
  uint64_t local_hash() const { return local_hash_; }
  Location location() const { return location_; }
  Payload* payload() const { return payload_.get(); }
  const std::shared_ptr<Payload>& shared_payload() const { return payload_; }

  uint32_t use_count() const { return references_.load(std::memory_order_relaxed); }
  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (drop_reference()) destroy(this);
  }

  // Scratch of the walk that visits the node; walks hold the graph lock (graph.h).
  struct Visit {
    uint64_t epoch = 0;
    uint32_t position = 0;
    uint32_t uses = 0;
  };
  Visit visit;

 private:
  Node(const Op& op, uint32_t operands, uint32_t words, uint32_t outputs)
      : op_(&op), num_operands_(operands), num_attribute_words_(words), num_outputs_(outputs) {}
  ~Node() = default;
  static Node* allocate(const Op& op, size_t operands, const Attributes& attributes,
                        std::span<const ShapeRef> outputs, Location location);
  static void destroy(Node* node);
  void finish_hash();
  // Whether that was the last one. Who has the only reference need not count down with others.
  bool drop_reference() {
    return references_.load(std::memory_order_acquire) == 1 ||
           references_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  Value* operand_data() const { return reinterpret_cast<Value*>(const_cast<Node*>(this) + 1); }
  int64_t* word_data() const { return reinterpret_cast<int64_t*>(operand_data() + num_operands_); }
  int64_t* shape_data() const { return word_data() + num_attribute_words_; }

  const Op* op_;
  std::atomic<uint32_t> references_{1};
  Location location_ = 0;
  uint64_t local_hash_ = 0;
  std::shared_ptr<Payload> payload_;
  uint32_t num_operands_;
  uint32_t num_attribute_words_;
  uint32_t num_outputs_;
};

inline NodePtr::NodePtr(Node* node) : node_(node) {
  if (node_) node_->retain();
}
inline NodePtr::~NodePtr() {
  if (node_) node_->release();
}
inline ShapeRef Value::shape() const { return node->output(index); }

// A number that feeds arithmetic (learning rate, epsilon, seed): data, not structure. All scalars
// of a step travel to the device in one packed array for each class below.
enum class ScalarClass : uint8_t { kF32, kF64, kI64, kCount };

struct ScalarPayload final : Payload {
  explicit ScalarPayload(ScalarClass kind, double real) : kind(kind), real(real) {}
  explicit ScalarPayload(int64_t integer) : kind(ScalarClass::kI64), integer(integer) {}
  ScalarClass kind;
  double real = 0;
  int64_t integer = 0;
};

// A rank-0 value of `type`: f32 for f32 and narrower floats, f64 for f64, int64 for integers, bool
// and unsigned (bit pattern). Complex numbers are made of two reals by the caller.
Value scalar(double number, ElementType type);
Value scalar(int64_t number, ElementType type);

extern const Op kScalar;      // "prim::Constant"
extern const Op kDeviceData;  // "xla::device_data"

}  // namespace torch_xla::ir
