// Reductions that add, multiply, count or average. The extremes are in extremum.cpp.

#include "aten/reduction.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/all_meta.h>
#include <ATen/ops/any_meta.h>
#include <ATen/ops/linalg_vector_norm_meta.h>
#include <ATen/ops/mean_meta.h>
#include <ATen/ops/norm_meta.h>
#include <ATen/ops/prod_meta.h>
#include <ATen/ops/renorm_meta.h>
#include <ATen/ops/sum_meta.h>

#include <cmath>
#include <limits>

#include "aten/formulas.h"
#include "aten/pointwise.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {

int64_t Reduced::count(const at::Tensor& self) const {
  int64_t count = 1;
  for (int64_t dim : dims) count *= self.size(dim);
  return count;
}

Reduced reduced(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                bool allow_empty) {
  const at::IntArrayRef sizes = self.sizes();
  const int64_t rank = static_cast<int64_t>(sizes.size());
  const bool all = !dim || (dim->empty() && !allow_empty);
  const auto mask = all ? std::bitset<64>().flip() : at::dim_list_to_bitset(*dim, rank);
  Reduced result;
  for (int64_t i = 0; i < rank; ++i) {
    if (mask[static_cast<size_t>(i)]) {
      result.dims.push_back(i);
      if (keepdim) result.sizes.push_back(1);
    } else {
      result.sizes.push_back(sizes[static_cast<size_t>(i)]);
    }
  }
  return result;
}

Results as_output(Lowering& l, const Node& node, XlaValue value, size_t output) {
  const ShapeRef shape = node.output(output);
  return l->reshape(l->convert(value, shape.type), Dims(shape.dims));
}

XlaValue spread(Builder& b, XlaValue value, const Dims& full, const Dims& dims) {
  Dims kept;
  for (int64_t i = 0; i < static_cast<int64_t>(full.size()); ++i) {
    if (!dims.contains(i)) kept.push_back(i);
  }
  return b.broadcast_in_dim(value, full, kept);
}

XlaValue extreme(Builder& b, XlaValue x, const Dims& dims, bool largest) {
  if (x.element_type() != ElementType::kPred) {
    return largest ? b.reduce_max(x, dims) : b.reduce_min(x, dims);
  }
  return largest ? b.reduce_or(x, dims) : b.reduce_and(x, dims);
}

