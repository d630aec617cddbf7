#pragma once

#include <span>

#include "ir/node.h"

namespace torch_xla::ir {

// How a tensor lies in a storage, in elements of `type`: element (i0, i1, ...) is at
// offset + i0 * strides[0] + i1 * strides[1] + ... Strides are never negative; 0 repeats.
struct Geometry {
  ElementType type;
  std::span<const int64_t> sizes;
  std::span<const int64_t> strides;
  int64_t offset = 0;
};

// A storage's contents: `value` laid out densely in memory by `strides` (a permutation of the
// row-major ones; empty: row-major itself).
struct Base {
  const Value& value;
  std::span<const int64_t> strides;
};

// The elements that `view` selects, as a value of its type and sizes. The steps between the two
// geometries (transpose, reshape, slice, broadcast, bitcast, and a gather for overlapping windows)
// are derived when the node is lowered. The view must lie inside the base.
Value read_view(const Base& base, const Geometry& view);

// The base after `source` (of the view's type and sizes) was written through `view`. Where elements
// of the view share memory, it keeps one of those written: the last along an expanded dim, any one
// of overlapping windows.
Value write_view(const Base& base, const Geometry& view, const Value& source);

}  // namespace torch_xla::ir
