#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include "ir/node.h"

namespace torch_xla::lazy {

// Random state of one device: a Philox key (the seed) and the counter of the next draw. Both reach
// programs as scalars, so reseeding and drawing never recompile.
// Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
class XlaGenerator final : public c10::GeneratorImpl {
 public:
  explicit XlaGenerator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  // 16 bytes: seed and offset, little endian. A ByteTensor on CPU.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type() { return c10::kXLA; }

  // A value u64[2] {seed, counter} for a draw of `count` elements of up to 128 bits; the counter
  // moves on so that no two draws overlap. Takes the generator's mutex.
  ir::Value next_state(int64_t count);

 private:
  XlaGenerator* clone_impl() const override;

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator make_generator(c10::DeviceIndex device);
// The generator given, which must be an xla one, or the device's default.
XlaGenerator& generator_for(const std::optional<at::Generator>& generator, c10::Device device);

}  // namespace torch_xla::lazy
