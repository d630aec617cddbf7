// Operators over lists of tensors, which optimizers and gradient clipping are made of. A list of
// plain tensors costs a node for each of them and nothing else. Whatever needs inference,
// broadcasts or conversions, and every error, is torch's own loop over the operator for one tensor.

#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_foreach_abs_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_add_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_addcdiv_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_addcmul_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_clamp_max_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_clamp_min_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_copy_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_div_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_exp_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_lerp_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_maximum_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_minimum_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_mul_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_neg_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_norm_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_pow_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_reciprocal_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_rsqrt_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sign_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sqrt_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_foreach_sub_compositeexplicitautograd_dispatch.h>

#include "aten/formulas.h"

namespace torch_xla::aten {
namespace {

namespace loop = at::compositeexplicitautograd;  // torch's own loops

using Tensors = at::TensorList;
using Scalar = at::Scalar;
using Scalars = at::ArrayRef<at::Scalar>;
using Outputs = std::vector<at::Tensor>;

// A dense xla tensor of real floats.
bool is_plain(const at::Tensor& tensor) {
  return lazy::is_xla(tensor) && at::isFloatingType(tensor.scalar_type()) &&
         tensor.is_non_overlapping_and_dense();
}

// Two whose elements meet without inference, the second of which is no other part of the memory of
// the first: an elementwise result has the geometry of both, and may be written to the first.
bool is_match(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_same(b)) return true;
  return lazy::is_xla(b) && a.dtype() == b.dtype() && a.device() == b.device() &&
         a.sizes() == b.sizes() && a.strides() == b.strides() &&
         (!a.is_alias_of(b) || a.storage_offset() == b.storage_offset());
}

bool is_real(const Scalar& number) {
  return number.isFloatingPoint() || number.isIntegral(/*includeBool=*/false);
}

// What stands beside the tensors of the first list. fits(): a plain tensor and the operand need no
// inference. value(): the operand of the node for that tensor.

struct List {
  Tensors tensors;
  bool has(size_t count) const { return tensors.size() == count; }
  bool fits(size_t i, const at::Tensor& self) const { return is_match(self, tensors[i]); }
  Value value(size_t i, ElementType) { return lazy::read(tensors[i]); }
};

// One number for all tensors: they share its node.
struct Number {
  const Scalar& number;
  Value node = {};
  bool has(size_t) const { return is_real(number); }
  bool fits(size_t, const at::Tensor&) const { return true; }
  Value value(size_t, ElementType common) {
    if (!node || node.type() != stablehlo::opmath_type(common)) {
      node = scalar_operand(number, common);
    }
    return node;
  }
};

// The same, rounded to the dtype of the tensors.
struct Rounded : Number {
  Value value(size_t, ElementType common) {
    if (!node || node.type() != stablehlo::opmath_type(common)) {
      node = rounded_operand(number, common);
    }
    return node;
  }
};

struct Numbers {
  Scalars numbers;
  bool has(size_t count) const { return numbers.size() == count; }
  bool fits(size_t i, const at::Tensor&) const { return is_real(numbers[i]); }
  Value value(size_t i, ElementType common) { return scalar_operand(numbers[i], common); }
};
struct RoundedNumbers : Numbers {
  Value value(size_t i, ElementType common) { return rounded_operand(numbers[i], common); }
};

// One tensor of rank 0 for all, which no write reaches.
struct Single {
  const at::Tensor& tensor;
  Value node = {};
  bool has(size_t) const {
    return tensor.dim() == 0 && !tensor.is_complex() && tensor.scalar_type() != at::kBool &&
           (tensor.is_xla() || tensor.is_cpu());
  }
  bool fits(size_t, const at::Tensor& self) const {
    return (self.dim() > 0 || self.dtype() == tensor.dtype()) &&
           (tensor.is_cpu() || (self.device() == tensor.device() && !self.is_alias_of(tensor)));
  }
  Value value(size_t, ElementType common) {
    if (tensor.is_xla()) return node ? node : node = lazy::read(tensor);
    if (!node || node.type() != stablehlo::opmath_type(common)) {
      node = scalar_operand(number_in(tensor), common);
    }
    return node;
  }
};

template <class... Operands>
bool all_plain(Tensors self, const Operands&... operands) {
  if (self.empty() || !(operands.has(self.size()) && ...)) return false;
  for (size_t i = 0; i < self.size(); ++i) {
    if (!is_plain(self[i]) || !(operands.fits(i, self[i]) && ...)) return false;
  }
  return true;
}

// The node for tensor `i`.
template <class... Operands>
Value result(const PointwiseOp& op, const at::Tensor& self, [[maybe_unused]] size_t i,
             Operands&... operands) {
  const ElementType type = element_type(self);
  return pointwise(op, {lazy::read(self), operands.value(i, type)...}, type,
                   ShapeRef{type, span_of(self.sizes())});
}

// A new tensor of the geometry of a plain one.
at::Tensor like(const at::Tensor& plain, Value value) {
  if (plain.is_contiguous()) {
    return lazy::make(std::move(value), plain.scalar_type(), plain.device());
  }
  return lazy::make_strided(std::move(value), plain.strides(), plain.device());
}

// `op` over each tensor and its operands; `otherwise` is the loop for what is not plain.
template <class Loop, class... Operands>
Outputs map(const PointwiseOp& op, Loop otherwise, Tensors self, Operands... operands) {
  if (!all_plain(self, operands...)) return otherwise();
  Outputs results;
  results.reserve(self.size());
  for (size_t i = 0; i < self.size(); ++i) {
    results.push_back(like(self[i], result(op, self[i], i, operands...)));
  }
  return results;
}

// The same, written to the tensors.
template <class Loop, class... Operands>
void update(const PointwiseOp& op, Loop otherwise, Tensors self, Operands... operands) {
  if (!all_plain(self, operands...)) return otherwise();
  for (size_t i = 0; i < self.size(); ++i) {
    lazy::write(self[i], result(op, self[i], i, operands...));
  }
}

bool is_one(const Scalar& alpha) { return is_real(alpha) && alpha.equal(1); }

// add and sub of lists: self + alpha * other.
template <class Other, class Loop>
Outputs map_scaled(const PointwiseOp& plain, const PointwiseOp& scaled, Loop otherwise,
                   Tensors self, Other other, const Scalar& alpha) {
  if (is_one(alpha)) return map(plain, otherwise, self, other);
  return map(scaled, otherwise, self, other, Rounded{{alpha}});
}
template <class Other, class Loop>
void update_scaled(const PointwiseOp& plain, const PointwiseOp& scaled, Loop otherwise,
                   Tensors self, Other other, const Scalar& alpha) {
  if (is_one(alpha)) return update(plain, otherwise, self, other);
  update(scaled, otherwise, self, other, Rounded{{alpha}});
}

Scalars as_scalars(const at::Tensor& numbers, size_t count, std::vector<Scalar>& storage) {
  storage = at::native::convert_tensor_to_scalar_list(numbers, static_cast<int64_t>(count));
  return storage;
}

// --- powers of a number, norms, copies ---

Outputs pow(const Scalar& base, Tensors exponents) {
  Rounded number{{base}};
  if (!all_plain(exponents, number)) return loop::_foreach_pow(base, exponents);
  Outputs powers;
  powers.reserve(exponents.size());
  for (size_t i = 0; i < exponents.size(); ++i) {
    const at::Tensor& exponent = exponents[i];
    const ElementType type = element_type(exponent);
    powers.push_back(like(exponent, pointwise(kPow, {number.value(i, type), lazy::read(exponent)},
                                              type, {type, span_of(exponent.sizes())})));
  }
  return powers;
}

Outputs norm(Tensors self, const Scalar& ord, std::optional<at::ScalarType> dtype) {
  bool plain = !dtype && !self.empty() && is_real(ord);
  for (size_t i = 0; plain && i < self.size(); ++i) plain = is_plain(self[i]) && self[i].numel();
  if (!plain) return loop::_foreach_norm(self, ord, dtype);
  Outputs results;
  results.reserve(self.size());
  for (const at::Tensor& tensor : self) {
    results.push_back(lazy::make(norm_of_all(tensor, ord), tensor.scalar_type(), tensor.device()));
  }
  return results;
}

void copy(Tensors self, Tensors source, bool non_blocking) {
  if (!all_plain(self, List{source})) return loop::_foreach_copy_(self, source, non_blocking);
  for (size_t i = 0; i < self.size(); ++i) lazy::write(self[i], lazy::read(source[i]));
}

}  // namespace

