// Tables of vectors: embedding and its gradient, renormalisation.

#include "aten/checks.h"
#include "aten/indices.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

void check_index_type(const char* function, const at::Tensor& indices) {
  TORCH_CHECK(
      indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
      "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
      "Long, Int; but got ",
      indices.toString(), " instead (while checking arguments for ", function, ")");
}

// --- embedding: weight[indices] ---

const Op kEmbedding{"aten::embedding", [](Lowering& l, const Node&) -> Results {
                      return gather_at(l.builder(), l.operand(0), {l.operand(1)}, {0});
                    }};

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices, int64_t, bool, bool) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  check_index_type("embedding", indices);
  TORCH_CHECK(weight.size(0) > 0 || indices.numel() == 0,
              "index_select(): self indexing axis dim should be positive");
  Value index = value_of(indices);
  const auto outside = known_outside(index, 0, weight.size(0));
  TORCH_CHECK(!outside || weight.size(1) > 0,
              "INDICES element is out of DATA bounds, id=", *outside, " axis_dim=", weight.size(0));
  TORCH_CHECK_INDEX(!outside, "index out of range in self");
  index = checked_index(index, 0, weight.size(0), kEmbedding.name, CheckError::kIndex);
  c10::SmallVector<int64_t, 6> sizes(indices.sizes().begin(), indices.sizes().end());
  sizes.push_back(weight.size(1));
  const ShapeRef shape{element_type(weight), {sizes.data(), sizes.size()}};
  Value result;
  if (const auto some = lazy::trimmed(index); some && weight.numel() > 0) {
    sizes[static_cast<size_t>(some->dim)] = some->bound();
    result = lazy::trim(Node::make(kEmbedding, {value_of(weight), some->whole}, {}, shape),
                        some->count, some->dim, some->size);
  } else if (shape.num_elements() == 0) {
    result = lazy::full(0, shape.type, shape.dims);
  } else {
    result = Node::make(kEmbedding, {value_of(weight), index}, {}, shape);
  }
  return lazy::make(result, weight.scalar_type(), device_of({weight, indices}));
}

// Rows that must not count are sent past the end, where a scatter drops them.
XlaValue without_padding(Builder& b, XlaValue indices, int64_t padding, int64_t rows) {
  if (padding < 0) return indices;
  return b.select(b.eq(indices, b.full_like(indices, padding)), b.full_like(indices, rows),
                  indices);
}

// How often each index occurs, for each index.
XlaValue frequencies(Builder& b, XlaValue indices, int64_t rows) {
  const XlaValue counts =
      scatter_at(b, b.constant(ElementType::kF32, {rows}, 0), {indices}, {0},
                 b.constant(ElementType::kF32, indices.dims(), 1), Combine::kAdd);
  return gather_at(b, counts, {indices}, {0});
}

// Attributes: padding index (negative: none), scale by frequency.
const Op kEmbeddingBackward{
    "aten::embedding_dense_backward", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      auto attributes = n.attributes();
      const int64_t padding = attributes.integer();
      const bool by_frequency = attributes.boolean();
      const ShapeRef out = n.output();
      const ElementType compute = stablehlo::opmath_type(out.type);
      const int64_t rows = out.dims[0], count = l.operand(1).num_elements();
      XlaValue indices = index_type(b, b.reshape(l.operand(1), {count}), rows);
      XlaValue grad = b.convert(b.reshape(l.operand(0), {count, out.dims[1]}), compute);
      indices = without_padding(b, indices, padding, rows);
      if (by_frequency) {
        const XlaValue frequency = b.convert(frequencies(b, indices, rows), compute);
        grad = b.divide(grad, b.broadcast_in_dim(frequency, grad.dims(), {0}));
      }
      const XlaValue sum = scatter_at(b, b.constant(compute, Dims(out.dims), 0), {indices}, {0},
                                      grad, Combine::kAdd);
      return b.convert(sum, out.type);
    }};

at::Tensor embedding_dense_backward(const at::Tensor& grad, const at::Tensor& indices,
                                    int64_t num_weights, int64_t padding_idx,
                                    bool scale_grad_by_freq) {
  check_index_type("embedding_backward", indices);
  const std::array<int64_t, 2> sizes{num_weights, grad.size(-1)};
  const ShapeRef shape{element_type(grad), sizes};
  // The forward, which is meant, may be of no use, and not run.
  Value index =
      checked_index(value_of(indices), 0, num_weights, kEmbedding.name, CheckError::kIndex);
  Value gradients = value_of(grad);
  const auto some = lazy::trimmed(index);
  const Value whole = some && !scale_grad_by_freq ? whole_operand(gradients, grad.dim(), some->dim,
                                                                  some->size, some->bound())
                                                  : Value();
  if (whole) {  // rows that do not count add nothing
    index = some->whole;
    gradients = lazy::filled({whole, some->count, some->dim, some->size}, Neutral::kZero);
  }
  const Value result =
      index.shape().num_elements() == 0 || num_weights == 0 || grad.size(-1) == 0
          ? lazy::full(0, shape.type, shape.dims)
          : Value(Node::make(kEmbeddingBackward, {gradients, index},
                             Attributes::of(padding_idx, scale_grad_by_freq), shape));
  return lazy::make(result, grad.scalar_type(), device_of({grad, indices}));
}

