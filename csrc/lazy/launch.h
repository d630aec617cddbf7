#pragma once

#include <c10/core/Device.h>

#include <bit>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ir/node.h"
#include "lazy/array.h"
#include "lazy/data.h"
#include "lazy/program.h"

namespace torch_xla::lazy {

using Arrays = std::vector<Array>;

// One launch at a time a process: programs of a device run in the order in which they were traced.
std::mutex& launch_mutex();

// A number of a step, as its program takes it.
struct ScalarValue {
  ir::ScalarClass kind = ir::ScalarClass::kI64;
  double real = 0;
  int64_t integer = 0;
  // The same to the last bit: -0.0 is not 0.0, and a NaN equals itself.
  bool operator==(const ScalarValue& other) const {
    return kind == other.kind && integer == other.integer &&
           std::bit_cast<uint64_t>(real) == std::bit_cast<uint64_t>(other.real);
  }
};

// What a scalar leaf of the graph is.
inline ScalarValue scalar_value(const ir::Node& leaf) {
  const auto& payload = *static_cast<const ir::ScalarPayload*>(leaf.payload());
  return {payload.kind, payload.real, payload.integer};
}

// Starts the program on the device, or in SPMD mode on all; `arguments` are its parameters without
// the numbers, which travel in one array a class. `kept`: parameters that the program may overwrite
// and this launch may not; they are copied. Throws c10::OutOfMemoryError, pjrt::Error.
Arrays execute(const Program& program, std::span<const Array* const> arguments,
               std::span<const ScalarValue> numbers, c10::Device device,
               std::vector<int64_t> kept = {});

// The program that was started last, or null when it is no more kept.
std::shared_ptr<pjrt::Executable> last_executed();

// Runs `launch`, which must not throw, on a thread of its own: a plugin takes long to make many
// results, and wakes threads that want the caller's core. One at a time, before all other launches:
// requires launch_mutex() and finish_launch().
void launch_behind(std::function<void()> launch);

// Blocks until what was launched behind is under way and all that it held is let go of. Launches it
// here if that thread is not awake yet.
void finish_launch();
// Only the latter: for who is about to wait for its results.
void help_launch();

// Notes that a launch's results are on the way, for wait_device.
void remember_launch(c10::Device device, const std::shared_ptr<DeviceData>& output);

// Blocks until all launched programs of the device are over. Throws an error of theirs, or of a
// launch, that nobody was told of.
void wait_device(c10::Device device);

}  // namespace torch_xla::lazy
