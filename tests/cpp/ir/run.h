// Computes graphs of the IR on the CPU plugins named in TORCH_XLA_TEST_PLUGINS: the walk, the
// lowering and the packing of scalars as the executor does them, with arrays of the host as leaves.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ir/lowering.h"
#include "ir/node.h"
#include "pjrt/client.h"

namespace torch_xla::ir::testing {

using stablehlo::Dims;

// A host array, row-major.
struct Array {
  ElementType type = ElementType::kF32;
  Dims dims;
  std::vector<std::byte> bytes;

  template <class T>
  std::vector<T> as() const {
    const auto* first = reinterpret_cast<const T*>(bytes.data());
    return std::vector<T>(first, first + bytes.size() / sizeof(T));
  }
};

template <class T>
Array array(ElementType type, const Dims& dims, const std::vector<T>& elements) {
  const auto* first = reinterpret_cast<const std::byte*>(elements.data());
  return {type, dims, std::vector<std::byte>(first, first + elements.size() * sizeof(T))};
}
Array f32(const Dims& dims, const std::vector<float>& elements);

// A device-data leaf that stands for `array`.
Value input(Array array);

// Every plugin of the environment; empty where there is none.
const std::vector<std::shared_ptr<pjrt::Client>>& clients();

// What the roots come to. Throws what lowering, compiling or running throws.
std::vector<Array> evaluate(pjrt::Client& client, std::span<const Value> roots,
                            const LoweringOptions& options = {});
// On the first plugin.
Array evaluate(const Value& root);

// The graph's key, walked alone.
Hash128 key_of(std::span<const Value> roots);
Hash128 key_of(const Value& root);

// Lowered alone.
LoweredProgram lower_roots(std::span<const Value> roots, const LoweringOptions& options = {});

}  // namespace torch_xla::ir::testing

// Ends the test as skipped where there is no plugin to run on.
#define TORCH_XLA_NEEDS_PLUGIN()                                     \
  do {                                                               \
    if (::torch_xla::ir::testing::clients().empty()) {               \
      GTEST_SKIP() << "TORCH_XLA_TEST_PLUGINS names no PJRT plugin"; \
    }                                                                \
  } while (false)
