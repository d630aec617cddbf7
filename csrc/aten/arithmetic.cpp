// Arithmetic of two operands, and comparisons.

#include <ATen/ops/add_meta.h>
#include <ATen/ops/atan2_meta.h>
#include <ATen/ops/div_meta.h>
#include <ATen/ops/eq_meta.h>
#include <ATen/ops/ge_meta.h>
#include <ATen/ops/gt_meta.h>
#include <ATen/ops/le_meta.h>
#include <ATen/ops/lt_meta.h>
#include <ATen/ops/maximum_meta.h>
#include <ATen/ops/minimum_meta.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/ne_meta.h>
#include <ATen/ops/sub_meta.h>

#include "aten/checks.h"
#include "aten/elementwise.h"
#include "aten/formulas.h"
#include "aten/masked.h"
#include "lazy/runtime.h"

namespace torch_xla::aten {
namespace {

using Args = PointwiseArgs&;

// x / y of real floats, truly divided. XLA multiplies by the reciprocal of a divisor that all
// elements share, which moves quotients across integers; one that has the sign of x is not shared.
XlaValue quotient_of(Args x) {
  Builder& b = x.b;
  const ElementType type = x[0].element_type();
  if (type != ElementType::kF32 && type != ElementType::kF64) return b.divide(x[0], x[1]);
  const bool wide = type == ElementType::kF64;
  const XlaValue bits = b.bitcast_convert(x[0], wide ? ElementType::kS64 : ElementType::kS32);
  const XlaValue negative = b.lt(bits, b.zeros_like(bits));
  return b.divide(b.abs(x[0]), b.select(negative, b.negate(x[1]), x[1]));
}

// ac - bd + (ad + bc) i, each product rounded before they are added, as on CPU. XLA's own complex
// product leaves LLVM free to fuse one into the sum, which is an infinity where both overflow and
// should be NaN; the selects, which change nothing, keep both products.
XlaValue product_of(Args x) {
  Builder& b = x.b;
  if (!stablehlo::is_complex(x[0].element_type())) return b.multiply(x[0], x[1]);
  const XlaValue real = b.real(x[0]), imag = b.imag(x[0]);
  const XlaValue other_real = b.real(x[1]), other_imag = b.imag(x[1]);
  const auto sum = [&](XlaValue p, XlaValue q) {
    const XlaValue cancel = b.and_(b.is_inf(p), b.eq(p, b.negate(q)));
    return b.select(cancel, b.full_like(p, std::nan("")), b.add(p, q));
  };
  return b.complex(sum(b.multiply(real, other_real), b.negate(b.multiply(imag, other_imag))),
                   sum(b.multiply(real, other_imag), b.multiply(imag, other_real)));
}

}  // namespace

// --- add, sub (self + alpha * other), mul, div, maximum, minimum ---

const PointwiseOp kAdd{"aten::add", [](Args x) { return x.b.add(x[0], x[1]); }};
const PointwiseOp kAddScaled{"aten::add",
                             [](Args x) { return x.b.add(x[0], x.b.multiply(x[2], x[1])); }};
const PointwiseOp kSub{"aten::sub", [](Args x) { return x.b.subtract(x[0], x[1]); }};
const PointwiseOp kSubScaled{"aten::sub",
                             [](Args x) { return x.b.subtract(x[0], x.b.multiply(x[2], x[1])); }};
const PointwiseOp kMul{"aten::mul", [](Args x) { return product_of(x); }};
const PointwiseOp kDiv{"aten::div", [](Args x) { return x.b.divide(x[0], x[1]); }};
const PointwiseOp kDivShared{"aten::div", [](Args x) { return quotient_of(x); }};
const PointwiseOp kMaximum{"aten::maximum", [](Args x) { return x.b.maximum(x[0], x[1]); }};
const PointwiseOp kMinimum{"aten::minimum", [](Args x) { return x.b.minimum(x[0], x[1]); }};

namespace {

// A Python number beside a float tensor does not change its dtype.
bool is_plain_number(const at::Tensor& self, const at::Tensor& number) {
  const c10::TensorImpl* impl = number.unsafeGetTensorImpl();
  return impl->is_wrapped_number() && self.is_xla() && self.is_contiguous() &&
         at::isFloatingType(self.scalar_type()) &&
         !self.unsafeGetTensorImpl()->is_wrapped_number() &&
         !at::isComplexType(number.scalar_type());
}

// The right operand when self and other are two plain tensors, or a plain tensor and number:
// nothing to infer, the result is like self. Null for anything else. `as_operand` makes one of a
// number.
Value plain_operand(const at::Tensor& self, const at::Tensor& other,
                    Value (*as_operand)(const c10::Scalar&, ElementType)) {
  if (plain_pair(self, other)) return lazy::read(other);
  if (is_plain_number(self, other)) return as_operand(number_in(other), element_type(self));
  return {};
}

// What a term of a sum is: of the common dtype before anything is added.
Value term(const at::Tensor& tensor, ElementType common) {
  if (!lazy::is_xla(tensor)) return rounded_operand(number_in(tensor), common);
  return tensor.dim() == 0 ? convert(value_of(tensor), common) : value_of(tensor);
}

template <const PointwiseOp& op>
Value plain_result(const at::Tensor& self, Value other) {
  return pointwise(op, {lazy::read(self), std::move(other)}, element_type(self), shape_of(self));
}

template <const PointwiseOp& op>
at::Tensor plain_binary(const at::Tensor& self, Value other) {
  return make_like(plain_result<op>(self, std::move(other)), self);
}

template <class Meta, const PointwiseOp& plain, const PointwiseOp& scaled>
struct AddLike {
  static Value compute(Infer<Meta, 1>& it, const at::Tensor& self, const at::Tensor& other,
                       const at::Scalar& alpha) {
    const ElementType common = common_type(it);
    check_number(alpha, lazy::scalar_type(common));
    if (alpha.equal(1)) {
      return pointwise(plain, {term(self, common), term(other, common)}, common, it.output_shape());
    }
    return pointwise(scaled,
                     {term(self, common), term(other, common), rounded_operand(alpha, common)},
                     common, it.output_shape());
  }

