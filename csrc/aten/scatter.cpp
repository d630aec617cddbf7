// gather and scatter: one index for each element, along one dimension.

#include <ATen/ops/gather_meta.h>
#include <ATen/ops/index_reduce_meta.h>
#include <ATen/ops/scatter_add_meta.h>
#include <ATen/ops/scatter_meta.h>
#include <ATen/ops/scatter_reduce_meta.h>

#include "aten/checks.h"
#include "aten/indices.h"
#include "aten/masked.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

// Tensors without dimensions index like vectors of one element.
XlaValue at_least_1d(Builder& b, XlaValue x) { return x.rank() == 0 ? b.reshape(x, {1}) : x; }

int64_t wrap(int64_t dim, const at::Tensor& self) {
  return c10::maybe_wrap_dim(dim, std::max<int64_t>(self.dim(), 1));
}

// The index operand of `op`.
Value reachable(const char* op, const at::Tensor& self, int64_t dim, const at::Tensor& index,
                CheckError error = CheckError::kRuntime) {
  const int64_t size = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK(size > 0 || error == CheckError::kIndex, "index 0 is out of bounds for dimension ",
              dim, " with size 0");
  TORCH_CHECK_INDEX(size > 0, "index 0 is out of bounds for dimension ", dim, " with size 0");
  const Value value = value_of(index);
  const auto outside = known_outside(value, 0, size);
  const auto message = [&] {
    return c10::str("index ", *outside, " is out of bounds for dimension ", dim, " with size ",
                    size);
  };
  TORCH_CHECK(!outside || error == CheckError::kIndex, message());
  TORCH_CHECK_INDEX(!outside, message());
  return checked_index(value, 0, size, op, error);
}

// As many rows of `value` along the dim of `some` as its whole has, where its first ones are those
// that count; empty where they cannot be had.
Value rows_of(const Value& value, const Trimmed& some) {
  const int64_t rows = value.dims()[static_cast<size_t>(some.dim)];
  if (rows == some.size) {
    const auto rank = static_cast<int64_t>(value.dims().size());
    if (Value all = whole_operand(value, rank, some.dim, rows, some.bound())) return all;
  }
  return rows >= some.bound() ? value : Value();
}

// --- gather ---

const Op kGather{"aten::gather", [](Lowering& l, const Node& n) -> Results {
                   Builder& b = l.builder();
                   const XlaValue result =
                       gather_elements(b, at_least_1d(b, l.operand(0)), n.attributes().integer(),
                                       at_least_1d(b, l.operand(1)));
                   return b.reshape(result, Dims(n.output().dims));
                 }};

Value gather(Infer<at::meta::structured_gather, 1>& it, const at::Tensor& self, int64_t dim,
             const at::Tensor& index, bool) {
  dim = wrap(dim, self);
  if (index.numel() == 0) return lazy::full(0, it.output_type(), span_of(it.output().sizes()));
  const Value at = reachable(kGather.name, self, dim, index);
  const auto gathered = [&](const Value& positions, const Value& from) -> Value {
    return Node::make(kGather, {from, positions}, Attributes::of(dim),
                      ShapeRef{it.output_type(), positions.dims()});
  };
  const auto some = lazy::trimmed(at);
  if (some && some->dim == dim)
    return lazy::with_computed(at, gathered(some->whole, value_of(self)));
  if (some && self.dim() > 0) {
    if (const Value rows = rows_of(value_of(self), *some)) {
      return lazy::with_computed(at, gathered(some->whole, rows));
    }
  }
  return gathered(at, value_of(self));
}

// --- scatter: self, index, updates; with the way to combine ---

// Positions that are trimmed along `dim` as their whole, and with them what goes there: as large,
// or a number.
void to_wholes(Value& positions, Value& updates, const at::Tensor& self, int64_t dim) {
  const auto some = lazy::trimmed(positions);
  if (!some || some->dim != dim || self.dim() == 0) return;
  if (updates.dims().empty()) {
    positions = lazy::filled_with(*some, self.size(dim));
  } else if (std::ranges::equal(updates.dims(), positions.dims())) {
    if (auto wholes = whole_positions(positions, self.size(dim), updates, dim)) {
      positions = std::move(wholes->positions);
      updates = std::move(wholes->source);
    }
  }
}

