#pragma once

#include <optional>

#include "ir/node.h"

namespace torch_xla::lazy {

// A value whose size along one dim depends on data (x[mask]). The host has waited for that size,
// and tensors have it; programs have not: they compute an array as large as the size can get (the
// whole) and know as data how much of it counts. So one program serves every size.
//
// A trimmed value is a node that cuts the whole to its size. Ops that can (elementwise ones,
// reductions, ...) take the whole instead; all others read what was cut, and their program is one
// for each size. What is behind the size in the whole is arbitrary.
struct Trimmed {
  ir::Value whole;
  ir::Value count;  // i64[]: the size, as data
  int64_t dim = 0;
  int64_t size = 0;

  int64_t bound() const { return whole.dims()[static_cast<size_t>(dim)]; }
};

extern const ir::Op kTrim;  // "xla::trim"

inline bool is_trimmed(const ir::Value& value) { return value && &value.node->op() == &kTrim; }
std::optional<Trimmed> trimmed(const ir::Value& value);

// `whole` cut to `size` along `dim`; also when nothing is left over, so that the graph is the same.
ir::Value trim(ir::Value whole, ir::Value count, int64_t dim, int64_t size);

// What a storage's contents are computed as: the whole of a trimmed value, or the value itself.
const ir::Value& computed(const ir::Value& contents);
// `contents` with that replaced.
ir::Value with_computed(const ir::Value& contents, const ir::Value& by);

// How large an array for `size` elements is, of at most `most`: all of it for small ones, else the
// next power of two, so that few selected from many do not cost as much as all.
int64_t bound_for(int64_t size, int64_t most);

// The whole with something neutral behind the size.
enum class Neutral : uint8_t { kZero, kOne, kLowest, kHighest };
ir::Value filled(const Trimmed& value, Neutral neutral);
// The whole, of integers, with `number` behind the size.
ir::Value filled_with(const Trimmed& value, int64_t number);

}  // namespace torch_xla::lazy
