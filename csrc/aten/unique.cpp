// unique and unique_consecutive, of elements and of slices along a dimension. Equal ones are
// brought together, then the first of each run is kept. The number of runs is waited for;
// everything else stays on the device. A NaN equals nothing.

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include "aten/dynamic.h"
#include "aten/indices.h"
#include "aten/order.h"

namespace torch_xla::aten {
namespace {

// Unique values or slices, the one that each element became, and how many did.
using Unique = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::TensorOptions like(const at::Tensor& self, at::ScalarType type) {
  return at::TensorOptions(type).device(self.device());
}

at::Tensor no_indices(const at::Tensor& self) { return at::empty({0}, like(self, at::kLong)); }

void check_dtype(const char* name, const at::Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), '"', name, "\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
}

// Whether a row of `rows` ([n] or [n, columns], n > 0) begins a run: it is not like the one before.
at::Tensor first_of_runs(const at::Tensor& rows) {
  at::Tensor differs = rows.slice(0, 1).ne(rows.slice(0, 0, -1));
  if (rows.dim() == 2) differs = differs.any(1);
  return at::cat({at::ones({1}, like(rows, at::kBool)), differs});
}

// How far it is from each start to the next, or to the end. Operands: starts, their number.
// Attribute: the end.
const Op kRunLengths{"aten::unique", [](Lowering& l, const Node& n) -> Results {
                       const XlaValue starts = l.operand(0);
                       const int64_t size = starts.dim(0);
                       XlaValue next = l->slice(starts, {1}, {size});
                       next = l->pad(next, l->scalar(0, starts.element_type()), {0}, {1});
                       const XlaValue place = l->iota(ElementType::kS64, {size}, 0);
                       const XlaValue last = l.operand(1) - 1;
                       const XlaValue inside = l->lt(place, l->broadcast_to(last, {size}));
                       const XlaValue end = l->full_like(next, n.attributes().integer());
                       return l->subtract(l->select(inside, next, end), starts);
                     }};

at::Tensor run_lengths(const at::Tensor& starts, int64_t end) {
  const auto cut = lazy::trimmed(value_of(starts));
  const Value whole =
      Node::make(kRunLengths, {cut->whole, cut->count}, Attributes::of(end), cut->whole.shape());
  return lazy::make(lazy::with_computed(value_of(starts), whole), at::kLong, starts.device());
}

// `order`: where the rows stood before they were sorted; undefined if they were not.
Unique runs_of(const at::Tensor& rows, const at::Tensor& order, bool return_inverse,
               bool return_counts) {
  const at::Tensor first = first_of_runs(rows);
  const at::Tensor starts = positions_of(first, "unique");
  at::Tensor inverse = no_indices(rows), counts = no_indices(rows);
  if (return_inverse) {
    inverse = first.cumsum(0).sub(1);
    if (order.defined()) inverse = at::zeros_like(inverse).scatter(0, order, inverse);
  }
  if (return_counts) {
    counts = run_lengths(starts, rows.size(0));
  }
  return {rows.index_select(0, starts), inverse, counts};
}

// --- Elements ---

Unique unique_elements(const at::Tensor& self, bool sort, bool return_inverse, bool return_counts) {
  check_dtype("unique", self);
  if (self.numel() == 0) {
    const at::Tensor inverse =
        return_inverse ? at::empty(self.sizes(), like(self, at::kLong)) : no_indices(self);
    return {at::empty({0}, self.options()), inverse, no_indices(self)};
  }
  at::Tensor values = self.reshape({-1}), order;
  if (sort) std::tie(values, order) = values.sort(/*stable=*/true, 0, /*descending=*/false);
  auto [unique, inverse, counts] = runs_of(values, order, return_inverse, return_counts);
  if (return_inverse) inverse = inverse.view(self.sizes());
  return {unique, inverse, counts};
}

// As on CPU, the result is sorted even when that is not asked for.
Unique unique2(const at::Tensor& self, bool /*sorted*/, bool return_inverse, bool return_counts) {
  return unique_elements(self, true, return_inverse, return_counts);
}

std::tuple<at::Tensor, at::Tensor> unique(const at::Tensor& self, bool /*sorted*/,
                                          bool return_inverse) {
  auto [values, inverse, counts] = unique_elements(self, true, return_inverse, false);
  return {values, inverse};
}

// --- Slices along a dimension ---

// The order that sorts the rows of a matrix, the first column first; equal rows keep theirs. Sorts
// by one column after the other, the last first.
const Op kOrderOfRows{
    "aten::unique_dim", [](Lowering& l, const Node&) -> Results {
      Builder& b = l.builder();
      XlaValue x = l.operand(0);
      if (x.element_type() == ElementType::kPred) x = b.convert(x, ElementType::kU8);
      const int64_t rows = x.dim(0);
      const auto unfinished = [&](const stablehlo::Values& state) {
        return b.ge(state[1], b.zeros_like(state[1]));
      };
      const auto less = [&](const stablehlo::Values& left, const stablehlo::Values& right) {
        return stablehlo::Values{comes_before(b, left[0], right[0], false)};
      };
      const auto sort_by_column = [&](const stablehlo::Values& state) {
        const XlaValue order = state[0], column = state[1];
        const XlaValue keys =
            b.reshape(b.dynamic_slice(x, {b.zeros_like(column), column}, {rows, 1}), {rows});
        const XlaValue sorted = b.sort({gather_at(b, keys, {order}, {0}), order}, 0, true, less)[1];
        return stablehlo::Values{sorted, b.subtract(column, b.ones_like(column))};
      };
      const XlaValue order = b.while_(
          {b.iota(ElementType::kS32, {rows}, 0), b.scalar(x.dim(1) - 1, ElementType::kS32)},
          unfinished, sort_by_column)[0];
      return b.convert(order, ElementType::kS64);
    }};

at::Tensor order_of_rows(const at::Tensor& rows) {
  TORCH_CHECK(rows.numel() <= std::numeric_limits<int32_t>::max(),
              "unique: tensors of more than 2^31 - 1 elements are not supported on XLA");
  const int64_t count = rows.size(0);
  return lazy::make(Value(Node::make(kOrderOfRows, {value_of(rows)}, {},
                                     ShapeRef{ElementType::kS64, {&count, 1}})),
                    at::kLong, rows.device());
}

Unique unique_slices(const at::Tensor& self, int64_t dim, bool sort) {
  check_dtype("unique_dim", self);
  dim = c10::maybe_wrap_dim(dim, self.dim());
  const auto empty_dims = std::count(self.sizes().begin(), self.sizes().end(), 0);
  if (self.size(dim) == 0) {
    TORCH_CHECK(empty_dims == 1, "unique: dimension ", dim, " of a tensor of sizes ", self.sizes(),
                " has no slices, and another dimension is empty too");
    return {at::empty(self.sizes(), self.options()), no_indices(self), no_indices(self)};
  }
  TORCH_CHECK(empty_dims == 0, "unique: the slices along dimension ", dim, " of a tensor of sizes ",
              self.sizes(), " are empty");
  const at::Tensor slices = self.movedim(dim, 0);
  at::Tensor rows = slices.reshape({slices.size(0), -1}), order;
  if (sort) {
    order = order_of_rows(rows);
    rows = rows.index_select(0, order);
  }
  auto [unique, inverse, counts] = runs_of(rows, order, true, true);
  at::DimVector sizes(slices.sizes());
  sizes[0] = unique.size(0);
  return {unique.view(sizes).movedim(0, dim), inverse, counts};
}

Unique unique_dim(const at::Tensor& self, int64_t dim, bool /*sorted*/, bool /*return_inverse*/,
                  bool /*return_counts*/) {
  return unique_slices(self, dim, true);
}

Unique unique_dim_consecutive(const at::Tensor& self, int64_t dim, bool /*return_inverse*/,
                              bool /*return_counts*/) {
  return unique_slices(self, dim, false);
}

Unique unique_consecutive(const at::Tensor& self, bool return_inverse, bool return_counts,
                          std::optional<int64_t> dim) {
  // As on CPU: one dimension needs no slices.
  if (!dim || (*dim == 0 && self.dim() == 1)) {
    return unique_elements(self, false, return_inverse, return_counts);
  }
  return unique_slices(self, *dim, false);
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("_unique", unique);
  m.impl("_unique2", unique2);
  m.impl("unique_dim", unique_dim);
  m.impl("unique_dim_consecutive", unique_dim_consecutive);
  m.impl("unique_consecutive", unique_consecutive);
}

}  // namespace torch_xla::aten