// Where the positions are trimmed along another dim than `dim`: row for row, the wholes of all
// three. False where they cannot be had.
bool to_whole_rows(Value& self, Value& positions, Value& updates, int64_t dim, Dims& output) {
  const auto some = lazy::trimmed(positions);
  if (!some || some->dim == dim || self.dims().empty()) return false;
  const auto axis = static_cast<size_t>(some->dim);
  const bool is_number = updates.dims().empty();
  if (self.dims()[axis] != some->size ||
      !(is_number || std::ranges::equal(updates.dims(), positions.dims()))) {
    return false;
  }
  const Value into = rows_of(self, *some), source = is_number ? updates : rows_of(updates, *some);
  if (!into || !source) return false;
  positions = lazy::filled_with(*some, self.dims()[static_cast<size_t>(dim)]);
  self = into;
  updates = source;
  output[axis] = some->bound();
  return true;
}

const Op kScatter{"aten::scatter",
                  [](Lowering& l, const Node& n) -> Results {
                    Builder& b = l.builder();
                    auto attributes = n.attributes();
                    const int64_t dim = attributes.integer();
                    const auto combine = attributes.enumeration<Combine>();
                    const XlaValue self = at_least_1d(b, l.operand(0));
                    const XlaValue index =
                        only_if_right(l, at_least_1d(b, l.operand(1)), self.dim(dim));
                    XlaValue updates = b.convert(l.operand(2), n.output().type);
                    if (n.operand(2).dims().empty()) {  // a number, or a tensor of one element
                      updates = b.broadcast_to(updates, index.dims());
                    }
                    const XlaValue result = scatter_elements(b, self, dim, index, updates, combine);
                    return b.reshape(result, Dims(n.output().dims));
                  },
                  /*updates=*/true};

Value scatter_node(ShapeRef output, const at::Tensor& self, int64_t dim, const at::Tensor& index,
                   const Value& updates, Combine combine) {
  if (index.numel() == 0) return value_of(self);
  dim = wrap(dim, self);
  Value at = reachable(kScatter.name, self, dim, index), values = updates, into = value_of(self);
  const auto some = lazy::trimmed(at);
  Dims dims(output.dims);
  const bool rows = to_whole_rows(into, at, values, dim, dims);
  if (!rows) to_wholes(at, values, self, dim);
  Value result =
      Node::make(kScatter, {into, at, values}, Attributes::of(dim, combine), {output.type, dims});
  return rows ? lazy::trim(std::move(result), some->count, some->dim, some->size) : result;
}

Combine named_combine(std::string_view reduce) {
  return reduce == "add" ? Combine::kAdd : Combine::kMultiply;  // the meta function knows no other
}

Value scatter_src(Infer<at::meta::structured_scatter_src, 1>& it, const at::Tensor& self,
                  int64_t dim, const at::Tensor& index, const at::Tensor& src) {
  return scatter_node(it.output_shape(), self, dim, index, value_of(src), Combine::kSet);
}

Value scatter_value(Infer<at::meta::structured_scatter_value, 1>& it, const at::Tensor& self,
                    int64_t dim, const at::Tensor& index, const at::Scalar& value) {
  check_number(value, self.scalar_type());
  return scatter_node(it.output_shape(), self, dim, index, lazy::scalar(value, element_type(self)),
                      Combine::kSet);
}

Value scatter_reduce_src(Infer<at::meta::structured_scatter_reduce, 1>& it, const at::Tensor& self,
                         int64_t dim, const at::Tensor& index, const at::Tensor& src,
                         std::string_view reduce) {
  return scatter_node(it.output_shape(), self, dim, index, value_of(src), named_combine(reduce));
}

Value scatter_reduce_value(Infer<at::meta::structured_scatter_value_reduce, 1>& it,
                           const at::Tensor& self, int64_t dim, const at::Tensor& index,
                           const at::Scalar& value, std::string_view reduce) {
  check_number(value, self.scalar_type());
  return scatter_node(it.output_shape(), self, dim, index, lazy::scalar(value, element_type(self)),
                      named_combine(reduce));
}

