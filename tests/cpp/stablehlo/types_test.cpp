#include "stablehlo/types.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace torch_xla::stablehlo {
namespace {

TEST(ElementType, NamesInBothDialects) {
  EXPECT_EQ(mlir_name(ElementType::kPred), "i1");
  EXPECT_EQ(hlo_name(ElementType::kPred), "pred");
  EXPECT_EQ(mlir_name(ElementType::kU8), "ui8");
  EXPECT_EQ(hlo_name(ElementType::kU8), "u8");
  EXPECT_EQ(mlir_name(ElementType::kC64), "complex<f32>");
  EXPECT_EQ(hlo_name(ElementType::kC64), "c64");
  EXPECT_EQ(mlir_name(ElementType::kF8E4M3FN), "f8E4M3FN");
}

TEST(ElementType, EveryTypeIsExactlyOneKind) {
  for (int i = 0; i < kElementTypeCount; ++i) {
    auto type = static_cast<ElementType>(i);
    int kinds = is_pred(type) + is_integer(type) + is_float(type) + is_complex(type) +
                (type == ElementType::kToken);
    EXPECT_EQ(kinds, 1) << hlo_name(type);
  }
}

TEST(ElementType, Widths) {
  EXPECT_EQ(bit_width(ElementType::kS4), 4);
  EXPECT_EQ(byte_size(ElementType::kS4), 1);
  EXPECT_EQ(byte_size(ElementType::kPred), 1);
  EXPECT_EQ(byte_size(ElementType::kC128), 16);
  EXPECT_EQ(byte_size(ElementType::kToken), 0);
}

TEST(ElementType, RelatedTypes) {
  EXPECT_EQ(real_type(ElementType::kC128), ElementType::kF64);
  EXPECT_EQ(real_type(ElementType::kS32), ElementType::kS32);
  EXPECT_EQ(complex_type(ElementType::kF32), ElementType::kC64);
  EXPECT_THROW(complex_type(ElementType::kF16), std::logic_error);
  EXPECT_EQ(opmath_type(ElementType::kBF16), ElementType::kF32);
  EXPECT_EQ(opmath_type(ElementType::kF8E5M2), ElementType::kF32);
  EXPECT_EQ(opmath_type(ElementType::kF64), ElementType::kF64);
  EXPECT_EQ(opmath_type(ElementType::kS8), ElementType::kS8);
}

TEST(ElementType, FloatLimits) {
  EXPECT_EQ(max_finite(ElementType::kF32), std::numeric_limits<float>::max());
  EXPECT_EQ(max_finite(ElementType::kF64), std::numeric_limits<double>::max());
  EXPECT_EQ(epsilon(ElementType::kF32), std::numeric_limits<float>::epsilon());
  EXPECT_EQ(min_normal(ElementType::kF64), std::numeric_limits<double>::min());
  EXPECT_EQ(max_finite(ElementType::kF16), 65504);
  EXPECT_EQ(epsilon(ElementType::kBF16), 0.0078125);
  EXPECT_TRUE(has_infinity(ElementType::kF8E5M2));
  EXPECT_FALSE(has_infinity(ElementType::kF8E4M3FN));
  EXPECT_THROW(max_finite(ElementType::kS32), std::logic_error);
}

TEST(Dims, GrowsOutOfItsInlineStorageAndBack) {
  Dims dims;
  for (int64_t i = 0; i < 20; ++i) dims.push_back(i);
  EXPECT_EQ(dims, iota_dims(20));
  Dims copy = dims;
  Dims moved = std::move(dims);
  EXPECT_EQ(copy, moved);
  EXPECT_TRUE(dims.empty());  // NOLINT: moved-from is specified as empty
  dims = copy;
  copy = Dims{1, 2};
  EXPECT_EQ(dims.size(), 20u);
  EXPECT_EQ(copy, (Dims{1, 2}));
  moved.resize(3);
  EXPECT_EQ(moved, (Dims{0, 1, 2}));
}

TEST(Dims, InsertAndErase) {
  Dims dims{1, 3};
  dims.insert(1, 2);
  dims.insert(0, 0);
  EXPECT_EQ(dims, (Dims{0, 1, 2, 3}));
  dims.erase(0);
  dims.erase(2);
  EXPECT_EQ(dims, (Dims{1, 2}));
  EXPECT_TRUE(dims.contains(2));
  EXPECT_FALSE(dims.contains(3));
}

TEST(Dims, FromAnyContiguousRange) {
  std::vector<int64_t> v{4, 5};
  std::array<int64_t, 2> a{4, 5};
  EXPECT_EQ(Dims(v), Dims(a));
  EXPECT_EQ(Dims(std::span<const int64_t>(v)), (Dims{4, 5}));
  EXPECT_EQ(Dims(size_t{3}, 7), (Dims{7, 7, 7}));
}

TEST(TensorType, PrintsAsMlir) {
  EXPECT_EQ(to_string(TensorType{ElementType::kF32, {2, 3}}), "tensor<2x3xf32>");
  EXPECT_EQ(to_string(TensorType{ElementType::kPred, {}}), "tensor<i1>");
  EXPECT_EQ(to_string(TensorType{ElementType::kC64, {0}}), "tensor<0xcomplex<f32>>");
  EXPECT_EQ(to_string(token_type()), "!stablehlo.token");
  EXPECT_EQ(to_string(TensorType{ElementType::kS32, {5, 2}, 1}),
            "tensor<?x2xi32, #stablehlo.bounds<5, ?>>");
}

TEST(TensorType, Counts) {
  EXPECT_EQ((TensorType{ElementType::kF64, {2, 3}}).byte_size(), 48);
  EXPECT_EQ((TensorType{ElementType::kF64, {}}).num_elements(), 1);
  EXPECT_EQ((TensorType{ElementType::kF64, {4, 0}}).num_elements(), 0);
}

}  // namespace
}  // namespace torch_xla::stablehlo
