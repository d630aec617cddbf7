#include "aten/product.h"

#include <algorithm>

namespace torch_xla::aten {

using stablehlo::DotDimensions;
using stablehlo::iota_dims;
using stablehlo::Precision;

Precision precision(const Lowering& l) {
  const std::string& name = l.matmul_precision();
  return name == "HIGHEST" ? Precision::kHighest
         : name == "HIGH"  ? Precision::kHigh
                           : Precision::kDefault;
}

namespace {

// `x` without its dimensions `dropped`, which are of size 1.
XlaValue without(Lowering& l, const XlaValue& x, const Dims& dropped) {
  Dims dims;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (!dropped.contains(i)) dims.push_back(x.dim(i));
  }
  return l->reshape(x, dims);
}
// Where the others among its dimensions `axes` are then.
Dims renumbered(const Dims& axes, const Dims& dropped) {
  Dims result;
  for (const int64_t axis : axes) {
    if (dropped.contains(axis)) continue;
    result.push_back(axis - std::count_if(dropped.begin(), dropped.end(),
                                          [&](int64_t other) { return other < axis; }));
  }
  return result;
}

}  // namespace

XlaValue contract(Lowering& l, const XlaValue& a, const XlaValue& b,
                  const DotDimensions& dimensions) {
  const DotDimensions& d = dimensions;
  // XLA's CPU compiler drops batches of one itself, and then fails for transposed bf16 on the left.
  Dims a_ones, b_ones;
  for (size_t i = 0; i < d.lhs_batch.size(); ++i) {
    if (a.element_type() != ElementType::kBF16 || a.dim(d.lhs_batch[i]) != 1) continue;
    a_ones.push_back(d.lhs_batch[i]);
    b_ones.push_back(d.rhs_batch[i]);
  }
  if (!a_ones.empty()) {
    const XlaValue product =
        contract(l, without(l, a, a_ones), without(l, b, b_ones),
                 {renumbered(d.lhs_batch, a_ones), renumbered(d.rhs_batch, b_ones),
                  renumbered(d.lhs_contracting, a_ones), renumbered(d.rhs_contracting, b_ones)});
    Dims dims;
    for (const int64_t axis : d.lhs_batch) dims.push_back(a.dim(axis));
    for (size_t i = d.lhs_batch.size() - a_ones.size(); i < product.dims().size(); ++i) {
      dims.push_back(product.dims()[i]);
    }
    return l->reshape(product, dims);
  }
  return l->dot_general(a, b, dimensions, stablehlo::opmath_type(a.element_type()), precision(l));
}

XlaValue matrix_product(Lowering& l, XlaValue a, XlaValue b) {
  Builder& builder = l.builder();
  const int64_t a_rank = a.rank(), b_rank = b.rank();
  if (b_rank <= 2) {
    return contract(l, a, b, {{}, {}, {a_rank - 1}, {std::max<int64_t>(b_rank - 2, 0)}});
  }
  if (a_rank <= 2) {
    // [m, k] x [batch, k, n]: the batch is free on the right, so only the result moves.
    if (a.element_type() == ElementType::kBF16) {
      // The other way round: XLA's CPU compiler fails for transposed bf16 on the left.
      const XlaValue turned = contract(l, b, a, {{}, {}, {b_rank - 2}, {a_rank - 1}});
      return a_rank == 1 ? turned : transpose_matrices(builder, turned);
    }
    const XlaValue product = contract(l, a, b, {{}, {}, {a_rank - 1}, {b_rank - 2}});
    if (a_rank == 1) return product;
    Dims order;
    for (int64_t i = 1; i < b_rank - 1; ++i) order.push_back(i);
    order.push_back(0);
    order.push_back(b_rank - 1);
    return builder.transpose(product, order);
  }
  const int64_t rank = std::max(a_rank, b_rank);
  Dims a_dims(static_cast<size_t>(rank), 1), b_dims(static_cast<size_t>(rank), 1);
  for (int64_t i = 0; i < a_rank; ++i) a_dims[rank - a_rank + i] = a.dim(i);
  for (int64_t i = 0; i < b_rank; ++i) b_dims[rank - b_rank + i] = b.dim(i);
  for (int64_t i = 0; i < rank - 2; ++i) {
    if (a_dims[i] == 1) a_dims[i] = b_dims[i];
    if (b_dims[i] == 1) b_dims[i] = a_dims[i];
  }
  const Dims batch = iota_dims(static_cast<size_t>(rank - 2));
  return contract(l, builder.broadcast_to(a, a_dims), builder.broadcast_to(b, b_dims),
                  {batch, batch, {rank - 1}, {rank - 2}});
}

XlaValue transpose_matrices(Builder& b, const XlaValue& x) {
  if (x.rank() < 2) return x;
  Dims order = iota_dims(static_cast<size_t>(x.rank()));
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return b.transpose(x, order);
}

}  // namespace torch_xla::aten