Value scatter_add(Infer<at::meta::structured_scatter_add, 1>& it, const at::Tensor& self,
                  int64_t dim, const at::Tensor& index, const at::Tensor& src) {
  return scatter_node(it.output_shape(), self, dim, index, value_of(src), Combine::kAdd);
}

// --- scatter_reduce, index_reduce: sum, prod, mean, amax, amin, with or without self ---

enum class Reduction : uint8_t { kSum, kProd, kMean, kAmax, kAmin };

Reduction named_reduction(std::string_view name) {
  if (name == "sum") return Reduction::kSum;
  if (name == "prod") return Reduction::kProd;
  if (name == "mean") return Reduction::kMean;
  if (name == "amax") return Reduction::kAmax;
  TORCH_CHECK(name == "amin", "reduce argument must be either sum, prod, mean, amax or amin, got ",
              name, ".");
  return Reduction::kAmin;
}

Combine combine_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kProd:
      return Combine::kMultiply;
    case Reduction::kAmax:
      return Combine::kMaximum;
    case Reduction::kAmin:
      return Combine::kMinimum;
    default:
      return Combine::kAdd;
  }
}

XlaValue identity_of(Builder& b, Reduction reduction, ElementType type) {
  switch (reduction) {
    case Reduction::kProd:
      return b.scalar(1, type);
    case Reduction::kAmax:
      return b.min_value(type);
    case Reduction::kAmin:
      return b.max_value(type);
    default:
      return b.scalar(0, type);
  }
}

// A mean divides integers towards minus infinity.
XlaValue divide_by_count(Builder& b, XlaValue x, XlaValue count) {
  if (!stablehlo::is_integer(x.element_type())) return b.divide(x, count);
  const XlaValue quotient = b.divide(x, count);
  if (!stablehlo::is_signed(x.element_type())) return quotient;
  const XlaValue zero = b.zeros_like(x);
  const XlaValue below = b.and_(b.ne(b.remainder(x, count), zero), b.lt(x, zero));
  return b.select(below, b.subtract(quotient, b.ones_like(x)), quotient);
}

// `scatter(into, updates, combine)` writes updates at the positions that count.
template <class Scatter>
XlaValue reduce_into(Builder& b, XlaValue self, XlaValue source, Reduction reduction,
                     bool include_self, Scatter scatter) {
  const ElementType type = self.element_type();
  const ElementType compute = stablehlo::opmath_type(type);
  self = b.convert(self, compute);
  source = b.convert(source, compute);
  XlaValue start = self;
  if (!include_self) {
    const XlaValue identity = b.broadcast_to(identity_of(b, reduction, compute), source.dims());
    start = scatter(self, identity, Combine::kSet);
  }
  XlaValue result = scatter(start, source, combine_of(reduction));
  if (reduction == Reduction::kMean) {
    const XlaValue zero = b.zeros_like(self), one = b.ones_like(self);
    XlaValue count = scatter(include_self ? one : zero, b.ones_like(source), Combine::kAdd);
    count = b.select(b.eq(count, zero), one, count);
    result = divide_by_count(b, result, count);
  }
  return b.convert(result, type);
}

const Op kScatterReduce{
    "aten::scatter_reduce", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      auto attributes = n.attributes();
      const int64_t dim = attributes.integer();
      const auto reduction = attributes.enumeration<Reduction>();
      const bool include_self = attributes.boolean();
      const XlaValue index = at_least_1d(b, l.operand(1));
      const XlaValue result =
          reduce_into(b, at_least_1d(b, l.operand(0)), at_least_1d(b, l.operand(2)), reduction,
                      include_self, [&](XlaValue into, XlaValue updates, Combine combine) {
                        return scatter_elements(b, into, dim, index, updates, combine);
                      });
      return b.reshape(result, Dims(n.output().dims));
    }};

Value scatter_reduce(Infer<at::meta::structured_scatter_reduce_two, 1>& it, const at::Tensor& self,
                     int64_t dim, const at::Tensor& index, const at::Tensor& src,
                     std::string_view reduce, bool include_self) {
  if (index.numel() == 0) return value_of(self);
  dim = wrap(dim, self);
  Value at = reachable(kScatterReduce.name, self, dim, index), values = value_of(src);
  to_wholes(at, values, self, dim);
  return Node::make(kScatterReduce, {value_of(self), at, values},
                    Attributes::of(dim, named_reduction(reduce), include_self), it.output_shape());
}

