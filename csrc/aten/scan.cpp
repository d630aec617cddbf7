// Running reductions along one dim: cumsum, cumprod, cummax, cummin, logcumsumexp.

#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/cumprod_meta.h>
#include <ATen/ops/cumsum_meta.h>

#include <functional>

#include "aten/reduction.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

// --- cumsum, cumprod ---

// One window an element, from the start to it: XLA knows this pattern and makes a scan of it for
// sums and products, which compiles several times faster than scan(). Attribute: dim.
Results scan_windows(Lowering& l, const Node& n, double neutral,
                     const stablehlo::BinaryRegion& combine) {
  Builder& b = l.builder();
  const ElementType type = n.output().type;
  const XlaValue x = at_least_one_dim(b.convert(l.operand(0, type), stablehlo::opmath_type(type)));
  const size_t dim = static_cast<size_t>(n.attributes().integer());
  if (x.num_elements() == 0) return as_output(l, n, x);
  stablehlo::Window window;
  window.size = Dims(x.dims().size(), 1);
  window.padding_low = Dims(x.dims().size(), 0);
  window.size[dim] = x.dims()[dim];
  window.padding_low[dim] = x.dims()[dim] - 1;
  return as_output(l, n, b.reduce_window(x, b.scalar(neutral, x.element_type()), window, combine));
}

const Op kCumsum{"aten::cumsum", [](Lowering& l, const Node& n) -> Results {
                   return scan_windows(
                       l, n, 0, [&](XlaValue left, XlaValue right) { return l->add(left, right); });
                 }};
const Op kCumprod{"aten::cumprod", [](Lowering& l, const Node& n) -> Results {
                    return scan_windows(l, n, 1, [&](XlaValue left, XlaValue right) {
                      return l->multiply(left, right);
                    });
                  }};

// Nothing is combined, and CPU takes every dtype.
bool is_its_own_scan(const at::Tensor& self) { return self.dim() == 0 || self.numel() == 0; }

template <class Meta, const Op& op>
Value cumulate(Infer<Meta, 1>& it, const at::Tensor& self, int64_t dim,
               std::optional<at::ScalarType>) {
  at::assert_no_internal_overlap(it.output());
  TORCH_CHECK_NOT_IMPLEMENTED(it.output_type() != ElementType::kPred || is_its_own_scan(self), '"',
                              std::string_view(op.name).substr(sizeof("aten::") - 1),
                              "_out_cpu\" not implemented for 'Bool'");
  const Value operand = value_of(self);
  const Attributes along = Attributes::of(at::maybe_wrap_dim(dim, self.dim()));
  if (const auto cut = lazy::trimmed(operand)) {  // no element depends on one behind it
    return lazy::with_computed(operand, Node::make(op, {cut->whole}, along,
                                                   ShapeRef{it.output_type(), cut->whole.dims()}));
  }
  return Node::make(op, {operand}, along, it.output_shape());
}

// --- any other associative operation ---

using stablehlo::Values;
// Elementwise and associative: what stands left of an element is its first argument.
using Combine = std::function<Values(const Values&, const Values&)>;

Values slices(const Values& xs, int64_t start, int64_t limit, int64_t stride, int64_t dim) {
  Values parts;
  for (XlaValue x : xs) {
    parts.push_back(x.builder().slice_in_dim(x, start, limit, stride, dim));
  }
  return parts;
}

// Elements of `even` at positions 0, 2, 4, ... and of `odd` between them.
XlaValue interleave(Builder& b, XlaValue even, XlaValue odd, int64_t dim) {
  const size_t rank = even.dims().size(), along = static_cast<size_t>(dim);
  const ElementType type = even.element_type();
  Dims none(rank, 0), one_apart(rank, 0), end(rank, 0), start(rank, 0), odd_end(rank, 0);
  one_apart[along] = 1;
  start[along] = 1;
  const bool more_even = even.dim(dim) > odd.dim(dim);
  (more_even ? odd_end : end)[along] = 1;
  // -0 + x is x for every float, 0 included.
  const XlaValue neutral = stablehlo::is_float(type) ? b.scalar(-0.0, type) : b.scalar(0, type);
  return b.add(b.pad(even, neutral, none, end, one_apart),
               b.pad(odd, neutral, start, odd_end, one_apart));
}

// All prefixes of `xs` along `dim` in 2 log n steps of n work in all: neighbours are combined, the
// pairs scanned, and what lies between filled in (Blelloch 1990, "Prefix Sums and Their
// Applications").
Values scan(Builder& b, const Values& xs, int64_t dim, const Combine& combine) {
  const int64_t size = xs[0].dim(dim);
  if (size < 2) return xs;
  const Values pairs = combine(slices(xs, 0, size - 1, 2, dim), slices(xs, 1, size, 2, dim));
  const Values odd = scan(b, pairs, dim, combine);
  Values even = slices(xs, 0, 1, 1, dim);
  if (size > 2) {
    const Values rest =
        combine(slices(odd, 0, (size - 1) / 2, 1, dim), slices(xs, 2, size, 2, dim));
    for (size_t i = 0; i < even.size(); ++i) even[i] = b.concatenate({even[i], rest[i]}, dim);
  }
  Values result;
  for (size_t i = 0; i < xs.size(); ++i) result.push_back(interleave(b, even[i], odd[i], dim));
  return result;
}

// --- logcumsumexp ---

