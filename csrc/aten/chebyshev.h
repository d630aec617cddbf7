#pragma once

// Functions that XLA does not have, as Chebyshev series. The coefficients here and in the files
// that include this were computed with 30 digits or more from the definition of the function, and
// cut where they fall below the last bit of a double.

#include <span>

#include "aten/kernel.h"

namespace torch_xla::aten {

// sum c[i] T_i(t) for t in [-1, 1], by the recurrence of Clenshaw 1955, with as many terms as the
// dtype can hold.
XlaValue chebyshev(Builder& b, std::span<const double> c, XlaValue t);

// Modified Bessel functions of the first kind: I0(x), exp(-|x|) I0(x) and I1(x).
XlaValue bessel_i0(Builder& b, XlaValue x);
XlaValue bessel_i0e(Builder& b, XlaValue x);
XlaValue bessel_i1(Builder& b, XlaValue x);

}  // namespace torch_xla::aten
