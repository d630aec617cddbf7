// Elementwise operations as free functions, so that a lowering reads like a formula:
// tanh(x * 0.5), maximum(x, y). They are the methods of the same names of the operands' builder.

#pragma once

#include "stablehlo/builder.h"

namespace torch_xla::stablehlo {

#define TORCH_XLA_UNARY(name) \
  inline Value name(Value x) { return x.builder().name(x); }
#define TORCH_XLA_BINARY(name) \
  inline Value name(Value a, Value b) { return a.builder().name(a, b); }

TORCH_XLA_UNARY(abs)
TORCH_XLA_UNARY(exponential)
TORCH_XLA_UNARY(exponential_minus_one)
TORCH_XLA_UNARY(log)
TORCH_XLA_UNARY(log_plus_one)
TORCH_XLA_UNARY(logistic)
TORCH_XLA_UNARY(tanh)
TORCH_XLA_UNARY(tan)
TORCH_XLA_UNARY(sine)
TORCH_XLA_UNARY(cosine)
TORCH_XLA_UNARY(sqrt)
TORCH_XLA_UNARY(rsqrt)
TORCH_XLA_UNARY(cbrt)
TORCH_XLA_UNARY(floor)
TORCH_XLA_UNARY(ceil)
TORCH_XLA_UNARY(round_nearest_even)
TORCH_XLA_UNARY(round_nearest_afz)
TORCH_XLA_UNARY(sign)
TORCH_XLA_UNARY(popcnt)
TORCH_XLA_UNARY(count_leading_zeros)
TORCH_XLA_UNARY(is_finite)
TORCH_XLA_UNARY(is_inf)
TORCH_XLA_UNARY(is_nan)
TORCH_XLA_UNARY(real)
TORCH_XLA_UNARY(imag)
TORCH_XLA_UNARY(conj)
TORCH_XLA_UNARY(square)
TORCH_XLA_UNARY(erf)
TORCH_XLA_UNARY(erfc)
TORCH_XLA_UNARY(erf_inv)
TORCH_XLA_UNARY(lgamma)
TORCH_XLA_UNARY(digamma)
TORCH_XLA_UNARY(acos)
TORCH_XLA_UNARY(asin)
TORCH_XLA_UNARY(atan)
TORCH_XLA_UNARY(acosh)
TORCH_XLA_UNARY(asinh)
TORCH_XLA_UNARY(atanh)
TORCH_XLA_UNARY(sinh)
TORCH_XLA_UNARY(cosh)
TORCH_XLA_UNARY(bessel_i1e)
TORCH_XLA_UNARY(zeros_like)
TORCH_XLA_UNARY(ones_like)
TORCH_XLA_BINARY(maximum)
TORCH_XLA_BINARY(minimum)
TORCH_XLA_BINARY(remainder)
TORCH_XLA_BINARY(power)
TORCH_XLA_BINARY(atan2)
TORCH_XLA_BINARY(zeta)
TORCH_XLA_BINARY(polygamma)
TORCH_XLA_BINARY(next_after)
TORCH_XLA_BINARY(shift_left)
TORCH_XLA_BINARY(shift_right_logical)
TORCH_XLA_BINARY(shift_right_arithmetic)
TORCH_XLA_BINARY(eq)
TORCH_XLA_BINARY(ne)
TORCH_XLA_BINARY(lt)
TORCH_XLA_BINARY(le)
TORCH_XLA_BINARY(gt)
TORCH_XLA_BINARY(ge)

#undef TORCH_XLA_UNARY
#undef TORCH_XLA_BINARY

inline Value select(Value pred, Value on_true, Value on_false) {
  return on_true.builder().select(pred, on_true, on_false);
}
inline Value clamp(Value low, Value x, Value high) { return x.builder().clamp(low, x, high); }
inline Value convert(Value x, ElementType type) { return x.builder().convert(x, type); }

}  // namespace torch_xla::stablehlo