XlaValue log_add_exp(Builder& b, XlaValue x, XlaValue y) {
  // The larger real part leads; its imaginary part is not wrapped.
  const XlaValue first = b.ge(b.real(x), b.real(y));
  const XlaValue low = b.select(first, y, x), high = b.select(first, x, y);
  const XlaValue sum = b.add(high, b.log_plus_one(b.exponential(b.subtract(low, high))));
  return b.select(b.is_finite(b.real(high)), sum, high);
}

// {m, s} stands for log(s exp(m)) with m the greatest so far: rounded once, in the end, however
// large m is.
Values add_scaled(Builder& b, const Values& left, const Values& right) {
  const XlaValue high = b.maximum(left[0], right[0]), one = b.ones_like(high);
  const auto scaled = [&](const Values& part) {
    const XlaValue factor = b.exponential(b.subtract(part[0], high));
    return b.multiply(part[1], b.select(b.eq(part[0], high), one, factor));  // infinities are equal
  };
  return {high, b.add(scaled(left), scaled(right))};
}

const Op kLogcumsumexp{
    "aten::_logcumsumexp", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const int64_t dim = n.attributes().integer();
      const XlaValue x = at_least_one_dim(l.operand(0, stablehlo::opmath_type(n.output().type)));
      if (stablehlo::is_complex(x.element_type())) {
        const Combine each = [&](const Values& left, const Values& right) {
          return Values{log_add_exp(b, left[0], right[0])};
        };
        return as_output(l, n, scan(b, {x}, dim, each)[0]);
      }
      const Values all = scan(b, {x, b.ones_like(x)}, dim, [&](const Values& y, const Values& z) {
        return add_scaled(b, y, z);
      });
      const XlaValue sum = b.add(all[0], b.log(all[1]));
      return as_output(l, n, b.select(b.is_finite(all[0]), sum, all[0]));
    }};

at::Tensor logcumsumexp(const at::Tensor& self, int64_t dim) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_NOT_IMPLEMENTED(self.is_floating_point() || self.is_complex(),
                              "\"logcumsumexp_out_cpu\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  return lazy::make(Node::make(kLogcumsumexp, {value_of(self)}, Attributes::of(dim),
                               ShapeRef{element_type(self), span_of(self.sizes())}),
                    self.scalar_type(), self.device());
}

// --- cummax, cummin: values and where they are, the last of equal ones ---

// Attributes: largest, dim. Once NaN is met it stays, at the place of the last NaN.
const Op kCummax{
    "aten::cummax", [](Lowering& l, const Node& n) -> Results {
      auto attributes = n.attributes();
      const bool largest = attributes.boolean();
      const int64_t dim = attributes.integer();
      Builder& b = l.builder();
      const XlaValue x = at_least_one_dim(l.operand(0));
      const bool is_float = stablehlo::is_float(x.element_type());
      const Combine combine = [&](const Values& left, const Values& right) {
        XlaValue take = largest ? b.ge(right[0], left[0]) : b.le(right[0], left[0]);
        if (is_float) take = b.or_(take, b.is_nan(right[0]));
        return Values{b.select(take, right[0], left[0]), b.select(take, right[1], left[1])};
      };
      const XlaValue position = b.iota(ElementType::kS64, x.dims(), dim);
      const Values result = scan(b, {x, position}, dim, combine);
      return {as_output(l, n, result[0], 0).values[0], as_output(l, n, result[1], 1).values[0]};
    }};

std::pair<Value, Value> cummax_values(bool largest, const at::Tensor& self, int64_t dim) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex() || is_its_own_scan(self),
                              largest ? "\"cummax_cpu\"" : "\"cummin_cpu\"",
                              " not implemented for '", c10::toString(self.scalar_type()), "'");
  const Value operands[] = {value_of(self)};
  const ShapeRef outputs[] = {{element_type(self), span_of(self.sizes())},
                              {ElementType::kS64, span_of(self.sizes())}};
  const Value values = Node::make(kCummax, operands, Attributes::of(largest, dim), outputs);
  return {values, Value(values.node, 1)};
}

template <bool largest>
std::tuple<at::Tensor, at::Tensor> cummax(const at::Tensor& self, int64_t dim) {
  auto [values, indices] = cummax_values(largest, self, dim);
  return {lazy::make(values, self.scalar_type(), self.device()),
          lazy::make(indices, at::kLong, self.device())};
}

// What torch's own cummax(out=) calls, with outputs of the right sizes.
template <bool largest>
void cummax_helper(const at::Tensor& self, at::Tensor& values, at::Tensor& indices, int64_t dim) {
  auto [v, i] = cummax_values(largest, self, dim);
  lazy::write(values, convert(v, element_type(values)));
  lazy::write(indices, convert(i, element_type(indices)));
}

}  // namespace

XLA_KERNELS(m) {
  structured<at::meta::structured_cumsum, &cumulate<at::meta::structured_cumsum, kCumsum>>(
      m, {"cumsum", "cumsum_", "cumsum.out"});
  structured<at::meta::structured_cumprod, &cumulate<at::meta::structured_cumprod, kCumprod>>(
      m, {"cumprod", "cumprod_", "cumprod.out"});
  m.impl("_logcumsumexp", logcumsumexp);
  m.impl("cummax", cummax<true>);
  m.impl("cummin", cummax<false>);
  m.impl("_cummax_helper", cummax_helper<true>);
  m.impl("_cummin_helper", cummax_helper<false>);
}

}  // namespace torch_xla::aten