// The overloads of one name. `name##_` is the in-place form.
#define UNARY(name, op)                                                                            \
  m.impl("_foreach_" #name,                                                                        \
         [](Tensors self) { return map(op, [&] { return loop::_foreach_##name(self); }, self); }); \
  m.impl("_foreach_" #name "_",                                                                    \
         [](Tensors self) { update(op, [&] { loop::_foreach_##name##_(self); }, self); })

#define BINARY_NUMBERS(name, op, Number, Numbers)                                                 \
  m.impl("_foreach_" #name ".Scalar", [](Tensors self, const Scalar& number) {                    \
    return map(op, [&] { return loop::_foreach_##name(self, number); }, self, Number{number});    \
  });                                                                                             \
  m.impl("_foreach_" #name "_.Scalar", [](Tensors self, const Scalar& number) {                   \
    update(op, [&] { loop::_foreach_##name##_(self, number); }, self, Number{number});            \
  });                                                                                             \
  m.impl("_foreach_" #name ".ScalarList", [](Tensors self, Scalars numbers) {                     \
    return map(op, [&] { return loop::_foreach_##name(self, numbers); }, self, Numbers{numbers}); \
  });                                                                                             \
  m.impl("_foreach_" #name "_.ScalarList", [](Tensors self, Scalars numbers) {                    \
    update(op, [&] { loop::_foreach_##name##_(self, numbers); }, self, Numbers{numbers});         \
  })

#define BINARY_LIST(name, op)                                                              \
  m.impl("_foreach_" #name ".List", [](Tensors self, Tensors other) {                      \
    return map(op, [&] { return loop::_foreach_##name(self, other); }, self, List{other}); \
  });                                                                                      \
  m.impl("_foreach_" #name "_.List", [](Tensors self, Tensors other) {                     \
    update(op, [&] { loop::_foreach_##name##_(self, other); }, self, List{other});         \
  })

#define BINARY_SINGLE(name, op)                                                              \
  m.impl("_foreach_" #name ".Tensor", [](Tensors self, const at::Tensor& other) {            \
    return map(op, [&] { return loop::_foreach_##name(self, other); }, self, Single{other}); \
  });                                                                                        \
  m.impl("_foreach_" #name "_.Tensor", [](Tensors self, const at::Tensor& other) {           \
    update(op, [&] { loop::_foreach_##name##_(self, other); }, self, Single{other});         \
  })

// With alpha; `Other` and `Operand` are what stands beside the list.
#define BINARY_SCALED(name, overload, Other, Operand, op)                                     \
  m.impl("_foreach_" #name overload, [](Tensors self, Other other, const Scalar& alpha) {     \
    return map_scaled(                                                                        \
        op, op##Scaled, [&] { return loop::_foreach_##name(self, other, alpha); }, self,      \
        Operand{other}, alpha);                                                               \
  });                                                                                         \
  m.impl("_foreach_" #name "_" overload, [](Tensors self, Other other, const Scalar& alpha) { \
    update_scaled(                                                                            \
        op, op##Scaled, [&] { loop::_foreach_##name##_(self, other, alpha); }, self,          \
        Operand{other}, alpha);                                                               \
  })

// self, a, b and a number for all, a list of numbers, or those in a tensor on the host.
#define TERNARY(name, op)                                                                          \
  m.impl("_foreach_" #name ".Scalar",                                                              \
         [](Tensors self, Tensors a, Tensors b, const Scalar& value) {                             \
           return map(                                                                             \
               op, [&] { return loop::_foreach_##name(self, a, b, value); }, self, List{a},        \
               List{b}, Number{value});                                                            \
         });                                                                                       \
  m.impl("_foreach_" #name "_.Scalar",                                                             \
         [](Tensors self, Tensors a, Tensors b, const Scalar& value) {                             \
           update(                                                                                 \
               op, [&] { loop::_foreach_##name##_(self, a, b, value); }, self, List{a}, List{b},   \
               Number{value});                                                                     \
         });                                                                                       \
  m.impl("_foreach_" #name ".ScalarList", [](Tensors self, Tensors a, Tensors b, Scalars v) {      \
    return map(                                                                                    \
        op, [&] { return loop::_foreach_##name(self, a, b, v); }, self, List{a}, List{b},          \
        Numbers{v});                                                                               \
  });                                                                                              \
  m.impl("_foreach_" #name "_.ScalarList", [](Tensors self, Tensors a, Tensors b, Scalars v) {     \
    update(                                                                                        \
        op, [&] { loop::_foreach_##name##_(self, a, b, v); }, self, List{a}, List{b}, Numbers{v}); \
  });                                                                                              \
  m.impl("_foreach_" #name ".Tensor",                                                              \
         [](Tensors self, Tensors a, Tensors b, const at::Tensor& numbers) {                       \
           std::vector<Scalar> storage;                                                            \
           const Scalars v = as_scalars(numbers, self.size(), storage);                            \
           return map(                                                                             \
               op, [&] { return loop::_foreach_##name(self, a, b, v); }, self, List{a}, List{b},   \
               Numbers{v});                                                                        \
         });                                                                                       \
  m.impl("_foreach_" #name "_.Tensor", [](Tensors self, Tensors a, Tensors b,                      \
                                          const at::Tensor& numbers) {                             \
    std::vector<Scalar> storage;                                                                   \
    const Scalars v = as_scalars(numbers, self.size(), storage);                                   \
    update(                                                                                        \
        op, [&] { loop::_foreach_##name##_(self, a, b, v); }, self, List{a}, List{b}, Numbers{v}); \
  })

XLA_KERNELS(m) {
  UNARY(abs, kAbs);
  UNARY(exp, kExp);
  UNARY(neg, kNeg);
  UNARY(reciprocal, kReciprocal);
  UNARY(rsqrt, kRsqrt);
  UNARY(sign, kSign);
  UNARY(sqrt, kSqrt);

  BINARY_NUMBERS(add, kAdd, Rounded, RoundedNumbers);
  BINARY_SCALED(add, ".List", Tensors, List, kAdd);
  BINARY_SCALED(add, ".Tensor", const at::Tensor&, Single, kAdd);
  BINARY_NUMBERS(sub, kSub, Rounded, RoundedNumbers);
  BINARY_SCALED(sub, ".List", Tensors, List, kSub);
  BINARY_NUMBERS(mul, kMul, Number, Numbers);
  BINARY_LIST(mul, kMul);
  BINARY_SINGLE(mul, kMul);
  BINARY_NUMBERS(div, kDivShared, Number, Numbers);
  BINARY_LIST(div, kDiv);
  BINARY_SINGLE(div, kDivShared);
  BINARY_NUMBERS(maximum, kMaximum, Number, Numbers);
  BINARY_LIST(maximum, kMaximum);
  BINARY_NUMBERS(minimum, kMinimum, Number, Numbers);
  BINARY_LIST(minimum, kMinimum);
  BINARY_NUMBERS(clamp_min, kMaximum, Number, Numbers);
  BINARY_LIST(clamp_min, kMaximum);
  BINARY_NUMBERS(clamp_max, kMinimum, Number, Numbers);
  BINARY_LIST(clamp_max, kMinimum);

  TERNARY(addcmul, kAddcmul);
  TERNARY(addcdiv, kAddcdiv);
  m.impl("_foreach_lerp.Scalar", [](Tensors self, Tensors end, const Scalar& weight) {
    return map(
        kLerp, [&] { return loop::_foreach_lerp(self, end, weight); }, self, List{end},
        Number{weight});
  });
  m.impl("_foreach_lerp_.Scalar", [](Tensors self, Tensors end, const Scalar& weight) {
    update(
        kLerp, [&] { loop::_foreach_lerp_(self, end, weight); }, self, List{end}, Number{weight});
  });
  m.impl("_foreach_lerp.List", [](Tensors self, Tensors end, Tensors weights) {
    return map(
        kLerp, [&] { return loop::_foreach_lerp(self, end, weights); }, self, List{end},
        List{weights});
  });
  m.impl("_foreach_lerp_.List", [](Tensors self, Tensors end, Tensors weights) {
    update(
        kLerp, [&] { loop::_foreach_lerp_(self, end, weights); }, self, List{end}, List{weights});
  });

  m.impl("_foreach_pow.ScalarAndTensor", pow);
  m.impl("_foreach_norm.Scalar", norm);
  m.impl("_foreach_copy_", copy);
}

}  // namespace torch_xla::aten
