#pragma once

// StableHLO of indexing: reading and writing a tensor at positions that other tensors name. Shared
// by the families that index (indexing, embedding, sort, dynamic, ...).
//
// Positions out of range are an error at the call where the host knows them, else at the next read
// of what the program computes (checks.h). Where nothing is checked they are clamped when read and
// dropped when written, as XLA does.

#include <optional>
#include <vector>

#include "aten/kernel.h"

namespace torch_xla::aten {

// A number in `index` that is not in [low, size), when the host knows of one (lazy/host_range.h).
std::optional<int64_t> known_outside(const Value& index, int64_t low, int64_t size);

// What becomes of an element that is written to.
enum class Combine : uint8_t { kSet, kAdd, kMultiply, kMaximum, kMinimum };

// Positions along a dimension of `size`, in the narrowest type that holds them (any integer type).
XlaValue index_type(Builder& b, XlaValue index, int64_t size);
// The same, negative ones counted from the end.
XlaValue wrapped_index(Builder& b, XlaValue index, int64_t size);

// x[..., indices, ...]: `indices` (one for each of `dims`, ascending, of one shape S) replace those
// dimensions. S stands where they stood if they are adjacent, else first (NumPy's rule).
XlaValue gather_at(Builder& b, XlaValue x, const std::vector<XlaValue>& indices, const Dims& dims);
// x with `updates` (of the dims gather_at would give) combined into it. 16-bit floats accumulate in
// f32.
XlaValue scatter_at(Builder& b, XlaValue x, const std::vector<XlaValue>& indices, const Dims& dims,
                    XlaValue updates, Combine combine);

// For the lowering of an update (Op::updates) by a scatter: `index`, positions along a dimension of
// `size`, or where the node's condition is false one that is out of range, which a scatter leaves
// out.
XlaValue only_if_right(Lowering& l, XlaValue index, int64_t size);

// out[i][j][k] = x[i][index[i][j][k]][k] for dim 1 (torch.gather). `index` has the rank of x and
// is nowhere larger but along `dim`.
XlaValue gather_elements(Builder& b, XlaValue x, int64_t dim, XlaValue index);
// The inverse (torch.scatter): updates[i][j][k] is combined into x[i][index[i][j][k]][k]. `updates`
// is at least as large as `index`; what exceeds it is not used.
XlaValue scatter_elements(Builder& b, XlaValue x, int64_t dim, XlaValue index, XlaValue updates,
                          Combine combine);

// Inclusive running sums of an integer vector.
XlaValue running_sum(Builder& b, XlaValue x);

// Where each value would go in the ascending `sequence` (a vector, or one a row: then `values` has
// its other dimensions): before equal elements, or after them with `right`. The steps of a binary
// search are torch's own, so that NaNs and sequences out of order give what they give there.
XlaValue search_sorted(Builder& b, XlaValue sequence, XlaValue values, bool right);

// `old` and `update` combined.
XlaValue combined(Builder& b, Combine combine, XlaValue old, XlaValue update);

}  // namespace torch_xla::aten
