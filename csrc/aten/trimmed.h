#pragma once

// Operators over values whose size depends on data (lazy/trimmed.h), computed on their wholes.

#include <optional>
#include <vector>

#include "aten/kernel.h"
#include "lazy/trimmed.h"

namespace torch_xla::aten {

using lazy::Neutral;
using lazy::Trimmed;

// Operands that broadcast to a result, each as its whole; and the result: dims, and how it is
// trimmed.
struct Wholes {
  std::vector<Value> operands;
  Dims dims;
  Value count;
  int64_t dim = 0;
  int64_t size = 0;

  // A value of those dims, trimmed.
  Value trimmed(Value whole) const { return lazy::trim(std::move(whole), count, dim, size); }
};

// An operand that broadcasts to a result of `rank` whose `dim` has `size` elements: with `bound` of
// them, its first `size` the same. Empty when it cannot be had.
Value whole_operand(const Value& operand, int64_t rank, int64_t dim, int64_t size, int64_t bound);

// For that: what scatter() or arange() made, with `size` elements along `dim`. Empty for any other
// value.
Value stretched_scatter(const Value& value, int64_t dim, int64_t size);
Value stretched_arange(const Value& value, int64_t size);

// Nothing when no operand is trimmed, or when one cannot be had in the size of the whole: then the
// operator has to work on what was cut. `dims` is what the operands broadcast to.
std::optional<Wholes> wholes_of(std::span<const Value> operands, std::span<const int64_t> dims);

// Positions along a dim of `size` elements, and what goes there: `source` has as many along
// `source_dim` as `positions`, a trimmed value, along its dim. As their wholes, with positions
// behind what counts where nothing is. Nothing when positions are not trimmed, or when the source
// cannot be had as large.
struct WholePositions {
  Value positions, source;
};
std::optional<WholePositions> whole_positions(const Value& positions, int64_t size,
                                              const Value& source, int64_t source_dim);

inline bool any_trimmed(std::span<const Value> operands) {
  for (const Value& operand : operands) {
    if (lazy::is_trimmed(operand)) return true;
  }
  return false;
}

// The operand of a reduction over `dims`: its whole with something neutral behind the size when
// that dim is reduced. `result` must then be used on what the reduction of `output` gives.
struct ReducedWhole {
  Value operand;
  Dims output;  // dims of the reduction's result
  Value count;  // how much of the operand counts along `dim`
  int64_t dim = 0;
  std::optional<Trimmed> kept;  // how the result is trimmed, when the dim is not reduced

  Value result(Value reduced) const {
    return kept ? lazy::trim(std::move(reduced), kept->count, kept->dim, kept->size) : reduced;
  }
};
std::optional<ReducedWhole> reduced_whole(const Value& operand, const Dims& dims,
                                          std::span<const int64_t> output, Neutral neutral);

}  // namespace torch_xla::aten
