// Largest, smallest and middle elements, and where they are. NaN counts as the extreme of both
// ends; of equal elements the first is meant.

#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/amax_meta.h>
#include <ATen/ops/amin_meta.h>
#include <ATen/ops/aminmax_meta.h>
#include <ATen/ops/argmax_meta.h>
#include <ATen/ops/argmin_meta.h>
#include <ATen/ops/max_meta.h>
#include <ATen/ops/min_meta.h>

#include <cmath>
#include <limits>

#include "aten/reduction.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

void check_real(const at::Tensor& self, const char* name) {
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), "\"", name, "\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
}

// --- values only. Attributes: dims ---

const Op kAmax{"aten::amax", [](Lowering& l, const Node& n) -> Results {
                 const Dims dims(n.attributes().list());
                 return as_output(l, n, extreme(l.builder(), l.operand(0), dims, true));
               }};
const Op kAmin{"aten::amin", [](Lowering& l, const Node& n) -> Results {
                 const Dims dims(n.attributes().list());
                 return as_output(l, n, extreme(l.builder(), l.operand(0), dims, false));
               }};

// What a search for the largest, or the least, never finds.
Neutral never_found(bool largest) { return largest ? Neutral::kLowest : Neutral::kHighest; }

Value extreme_value(bool largest, const at::Tensor& self, const Dims& dims, ShapeRef output) {
  const Op& op = largest ? kAmax : kAmin;
  const auto attributes = Attributes::of(std::span<const int64_t>(dims));
  const Value operand = value_of(self);
  if (const auto whole = reduced_whole(operand, dims, output.dims, never_found(largest))) {
    const ShapeRef shape{output.type, whole->output};
    return whole->result(Node::make(op, {whole->operand}, attributes, shape));
  }
  return Node::make(op, {operand}, attributes, output);
}

template <class Meta, bool largest>
Value amax_like(Infer<Meta, 1>& it, const at::Tensor& self, at::IntArrayRef dim, bool keepdim) {
  if (it.output_shape().num_elements() > 0)
    check_real(self, largest ? "max_values_cpu" : "min_values_cpu");
  return extreme_value(largest, self, reduced(self, dim, keepdim).dims, it.output_shape());
}

Values<2> aminmax(Infer<at::meta::structured_aminmax, 2>& it, const at::Tensor& self,
                  std::optional<int64_t> dim, bool keepdim) {
  check_real(self, "aminmax_cpu");
  const Dims dims =
      (dim ? reduced_along(self, *dim, keepdim) : reduced(self, std::nullopt, keepdim)).dims;
  return {extreme_value(false, self, dims, it.output_shape(0)),
          extreme_value(true, self, dims, it.output_shape(1))};
}

// max(x) and min(x) of everything.
template <bool largest>
at::Tensor max_all(const at::Tensor& self) {
  const char* name = largest ? "max" : "min";
  TORCH_CHECK(self.numel() > 0, name,
              "(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
              "reduction dim with the 'dim' argument.");
  check_real(self, largest ? "max_all" : "min_all");
  const Reduced to = reduced(self, std::nullopt, false);
  return lazy::make(extreme_value(largest, self, to.dims, {element_type(self), {}}),
                    self.scalar_type(), self.device());
}

// --- values and positions along one dim ---

struct Place {
  XlaValue value;
  XlaValue index;  // kS64
};

// The first position of `value`, one an entry of x without `dim`, along `dim`; of a NaN where
// `value` is NaN.
XlaValue first_index(Builder& b, XlaValue x, XlaValue value, int64_t dim) {
  XlaValue hit = b.eq(x, spread(b, value, x.dims(), {dim}));
  if (stablehlo::is_float(x.element_type())) hit = b.or_(hit, b.is_nan(x));
  // Narrow positions vectorise better.
  const ElementType type =
      x.dim(dim) <= std::numeric_limits<int32_t>::max() ? ElementType::kS32 : ElementType::kS64;
  const XlaValue position = b.iota(type, x.dims(), dim);
  const XlaValue none = b.full_like(position, x.dim(dim) - 1);
  return b.convert(b.reduce_min(b.select(hit, position, none), {dim}), ElementType::kS64);
}