namespace {

using OptionalType = std::optional<at::ScalarType>;

extern const Op kMean, kMeanOfSome, kProd, kAll, kTrace, kLogsumexp;

// What makes no difference to a reduction of `type`, where there is such a number.
std::optional<Neutral> neutral_of(const Op& op, ElementType type) {
  if (&op == &kTrace || (&op == &kMean && stablehlo::is_complex(type))) return std::nullopt;
  if (&op == &kProd || &op == &kAll) return Neutral::kOne;
  if (&op != &kLogsumexp) return Neutral::kZero;
  return stablehlo::is_float(type) ? std::optional(Neutral::kLowest) : std::nullopt;
}

// Most reductions: one operand, the dims as the only attribute.
Value reduce(const Op& op, const at::Tensor& self, const Dims& dims, ShapeRef output) {
  const Value operand = value_of(self);
  const auto attributes = Attributes::of(std::span<const int64_t>(dims));
  const auto neutral = neutral_of(op, operand.type());
  const auto whole = lazy::is_trimmed(operand) && neutral
                         ? reduced_whole(operand, dims, output.dims, *neutral)
                         : std::nullopt;
  if (!whole) return Node::make(op, {operand}, attributes, output);
  const ShapeRef shape{output.type, whole->output};
  if (&op != &kMean || whole->kept) {
    return whole->result(Node::make(op, {whole->operand}, attributes, shape));
  }
  const auto with_dim = Attributes::of(std::span<const int64_t>(dims), whole->dim);
  return Node::make(kMeanOfSome, {whole->operand, whole->count}, with_dim, shape);
}

// The operand in the type that sums accumulate in: converted to the result's dtype first, as
// PyTorch's `dtype` argument says, then widened so that 16-bit floats round once.
XlaValue widened(Lowering& l, const Node& node) {
  const ElementType result = node.output().type;
  return l->convert(l.operand(0, result), stablehlo::opmath_type(result));
}

at::Tensor make_reduced(const Op& op, const at::Tensor& self, const Reduced& to,
                        at::ScalarType dtype) {
  return lazy::make(reduce(op, self, to.dims, {lazy::element_type(dtype), to.sizes}), dtype,
                    self.device());
}

at::ScalarType sum_type(const at::Tensor& self, OptionalType dtype) {
  if (dtype) return *dtype;
  return at::isIntegralType(self.scalar_type(), true) ? at::kLong : self.scalar_type();
}

// --- sum, mean, prod, nansum ---

const Op kSum{"aten::sum", [](Lowering& l, const Node& n) -> Results {
                const Dims dims(n.attributes().list());
                return as_output(l, n, l->reduce_sum(widened(l, n), dims));
              }};

at::Tensor sum_dim(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                   OptionalType dtype) {
  return make_reduced(kSum, self, reduced(self, dim, keepdim), sum_type(self, dtype));
}

at::Tensor sum(const at::Tensor& self, OptionalType dtype) {
  return sum_dim(self, std::nullopt, false, dtype);
}

using SumMeta = at::meta::structured_sum_dim_IntList;
Value compute_sum(Infer<SumMeta, 1>& it, const at::Tensor& self, at::OptionalIntArrayRef dim,
                  bool keepdim, OptionalType) {
  return reduce(kSum, self, reduced(self, dim, keepdim).dims, it.output_shape());
}

const Op kMean{"aten::mean", [](Lowering& l, const Node& n) -> Results {
                 const Dims dims(n.attributes().list());
                 const XlaValue x = widened(l, n);
                 int64_t count = 1;
                 for (int64_t dim : dims) count *= x.dim(dim);
                 return as_output(l, n, l->reduce_sum(x, dims) / count);
               }};

// The same where only the first elements along one of the dims count: operand 1 says how many, the
// others are zero. Attributes: dims, that dim.
const Op kMeanOfSome{"aten::mean", [](Lowering& l, const Node& n) -> Results {
                       auto attributes = n.attributes();
                       const Dims dims(attributes.list());
                       const int64_t some = attributes.integer();
                       const XlaValue x = widened(l, n);
                       int64_t others = 1;
                       for (int64_t dim : dims) others *= dim == some ? 1 : x.dim(dim);
                       const XlaValue sum = l->reduce_sum(x, dims);
                       const XlaValue count = l.operand(1, sum.element_type()) * others;
                       return as_output(l, n, l->divide(sum, l->broadcast_to(count, sum.dims())));
                     }};

using MeanMeta = at::meta::structured_mean_dim;
Value compute_mean(Infer<MeanMeta, 1>& it, const at::Tensor& self, at::OptionalIntArrayRef dim,
                   bool keepdim, OptionalType) {
  at::assert_no_internal_overlap(it.output());
  return reduce(kMean, self, reduced(self, dim, keepdim).dims, it.output_shape());
}

at::Tensor mean_dim(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                    OptionalType dtype) {
  if (dtype || !at::isFloatingType(self.scalar_type())) {
    return structured_functional<MeanMeta, &compute_mean>(self, dim, keepdim, dtype);
  }
  return make_reduced(kMean, self, reduced(self, dim, keepdim), self.scalar_type());
}

at::Tensor mean(const at::Tensor& self, OptionalType dtype) {
  return mean_dim(self, std::nullopt, false, dtype);
}

const Op kProd{"aten::prod", [](Lowering& l, const Node& n) -> Results {
                 const Dims dims(n.attributes().list());
                 return as_output(l, n, l->reduce_product(widened(l, n), dims));
               }};

Value compute_prod(Infer<at::meta::structured_prod_dim_int, 1>& it, const at::Tensor& self,
                   int64_t dim, bool keepdim, OptionalType) {
  return reduce(kProd, self, reduced_along(self, dim, keepdim).dims, it.output_shape());
}

at::Tensor prod(const at::Tensor& self, OptionalType dtype) {
  return make_reduced(kProd, self, reduced(self, std::nullopt, false), sum_type(self, dtype));
}

// PyTorch drops the NaNs before `dtype` converts.
const Op kNansum{"aten::nansum", [](Lowering& l, const Node& n) -> Results {
                   const Dims dims(n.attributes().list());
                   const ElementType type = n.output().type;
                   XlaValue x = l.operand(0);
                   x = l->select(l->is_nan(x), l->zeros_like(x), x);
                   x = l->convert(l->convert(x, type), stablehlo::opmath_type(type));
                   return as_output(l, n, l->reduce_sum(x, dims));
                 }};

at::Tensor nansum(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                  OptionalType dtype) {
  TORCH_CHECK(!self.is_complex(), "nansum does not support complex inputs");
  const bool has_nans = at::isFloatingType(self.scalar_type());
  return make_reduced(has_nans ? kNansum : kSum, self, reduced(self, dim, keepdim),
                      sum_type(self, dtype));
}

// --- counts and truth ---

XlaValue is_nonzero(Lowering& l) {
  const XlaValue x = l.operand(0);
  return x.element_type() == ElementType::kPred ? x : l->ne(x, l->zeros_like(x));
}

const Op kCountNonzero{"aten::count_nonzero", [](Lowering& l, const Node& n) -> Results {
                         const Dims dims(n.attributes().list());
                         const XlaValue ones = l->convert(is_nonzero(l), n.output().type);
                         return as_output(l, n, l->reduce_sum(ones, dims));
                       }};

at::Tensor count_nonzero(const at::Tensor& self, at::IntArrayRef dim) {
  return make_reduced(kCountNonzero, self, reduced(self, dim, false), at::kLong);
}

const Op kAll{"aten::all", [](Lowering& l, const Node& n) -> Results {
                return as_output(l, n, l->reduce_and(is_nonzero(l), Dims(n.attributes().list())));
              }};
const Op kAny{"aten::any", [](Lowering& l, const Node& n) -> Results {
                return as_output(l, n, l->reduce_or(is_nonzero(l), Dims(n.attributes().list())));
              }};

template <const Op& op, class Full, class Dim, class Several>
struct Truth {
  static Value full(Infer<Full, 1>& it, const at::Tensor& self) {
    return reduce(op, self, reduced(self, std::nullopt, false).dims, it.output_shape());
  }
  static Value one(Infer<Dim, 1>& it, const at::Tensor& self, int64_t dim, bool keepdim) {
    return reduce(op, self, reduced_along(self, dim, keepdim).dims, it.output_shape());
  }
  // An empty list of dims reduces nothing here.
  static Value several(Infer<Several, 1>& it, const at::Tensor& self, at::OptionalIntArrayRef dim,
                       bool keepdim) {
    return reduce(op, self, reduced(self, dim, keepdim, true).dims, it.output_shape());
  }
  static void registered(torch::Library& m, Names one_dim, Names dims, Names all) {
    structured<Dim, &one>(m, one_dim);
    structured<Several, &several>(m, dims);
    structured<Full, &full>(m, all);
  }
};

using All = Truth<kAll, at::meta::structured_all, at::meta::structured_all_dim,
                  at::meta::structured_all_dims>;
using Any = Truth<kAny, at::meta::structured_any, at::meta::structured_any_dim,
                  at::meta::structured_any_dims>;

// --- trace ---

const Op kTrace{"aten::trace", [](Lowering& l, const Node& n) -> Results {
                  const XlaValue x = widened(l, n);
                  const XlaValue row = l->iota(ElementType::kS32, x.dims(), 0);
                  const XlaValue column = l->iota(ElementType::kS32, x.dims(), 1);
                  const XlaValue diagonal = l->select(l->eq(row, column), x, l->zeros_like(x));
                  return as_output(l, n, l->reduce_sum(diagonal, {0, 1}));
                }};

at::Tensor trace(const at::Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() != at::kBool,
                              "\"trace\" not implemented for 'Bool'");
  return make_reduced(kTrace, self, reduced(self, std::nullopt, false), sum_type(self, {}));
}

