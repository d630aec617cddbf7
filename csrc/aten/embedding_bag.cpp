// embedding_bag: sums, means or maxima of bags of rows of a table, and the gradients.
//
// Bag i holds indices[offsets[i]] to indices[offsets[i + 1]]. Indices that equal padding_idx are in
// no bag.

#include <ATen/ops/_embedding_bag_backward_native.h>

#include "aten/checks.h"
#include "aten/indices.h"
#include "lazy/host_range.h"

namespace torch_xla::aten {
namespace {

enum class Mode : int64_t { kSum, kMean, kMax };

// The bag of each index; `bags` for those in none.
XlaValue bag_of(Builder& b, XlaValue indices, XlaValue offsets, int64_t bags, int64_t padding) {
  const int64_t count = indices.dim(0);
  offsets = index_type(b, offsets, count);
  const XlaValue starts =
      scatter_at(b, b.constant(ElementType::kS32, {count}, 0), {offsets}, {0},
                 b.constant(ElementType::kS32, offsets.dims(), 1), Combine::kAdd);
  const XlaValue started = running_sum(b, starts);
  const XlaValue bag = b.subtract(started, b.ones_like(started));
  if (padding < 0) return bag;
  return b.select(b.eq(indices, b.full_like(indices, padding)), b.full_like(bag, bags), bag);
}

// One number a row, beside the rows.
XlaValue down_columns(Builder& b, XlaValue numbers, const Dims& dims) {
  return b.broadcast_in_dim(numbers, dims, {0});
}

// Operands: weight, indices, offsets, and perhaps a weight for each index.
// Outputs: the bags, the bag of each index, the sizes of the bags, the rows of the maxima.
const Op kEmbeddingBag{
    "aten::_embedding_bag", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      auto attributes = n.attributes();
      const auto mode = attributes.enumeration<Mode>();
      const int64_t padding = attributes.integer();
      const ShapeRef out = n.output(0);
      const ElementType compute = stablehlo::opmath_type(out.type);
      const int64_t bags = out.dims[0];
      const XlaValue weight = l.operand(0);
      const XlaValue indices = index_type(b, l.operand(1), weight.dim(0));
      const XlaValue bag = bag_of(b, indices, l.operand(2), bags, padding);
      XlaValue rows = b.convert(gather_at(b, weight, {indices}, {0}), compute);
      if (l.num_operands() == 4) {
        rows = b.multiply(rows, down_columns(b, l.operand(3, compute), rows.dims()));
      }
      const XlaValue sizes =
          scatter_at(b, b.constant(ElementType::kS32, {bags}, 0), {bag}, {0},
                     b.constant(ElementType::kS32, bag.dims(), 1), Combine::kAdd);
      const Dims dims(out.dims);
      const XlaValue empty = down_columns(b, b.eq(sizes, b.zeros_like(sizes)), dims);
      XlaValue result, maxima = b.constant(ElementType::kS64, Dims(n.output(3).dims), 0);
      if (mode == Mode::kMax) {
        const XlaValue lowest = b.broadcast_to(b.min_value(compute), dims);
        const XlaValue greatest = scatter_at(b, lowest, {bag}, {0}, rows, Combine::kMaximum);
        result = b.select(empty, b.zeros_like(greatest), greatest);
        // The first index of the bag whose row has the maximum.
        const XlaValue place = b.iota(ElementType::kS32, rows.dims(), 0);
        const XlaValue none = b.full_like(place, rows.dim(0));
        const XlaValue has = b.eq(rows, gather_at(b, greatest, {bag}, {0}));
        const XlaValue first =
            scatter_at(b, b.constant(ElementType::kS32, dims, rows.dim(0)), {bag}, {0},
                       b.select(has, place, none), Combine::kMinimum);
        maxima = b.select(empty, maxima,
                          b.convert(gather_at(b, indices, {first}, {0}), ElementType::kS64));
      } else {
        result = scatter_at(b, b.constant(compute, dims, 0), {bag}, {0}, rows, Combine::kAdd);
        if (mode == Mode::kMean) {
          const XlaValue size = b.convert(b.maximum(sizes, b.ones_like(sizes)), compute);
          result = b.divide(result, down_columns(b, size, dims));
        }
      }
      return {b.convert(result, out.type), b.convert(bag, n.output(1).type),
              b.convert(sizes, n.output(2).type), b.convert(maxima, n.output(3).type)};
    }};

void check_arguments(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets,
                     int64_t mode, const std::optional<at::Tensor>& weights,
                     bool include_last_offset) {
  for (const at::Tensor* tensor : {&indices, &offsets}) {
    TORCH_CHECK(tensor->scalar_type() == at::kLong || tensor->scalar_type() == at::kInt,
                "Expected tensor for argument 'indices' or 'offsets' to have one of the following "
                "scalar types: Long, Int; but got ",
                tensor->toString(), " instead (while checking arguments for embedding_bag)");
  }
  TORCH_CHECK(weight.dim() == 2 && indices.dim() == 1 && offsets.dim() == 1,
              "embedding_bag: expected a 2-dimensional weight and 1-dimensional indices and "
              "offsets, got ",
              weight.dim(), ", ", indices.dim(), " and ", offsets.dim(), " dimensions");
  TORCH_CHECK(mode >= 0 && mode <= 2, "embedding_bag: mode must be 0 (sum), 1 (mean) or 2 (max)");
  TORCH_CHECK(!include_last_offset || offsets.size(0) >= 1,
              "include_last_offset: number of offset should be at least 1");
  if (!weights || !weights->defined()) return;
  TORCH_CHECK(mode == 0,
              "embedding_bag: per_sample_weights was not None. per_sample_weights is only "
              "supported for mode='sum'");
  TORCH_CHECK(weights->scalar_type() == weight.scalar_type() && weights->dim() == 1 &&
                  weights->numel() == indices.numel(),
              "embedding_bag: per_sample_weights must have the dtype of weight and the size of "
              "indices");
}

// The offsets, of bags that begin with the first index and none beyond the last.
Value checked_offsets(const at::Tensor& offsets, int64_t indices) {
  const Value all = value_of(offsets), first = value_of(offsets.narrow(0, 0, 1));
  const auto late = known_outside(first, 0, 1), beyond = known_outside(all, 0, indices + 1);
  constexpr auto kFirst =
      "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
      "position 0.";
  TORCH_CHECK(!late, kFirst, " However, got ", *late);
  TORCH_CHECK(!beyond, "offsets[-1] can not be greater than input's length ", indices,
              " but got offsets[-1] of ", *beyond);
  const Value checked_all =
      checked_index(all, 0, indices + 1, kEmbeddingBag.name, CheckError::kRuntime);
  if (lazy::known_range(first) || !checks_values()) return checked_all;
  return checked(checked_all, convert(first, ElementType::kF32), {0, 0}, kEmbeddingBag.name,
                 kFirst);
}

using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

FourTensors embedding_bag(const at::Tensor& weight, const at::Tensor& indices,
                          const at::Tensor& offsets, bool, int64_t mode, bool,
                          const std::optional<at::Tensor>& per_sample_weights,
                          bool include_last_offset, int64_t padding_idx) {
  check_arguments(weight, indices, offsets, mode, per_sample_weights, include_last_offset);
  const c10::Device device = device_of({weight, indices, offsets});
  const int64_t bags = offsets.size(0) - (include_last_offset ? 1 : 0);
  const at::ScalarType index_dtype =
      c10::promoteTypes(indices.scalar_type(), offsets.scalar_type());
  const ElementType index = lazy::element_type(index_dtype);
  const std::array<int64_t, 2> out{bags, weight.size(1)};
  const std::array<int64_t, 1> of_index{indices.size(0)}, of_bag{bags};
  const bool maxima = mode == static_cast<int64_t>(Mode::kMax);
  const std::array<ShapeRef, 4> shapes{
      ShapeRef{element_type(weight), out}, ShapeRef{index, of_index}, ShapeRef{index, of_bag},
      ShapeRef{index, maxima ? std::span<const int64_t>(out) : std::span<const int64_t>(of_bag)}};
  std::array<at::Tensor, 4> results;
  if (indices.numel() == 0 || shapes[0].num_elements() == 0) {
    for (size_t i = 0; i < 4; ++i) {
      results[i] = lazy::make(lazy::full(0, shapes[i].type, shapes[i].dims), device);
    }
  } else {
    const Value rows = value_of(indices);
    TORCH_CHECK(weight.size(0) > 0 && !known_outside(rows, 0, weight.size(0)),
                "index out of range in self");
    c10::SmallVector<Value, 4> operands{
        value_of(weight),
        checked_index(rows, 0, weight.size(0), kEmbeddingBag.name, CheckError::kRuntime),
        checked_offsets(offsets, indices.numel())};
    if (per_sample_weights && per_sample_weights->defined()) {
      operands.push_back(value_of(*per_sample_weights));
    }
    const ir::NodePtr node =
        Node::make(kEmbeddingBag, std::span<const Value>(operands.data(), operands.size()),
                   Attributes::of(mode, padding_idx), shapes);
    for (uint32_t i = 0; i < 4; ++i) results[i] = lazy::make(Value(node, i), device);
  }
  return {results[0], results[1], results[2], results[3]};
}

// --- Gradients ---

// The gradient of each index's row: of its bag, or zero for an index in none.
XlaValue gradient_rows(Builder& b, XlaValue grad, XlaValue bag) {
  const XlaValue rows = gather_at(b, grad, {bag}, {0});
  const XlaValue outside = b.ge(bag, b.full_like(bag, grad.dim(0)));
  return b.select(down_columns(b, outside, rows.dims()), b.zeros_like(rows), rows);
}

// Operands: grad, indices, bag of each index, sizes of bags, rows of maxima, perhaps weights.
const Op kEmbeddingBagBackward{
    "aten::_embedding_bag_dense_backward", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      auto attributes = n.attributes();
      const auto mode = attributes.enumeration<Mode>();
      const bool by_frequency = attributes.boolean();
      const int64_t padding = attributes.integer();
      const ShapeRef out = n.output();
      const Dims dims(out.dims);
      const ElementType compute = stablehlo::opmath_type(out.type);
      XlaValue grad = l.operand(0, compute);
      const XlaValue zeros = b.constant(compute, dims, 0);
      if (mode == Mode::kMax) {
        const XlaValue empty = b.eq(l.operand(3), b.zeros_like(l.operand(3)));
        grad = b.select(down_columns(b, empty, grad.dims()), b.zeros_like(grad), grad);
        const XlaValue sum = scatter_elements(b, zeros, 0, l.operand(4), grad, Combine::kAdd);
        return b.convert(sum, out.type);
      }
      XlaValue indices = index_type(b, l.operand(1), dims[0]);
      const XlaValue bag = index_type(b, l.operand(2), grad.dim(0));
      if (mode == Mode::kMean) {
        const XlaValue sizes = l.operand(3, compute);
        grad = b.divide(grad, down_columns(b, b.maximum(sizes, b.ones_like(sizes)), grad.dims()));
      }
      XlaValue rows = gradient_rows(b, grad, bag);
      if (l.num_operands() == 6) {
        rows = b.multiply(rows, down_columns(b, l.operand(5, compute), rows.dims()));
      }
      if (padding >= 0) {
        indices = b.select(b.eq(indices, b.full_like(indices, padding)),
                           b.full_like(indices, dims[0]), indices);
      }
      if (by_frequency) {
        const XlaValue counts = scatter_at(b, b.constant(compute, {dims[0]}, 0), {indices}, {0},
                                           b.constant(compute, indices.dims(), 1), Combine::kAdd);
        rows = b.divide(rows, down_columns(b, gather_at(b, counts, {indices}, {0}), rows.dims()));
      }
      return b.convert(scatter_at(b, zeros, {indices}, {0}, rows, Combine::kAdd), out.type);
    }};

