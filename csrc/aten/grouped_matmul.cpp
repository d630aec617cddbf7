// _grouped_mm: products of matrices whose rows (or what is summed over) belong to groups, as in a
// mixture of experts. Where groups end is data, and no part of a program.

#include <ATen/native/GroupedMMUtils.h>
#include <ATen/ops/_grouped_mm_compositeexplicitautograd_dispatch.h>

#include <algorithm>
#include <bit>

#include "aten/indices.h"
#include "aten/product.h"

namespace torch_xla::aten {
namespace {

// The grouped dimension is visited in tiles: each once for each group that has a part of it, which
// is at most as many visits as there are tiles and groups together.
struct Tiles {
  int64_t size = 0;    // rows of a tile
  int64_t padded = 0;  // rows of all
  int64_t visits = 0;
};

// About two tiles a group: of what a visit computes, on average half is not needed where groups are
// that small.
Tiles tiles_for(int64_t rows, int64_t groups) {
  const int64_t wanted = std::max<int64_t>(1, rows / (2 * std::max<int64_t>(1, groups)));
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(wanted)));
  Tiles tiles;
  tiles.size = std::clamp<int64_t>(power, 8, 256);
  const int64_t count = (rows + tiles.size - 1) / tiles.size;
  tiles.padded = count * tiles.size;
  tiles.visits = count + groups;
  return tiles;
}

// Of each visit, i32[visits]: its group, the first row of its tile, and which rows are the group's.
struct Visits {
  XlaValue group, start, low, high;
};

Visits visits_of(Builder& b, XlaValue ends, int64_t rows, const Tiles& tiles) {
  const int64_t groups = ends.dim(0);
  const auto all = [&](int64_t number) { return b.full_like(ends, number); };
  ends = b.clamp(all(0), ends, all(rows));
  const XlaValue begins =
      b.concatenate({b.constant(ElementType::kS32, {1}, 0), b.slice(ends, {0}, {groups - 1})}, 0);
  const XlaValue first = b.divide(begins, all(tiles.size));
  const XlaValue last = b.divide(b.subtract(ends, all(1)), all(tiles.size));
  const XlaValue count =
      b.select(b.gt(ends, begins), b.add(b.subtract(last, first), all(1)), all(0));
  const XlaValue done = running_sum(b, count);
  const XlaValue visit = b.iota(ElementType::kS32, {tiles.visits}, 0);
  const XlaValue found =
      b.convert(search_sorted(b, done, visit, /*right=*/true), ElementType::kS32);
  const XlaValue group = b.minimum(found, b.full_like(found, groups - 1));
  const auto at_group = [&](XlaValue x) { return gather_at(b, x, {group}, {0}); };
  const XlaValue before = at_group(b.subtract(done, count));
  const XlaValue tile = b.add(at_group(first), b.subtract(visit, before));
  // The visits left over have no rows.
  const XlaValue exists = b.lt(found, b.full_like(found, groups));
  return {group, b.multiply(tile, b.full_like(tile, tiles.size)), at_group(begins),
          b.select(exists, at_group(ends), b.zeros_like(visit))};
}

// Calls `step(result, operands, visit)` for one visit after the other, with scalars of it.
template <class Step>
XlaValue visit_all(Builder& b, XlaValue result, const std::vector<XlaValue>& operands,
                   const Visits& visits, Step step) {
  const int64_t count = visits.group.dim(0);
  stablehlo::Values state{b.scalar(0, ElementType::kS32), result};
  state.insert(state.end(), operands.begin(), operands.end());
  for (const XlaValue& each : {visits.group, visits.start, visits.low, visits.high}) {
    state.push_back(each);
  }
  const auto unfinished = [&](const stablehlo::Values& v) {
    return b.lt(v[0], b.full_like(v[0], count));
  };
  const auto body = [&](const stablehlo::Values& v) -> stablehlo::Values {
    const auto scalar_of = [&](const XlaValue& list) {
      return b.reshape(b.dynamic_slice(list, {v[0]}, {1}), {});
    };
    const size_t at = v.size() - 4;
    const Visits visit{scalar_of(v[at]), scalar_of(v[at + 1]), scalar_of(v[at + 2]),
                       scalar_of(v[at + 3])};
    stablehlo::Values next = v;
    next[0] = b.add(v[0], b.ones_like(v[0]));
    next[1] = step(v[1], std::vector<XlaValue>(v.begin() + 2, v.end() - 4), visit);
    return next;
  };
  return b.while_(state, unfinished, body)[1];
}

// Which rows of a visit's tile are the group's, along `dim` of something of those dims.
XlaValue own_rows(Builder& b, const Visits& visit, const Dims& dims, int64_t dim) {
  const XlaValue row =
      b.add(b.iota(ElementType::kS32, dims, dim), b.broadcast_to(visit.start, dims));
  return b.and_(b.ge(row, b.broadcast_to(visit.low, dims)),
                b.lt(row, b.broadcast_to(visit.high, dims)));
}