  // Bools have rules of their own: the meta function knows them.
  static Value fast_operand(const at::Tensor& self, const at::Tensor& other,
                            const at::Scalar& alpha) {
    if (!alpha.isIntegral(false) || alpha.toLong() != 1 || self.scalar_type() == at::kBool ||
        other.scalar_type() == at::kBool) {
      return {};
    }
    return plain_operand(self, other, rounded_operand);
  }

  static at::Tensor functional(const at::Tensor& self, const at::Tensor& other,
                               const at::Scalar& alpha) {
    if (Value right = fast_operand(self, other, alpha)) {
      return plain_binary<plain>(self, std::move(right));
    }
    return structured_functional<Meta, &compute>(self, other, alpha);
  }

  static at::Tensor& inplace(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
    if (!internal::is_apart(self, other)) {
      return structured_inplace<Meta, &compute>(self, other, alpha);  // knows whether they overlap
    }
    if (Value right = fast_operand(self, other, alpha)) {
      lazy::write(self, plain_result<plain>(self, std::move(right)));
      return self;
    }
    return structured_inplace<Meta, &compute>(self, other, alpha);
  }

  static void registered(torch::Library& m, Names names) {
    m.impl(names.functional, &functional);
    m.impl(names.inplace, &inplace);
    structured<Meta, &compute>(m, {nullptr, nullptr, names.out});
  }
};

using Add = AddLike<at::meta::structured_add_Tensor, kAdd, kAddScaled>;
using Sub = AddLike<at::meta::structured_sub_Tensor, kSub, kSubScaled>;

// The division of floats by something that many elements share, which XLA would turn into a product
// with its reciprocal: on CPU, torch divides.
bool divides_truly(ElementType type) {
  static const bool is_cpu = lazy::Runtime::get().is_cpu();
  return is_cpu && stablehlo::is_float(type);
}

template <const PointwiseOp& op>
Value plain_result_of(const at::Tensor& self, Value other) {
  if constexpr (&op == &kDiv) {
    if (other.dims().empty() && self.dim() > 0 && divides_truly(element_type(self))) {
      return plain_result<kDivShared>(self, std::move(other));
    }
  }
  return plain_result<op>(self, std::move(other));
}

// mul and div: no alpha. `floats_only`: integers have a result of another dtype.
template <class Meta, const PointwiseOp& op, bool floats_only>
struct MulLike {
  static Value compute(Infer<Meta, 1>& it, const at::Tensor& self, const at::Tensor& other) {
    const ElementType common = common_type(it);
    const bool shared = floats_only && other.sizes() != it.output().sizes();
    return pointwise(shared && divides_truly(common) ? kDivShared : op,
                     {value_of(self), value_of(other)}, common, it.output_shape());
  }

