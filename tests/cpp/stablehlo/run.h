// Compiles and runs what a Builder prints on every plugin named in TORCH_XLA_TEST_PLUGINS.

#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "stablehlo/builder.h"

namespace torch_xla::stablehlo::testing {

// A host array, row major.
struct Array {
  TensorType type;
  std::vector<std::byte> bytes;
};

// From numbers, one an element; complex types take real and imaginary parts in turn. Types: pred,
// integers of at least 8 bits, f32, f64, c64, c128.
Array array(ElementType type, const Dims& dims, const std::vector<double>& numbers);
Array f32(const Dims& dims, const std::vector<double>& numbers);
Array s32(const Dims& dims, const std::vector<double>& numbers);
Array pred(const Dims& dims, const std::vector<double>& numbers);
Array c64(const Dims& dims, const std::vector<double>& numbers);
// The numbers back.
std::vector<double> numbers(const Array& array);

using Program = std::function<Values(Builder&, const Values&)>;

// Runs `program` on `inputs` on each plugin and expects its results, to `tolerance` times
// max(1, |expected|), NaN equal to NaN, and of the expected types. Skips the test without plugins.
void expect(const std::vector<Array>& inputs, const Program& program,
            const std::vector<Array>& expected, double tolerance = 0);

// The same on `ranks` devices as replicas: inputs[rank], expected[rank].
void expect_replicated(const std::vector<std::vector<Array>>& inputs, const Program& program,
                       const std::vector<std::vector<Array>>& expected);

// Compiles for `partitions` devices with Shardy. The one input of type `global`, of that sharding
// (MLIR text), comes as shards[partition]; every partition is expected to hold `expected`.
void expect_partitioned(int partitions, const std::vector<Array>& shards, const TensorType& global,
                        const std::string& sharding, const Program& program, const Array& expected);

// Expects every plugin to compile the program of these inputs.
void expect_compiles(const std::vector<TensorType>& inputs, const Program& program);

// The module that `program` makes.
std::string text_of(const std::vector<TensorType>& inputs, const Program& program);

}  // namespace torch_xla::stablehlo::testing
