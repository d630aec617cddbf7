#pragma once

// Elementwise operators that refuse numbers that do not fit, as PyTorch's CPU kernels do: clamp,
// threshold, addcmul.

#include "aten/elementwise.h"
#include "aten/masked.h"

namespace torch_xla::aten {

// What a number of an operator must fit: the dtype of the operands, or the wider one that 16-bit
// floats are computed in.
enum class Fit { kDtype, kCompute };

// Throws c10::Error, in PyTorch's words, for a number that overflows `type` or, if so asked, the
// dtype in which CPU computes what is of `type`.
inline void check_fit(const at::Scalar& number, at::ScalarType type, Fit fit) {
  check_number(number, fit == Fit::kCompute && at::isReducedFloatingType(type) ? at::kFloat : type);
}

namespace internal {

template <class T>
void check_next(const T& argument, at::ScalarType type, const Fit*& fit) {
  if constexpr (std::is_same_v<T, at::Scalar>) check_fit(argument, type, *fit++);
}

template <Fit... fits, class... Args>
void check_fits(at::ScalarType type, const Args&... args) {
  constexpr std::array<Fit, sizeof...(fits)> kFits{fits...};
  const Fit* next = kFits.data();
  (check_next(args, type, next), ...);
}

}  // namespace internal

// Numeric, after a look at the numbers: one Fit for each, in the order of the signature.
template <const PointwiseOp& op, Domain domain, Fit... fits>
struct FittingNumeric {
  template <class Meta, class... Args>
  Value operator()(Meta& it, const Args&... args) const {
    const ElementType common = common_type(it);
    check_domain(op.name, domain, lazy::scalar_type(common));
    internal::check_fits<fits...>(lazy::scalar_type(common), args...);
    return internal::numeric_node(op, common, it.output_shape(), args...);
  }
};

namespace internal {

// What skips the meta function skips compute too.
template <Fit... fits, class Self, class... Args>
void check_plain(const Self& self, const Args&... args) {
  if (plain_float(self) && (is_plain(self, args) && ...)) {
    check_fits<fits...>(self.scalar_type(), args...);
  }
}

template <class Kernels, class Member, Fit... fits>
struct FittingKernels;

template <class Kernels, class Return, class Class, class First, class... Args, Fit... fits>
struct FittingKernels<Kernels, Return (Class::*)(First, Args...), fits...> {
  static at::Tensor functional(First self, Args... args) {
    check_plain<fits...>(self, args...);
    return Kernels::functional(self, args...);
  }
  static at::Tensor& inplace(at::Tensor& self, Args... args) {
    check_plain<fits...>(self, args...);
    return Kernels::inplace()(self, args...);
  }
};

}  // namespace internal

// Registers as `numeric` does.
template <class Meta, const PointwiseOp& op, Domain domain, Fit... fits>
void fitting(torch::Library& m, Names names) {
  constexpr auto compute = FittingNumeric<op, domain, fits...>{};
  using Signature = decltype(&Meta::meta);
  using Kernels = internal::FittingKernels<internal::NumericKernels<Meta, op, compute, Signature>,
                                           Signature, fits...>;
  if (names.functional) m.impl(names.functional, &Kernels::functional);
  if (names.inplace) m.impl(names.inplace, &Kernels::inplace);
  structured<Meta, compute>(m, {nullptr, nullptr, names.out});
}

}  // namespace torch_xla::aten
