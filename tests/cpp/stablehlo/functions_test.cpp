// The free functions are the methods of the same names.

#include "stablehlo/functions.h"

#include <gtest/gtest.h>

#include "stablehlo/run.h"

namespace torch_xla::stablehlo {
namespace {

TEST(Functions, ReadLikeFormulas) {
  testing::expect(
      {testing::f32({3}, {-2, 0, 3})},
      [](Builder& b, const Values& v) {
        Value x = v[0];
        return Values{
            maximum(x, zeros_like(x)), select(gt(x, ones_like(x)), x, -x),
            convert(clamp(b.scalar(-1, ElementType::kF32), x, b.scalar(1, ElementType::kF32)),
                    ElementType::kS32)};
      },
      {testing::f32({3}, {0, 0, 3}), testing::f32({3}, {2, 0, 3}), testing::s32({3}, {-1, 0, 1})});
}

}  // namespace
}  // namespace torch_xla::stablehlo
