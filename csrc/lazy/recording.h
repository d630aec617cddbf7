#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <vector>

#include "ir/hash.h"
#include "lazy/data.h"
#include "lazy/launch.h"
#include "lazy/program.h"
#include "lazy/storage.h"
#include "lazy/value_checks.h"

namespace torch_xla::lazy {

using WeakStorage = c10::weak_intrusive_ptr<LazyStorage>;

// What one sync launched, kept while a recording runs (see replay.h).
struct LaunchRecord {
  struct Output {
    WeakStorage storage;
    size_t value;  // which result of the program
  };

  struct Value {
    ir::ElementType type;
    stablehlo::Dims dims;
  };

  c10::Device device{c10::kXLA, 0};
  ir::Hash128 key;
  std::shared_ptr<Program> program;
  // By parameter; null for a constant that was made on the host for this launch.
  std::vector<std::shared_ptr<DeviceData>> inputs;
  std::vector<stablehlo::Dims> input_dims;
  std::vector<bool> donated;
  std::vector<ScalarValue> numbers;
  std::vector<ir::Location> number_locations;
  std::vector<Value> values;  // the program's results, but for reports of checks
  Guards guards;
  std::vector<Output> outputs;
};

// The recording that syncs add to, or null. Guarded by launch_mutex().
std::vector<LaunchRecord>*& current_recording();

}  // namespace torch_xla::lazy