  static Value fast_operand(const at::Tensor& self, const at::Tensor& other) {
    if (floats_only && !at::isFloatingType(self.scalar_type())) return {};
    return plain_operand(self, other, scalar_operand);
  }
  static at::Tensor functional(const at::Tensor& self, const at::Tensor& other) {
    if (Value right = fast_operand(self, other)) {
      return make_like(plain_result_of<op>(self, std::move(right)), self);
    }
    return structured_functional<Meta, &compute>(self, other);
  }
  static at::Tensor& inplace(at::Tensor& self, const at::Tensor& other) {
    if (!internal::is_apart(self, other)) {
      return structured_inplace<Meta, &compute>(self, other);  // knows whether they overlap
    }
    if (Value right = fast_operand(self, other)) {
      lazy::write(self, plain_result_of<op>(self, std::move(right)));
      return self;
    }
    return structured_inplace<Meta, &compute>(self, other);
  }
  static void registered(torch::Library& m, Names names) {
    m.impl(names.functional, &functional);
    m.impl(names.inplace, &inplace);
    structured<Meta, &compute>(m, {nullptr, nullptr, names.out});
  }
};

// --- div ---

using Mul = MulLike<at::meta::structured_mul_Tensor, kMul, false>;
using Div = MulLike<at::meta::structured_div_Tensor, kDiv, true>;

XlaValue floor_divide_integers(Args x) {
  Builder& b = x.b;
  const XlaValue zero = x.number(0), one = x.number(1);
  const XlaValue quotient = b.divide(x[0], x[1]);
  const XlaValue remainder = b.remainder(x[0], x[1]);
  if (!stablehlo::is_signed(x[0].element_type())) return quotient;
  const XlaValue inexact = b.ne(remainder, zero);
  const XlaValue opposite = b.ne(b.lt(remainder, zero), b.lt(x[1], zero));
  return b.select(b.and_(inexact, opposite), b.subtract(quotient, one), quotient);
}

// CPU kernels round each step of a division to the dtype of 16-bit operands, except where the
// divisor is a single number. The attribute is the type to round to.
struct Rounding {
  Builder& b;
  ElementType type;

