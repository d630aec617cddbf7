#include "aten/indices.h"

#include <limits>

#include "aten/checks.h"
#include "lazy/host_range.h"

namespace torch_xla::aten {
namespace {

// Where the window (the dimensions that are not indexed) stands in the result of gather_at.
Dims window_positions(int64_t rank, const Dims& dims, int64_t index_rank) {
  const bool adjacent = dims.back() - dims.front() + 1 == static_cast<int64_t>(dims.size());
  Dims positions;
  int64_t windows = 0;
  for (int64_t i = 0; i < rank; ++i) {
    if (dims.contains(i)) continue;
    const bool before = adjacent && i < dims.front();
    positions.push_back(before ? i : windows + index_rank);
    ++windows;
  }
  return positions;
}

// The index vectors: along a last dimension when there are several.
XlaValue index_vectors(Builder& b, const XlaValue& x, const std::vector<XlaValue>& indices,
                       const Dims& dims) {
  if (indices.size() == 1) return index_type(b, indices[0], x.dim(dims[0]));
  int64_t largest = 0;
  for (int64_t dim : dims) largest = std::max(largest, x.dim(dim));
  std::vector<XlaValue> columns;
  for (const XlaValue& index : indices) {
    Dims column = index.dims();
    column.push_back(1);
    columns.push_back(b.reshape(index_type(b, index, largest), column));
  }
  return b.concatenate(columns, static_cast<int64_t>(indices[0].dims().size()));
}

// The part of x that an index of `dims` reaches: all of `dim`, else as much as the index has.
XlaValue reached(Builder& b, XlaValue x, int64_t dim, const Dims& dims) {
  Dims limit = dims;
  if (dim >= 0) limit[static_cast<size_t>(dim)] = x.dim(dim);
  return limit == x.dims() ? x : b.slice(x, Dims(limit.size(), 0), limit);
}

XlaValue scatter_with(Builder& b, XlaValue x, XlaValue indices, XlaValue updates,
                      const stablehlo::ScatterDimensions& dimensions, Combine combine) {
  const ElementType type = x.element_type();
  const ElementType compute = combine == Combine::kAdd || combine == Combine::kMultiply
                                  ? stablehlo::opmath_type(type)
                                  : type;
  const XlaValue result =
      b.scatter(b.convert(x, compute), indices, b.convert(updates, compute), dimensions,
                [&](XlaValue old, XlaValue update) { return combined(b, combine, old, update); });
  return b.convert(result, type);
}

}  // namespace

std::optional<int64_t> known_outside(const Value& index, int64_t low, int64_t size) {
  lazy::note_bounds(index, {low, size, std::nullopt});
  std::optional<lazy::Range> range = lazy::known_range(index);
  if (const auto last = last_of_range(index); last && !range) {
    return *last >= size ? last : std::nullopt;
  }
  const auto is_inside = [&] { return low <= range->least && range->greatest < size; };
  if (!range || is_inside()) return std::nullopt;
  range = lazy::exact_range(index);
  if (!range || is_inside()) return std::nullopt;
  return range->greatest >= size ? range->greatest : range->least;
}

XlaValue combined(Builder& b, Combine combine, XlaValue old, XlaValue update) {
  switch (combine) {
    case Combine::kSet:
      return update;
    case Combine::kAdd:
      return b.add(old, update);
    case Combine::kMultiply:
      return b.multiply(old, update);
    case Combine::kMaximum:
      return b.maximum(old, update);
    case Combine::kMinimum:
      return b.minimum(old, update);
  }
  return update;
}

XlaValue index_type(Builder& b, XlaValue index, int64_t size) {
  const bool narrow = size <= std::numeric_limits<int32_t>::max();
  return b.convert(index, narrow ? ElementType::kS32 : ElementType::kS64);
}

XlaValue wrapped_index(Builder& b, XlaValue index, int64_t size) {
  index = index_type(b, index, size);
  return b.select(b.lt(index, b.zeros_like(index)), b.add(index, b.full_like(index, size)), index);
}

XlaValue only_if_right(Lowering& l, XlaValue index, int64_t size) {
  const auto condition = l.condition();
  if (!condition) return index;
  index = index_type(l.builder(), index, size);
  return l->select(l->broadcast_to(*condition, index.dims()), index, l->full_like(index, size));
}

XlaValue gather_at(Builder& b, XlaValue x, const std::vector<XlaValue>& indices, const Dims& dims) {
  const int64_t index_rank = indices[0].rank();
  stablehlo::GatherDimensions dimensions;
  dimensions.offset_dims = window_positions(x.rank(), dims, index_rank);
  dimensions.collapsed_slice_dims = dims;
  dimensions.start_index_map = dims;
  dimensions.index_vector_dim = index_rank;
  Dims slice = x.dims();
  for (int64_t dim : dims) slice[static_cast<size_t>(dim)] = 1;
  return b.gather(x, index_vectors(b, x, indices, dims), dimensions, slice);
}

XlaValue scatter_at(Builder& b, XlaValue x, const std::vector<XlaValue>& indices, const Dims& dims,
                    XlaValue updates, Combine combine) {
  const int64_t index_rank = indices[0].rank();
  stablehlo::ScatterDimensions dimensions;
  dimensions.update_window_dims = window_positions(x.rank(), dims, index_rank);
  dimensions.inserted_window_dims = dims;
  dimensions.scatter_dims_to_operand_dims = dims;
  dimensions.index_vector_dim = index_rank;
  return scatter_with(b, x, index_vectors(b, x, indices, dims), updates, dimensions, combine);
}

XlaValue gather_elements(Builder& b, XlaValue x, int64_t dim, XlaValue index) {
  x = reached(b, x, dim, index.dims());
  stablehlo::GatherDimensions dimensions;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dim) dimensions.operand_batching_dims.push_back(i);
  }
  dimensions.start_indices_batching_dims = dimensions.operand_batching_dims;
  dimensions.collapsed_slice_dims = {dim};
  dimensions.start_index_map = {dim};
  dimensions.index_vector_dim = x.rank();
  return b.gather(x, index_type(b, index, x.dim(dim)), dimensions, Dims(x.dims().size(), 1));
}