// --- norms: (sum |x|^p)^(1/p) and its limits ---

enum class Norm { kCount, kSum, kEuclid, kLargest, kSmallest, kPower };

Norm norm_kind(double p) {
  if (p == 0) return Norm::kCount;
  if (p == 1) return Norm::kSum;
  if (p == 2) return Norm::kEuclid;
  if (std::isinf(p)) return p > 0 ? Norm::kLargest : Norm::kSmallest;
  return Norm::kPower;
}

// The norm of `x` over `dims` in the real type `compute`; `p` only for kPower.
XlaValue norm_over(Builder& b, XlaValue x, ElementType compute, Norm kind, const Dims& dims,
                   XlaValue p) {
  x = b.convert(b.abs(x), compute);
  switch (kind) {
    case Norm::kCount:
      return b.reduce_sum(b.convert(b.ne(x, b.zeros_like(x)), compute), dims);
    case Norm::kSum:
      return b.reduce_sum(x, dims);
    case Norm::kEuclid:
      return b.sqrt(b.reduce_sum(b.multiply(x, x), dims));
    case Norm::kLargest:
      return extreme(b, x, dims, true);
    case Norm::kSmallest:
      return extreme(b, x, dims, false);
    case Norm::kPower:
      break;
  }
  const XlaValue sum = b.reduce_sum(b.power(x, b.broadcast_to(p, x.dims())), dims);
  return b.power(sum, b.broadcast_to(b.divide(b.ones_like(p), p), sum.dims()));
}