at::Tensor dense_backward(const at::Tensor& grad, const at::Tensor& indices,
                          const at::Tensor& offset2bag, const at::Tensor& bag_size,
                          const at::Tensor& maximum_indices, int64_t num_weights,
                          bool scale_grad_by_freq, int64_t mode,
                          const std::optional<at::Tensor>& per_sample_weights,
                          int64_t padding_idx) {
  const std::array<int64_t, 2> sizes{num_weights, grad.size(1)};
  const ShapeRef shape{element_type(grad), sizes};
  if (grad.numel() == 0 || indices.numel() == 0 || num_weights == 0) {
    return lazy::make(lazy::full(0, shape.type, shape.dims), grad.device());
  }
  c10::SmallVector<Value, 6> operands{value_of(grad), value_of(indices), value_of(offset2bag),
                                      value_of(bag_size), value_of(maximum_indices)};
  if (per_sample_weights && per_sample_weights->defined()) {
    operands.push_back(value_of(*per_sample_weights));
  }
  return lazy::make(
      Value(Node::make(
          kEmbeddingBagBackward, std::span<const Value>(operands.data(), operands.size()),
          Attributes::of(mode, scale_grad_by_freq, padding_idx), std::span(&shape, 1))),
      grad.scalar_type(), grad.device());
}