XlaValue scatter_elements(Builder& b, XlaValue x, int64_t dim, XlaValue index, XlaValue updates,
                          Combine combine) {
  updates = reached(b, updates, -1, index.dims());
  Dims whole = index.dims();
  whole[static_cast<size_t>(dim)] = x.dim(dim);
  const bool covers = whole == x.dims();
  if (covers && index.dim(dim) == 1) {
    // One element a line: a comparison is vectorised where a scatter is a loop.
    index = index_type(b, index, x.dim(dim));
    const XlaValue hit =
        b.eq(b.iota(index.element_type(), x.dims(), dim), b.broadcast_to(index, x.dims()));
    const ElementType compute = stablehlo::opmath_type(x.element_type());
    const XlaValue old = b.convert(x, compute);
    const XlaValue update = b.broadcast_to(b.convert(updates, compute), x.dims());
    const XlaValue result = b.convert(combined(b, combine, old, update), x.element_type());
    return b.select(hit, result, x);
  }
  stablehlo::ScatterDimensions dimensions;
  if (covers) {
    for (int64_t i = 0; i < x.rank(); ++i) {
      if (i != dim) dimensions.input_batching_dims.push_back(i);
    }
    dimensions.scatter_indices_batching_dims = dimensions.input_batching_dims;
    dimensions.inserted_window_dims = {dim};
    dimensions.scatter_dims_to_operand_dims = {dim};
    dimensions.index_vector_dim = x.rank();
    return scatter_with(b, x, index_type(b, index, x.dim(dim)), updates, dimensions, combine);
  }
  // Only a corner of x is written to: each element by its whole coordinates.
  std::vector<XlaValue> coordinates;
  for (int64_t i = 0; i < x.rank(); ++i) {
    coordinates.push_back(i == dim ? index : b.iota(ElementType::kS64, index.dims(), i));
  }
  return scatter_at(b, x, coordinates, stablehlo::iota_dims(x.dims().size()), updates, combine);
}

XlaValue running_sum(Builder& b, XlaValue x) {
  const int64_t size = x.dim(0);
  if (size == 0) return x;
  stablehlo::Window window;
  window.size = {size};
  window.padding_low = {size - 1};
  window.padding_high = {0};
  return b.reduce_window(x, b.scalar(0, x.element_type()), window,
                         [&](XlaValue left, XlaValue right) { return b.add(left, right); });
}

XlaValue search_sorted(Builder& b, XlaValue sequence, XlaValue values, bool right) {
  const int64_t last = sequence.rank() - 1, size = sequence.dim(last);
  const ElementType type =
      size <= std::numeric_limits<int32_t>::max() / 2 ? ElementType::kS32 : ElementType::kS64;
  XlaValue low = b.constant(type, values.dims(), 0);
  XlaValue high = b.constant(type, values.dims(), size);
  for (int64_t reach = size; reach > 0; reach /= 2) {
    const XlaValue middle = b.divide(b.add(low, high), b.full_like(low, 2));
    const XlaValue element = sequence.rank() == 1 ? gather_at(b, sequence, {middle}, {0})
                                                  : gather_elements(b, sequence, last, middle);
    const XlaValue open = b.lt(low, high);
    const XlaValue stay = right ? b.gt(element, values) : b.ge(element, values);
    low = b.select(b.and_(open, b.not_(stay)), b.add(middle, b.ones_like(middle)), low);
    high = b.select(b.and_(open, stay), middle, high);
  }
  return low;
}

}  // namespace torch_xla::aten