// Attributes: kind, the type that `dtype` converts the operand to, dims.
const Op kNorm{"aten::linalg_vector_norm", [](Lowering& l, const Node& n) -> Results {
                 auto attributes = n.attributes();
                 const auto kind = attributes.enumeration<Norm>();
                 const auto from = attributes.enumeration<ElementType>();
                 const Dims dims(attributes.list());
                 const ElementType compute = stablehlo::opmath_type(n.output().type);
                 const XlaValue x = l.operand(0, from);
                 const XlaValue p = kind == Norm::kPower ? l.operand(1, compute) : XlaValue();
                 return as_output(l, n, norm_over(l.builder(), x, compute, kind, dims, p));
               }};

Value norm_value(const at::Tensor& self, const at::Scalar& p, const Dims& dims, OptionalType dtype,
                 ShapeRef output) {
  const double number = p.toDouble();
  const Norm kind = norm_kind(number);
  const ElementType from = lazy::element_type(dtype.value_or(self.scalar_type()));
  const auto attributes = Attributes::of(kind, from, std::span<const int64_t>(dims));
  const auto norm = [&](const Value& x, ShapeRef shape) -> Value {
    if (kind != Norm::kPower) return Node::make(kNorm, {x}, attributes, shape);
    return Node::make(kNorm, {x, scalar_operand(number, output.type)}, attributes, shape);
  };
  const Value operand = value_of(self);
  const auto cut = lazy::trimmed(operand);
  // Zeros add nothing to a norm, unless it looks for the least.
  if (cut && (number >= 0 || !dims.contains(cut->dim))) {
    const auto whole = reduced_whole(operand, dims, output.dims, Neutral::kZero);
    return whole->result(norm(whole->operand, {output.type, whole->output}));
  }
  return norm(operand, output);
}

Value vector_norm(Infer<at::meta::structured_linalg_vector_norm, 1>& it, const at::Tensor& self,
                  const at::Scalar& ord, at::OptionalIntArrayRef dim, bool keepdim,
                  OptionalType dtype) {
  return norm_value(self, ord, reduced(self, dim, keepdim).dims, dtype, it.output_shape());
}

}  // namespace

Value norm_of_all(const at::Tensor& self, const at::Scalar& ord) {
  const Dims every = stablehlo::iota_dims(static_cast<size_t>(self.dim()));
  return norm_value(self, ord, every, std::nullopt, {element_type(self), {}});
}