// Attributes: largest, dim; -1 for the position in the flattened operand.
const Op kArgmax{"aten::argmax", [](Lowering& l, const Node& n) -> Results {
                   auto attributes = n.attributes();
                   const bool largest = attributes.boolean();
                   const int64_t dim = attributes.integer();
                   Builder& b = l.builder();
                   XlaValue x = l.operand(0);
                   x = dim < 0 ? b.reshape(x, {x.num_elements()}) : at_least_one_dim(x);
                   const int64_t along = std::max<int64_t>(dim, 0);
                   const XlaValue value = extreme(b, x, {along}, largest);
                   return as_output(l, n, first_index(b, x, value, along));
                 }};

template <class Meta, bool largest>
Value argmax_like(Infer<Meta, 1>& it, const at::Tensor& self, std::optional<int64_t> dim, bool) {
  const int64_t along = dim ? at::maybe_wrap_dim(*dim, self.dim()) : -1;
  const Attributes attributes = Attributes::of(largest, along);
  const ShapeRef output = it.output_shape();
  const Value operand = value_of(self);
  const auto cut = lazy::trimmed(operand);
  // Among all elements, one has its place in the whole too where whole rows are cut off.
  if (cut && (dim || cut->dim == 0)) {
    const Dims dims{std::max<int64_t>(along, 0)};
    const auto whole = reduced_whole(operand, dims, output.dims, never_found(largest));
    const ShapeRef shape{output.type, whole->output};
    return whole->result(Node::make(kArgmax, {whole->operand}, attributes, shape));
  }
  return Node::make(kArgmax, {operand}, attributes, output);
}

// Attributes: largest, dim.
const Op kMaxDim{"aten::max", [](Lowering& l, const Node& n) -> Results {
                   auto attributes = n.attributes();
                   const bool largest = attributes.boolean();
                   const int64_t dim = attributes.integer();
                   Builder& b = l.builder();
                   const XlaValue x = at_least_one_dim(l.operand(0));
                   const XlaValue value = extreme(b, x, {dim}, largest);
                   const XlaValue index = first_index(b, x, value, dim);
                   return {as_output(l, n, value, 0).values[0],
                           as_output(l, n, index, 1).values[0]};
                 }};

template <class Meta, bool largest>
Values<2> max_dim(Infer<Meta, 2>& it, const at::Tensor& self, int64_t dim, bool) {
  for (const at::Tensor& output : it.outputs()) at::assert_no_internal_overlap(output);
  dim = at::maybe_wrap_dim(dim, self.dim());
  const Attributes attributes = Attributes::of(largest, dim);
  const Value operand = value_of(self);
  const auto both = [&](const Value& x, std::span<const int64_t> dims) {
    const ShapeRef outputs[] = {{it.output_shape(0).type, dims}, {it.output_shape(1).type, dims}};
    const ir::NodePtr node = Node::make(kMaxDim, std::span(&x, 1), attributes, outputs);
    return Values<2>{Value(node, 0), Value(node, 1)};
  };
  const auto output = it.output_shape(0).dims;
  if (const auto whole = reduced_whole(operand, {dim}, output, never_found(largest))) {
    const Values<2> found = both(whole->operand, whole->output);
    return {whole->result(found[0]), whole->result(found[1])};
  }
  return both(operand, output);
}

// --- median: the lower middle element. NaN where there is one, or without NaNs (nanmedian) ---

// The median along `dim`, and one of its positions.
Place middle(Builder& b, XlaValue x, int64_t dim, bool ignore_nan) {
  const ElementType s64 = ElementType::kS64;
  const bool is_float = stablehlo::is_float(x.element_type());
  const Dims dims = x.dims();
  const XlaValue position = b.iota(s64, dims, dim);
  // NaNs go last, in their order.
  const auto less = [&](const stablehlo::Values& left, const stablehlo::Values& right) {
    XlaValue before = b.lt(left[0], right[0]);
    if (is_float) {
      before = b.or_(before, b.and_(b.ne(right[0], right[0]), b.eq(left[0], left[0])));
    }
    return stablehlo::Values{before};
  };
  const stablehlo::Values sorted = b.sort({x, position}, dim, true, less);
  // Which sorted entry: (numbers - 1) / 2 of those that count, or the first NaN.
  XlaValue numbers = b.convert(b.eq(x, x), s64);
  numbers = b.reduce_sum(numbers, {dim});
  const XlaValue size = b.full_like(numbers, x.dim(dim));
  const XlaValue one = b.ones_like(numbers), zero = b.zeros_like(numbers);
  XlaValue rank = b.divide(b.maximum(b.subtract(numbers, one), zero), b.full_like(numbers, 2));
  if (!ignore_nan) rank = b.select(b.lt(numbers, size), numbers, rank);
  const XlaValue chosen = b.eq(position, spread(b, rank, dims, {dim}));
  const XlaValue index = b.reduce_sum(b.select(chosen, sorted[1], b.zeros_like(sorted[1])), {dim});
  const XlaValue value = b.reduce_sum(b.select(chosen, sorted[0], b.zeros_like(sorted[0])), {dim});
  return {value, index};
}

