#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "lazy/data.h"

namespace torch_xla::lazy {

// The least and greatest element of integer data that came from the host. With it an index out of
// range (a token that the vocabulary lacks, a wrong label) is an error at the call, as on CPU;
// what was computed on the device cannot be known there.
struct Range {
  int64_t least = 0;
  int64_t greatest = 0;
  // Whether both are elements; otherwise they may be among those that a view leaves out.
  bool reached = true;
};

// Keeps the range of `cpu`, row-major, for `data` made from it. Only int32 and int64.
void remember_range(const at::Tensor& cpu, const std::shared_ptr<DeviceData>& data);

// The data that `value` is a view, copy or cast of; null for what was computed.
const DeviceData* selected_from(const ir::Value& value);

// A range that holds every element of `value`: such data, or a view, copy or cast of it.
std::optional<Range> known_range(const ir::Value& value);

// What elements of an index must be.
struct IndexBounds {
  int64_t low, size;                 // in [low, size),
  std::optional<int64_t> exception;  // or this
  bool hold(const Range& range) const;
};

// An operator looked at what the host knows of this index. Tells a capture or a recording that is
// under way in this thread, which will have other contents in its place.
void note_bounds(const ir::Value& index, const IndexBounds& bounds);

// The range of a value that has a known one, with both ends reached. Reads what a view selects from
// the device: for when known_range() leaves open whether something is wrong.
std::optional<Range> exact_range(const ir::Value& value);

}  // namespace torch_xla::lazy
