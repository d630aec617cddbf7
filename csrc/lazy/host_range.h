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

// The range of a value that has a known one, with both ends reached. Reads what a view selects from
// the device: for when known_range() leaves open whether something is wrong.
std::optional<Range> exact_range(const ir::Value& value);

}  // namespace torch_xla::lazy