// Attributes: dim, whether NaNs are left out. With one output the position is not asked for.
const Op kMedian{"aten::median", [](Lowering& l, const Node& n) -> Results {
                   auto attributes = n.attributes();
                   const int64_t dim = attributes.integer();
                   const bool ignore_nan = attributes.boolean();
                   Builder& b = l.builder();
                   XlaValue x = l.operand(0);
                   x = dim < 0 ? b.reshape(x, {x.num_elements()}) : at_least_one_dim(x);
                   const Place place = middle(b, x, std::max<int64_t>(dim, 0), ignore_nan);
                   std::vector<XlaValue> results = as_output(l, n, place.value).values;
                   if (n.num_outputs() == 2) {
                     results.push_back(as_output(l, n, place.index, 1).values[0]);
                   }
                   return results;
                 }};

void check_median(const at::Tensor& self) {
  check_real(self, "median_cpu");
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() != at::kBool,
                              "\"median_cpu\" not implemented for 'Bool'");
}

template <bool ignore_nan>
at::Tensor median_all(const at::Tensor& self) {
  check_median(self);
  if (self.numel() == 0) {  // NaN, or what C++ makes of NaN as an integer.
    const at::ScalarType type = self.scalar_type();
    const at::Scalar missing = self.is_floating_point() ? at::Scalar(std::nan(""))
                               : type == at::kLong ? at::Scalar(std::numeric_limits<int64_t>::min())
                               : type == at::kInt  ? at::Scalar(std::numeric_limits<int32_t>::min())
                                                   : at::Scalar(0);
    return lazy::make(lazy::full(missing, element_type(self), {}), type, self.device());
  }
  return lazy::make(Node::make(kMedian, {value_of(self)}, Attributes::of(-1, ignore_nan),
                               ShapeRef{element_type(self), {}}),
                    self.scalar_type(), self.device());
}

template <bool ignore_nan>
std::tuple<at::Tensor, at::Tensor> median_dim(const at::Tensor& self, int64_t dim, bool keepdim) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, dim, ignore_nan ? "nanmedian()" : "median()");
  check_median(self);
  const Reduced to = reduced_along(self, dim, keepdim);
  const Value operands[] = {value_of(self)};
  const ShapeRef outputs[] = {{element_type(self), to.sizes}, {ElementType::kS64, to.sizes}};
  const Value values = Node::make(kMedian, operands, Attributes::of(dim, ignore_nan), outputs);
  return {lazy::make(values, self.scalar_type(), self.device()),
          lazy::make(Value(values.node, 1), at::kLong, self.device())};
}

}  // namespace

XLA_KERNELS(m) {
  structured<at::meta::structured_amax, &amax_like<at::meta::structured_amax, true>>(
      m, {"amax", nullptr, "amax.out"});
  structured<at::meta::structured_amin, &amax_like<at::meta::structured_amin, false>>(
      m, {"amin", nullptr, "amin.out"});
  structured<at::meta::structured_aminmax, &aminmax, 2>(m, {"aminmax", nullptr, "aminmax.out"});
  m.impl("max", max_all<true>);
  m.impl("min", max_all<false>);
  structured<at::meta::structured_argmax, &argmax_like<at::meta::structured_argmax, true>>(
      m, {"argmax", nullptr, "argmax.out"});
  structured<at::meta::structured_argmin, &argmax_like<at::meta::structured_argmin, false>>(
      m, {"argmin", nullptr, "argmin.out"});
  structured<at::meta::structured_max_dim, &max_dim<at::meta::structured_max_dim, true>, 2>(
      m, {"max.dim", nullptr, "max.dim_max"});
  structured<at::meta::structured_min_dim, &max_dim<at::meta::structured_min_dim, false>, 2>(
      m, {"min.dim", nullptr, "min.dim_min"});
  m.impl("median", median_all<false>);
  m.impl("nanmedian", median_all<true>);
  m.impl("median.dim", median_dim<false>);
  m.impl("nanmedian.dim", median_dim<true>);
}

}  // namespace torch_xla::aten