namespace {

// torch.norm's older forms; their meta functions check and infer.
template <class Meta, class... Dtype>
at::Tensor norm_with(const at::Tensor& self, const std::optional<at::Scalar>& p,
                     at::IntArrayRef dim, bool keepdim, Dtype... dtype) {
  if (self.numel() == 0) {  // maxima of nothing are refused
    // Without a dim, torch.norm names every one for devices that are not its own.
    const Dims every = stablehlo::iota_dims(static_cast<size_t>(self.dim()));
    const bool whole = dim.empty() || dim == at::IntArrayRef(every);
    Infer<at::meta::structured_linalg_vector_norm, 1> checks;
    checks.meta(self, p.value_or(2),
                whole ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dim), keepdim,
                std::nullopt);
  }
  Infer<Meta, 1> it;
  it.meta(self, p ? at::OptionalScalarRef(*p) : at::OptionalScalarRef(), dim, keepdim, dtype...);
  const Dims dims = reduced(self, dim, keepdim).dims;
  lazy::write(it.output(),
              norm_value(self, p.value_or(2), dims, OptionalType(dtype...), it.output_shape()));
  return it.output();
}

at::Tensor norm_dim(const at::Tensor& self, const std::optional<at::Scalar>& p, at::IntArrayRef dim,
                    bool keepdim) {
  return norm_with<at::meta::structured_norm_ScalarOpt_dim>(self, p, dim, keepdim);
}
at::Tensor norm_dim_dtype(const at::Tensor& self, const std::optional<at::Scalar>& p,
                          at::IntArrayRef dim, bool keepdim, at::ScalarType dtype) {
  return norm_with<at::meta::structured_norm_ScalarOpt_dim_dtype>(self, p, dim, keepdim, dtype);
}

// Scales the slices along one dim whose norm exceeds the limit down to it; 1e-7 as ATen's
// renorm_scale_factor. Attributes: kind, dims of a slice. Operands: x, limit, p for kPower.
const Op kRenorm{"aten::renorm", [](Lowering& l, const Node& n) -> Results {
                   auto attributes = n.attributes();
                   const auto kind = attributes.enumeration<Norm>();
                   const Dims dims(attributes.list());
                   const ElementType type = n.output().type;
                   const ElementType work = stablehlo::opmath_type(type);
                   const ElementType real = stablehlo::real_type(work);
                   const XlaValue x = l.operand(0, work);
                   const XlaValue p = kind == Norm::kPower ? l.operand(2, real) : XlaValue();
                   const XlaValue norm = norm_over(l.builder(), x, real, kind, dims, p);
                   const XlaValue limit = l->broadcast_to(l.operand(1, real), norm.dims());
                   const XlaValue factor = l->select(
                       l->gt(norm, limit), l->divide(limit, norm + 1e-7), l->ones_like(norm));
                   const XlaValue scale =
                       l->convert(spread(l.builder(), factor, x.dims(), dims), x.element_type());
                   return as_output(l, n, l->multiply(x, scale));
                 }};

Value renorm(Infer<at::meta::structured_renorm, 1>& it, const at::Tensor& self, const at::Scalar& p,
             int64_t dim, const at::Scalar& maxnorm) {
  TORCH_CHECK(self.is_floating_point() || self.is_complex(),
              "linalg.vector_norm: Expected a floating point or complex tensor as input. Got ",
              self.scalar_type());
  at::assert_no_internal_overlap(it.output());
  dim = at::maybe_wrap_dim(dim, self.dim());
  Dims dims;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (i != dim) dims.push_back(i);
  }
  const ElementType real = stablehlo::real_type(it.output_type());
  const Norm kind = norm_kind(p.toDouble());
  std::vector<Value> operands{value_of(self), scalar_operand(maxnorm, real)};
  if (kind == Norm::kPower) operands.push_back(scalar_operand(p, real));
  const ShapeRef output = it.output_shape();
  return Node::make(kRenorm, operands, Attributes::of(kind, std::span<const int64_t>(dims)),
                    std::span(&output, 1));
}

// --- logsumexp ---

