// Contractions, convolutions, batch norms, factorizations, transforms, random bits.

#include <gtest/gtest.h>

#include <cmath>

#include "stablehlo/builder.h"
#include "stablehlo/run.h"

namespace torch_xla::stablehlo {
namespace {

using testing::array;
using testing::c64;
using testing::expect;
using testing::expect_compiles;
using testing::f32;
using testing::pred;
using testing::s32;

DotDimensions matmul() {
  DotDimensions d;
  d.lhs_contracting = {1};
  d.rhs_contracting = {0};
  return d;
}

TEST(Linalg, Matmul) {
  expect({f32({2, 2}, {1, 2, 3, 4}), f32({2, 3}, {1, 0, 2, 0, 1, 3}), s32({2}, {1, 2}),
          s32({2}, {3, 4})},
         [](Builder& b, const Values& x) {
           DotDimensions inner;
           inner.lhs_contracting = {0};
           inner.rhs_contracting = {0};
           return Values{b.dot_general(x[0], x[1], matmul()),
                         b.dot_general(x[0], x[1], matmul(), {}, Precision::kHighest),
                         b.dot_general(x[2], x[3], inner), b.dot_general(x[2], x[3], {})};
         },
         {f32({2, 3}, {1, 2, 8, 3, 4, 18}), f32({2, 3}, {1, 2, 8, 3, 4, 18}), s32({}, {11}),
          s32({2, 2}, {3, 4, 6, 8})});
}

TEST(Linalg, BatchedMatmulPutsTheBatchFirst) {
  expect({f32({2, 2, 1}, {1, 2, 3, 4}), f32({2, 1, 2}, {5, 6, 7, 8})},
         [](Builder& b, const Values& x) {
           DotDimensions d;
           d.lhs_batch = {1};
           d.rhs_batch = {2};
           d.lhs_contracting = {2};
           d.rhs_contracting = {1};
           return Values{b.dot_general(x[0], x[1], d)};
         },
         // result[k, i, j] = lhs[i, k] * rhs[j, k]
         {f32({2, 2, 2}, {5, 7, 15, 21, 12, 16, 24, 32})});
}

TEST(Linalg, PreferredResultType) {
  expect({f32({1, 2}, {1, 2}), f32({2, 1}, {3, 4}), array(ElementType::kS8, {1, 1}, {100})},
         [](Builder& b, const Values& x) {
           Value l = b.convert(x[0], ElementType::kBF16);
           Value r = b.convert(x[1], ElementType::kBF16);
           return Values{b.dot_general(l, r, matmul(), ElementType::kF32),
                         b.dot_general(x[2], x[2], matmul(), ElementType::kS32)};
         },
         {f32({1, 1}, {11}), s32({1, 1}, {10000})});
}

TEST(Linalg, Convolution1d) {
  expect({f32({1, 1, 4}, {1, 2, 3, 4}), f32({1, 1, 2}, {1, 10})},
         [](Builder& b, const Values& x) {
           ConvolutionDimensions d = default_convolution_dimensions(1);
           ConvolutionOptions strided, padded, dilated, reversed;
           strided.strides = {2};
           padded.padding_low = {1};
           padded.padding_high = {-1};
           dilated.lhs_dilation = {2};
           dilated.rhs_dilation = {2};
           reversed.window_reversal = {1};
           return Values{b.convolution(x[0], x[1], d), b.convolution(x[0], x[1], d, strided),
                         b.convolution(x[0], x[1], d, padded),
                         b.convolution(x[0], x[1], d, dilated),
                         b.convolution(x[0], x[1], d, reversed)};
         },
         {f32({1, 1, 3}, {21, 32, 43}), f32({1, 1, 2}, {21, 43}), f32({1, 1, 3}, {10, 21, 32}),
          f32({1, 1, 5}, {21, 0, 32, 0, 43}), f32({1, 1, 3}, {12, 23, 34})});
}

TEST(Linalg, Convolution2dInOtherLayoutsAndGroups) {
  ConvolutionDimensions nhwc;
  nhwc.input_batch = 0;
  nhwc.input_feature = 3;
  nhwc.input_spatial = {1, 2};
  nhwc.kernel_output_feature = 3;
  nhwc.kernel_input_feature = 2;
  nhwc.kernel_spatial = {0, 1};
  nhwc.output_batch = 0;
  nhwc.output_feature = 3;
  nhwc.output_spatial = {1, 2};
  ConvolutionOptions depthwise;
  depthwise.feature_group_count = 2;
  depthwise.precision = Precision::kHighest;
  expect({f32({1, 1, 2, 2}, {1, 2, 3, 4}), f32({1, 1, 1, 2}, {10, 100})},
         [&](Builder& b, const Values& x) {
           return Values{b.convolution(x[0], x[1], nhwc, depthwise)};
         },
         {f32({1, 1, 2, 2}, {10, 200, 30, 400})});
}

TEST(Linalg, ConvolutionInBatchGroups) {
  ConvolutionOptions options;
  options.batch_group_count = 2;
  expect({f32({2, 1, 2}, {1, 2, 3, 4}), f32({2, 1, 1}, {10, 100})},
         [&](Builder& b, const Values& x) {
           return Values{b.convolution(x[0], x[1], default_convolution_dimensions(1), options)};
         },
         {f32({1, 2, 2}, {10, 20, 300, 400})});
}

TEST(Linalg, BatchNorm) {
  expect(
      {f32({2, 1}, {1, 3}), f32({1}, {2}), f32({1}, {5}), f32({1}, {2}), f32({1}, {1}),
       f32({2, 1}, {1, 0})},
      [](Builder& b, const Values& x) {
        BatchNormTraining t = b.batch_norm_training(x[0], x[1], x[2], 0, 1);
        BatchNormGrad g = b.batch_norm_grad(x[0], x[1], x[3], x[4], x[5], 0, 1);
        return Values{b.batch_norm_inference(x[0], x[1], x[2], x[3], x[4], 0, 1),
                      t.output,
                      t.mean,
                      t.variance,
                      g.grad_operand,
                      g.grad_scale,
                      g.grad_offset};
      },
      {f32({2, 1}, {3, 7}), f32({2, 1}, {3, 7}), f32({1}, {2}), f32({1}, {1}), f32({2, 1}, {0, 0}),
       f32({1}, {-1}), f32({1}, {1})},
      1e-5);
}

TEST(Linalg, CholeskyAndTriangularSolve) {
  expect(
      {f32({2, 2}, {4, 2, 2, 5}), f32({2, 2}, {2, 0, 1, 2}), f32({2, 1}, {2, 5}),
       f32({1, 2}, {2, 4})},
      [](Builder& b, const Values& x) {
        Value zero = b.zeros_like(x[0]);
        Value lower =
            b.ge(b.iota(ElementType::kS32, {2, 2}, 0), b.iota(ElementType::kS32, {2, 2}, 1));
        return Values{b.select(lower, b.cholesky(x[0], true), zero),
                      b.triangular_solve(x[1], x[2], true, true, false, Transpose::kNone),
                      b.triangular_solve(x[1], x[2], true, true, false, Transpose::kTranspose),
                      b.triangular_solve(x[1], x[3], false, true, false, Transpose::kNone),
                      b.triangular_solve(x[1], x[2], true, true, true, Transpose::kAdjoint)};
      },
      {f32({2, 2}, {2, 0, 1, 2}), f32({2, 1}, {1, 2}), f32({2, 1}, {-0.25, 2.5}),
       f32({1, 2}, {0, 2}), f32({2, 1}, {-3, 5})},
      1e-6);
}

TEST(Linalg, Fft) {
  expect(
      {c64({4}, {1, 0, 2, 0, 3, 0, 4, 0}), f32({4}, {1, 2, 3, 4})},
      [](Builder& b, const Values& x) {
        Value f = b.fft(x[0], FftKind::kFft, {4});
        Value r = b.fft(x[1], FftKind::kRfft, {4});
        return Values{f, b.fft(f, FftKind::kIfft, {4}), r, b.fft(r, FftKind::kIrfft, {4})};
      },
      {c64({4}, {10, 0, -2, 2, -2, 0, -2, -2}), c64({4}, {1, 0, 2, 0, 3, 0, 4, 0}),
       c64({3}, {10, 0, -2, 2, -2, 0}), f32({4}, {1, 2, 3, 4})},
      1e-6);
}

TEST(Linalg, RandomBitsFollowTheirState) {
  // Every algorithm: equal states give equal bits, and the state moves on.
  expect({array(ElementType::kU64, {2}, {1, 2})},
         [](Builder& b, const Values& x) {
           Values results;
           for (RngAlgorithm algorithm : {RngAlgorithm::kThreeFry, RngAlgorithm::kPhilox}) {
             auto first = b.rng_bit_generator(algorithm, x[0], {ElementType::kU32, {8}});
             auto again = b.rng_bit_generator(algorithm, x[0], {ElementType::kU32, {8}});
             auto next = b.rng_bit_generator(algorithm, first.state, {ElementType::kU32, {8}});
             results.push_back(b.reduce_and(b.eq(first.bits, again.bits), {0}));
             results.push_back(b.reduce_and(b.eq(first.bits, next.bits), {0}));
           }
           return results;
         },
         {pred({}, {1}), pred({}, {0}), pred({}, {1}), pred({}, {0})});
  expect_compiles({{ElementType::kU64, {3}}}, [](Builder& b, const Values& x) {
    auto philox = b.rng_bit_generator(RngAlgorithm::kPhilox, x[0], {ElementType::kU64, {3}});
    auto other = b.rng_bit_generator(RngAlgorithm::kDefault, philox.state, {ElementType::kU8, {3}});
    return Values{philox.bits, other.bits};
  });
}

TEST(Linalg, RefusesWhatDoesNotFit) {
  Builder b;
  Value m = b.parameter({ElementType::kF32, {2, 3}});
  Value n = b.parameter({ElementType::kF32, {4, 2}});
  Value i = b.parameter({ElementType::kS32, {3, 2}});
  Value v = b.parameter({ElementType::kF32, {3}});
  Value c = b.parameter({ElementType::kC64, {4}});
  EXPECT_THROW(b.dot_general(m, n, matmul()), std::logic_error);
  EXPECT_THROW(b.dot_general(m, i, matmul()), std::logic_error);
  EXPECT_THROW(b.dot_general(m, v, DotDimensions{{}, {}, {2}, {0}}), std::logic_error);
  EXPECT_THROW(b.dot_general(m, v, DotDimensions{{0}, {}, {1}, {0}}), std::logic_error);

  Value input = b.parameter({ElementType::kF32, {1, 4, 8, 8}});
  Value kernel = b.parameter({ElementType::kF32, {6, 2, 3, 3}});
  ConvolutionDimensions d = default_convolution_dimensions(2);
  ConvolutionOptions options;
  EXPECT_THROW(b.convolution(input, kernel, d), std::logic_error);
  options.feature_group_count = 2;
  EXPECT_EQ(b.convolution(input, kernel, d, options).dims(), (Dims{1, 6, 6, 6}));
  options.strides = {1};
  EXPECT_THROW(b.convolution(input, kernel, d, options), std::logic_error);
  options.strides = {0, 1};
  EXPECT_THROW(b.convolution(input, kernel, d, options), std::logic_error);
  EXPECT_THROW(b.convolution(input, kernel, default_convolution_dimensions(1)), std::logic_error);
  d.output_batch = 1;
  EXPECT_THROW(b.convolution(input, kernel, d), std::logic_error);

  EXPECT_THROW(b.batch_norm_training(m, v, m, 1e-5, 1), std::logic_error);
  EXPECT_THROW(b.batch_norm_inference(m, v, v, v, v, 1e-5, 0), std::logic_error);
  EXPECT_THROW(b.batch_norm_inference(m, v, v, v, v, NAN, 1), std::logic_error);
  EXPECT_THROW(b.cholesky(m, true), std::logic_error);
  EXPECT_THROW(b.triangular_solve(m, m, true, true, false, Transpose::kNone), std::logic_error);
  EXPECT_THROW(b.fft(v, FftKind::kFft, {3}), std::logic_error);
  EXPECT_THROW(b.fft(c, FftKind::kFft, {3}), std::logic_error);
  EXPECT_THROW(b.fft(c, FftKind::kIrfft, {4}), std::logic_error);
  EXPECT_EQ(b.fft(c, FftKind::kIrfft, {6}).dims(), (Dims{6}));
  EXPECT_THROW(b.rng_bit_generator(RngAlgorithm::kPhilox, v, {ElementType::kU32, {2}}),
               std::logic_error);
}

}  // namespace
}  // namespace torch_xla::stablehlo