XlaValue padded(Builder& b, XlaValue x, int64_t dim, int64_t size) {
  Dims low(x.dims().size(), 0), high = low;
  high[static_cast<size_t>(dim)] = size - x.dim(dim);
  return b.pad(x, b.scalar(0, x.element_type()), low, high);
}

// Operands: a [rows, k], matrices [groups, k, n], ends i32[groups]. Result: [rows, n], zeros behind
// the last end.
const Op kRows{
    "aten::_grouped_mm", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const XlaValue a = l.operand(0), matrices = l.operand(1);
      const ElementType type = n.output().type;
      const int64_t rows = a.dim(0), k = a.dim(1), columns = matrices.dim(2);
      const Tiles tiles = tiles_for(rows, matrices.dim(0));
      const Visits visits = visits_of(b, l.operand(2), rows, tiles);
      const XlaValue start = b.constant(type, {tiles.padded, columns}, 0);
      const XlaValue result = visit_all(
          b, start, {padded(b, a, 0, tiles.padded), matrices}, visits,
          [&](XlaValue out, const std::vector<XlaValue>& x, const Visits& visit) {
            const XlaValue none = b.zeros_like(visit.start);
            const XlaValue tile = b.dynamic_slice(x[0], {visit.start, none}, {tiles.size, k});
            const XlaValue matrix = b.reshape(
                b.dynamic_slice(x[1], {visit.group, none, none}, {1, k, columns}), {k, columns});
            const XlaValue product = b.convert(matrix_product(l, tile, matrix), type);
            const Dims part{tiles.size, columns};
            const XlaValue old = b.dynamic_slice(out, {visit.start, none}, part);
            return b.dynamic_update_slice(out, b.select(own_rows(b, visit, part, 0), product, old),
                                          {visit.start, none});
          });
      return b.slice(result, {0, 0}, {rows, columns});
    }};

// Operands: a [m, rows], c [rows, n], ends i32[groups]. Result: [groups, m, n], the products over
// the rows of each group.
const Op kSums{
    "aten::_grouped_mm", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const XlaValue a = l.operand(0), c = l.operand(1), ends = l.operand(2);
      const int64_t rows = a.dim(1), m = a.dim(0), columns = c.dim(1), groups = ends.dim(0);
      const ElementType type = n.output().type, sum = stablehlo::opmath_type(type);
      const Tiles tiles = tiles_for(rows, groups);
      const Visits visits = visits_of(b, ends, rows, tiles);
      const XlaValue result = visit_all(
          b, b.constant(sum, {groups, m, columns}, 0),
          {padded(b, a, 1, tiles.padded), padded(b, c, 0, tiles.padded)}, visits,
          [&](XlaValue out, const std::vector<XlaValue>& x, const Visits& visit) {
            const XlaValue none = b.zeros_like(visit.start);
            const auto own = [&](XlaValue part, int64_t dim) {
              return b.select(own_rows(b, visit, part.dims(), dim), part, b.zeros_like(part));
            };
            const XlaValue left =
                own(b.dynamic_slice(x[0], {none, visit.start}, {m, tiles.size}), 1);
            const XlaValue right =
                own(b.dynamic_slice(x[1], {visit.start, none}, {tiles.size, columns}), 0);
            const Dims part{1, m, columns};
            const XlaValue product =
                b.reshape(b.convert(matrix_product(l, left, right), sum), part);
            const std::vector<XlaValue> place{visit.group, none, none};
            const XlaValue old = b.dynamic_slice(out, place, part);
            return b.dynamic_update_slice(out, b.add(old, product), place);
          });
      return b.convert(result, type);
    }};

at::Tensor grouped_mm(const at::Tensor& a, const at::Tensor& b,
                      const std::optional<at::Tensor>& ends, const std::optional<at::Tensor>& bias,
                      std::optional<at::ScalarType> out_dtype) {
  at::native::_grouped_mm_validate_inputs(a, b, ends, bias, out_dtype);
  const at::ScalarType type = at::native::_resolve_grouped_mm_out_dtype(a, b, out_dtype);
  const bool by_rows = a.dim() == 2 && b.dim() == 3;
  const bool sums = a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0);
  if (!(by_rows || sums) || !ends || !lazy::is_xla(*ends) || !lazy::is_xla(a) || !lazy::is_xla(b) ||
      a.scalar_type() != b.scalar_type() || ends->numel() == 0) {
    return at::compositeexplicitautograd::_grouped_mm(a, b, ends, bias, out_dtype);
  }
  at::Tensor result = at::native::create_grouped_gemm_output_tensor(a, b, ends, type);
  if (result.numel() == 0) return result;
  if (a.numel() == 0) return result.zero_();
  lazy::write(result,
              Value(Node::make(by_rows ? kRows : kSums, {value_of(a), value_of(b), value_of(*ends)},
                               {}, ShapeRef{element_type(a), span_of(result.sizes())})));
  return result;
}

}  // namespace

XLA_KERNELS(m) { m.impl("_grouped_mm", grouped_mm); }

}  // namespace torch_xla::aten