const Op kIndexReduce{"aten::index_reduce", [](Lowering& l, const Node& n) -> Results {
                        Builder& b = l.builder();
                        auto attributes = n.attributes();
                        const int64_t dim = attributes.integer();
                        const auto reduction = attributes.enumeration<Reduction>();
                        const bool include_self = attributes.boolean();
                        const XlaValue self = at_least_1d(b, l.operand(0));
                        const XlaValue index = at_least_1d(b, l.operand(1));
                        Dims rows = self.dims();
                        rows[static_cast<size_t>(dim)] = index.dim(0);
                        const XlaValue source =
                            b.reshape(b.convert(l.operand(2), self.element_type()), rows);
                        const XlaValue result = reduce_into(
                            b, self, source, reduction, include_self,
                            [&](XlaValue into, XlaValue updates, Combine combine) {
                              return scatter_at(b, into, {index}, {dim}, updates, combine);
                            });
                        return b.reshape(result, Dims(n.output().dims));
                      }};

Value index_reduce(Infer<at::meta::structured_index_reduce, 1>& it, const at::Tensor& self,
                   int64_t dim, const at::Tensor& index, const at::Tensor& source,
                   std::string_view reduce, bool include_self) {
  TORCH_CHECK(reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin",
              "reduce argument must be either prod, mean, amax or amin, got ", reduce, ".");
  if (index.numel() == 0) return value_of(self);
  dim = wrap(dim, self);
  Value at = reachable(kIndexReduce.name, self, dim, index, CheckError::kIndex);
  Value values = value_of(source);
  if (source.dim() > 0 && self.dim() > 0) {
    if (auto wholes = whole_positions(at, self.size(dim), values, dim)) {
      at = std::move(wholes->positions);
      values = std::move(wholes->source);
    }
  }
  return Node::make(kIndexReduce, {value_of(self), at, values},
                    Attributes::of(dim, named_reduction(reduce), include_self), it.output_shape());
}

}  // namespace

Value stretched_scatter(const Value& value, int64_t dim, int64_t size) {
  const Node& node = *value.node;
  if (&node.op() != &kScatter) return {};
  auto attributes = node.attributes();
  if (attributes.integer() != dim) return {};
  const auto axis = static_cast<size_t>(dim);
  const auto rank = static_cast<int64_t>(value.dims().size());
  const Value into = whole_operand(Value(node.operand(0)), rank, dim, value.dims()[axis], size);
  if (!into) return {};
  Dims dims(value.dims());
  dims[axis] = size;
  return Node::make(kScatter, {into, Value(node.operand(1)), Value(node.operand(2))},
                    Attributes::of(dim, attributes.enumeration<Combine>()),
                    ShapeRef{value.type(), dims});
}

XLA_KERNELS(m) {
  structured<at::meta::structured_gather, gather>(m, {"gather", nullptr, "gather.out"});
  structured<at::meta::structured_scatter_src, scatter_src>(
      m, {"scatter.src", "scatter_.src", "scatter.src_out"});
  structured<at::meta::structured_scatter_value, scatter_value>(
      m, {"scatter.value", "scatter_.value", "scatter.value_out"});
  structured<at::meta::structured_scatter_reduce, scatter_reduce_src>(
      m, {"scatter.reduce", "scatter_.reduce", "scatter.reduce_out"});
  structured<at::meta::structured_scatter_value_reduce, scatter_reduce_value>(
      m, {"scatter.value_reduce", "scatter_.value_reduce", "scatter.value_reduce_out"});
  structured<at::meta::structured_scatter_add, scatter_add>(
      m, {"scatter_add", "scatter_add_", "scatter_add.out"});
  structured<at::meta::structured_scatter_reduce_two, scatter_reduce>(
      m, {"scatter_reduce.two", "scatter_reduce_.two", "scatter_reduce.two_out"});
  structured<at::meta::structured_index_reduce, index_reduce>(
      m, {"index_reduce", "index_reduce_", "index_reduce.out"});
}

}  // namespace torch_xla::aten
