#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "ir/node.h"

namespace torch_xla::aten {

// What only the numbers on the device can tell, and CPU raises at the call: an index, a class or a
// probability that the device computed and that is out of range. Programs for the host's CPU look
// while they run (lazy/value_checks.h): each read of what depends on a wrong one throws, and names
// the operator and the Python line. Elsewhere, and when switched off, nothing is checked.

// For calls from here on (TORCH_XLA_CHECK_VALUES; on by default).
void set_check_values(bool check);

// What a check throws: CPU's type of exception; for classes its words too.
enum class CheckError : uint8_t { kRuntime, kIndex, kClass };

// `index`, of integers in [low, size) or `exception`; low is 0 or -size. Itself where that is
// known: by the host (lazy/host_range.h), or because an operator of ours gives no others (argmax,
// nonzero, arange).
ir::Value checked_index(const ir::Value& index, int64_t low, int64_t size, const char* op,
                        CheckError error, std::optional<int64_t> exception = {});

// `value`, the contents of `divisor`: integers. Throws c10::Error ("ZeroDivisionError", as CPU) for
// a zero among them: here where the host knows of one, else in the program, which goes on with ones
// in their place.
ir::Value checked_divisor(const at::Tensor& divisor, const ir::Value& value, const char* op);

// The greatest of positions 0, 1, ... that the host knows without their data (arange).
std::optional<int64_t> last_of_range(const ir::Value& value);

struct Interval {
  double least, greatest;
  bool without_least = false;
};

// `value`, of integers or floats, where all of `numbers`, floats, are in `interval` (NaN is not).
// Throws c10::Error with `message` for others.
ir::Value checked(const ir::Value& value, const ir::Value& numbers, Interval interval,
                  const char* op, const char* message);

// Whether anything is checked, for what only a check needs.
bool checks_values();

}  // namespace torch_xla::aten