// --- embedding_renorm_: the rows that indices name, scaled down to a greatest norm ---

XlaValue row_norms(Builder& b, XlaValue x, double p) {
  const XlaValue size = b.abs(x);
  const Dims columns{1};
  if (p == 0) {
    return b.reduce_sum(b.convert(b.ne(x, b.zeros_like(x)), x.element_type()), columns);
  }
  if (p == 1) return b.reduce_sum(size, columns);
  if (p == 2) return b.sqrt(b.reduce_sum(b.square(x), columns));
  if (std::isinf(p)) return p > 0 ? b.reduce_max(size, columns) : b.reduce_min(size, columns);
  const XlaValue sum = b.reduce_sum(b.power(size, b.full_like(size, p)), columns);
  return b.power(sum, b.full_like(sum, 1 / p));
}

// Operands: weight, indices, greatest norm. Attribute: the p of the norm.
const Op kEmbeddingRenorm{
    "aten::embedding_renorm_", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const double p = n.attributes().real();
      const ElementType type = n.output().type;
      const ElementType compute = stablehlo::opmath_type(type);
      const XlaValue x = l.operand(0, compute);
      const int64_t rows = x.dim(0), count = l.operand(1).num_elements();
      const XlaValue indices = index_type(b, b.reshape(l.operand(1), {count}), rows);
      const XlaValue named =
          scatter_at(b, b.constant(ElementType::kPred, {rows}, 0), {indices}, {0},
                     b.constant(ElementType::kPred, {count}, 1), Combine::kSet);
      const XlaValue norm = row_norms(b, x, p);
      const XlaValue greatest = b.broadcast_to(l.operand(2, compute), norm.dims());
      // torch adds 1e-7 to the norm, so that it does not divide by zero.
      const XlaValue scale = b.divide(greatest, b.add(norm, b.full_like(norm, 1e-7)));
      const XlaValue factor =
          b.select(b.and_(named, b.gt(norm, greatest)), scale, b.ones_like(scale));
      return b.convert(b.multiply(x, b.broadcast_in_dim(factor, x.dims(), {0})), type);
    }};

at::Tensor& embedding_renorm_(at::Tensor& self, const at::Tensor& indices, double max_norm,
                              double norm_type) {
  TORCH_CHECK(self.dim() == 2, "Expected 2-dimensional tensor, but got ", self.dim(),
              "-dimensional tensor for argument #1 'self' (while checking arguments for "
              "embedding_renorm_)");
  check_index_type("embedding_renorm_", indices);
  if (self.numel() == 0 || indices.numel() == 0) return self;
  const ElementType compute = stablehlo::opmath_type(element_type(self));
  lazy::write(
      self,
      Value(Node::make(
          kEmbeddingRenorm, {value_of(self), value_of(indices), lazy::scalar(max_norm, compute)},
          Attributes::of(norm_type), ShapeRef{element_type(self), span_of(self.sizes())})));
  return self;
}

// --- one_hot: rows of the identity matrix ---

const Op kOneHot{
    "aten::one_hot", [](Lowering& l, const Node& n) -> Results {
      const Dims dims(n.output().dims);
      const auto last = static_cast<int64_t>(dims.size()) - 1;
      const XlaValue label =
          l->broadcast_in_dim(l.operand(0), dims, stablehlo::iota_dims(static_cast<size_t>(last)));
      return l->convert(l->eq(label, l->iota(label.element_type(), dims, last)), n.output().type);
    }};

at::Tensor one_hot(const at::Tensor& self, int64_t classes) {
  TORCH_CHECK(self.scalar_type() == at::kLong,
              "one_hot is only applicable to index tensor of type LongTensor.");
  TORCH_CHECK(self.numel() > 0 || classes > 0,
              "Can not infer total number of classes from empty tensor.");
  if (classes <= 0) {
    TORCH_CHECK(classes == -1, "num_classes should be positive");
    classes = self.max().item<int64_t>() + 1;
  }
  const Value labels = value_of(self);
  const auto outside = known_outside(labels, 0, classes);
  TORCH_CHECK(!outside || *outside >= 0, "Class values must be non-negative.");
  TORCH_CHECK(!outside, "Class values must be smaller than num_classes.");
  at::DimVector sizes(self.sizes());
  sizes.push_back(classes);
  const ShapeRef shape{ElementType::kS64, span_of(sizes)};
  const Value checked = checked_index(labels, 0, classes, kOneHot.name, CheckError::kClass);
  if (const auto some = lazy::trimmed(checked)) {
    sizes[static_cast<size_t>(some->dim)] = some->bound();
    return lazy::make(
        lazy::with_computed(
            checked, Node::make(kOneHot, {some->whole}, {}, ShapeRef{shape.type, span_of(sizes)})),
        at::kLong, self.device());
  }
  return lazy::make(self.numel() == 0 ? lazy::full(0, shape.type, shape.dims)
                                      : Value(Node::make(kOneHot, {checked}, {}, shape)),
                    at::kLong, self.device());
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("one_hot", one_hot);
  m.impl("embedding", embedding);
  m.impl("embedding_dense_backward", embedding_dense_backward);
  m.impl("embedding_renorm_", embedding_renorm_);
}

}  // namespace torch_xla::aten
