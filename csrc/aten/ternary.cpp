// Elementwise operators of three tensors, and clamping.

#include <ATen/ops/addcdiv_meta.h>
#include <ATen/ops/addcmul_meta.h>
#include <ATen/ops/clamp_max_meta.h>
#include <ATen/ops/clamp_meta.h>
#include <ATen/ops/clamp_min_meta.h>
#include <ATen/ops/lerp_meta.h>
#include <ATen/ops/result_type.h>

#include <cmath>
#include <limits>

#include "aten/fitting.h"
#include "aten/formulas.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

using Args = PointwiseArgs&;

// --- where ---

// The condition is no number among numbers, so this is not a PointwiseOp.
const Op kWhere{"aten::where", [](Lowering& l, const Node& n) -> Results {
                  const Dims dims(n.output().dims);
                  const ElementType type = n.output().type;
                  auto operand = [&](size_t i, ElementType to) {
                    return l->broadcast_to(l.operand(i, to), dims);
                  };
                  return l->select(operand(0, ElementType::kPred), operand(1, type),
                                   operand(2, type));
                }};

Value where_node(const Value& condition, const Value& self, const Value& other, ShapeRef output) {
  const std::array operands{condition, self, other};
  if (any_trimmed(operands)) [[unlikely]] {
    if (const auto wholes = wholes_of(operands, output.dims)) {
      return wholes->trimmed(
          Node::make(kWhere, wholes->operands, {}, ShapeRef{output.type, wholes->dims}));
    }
  }
  return Node::make(kWhere, operands, {}, output);
}

struct WhereMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
    if (condition.scalar_type() == at::kByte) {
      TORCH_WARN_ONCE(
          "where received a uint8 condition tensor. This behavior is deprecated and will be "
          "removed in a future version of PyTorch. Use a boolean condition instead.");
    } else {
      TORCH_CHECK(condition.scalar_type() == at::kBool,
                  "where expected condition to be a boolean tensor, but got a tensor with dtype ",
                  condition.scalar_type());
    }
    const at::ScalarType dtype = at::result_type(self, other);
    const at::Tensor& out = maybe_get_output(0);
    TORCH_CHECK(!out.defined() || out.scalar_type() == dtype, "Expected out type to be ", dtype,
                " but got ", out.defined() ? out.scalar_type() : dtype);
    build(at::TensorIteratorConfig()
              .check_all_same_dtype(false)
              .add_output(out)
              .add_const_input(condition)
              .add_const_input(self)
              .add_const_input(other)
              .allow_cpu_scalars(true)
              .declare_static_dtype(dtype));
  }
};

Value where_value(Infer<WhereMeta, 1>& it, const at::Tensor& condition, const at::Tensor& self,
                  const at::Tensor& other) {
  return where_node(value_of(condition), value_of(self), value_of(other), it.output_shape());
}

at::Tensor where(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  if (lazy::is_xla(condition) && condition.scalar_type() == at::kBool &&
      condition.is_contiguous() && condition.sizes() == self.sizes() && plain_pair(self, other) &&
      condition.device() == self.device()) {
    return make_like(
        where_node(lazy::read(condition), lazy::read(self), lazy::read(other), shape_of(self)),
        self);
  }
  return structured_functional<WhereMeta, where_value>(condition, self, other);
}

// --- clamp: NaN stays NaN, and the upper bound wins over the lower ---

const PointwiseOp kClamp{"aten::clamp",
                         [](Args x) { return x.b.minimum(x.b.maximum(x[0], x[1]), x[2]); }};
const PointwiseOp kClampMin{"aten::clamp_min", [](Args x) { return x.b.maximum(x[0], x[1]); }};
const PointwiseOp kClampMax{"aten::clamp_max", [](Args x) { return x.b.minimum(x[0], x[1]); }};

// Bounds of any kind, at least one of which is there.
Value clamp_value(const Value& self, const Value& low, const Value& high, ElementType common,
                  ShapeRef output) {
  if (!high) return pointwise(kClampMin, {self, low}, common, output);
  if (!low) return pointwise(kClampMax, {self, high}, common, output);
  return pointwise(kClamp, {self, low, high}, common, output);
}

using ClampScalar = at::meta::structured_clamp;
using ClampTensor = at::meta::structured_clamp_Tensor;

// In CPU's words. A bound that is NaN fills the result there.
void check_bounds(const at::Tensor& self, at::ScalarType type, at::OptionalScalarRef low,
                  at::OptionalScalarRef high) {
  const auto is_nan = [](at::OptionalScalarRef bound) {
    return bound && std::isnan(bound.get().to<double>());
  };
  if (is_nan(low) || is_nan(high)) {
    check_filling(std::numeric_limits<double>::quiet_NaN(), type, self.numel());
    return;
  }
  if (low) check_number(low.get(), type);
  if (high) check_number(high.get(), type);
}

Value clamp_structured(Infer<ClampScalar, 1>& it, const at::Tensor& self, at::OptionalScalarRef low,
                       at::OptionalScalarRef high) {
  const ElementType common = it.output_type();
  check_bounds(self, it.output().scalar_type(), low, high);
  return clamp_value(value_of(self), low ? scalar_operand(low.get(), common) : Value(),
                     high ? scalar_operand(high.get(), common) : Value(), common,
                     it.output_shape());
}