// max + log(sum(exp(x - max))), with a finite max so that infinities come out right. For complex
// numbers the max is that of the real parts.
const Op kLogsumexp{"aten::logsumexp", [](Lowering& l, const Node& n) -> Results {
                      const Dims dims(n.attributes().list());
                      const XlaValue x = widened(l, n);
                      const bool is_complex = stablehlo::is_complex(x.element_type());
                      XlaValue max = extreme(l.builder(), is_complex ? l->real(x) : x, dims, true);
                      max = l->select(l->is_finite(max), max, l->zeros_like(max));
                      max = l->convert(max, x.element_type());
                      const XlaValue shifted =
                          l->subtract(x, spread(l.builder(), max, x.dims(), dims));
                      const XlaValue sum = l->reduce_sum(l->exponential(shifted), dims);
                      return as_output(l, n, l->add(l->log(sum), max));
                    }};

at::Tensor logsumexp(const at::Tensor& self, at::IntArrayRef dim, bool keepdim) {
  const at::ScalarType dtype = at::isIntegralType(self.scalar_type(), true)
                                   ? c10::get_default_dtype_as_scalartype()
                                   : self.scalar_type();
  return make_reduced(kLogsumexp, self, reduced(self, dim, keepdim), dtype);
}

// --- var, std: sum |x - mean|^2 / max(0, n - correction) ---

// Attributes: square root, dims, the one of them along which only some elements count (else -1).
// Operands: x, correction, and how many count. Outputs: variance (or its root), mean.
const Op kVar{"aten::var", [](Lowering& l, const Node& n) -> Results {
                auto attributes = n.attributes();
                const bool root = attributes.boolean();
                const Dims dims(attributes.list());
                const int64_t some = attributes.integer();
                Builder& b = l.builder();
                const ElementType from = l.operand(0).element_type();
                const XlaValue x = l.operand(0, stablehlo::opmath_type(from));
                const ElementType real = stablehlo::real_type(x.element_type());
                int64_t others = 1;
                for (int64_t dim : dims) others *= dim == some ? 1 : x.dim(dim);
                XlaValue count = b.scalar(others, real);
                if (some >= 0) count = b.multiply(count, l.operand(2, real));
                XlaValue mean = b.reduce_sum(x, dims);
                mean =
                    b.divide(mean, b.broadcast_to(b.convert(count, x.element_type()), mean.dims()));
                XlaValue centred = b.subtract(x, spread(b, mean, x.dims(), dims));
                if (some >= 0) {
                  const XlaValue place = b.iota(ElementType::kS64, x.dims(), some);
                  const XlaValue end = b.broadcast_to(l.operand(2, ElementType::kS64), x.dims());
                  centred = b.select(b.lt(place, end), centred, b.zeros_like(centred));
                }
                XlaValue squares = b.multiply(centred, centred);
                if (stablehlo::is_complex(x.element_type())) {
                  const XlaValue re = b.real(centred), im = b.imag(centred);
                  squares = b.add(b.multiply(re, re), b.multiply(im, im));
                }
                const XlaValue sum = b.reduce_sum(squares, dims);
                const XlaValue left = b.subtract(count, l.operand(1, real));
                const XlaValue divisor = b.maximum(left, b.zeros_like(left));
                XlaValue var = b.divide(sum, b.broadcast_to(divisor, sum.dims()));
                if (root) var = b.sqrt(var);
                std::vector<XlaValue> results = as_output(l, n, var).values;
                if (n.num_outputs() == 2) results.push_back(as_output(l, n, mean, 1).values[0]);
                return results;
              }};