  explicit Rounding(Args x) : b(x.b), type(x.attributes.enumeration<ElementType>()) {}
  XlaValue operator()(const XlaValue& value) const { return rounded_to(b, value, type); }
};

// Python's floor division on floats, as c10::div_floor_floating: exact multiples stay exact.
XlaValue floor_divide_floats(Args x) {
  Builder& b = x.b;
  const Rounding rounded(x);
  const XlaValue zero = x.number(0), one = x.number(1);
  const XlaValue mod = b.remainder(x[0], x[1]);
  XlaValue div = rounded(b.divide(rounded(b.subtract(x[0], mod)), x[1]));
  const XlaValue adjust = b.and_(b.ne(mod, zero), b.ne(b.lt(x[1], zero), b.lt(mod, zero)));
  div = b.select(adjust, rounded(b.subtract(div, one)), div);
  const XlaValue floored = b.floor(div);
  const XlaValue nearest =
      b.select(b.gt(b.subtract(div, floored), x.number(0.5)), b.add(floored, one), floored);
  const XlaValue quotient = b.divide(x[0], x[1]);
  // A zero keeps the sign of the true quotient.
  const XlaValue signed_zero = b.multiply(zero, b.sign(quotient));
  const XlaValue result = b.select(b.eq(div, zero), signed_zero, nearest);
  return b.select(b.eq(x[1], zero), quotient, result);
}

const PointwiseOp kDivTrunc{"aten::div", [](Args x) {
                              if (!stablehlo::is_float(x[0].element_type())) {
                                return x.b.divide(x[0], x[1]);
                              }
                              const XlaValue quotient = Rounding(x)(quotient_of(x));
                              return x.b.select(x.b.lt(quotient, x.number(0)), x.b.ceil(quotient),
                                                x.b.floor(quotient));
                            }};
const PointwiseOp kDivFloor{"aten::div", [](Args x) {
                              return stablehlo::is_float(x[0].element_type())
                                         ? floor_divide_floats(x)
                                         : floor_divide_integers(x);
                            }};

Value div_mode(Infer<at::meta::structured_div_Tensor_mode, 1>& it, const at::Tensor& self,
               const at::Tensor& other, std::optional<std::string_view> mode) {
  const ElementType common = common_type(it);
  // Only the divisor keeps more bits than the common dtype has, where it is a number on the host.
  std::array<Value, 2> operands{
      value_of(self, it.common_dtype()),
      lazy::is_xla(other) ? value_of(other) : scalar_operand(number_in(other), common)};
  if (!mode) {
    const bool shared = other.sizes() != it.output().sizes() && divides_truly(common);
    return pointwise(shared ? kDivShared : kDiv, operands, common, it.output_shape());
  }
  check_domain(*mode == "trunc" ? "div_trunc_cpu" : "div_floor_cpu",
               it.common_dtype() == at::kBool ? Domain::kFloat : Domain::kNotComplex,
               it.common_dtype());
  if (stablehlo::is_integer(common) && it.output_shape().num_elements() > 0) {
    operands[1] = checked_divisor(other, operands[1], kDivFloor.name);
  }
  return pointwise(*mode == "trunc" ? kDivTrunc : kDivFloor, operands, common, it.output_shape(),
                   Attributes::of(other.numel() == 1 ? ElementType::kF32 : common));
}

// --- comparisons, atan2 ---

const PointwiseOp kEq{"aten::eq", [](Args x) { return x.b.eq(x[0], x[1]); }};
const PointwiseOp kNe{"aten::ne", [](Args x) { return x.b.ne(x[0], x[1]); }};
const PointwiseOp kLt{"aten::lt", [](Args x) { return x.b.lt(x[0], x[1]); }};
const PointwiseOp kLe{"aten::le", [](Args x) { return x.b.le(x[0], x[1]); }};
const PointwiseOp kGt{"aten::gt", [](Args x) { return x.b.gt(x[0], x[1]); }};
const PointwiseOp kGe{"aten::ge", [](Args x) { return x.b.ge(x[0], x[1]); }};
const PointwiseOp kAtan2{"aten::atan2", [](Args x) { return x.b.atan2(x[0], x[1]); }};

// What is compared has `common`'s precision before it is compared, numbers too: 0.7 is bf16's.
Value compared(const at::Tensor& tensor, ElementType common) {
  return convert(value_of(tensor), common);
}
Value compared(const c10::Scalar& number, ElementType common) {
  return lazy::scalar(number, common);
}

// `other`: a tensor, or a number.
template <class Meta, class Other, const PointwiseOp& op, Domain domain>
struct Comparison {
  static Value compute(Infer<Meta, 1>& it, const at::Tensor& self, const Other& other) {
    const ElementType common = common_type(it);
    check_domain(op.name, domain, it.common_dtype());
    return pointwise(op, {compared(self, common), compared(other, common)}, common,
                     it.output_shape());
  }
  static at::Tensor functional(const at::Tensor& self, const Other& other) {
    if (plain_float(self) && internal::is_plain(self, other)) {
      const ShapeRef shape{ElementType::kPred, span_of(self.sizes())};
      const ElementType common = element_type(self);
      return lazy::make(pointwise(op, {value_of(self), compared(other, common)}, common, shape),
                        at::kBool, self.device());
    }
    return structured_functional<Meta, &compute>(self, other);
  }
  static void registered(torch::Library& m, Names names) {
    m.impl(names.functional, &functional);
    structured<Meta, &compute>(m, {nullptr, names.inplace, names.out});
  }
};

#define COMPARISON(name, op, domain)                                                    \
  Comparison<at::meta::structured_##name##_Tensor, at::Tensor, op, domain>::registered( \
      m, {#name ".Tensor", #name "_.Tensor", #name ".Tensor_out"});                     \
  Comparison<at::meta::structured_##name##_Scalar, at::Scalar, op, domain>::registered( \
      m, {#name ".Scalar", #name "_.Scalar", #name ".Scalar_out"})

}  // namespace

XLA_KERNELS(m) {
  Add::registered(m, {"add.Tensor", "add_.Tensor", "add.out"});
  Sub::registered(m, {"sub.Tensor", "sub_.Tensor", "sub.out"});
  Mul::registered(m, {"mul.Tensor", "mul_.Tensor", "mul.out"});
  Div::registered(m, {"div.Tensor", "div_.Tensor", "div.out"});
  structured<at::meta::structured_div_Tensor_mode, div_mode>(
      m, {"div.Tensor_mode", "div_.Tensor_mode", "div.out_mode"});
  COMPARISON(eq, kEq, Domain::kAny);
  COMPARISON(ne, kNe, Domain::kAny);
  COMPARISON(lt, kLt, Domain::kNotComplex);
  COMPARISON(le, kLe, Domain::kNotComplex);
  COMPARISON(gt, kGt, Domain::kNotComplex);
  COMPARISON(ge, kGe, Domain::kNotComplex);
  elementwise<at::meta::structured_maximum, kMaximum>(m, {"maximum", nullptr, "maximum.out"});
  elementwise<at::meta::structured_minimum, kMinimum>(m, {"minimum", nullptr, "minimum.out"});
  numeric<at::meta::structured_atan2, kAtan2, Domain::kNotComplex>(
      m, {"atan2", "atan2_", "atan2.out"});
}

}  // namespace torch_xla::aten