Value clamp_tensors(Infer<ClampTensor, 1>& it, const at::Tensor& self, at::OptionalTensorRef low,
                    at::OptionalTensorRef high) {
  return clamp_value(value_of(self), low.has_value() ? value_of(*low) : Value(),
                     high.has_value() ? value_of(*high) : Value(), common_type(it),
                     it.output_shape());
}

// The meta functions take references to what the dispatcher passes as optionals.
at::OptionalScalarRef ref(const std::optional<at::Scalar>& scalar) {
  return scalar ? at::OptionalScalarRef(*scalar) : at::OptionalScalarRef();
}
at::OptionalTensorRef ref(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? at::OptionalTensorRef(*tensor) : at::OptionalTensorRef();
}

template <class Meta, auto compute, class Bound>
struct ClampKernels {
  using Kernels = internal::StructuredKernels<Meta, compute, 1, decltype(&Meta::meta)>;

  static at::Tensor functional(const at::Tensor& self, const std::optional<Bound>& low,
                               const std::optional<Bound>& high) {
    return Kernels::functional(self, ref(low), ref(high));
  }
  static at::Tensor& inplace(at::Tensor& self, const std::optional<Bound>& low,
                             const std::optional<Bound>& high) {
    return Kernels::inplace()(self, ref(low), ref(high));
  }
  static at::Tensor& out(const at::Tensor& self, const std::optional<Bound>& low,
                         const std::optional<Bound>& high, at::Tensor& result) {
    return Kernels::out1(self, ref(low), ref(high), result);
  }
};

using ClampScalars = ClampKernels<ClampScalar, clamp_structured, at::Scalar>;
using ClampTensors = ClampKernels<ClampTensor, clamp_tensors, at::Tensor>;

at::Tensor clamp(const at::Tensor& self, const std::optional<at::Scalar>& low,
                 const std::optional<at::Scalar>& high) {
  const bool real = !(low && low->isComplex()) && !(high && high->isComplex());
  if (!plain_float(self) || !real || !(low || high)) {
    return ClampScalars::functional(self, low, high);
  }
  check_bounds(self, self.scalar_type(), ref(low), ref(high));
  const ElementType type = element_type(self);
  return make_like(clamp_value(lazy::read(self), low ? scalar_operand(*low, type) : Value(),
                               high ? scalar_operand(*high, type) : Value(), type, shape_of(self)),
                   self);
}

}  // namespace

// --- addcmul, addcdiv, lerp ---

// self, a, b, value.
const PointwiseOp kAddcmul{"aten::addcmul", [](Args x) { return x[0] + x[3] * x[1] * x[2]; }};
const PointwiseOp kAddcdiv{"aten::addcdiv", [](Args x) { return x[0] + x[3] * x[1] / x[2]; }};

// self, end, weight: from the nearer end, so that weights 0 and 1 give the ends exactly.
const PointwiseOp kLerp{"aten::lerp", [](Args x) {
                          Builder& b = x.b;
                          const XlaValue difference = x[1] - x[0];
                          const XlaValue size = b.abs(x[2]);
                          return b.select(b.lt(size, b.full_like(size, 0.5)),
                                          x[0] + x[2] * difference, x[1] - difference * (1 - x[2]));
                        }};

#define META(name) at::meta::structured_##name
#define FORMS(name) {#name, #name "_", #name ".out"}

XLA_KERNELS(m) {
  m.impl("where.self", &where);
  structured<WhereMeta, where_value>(m, {nullptr, nullptr, "where.self_out"});

  m.impl("clamp", &clamp);
  m.impl("clamp_", &ClampScalars::inplace);
  m.impl("clamp.out", &ClampScalars::out);
  m.impl("clamp.Tensor", &ClampTensors::functional);
  m.impl("clamp_.Tensor", &ClampTensors::inplace);
  m.impl("clamp.Tensor_out", &ClampTensors::out);
  fitting<META(clamp_min), kClampMin, Domain::kNotComplex, Fit::kDtype>(m, FORMS(clamp_min));
  fitting<META(clamp_max), kClampMax, Domain::kNotComplex, Fit::kDtype>(m, FORMS(clamp_max));
  numeric<META(clamp_min_Tensor), kClampMin, Domain::kNotComplex>(
      m, {"clamp_min.Tensor", "clamp_min_.Tensor", "clamp_min.Tensor_out"});
  numeric<META(clamp_max_Tensor), kClampMax, Domain::kNotComplex>(
      m, {"clamp_max.Tensor", "clamp_max_.Tensor", "clamp_max.Tensor_out"});

  fitting<META(addcmul), kAddcmul, Domain::kAny, Fit::kCompute>(m, FORMS(addcmul));
  fitting<META(addcdiv), kAddcdiv, Domain::kAny, Fit::kCompute>(m, FORMS(addcdiv));
  numeric<META(lerp_Tensor), kLerp, Domain::kFloatOrComplex>(
      m, {"lerp.Tensor", "lerp_.Tensor", "lerp.Tensor_out"});
  fitting<META(lerp_Scalar), kLerp, Domain::kFloatOrComplex, Fit::kCompute>(
      m, {"lerp.Scalar", "lerp_.Scalar", "lerp.Scalar_out"});
}

}  // namespace torch_xla::aten
