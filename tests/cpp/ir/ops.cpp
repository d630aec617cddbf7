#include "ir/ops.h"

namespace torch_xla::ir::testing {

const Op kAdd{"test::add",
              [](Lowering& l, const Node&) -> Results { return l.operand(0) + l.operand(1); }};

const Op kRotate{"test::rotate", [](Lowering& l, const Node& n) -> Results {
                   const int64_t size = n.output().dims[0];
                   const int64_t by = n.attributes().integer() % size;
                   return l->concatenate({l->slice_in_dim(l.operand(0), by, size, 1, 0),
                                          l->slice_in_dim(l.operand(0), 0, by, 1, 0)},
                                         0);
                 }};

const Op kBoth{"test::both", [](Lowering& l, const Node&) -> Results {
                 return {l.operand(0) + l.operand(1), l.operand(0) - l.operand(1)};
               }};

Value add(const Value& x, const Value& y) { return Node::make(kAdd, {x, y}, {}, x.shape()); }

Value rotate(const Value& x, int64_t by) {
  return Node::make(kRotate, {x}, Attributes::of(by), x.shape());
}

std::pair<Value, Value> both(const Value& x, const Value& y) {
  const Value operands[] = {x, y};
  const ShapeRef outputs[] = {x.shape(), x.shape()};
  const NodePtr node = Node::make(kBoth, operands, {}, outputs);
  return {Value(node, 0), Value(node, 1)};
}

}  // namespace torch_xla::ir::testing