// The product of each index's row with the gradient of its bag. Operands: grad, weight, indices,
// bag of each index.
const Op kSampleWeightsBackward{
    "aten::_embedding_bag_per_sample_weights_backward", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const int64_t padding = n.attributes().integer();
      const ElementType type = n.output().type;
      const ElementType compute = stablehlo::opmath_type(type);
      const XlaValue weight = l.operand(1, compute);
      const XlaValue indices = index_type(b, l.operand(2), weight.dim(0));
      const XlaValue bag = index_type(b, l.operand(3), l.operand(0).dim(0));
      const XlaValue rows = gradient_rows(b, l.operand(0, compute), bag);
      XlaValue product = b.reduce_sum(b.multiply(rows, gather_at(b, weight, {indices}, {0})), {1});
      if (padding >= 0) {
        product =
            b.select(b.eq(indices, b.full_like(indices, padding)), b.zeros_like(product), product);
      }
      return b.convert(product, type);
    }};

at::Tensor per_sample_weights_backward(const at::Tensor& grad, const at::Tensor& weight,
                                       const at::Tensor& indices, const at::Tensor&,
                                       const at::Tensor& offset2bag, int64_t mode,
                                       int64_t padding_idx) {
  TORCH_CHECK(mode == 0,
              "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  const ShapeRef shape{element_type(grad), span_of(indices.sizes())};
  const Value result = indices.numel() == 0 || weight.numel() == 0
                           ? lazy::full(0, shape.type, shape.dims)
                           : Value(Node::make(kSampleWeightsBackward,
                                              {value_of(grad), value_of(weight), value_of(indices),
                                               value_of(offset2bag)},
                                              Attributes::of(padding_idx), shape));
  return lazy::make(result, grad.scalar_type(), grad.device());
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("_embedding_bag", embedding_bag);
  m.impl("_embedding_bag_forward_only", embedding_bag);
  m.impl("_embedding_bag_backward", at::native::_embedding_bag_backward_symint);
  m.impl("_embedding_bag_dense_backward", dense_backward);
  m.impl("_embedding_bag_per_sample_weights_backward", per_sample_weights_backward);
}

}  // namespace torch_xla::aten
