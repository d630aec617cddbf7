// Random state as a number: torch_xla.core.xla_model.get_rng_state and set_rng_state. The whole
// state, as a tensor, is torch.xla.get_rng_state.

#include "lazy/random.h"

#include <limits>

#include "ir/hash.h"
#include "lazy/draw_state.h"
#include "lazy/runtime.h"
#include "lazy/tensor.h"
#include "python/bindings.h"

namespace torch_xla::python {
namespace {

// Numbers that fit an int64 tensor, where clients put them.
constexpr uint64_t kMask = (uint64_t{1} << 63) - 1;

void set_seed(uint64_t seed, const std::string& device) {
  at::Generator generator = lazy::default_generator(parse_device(device).index());
  std::lock_guard lock(generator.mutex());
  generator.unsafeGetGeneratorImpl()->set_current_seed(seed);
}

// Seed and counter take 128 bits. So that 63 of them restore the stream exactly, here or in another
// process, reading the state in mid-stream also moves the generator to a stream which those bits
// alone describe.
uint64_t get_seed(const std::string& device) {
  at::Generator generator = lazy::default_generator(parse_device(device).index());
  std::lock_guard lock(generator.mutex());
  c10::GeneratorImpl* state = generator.unsafeGetGeneratorImpl();
  if (state->get_offset() != 0 || (state->current_seed() & ~kMask) != 0) {
    state->set_current_seed(ir::mix(state->current_seed(), state->get_offset()) & kMask);
  }
  return state->current_seed();
}

// Before the first use of a device their number is unknown: then all that can be are seeded.
void seed_all(uint64_t seed) {
  const int count = lazy::Runtime::is_initialized()
                        ? lazy::Runtime::get().device_count()
                        : int{std::numeric_limits<c10::DeviceIndex>::max()} + 1;
  for (int i = 0; i < count; ++i) {
    at::Generator generator = lazy::default_generator(static_cast<c10::DeviceIndex>(i));
    std::lock_guard lock(generator.mutex());
    generator.unsafeGetGeneratorImpl()->set_current_seed(seed);
  }
}

}  // namespace

void bind_random(py::module_& m) {
  m.def("_xla_set_rng_seed", set_seed, py::arg("seed"), py::arg("device") = "", WithoutGil());
  m.def("_xla_get_rng_seed", get_seed, py::arg("device") = "", WithoutGil());
  m.def("_seed_all", seed_all, WithoutGil());
  m.def(
      "_default_generator",
      [](const std::string& device) {
        return lazy::default_generator(parse_device(device).index());
      },
      py::arg("device") = "", "The torch.Generator that random ops of a device use.");
  m.def(
      "_draw_state",
      [](const std::string& name) {
        const c10::Device device = parse_device(name);
        return lazy::make(lazy::draw_state(device), at::kUInt64, device);
      },
      py::arg("device") = "", WithoutGil(),
      "Where the device's random numbers come from next, for _set_draw_state.");
  m.def(
      "_set_draw_state",
      [](const std::optional<at::Tensor>& state) {
        lazy::set_draw_state(state ? lazy::read(*state) : ir::Value());
      },
      py::arg("state"), WithoutGil(),
      "This thread draws from a state of _draw_state from here on; None ends that.");
}

}  // namespace torch_xla::python