// One or both of {variance or standard deviation, mean}, as `names` (PyTorch's for its errors).
Values<2> var_values(const char* names, bool root, bool with_mean, const at::Tensor& self,
                     const Reduced& to, const std::optional<at::Scalar>& correction) {
  TORCH_CHECK(self.is_floating_point() || self.is_complex(), names,
              " only support floating point and complex dtypes");
  const at::Scalar number = correction.value_or(1);
  const int64_t averaged = self.numel() > 0 ? to.count(self) : 0;
  if (static_cast<double>(averaged) <= number.toDouble()) {
    TORCH_WARN(with_mean ? (root ? "std_mean" : "var_mean") : (root ? "std" : "var"),
               "(): degrees of freedom is <= 0. Correction should be strictly less than the "
               "reduction factor (input numel divided by output numel).");
  }
  const ElementType type = element_type(self), real = stablehlo::real_type(type);
  if (self.numel() == 0) {  // whatever the correction
    const auto nan = [&](ElementType of) {
      return lazy::full(std::numeric_limits<double>::quiet_NaN(), of, to.sizes);
    };
    return {nan(real), with_mean ? nan(type) : Value()};
  }
  const Value x = value_of(self);
  const auto whole = reduced_whole(x, to.dims, to.sizes, Neutral::kZero);
  const Dims sizes = whole ? whole->output : to.sizes;
  const ShapeRef outputs[] = {{real, sizes}, {type, sizes}};
  std::vector<Value> operands{whole ? whole->operand : x, scalar_operand(number.toDouble(), real)};
  const bool of_some = whole && !whole->kept;
  if (of_some) operands.push_back(whole->count);
  const Value var =
      Node::make(kVar, operands,
                 Attributes::of(root, std::span<const int64_t>(to.dims), of_some ? whole->dim : -1),
                 std::span(outputs, with_mean ? 2 : 1));
  const Value mean = with_mean ? Value(var.node, 1) : Value();
  if (!whole) return {var, mean};
  return {whole->result(var), with_mean ? whole->result(mean) : mean};
}

template <bool root>
at::Tensor var(const at::Tensor& self, at::OptionalIntArrayRef dim,
               const std::optional<at::Scalar>& correction, bool keepdim) {
  const Reduced to = reduced(self, dim, keepdim);
  return lazy::make(var_values("std and var", root, false, self, to, correction)[0], self.device());
}

template <bool root>
std::tuple<at::Tensor, at::Tensor> var_mean(const at::Tensor& self, at::OptionalIntArrayRef dim,
                                            const std::optional<at::Scalar>& correction,
                                            bool keepdim) {
  const Reduced to = reduced(self, dim, keepdim);
  auto [var, mean] = var_values(root ? "std_mean" : "var_mean", root, true, self, to, correction);
  return {lazy::make(var, self.device()), lazy::make(mean, self.device())};
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("sum", sum);
  m.impl("sum.dim_IntList", sum_dim);
  structured<SumMeta, &compute_sum>(m, {nullptr, nullptr, "sum.IntList_out"});
  m.impl("mean", mean);
  m.impl("mean.dim", mean_dim);
  structured<MeanMeta, &compute_mean>(m, {nullptr, nullptr, "mean.out"});
  m.impl("prod", prod);
  structured<at::meta::structured_prod_dim_int, &compute_prod>(
      m, {"prod.dim_int", nullptr, "prod.int_out"});
  m.impl("nansum", nansum);
  m.impl("count_nonzero.dim_IntList", count_nonzero);
  All::registered(m, {"all.dim", nullptr, "all.out"}, {"all.dims", nullptr, "all.dims_out"},
                  {"all", nullptr, "all.all_out"});
  Any::registered(m, {"any.dim", nullptr, "any.out"}, {"any.dims", nullptr, "any.dims_out"},
                  {"any", nullptr, "any.all_out"});
  m.impl("trace", trace);
  structured<at::meta::structured_linalg_vector_norm, &vector_norm>(
      m, {"linalg_vector_norm", nullptr, "linalg_vector_norm.out"});
  m.impl("norm.ScalarOpt_dim", norm_dim);
  m.impl("norm.ScalarOpt_dim_dtype", norm_dim_dtype);
  structured<at::meta::structured_renorm, &renorm>(m, {"renorm", "renorm_", "renorm.out"});
  m.impl("logsumexp", logsumexp);
  m.impl("var.correction", var<false>);
  m.impl("std.correction", var<true>);
  m.impl("var_mean.correction", var_mean<false>);
  m.impl("std_mean.correction", var_mean<true>);
}

}  // namespace torch_xla::aten
