#pragma once

// Draws of random numbers, which the distributions are formulas over.

#include "aten/elementwise.h"
#include "lazy/random.h"

namespace torch_xla::aten {

using OptionalGenerator = std::optional<at::Generator>;

// Random bits, u32 or u64, of the generator given or the device's own.
Value random_bits(const OptionalGenerator& generator, c10::Device device, ElementType word,
                  at::IntArrayRef sizes);

// Uniform on [0, 1): multiples of the float type's 2^-digits.
Value random_unit(const OptionalGenerator& generator, c10::Device device, ElementType type,
                  at::IntArrayRef sizes);
// The same with the sizes of `like`, in the type that its dtype is drawn in.
Value random_unit(const OptionalGenerator& generator, const at::Tensor& like);

// The compute type of a dtype: f64 of f64 and complex128, f32 of any other.
ElementType draw_type(at::ScalarType dtype);

// `op` over a draw and numbers, as `type`.
Value formula(const PointwiseOp& op, const Value& draw, std::initializer_list<double> numbers,
              ElementType type);

// Writes `value`, converted, to all of `self`. Throws c10::Error when elements share memory.
at::Tensor& fill(at::Tensor& self, const Value& value);

// draw, p: true with probability p.
extern const PointwiseOp kBernoulli;

// The largest integer such that a dtype holds it and all smaller positive ones.
int64_t largest_integer(ElementType type);
// Bits of a float type's significand, with the implied one.
int significand_digits(ElementType type);

}  // namespace torch_xla::aten
