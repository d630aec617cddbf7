// Order: sort, topk, kthvalue, and searches in what is sorted. A NaN is greater than any number.

#include <ATen/MemoryOverlap.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sort_meta.h>
#include <ATen/ops/topk_meta.h>

#include "aten/host_call.h"
#include "aten/indices.h"
#include "aten/order.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {

XlaValue comes_before(Builder& b, XlaValue left, XlaValue right, bool descending) {
  const XlaValue before = descending ? b.gt(left, right) : b.lt(left, right);
  if (!stablehlo::is_float(left.element_type())) return before;
  const XlaValue first = descending ? left : right, last = descending ? right : left;
  return b.or_(before, b.and_(b.is_nan(first), b.not_(b.is_nan(last))));
}

namespace {

struct Sorted {
  XlaValue values, positions;
};

// Stable. `count`, if any: how many of the elements along `dim` there are; the rest stays behind.
Sorted sorted(Builder& b, XlaValue x, int64_t dim, bool descending,
              const std::optional<XlaValue>& count) {
  const ElementType type = x.element_type();
  if (type == ElementType::kPred) x = b.convert(x, ElementType::kU8);
  const ElementType position =
      x.dim(dim) <= std::numeric_limits<int32_t>::max() ? ElementType::kS32 : ElementType::kS64;
  const XlaValue positions = b.iota(position, x.dims(), dim);
  stablehlo::Values operands{x, positions};
  if (count) {
    operands.push_back(
        b.ge(positions, b.broadcast_in_dim(b.convert(*count, position), x.dims(), {})));
  }
  const auto less = [&](const stablehlo::Values& left, const stablehlo::Values& right) {
    const XlaValue before = comes_before(b, left[0], right[0], descending);
    if (!count) return stablehlo::Values{before};
    // Operands come in pairs: the third two say whether these are there at all.
    const XlaValue left_behind = left[2], right_behind = right[2];
    const XlaValue both = b.not_(b.or_(left_behind, right_behind));
    return stablehlo::Values{
        b.or_(b.and_(both, before), b.and_(b.not_(left_behind), right_behind))};
  };
  const auto results = b.sort(operands, dim, true, less);
  return {b.convert(results[0], type), results[1]};
}

// Operands: what to sort, and perhaps how much of it there is along the dim, a number. Attributes:
// dim, descending, and which part of the order to keep: start and limit.
const Op kSort{"aten::sort", [](Lowering& l, const Node& n) -> Results {
                 Builder& b = l.builder();
                 auto attributes = n.attributes();
                 const int64_t dim = attributes.integer();
                 const bool descending = attributes.boolean();
                 const int64_t start = attributes.integer(), limit = attributes.integer();
                 XlaValue x = l.operand(0);
                 if (x.rank() == 0) x = b.reshape(x, {1});
                 std::optional<XlaValue> count;
                 if (l.num_operands() == 2) count = l.operand(1);
                 Sorted result = sorted(b, x, dim, descending, count);
                 for (XlaValue* part : {&result.values, &result.positions}) {
                   *part = b.reshape(b.slice_in_dim(*part, start, limit, 1, dim),
                                     Dims(n.output().dims));
                 }
                 return {result.values, b.convert(result.positions, ElementType::kS64)};
               }};

// Of what is cut off behind some size along `dim`: sorted is the whole, for all sizes alike.
Values<2> sort_trimmed(const Trimmed& cut, bool descending, int64_t start, int64_t limit) {
  const bool all = start == 0 && limit == cut.size;
  Dims dims(cut.whole.dims());
  if (all) limit = cut.bound();
  dims[static_cast<size_t>(cut.dim)] = limit - start;
  const std::array<ShapeRef, 2> shapes{ShapeRef{cut.whole.type(), dims},
                                       ShapeRef{ElementType::kS64, dims}};
  const Value operands[] = {cut.whole, ir::scalar(cut.size, ElementType::kS64)};
  const ir::NodePtr node =
      Node::make(kSort, operands, Attributes::of(cut.dim, descending, start, limit), shapes);
  if (!all) return {Value(node, 0), Value(node, 1)};
  return {lazy::trim(Value(node, 0), cut.count, cut.dim, cut.size),
          lazy::trim(Value(node, 1), cut.count, cut.dim, cut.size)};
}

Values<2> sort_node(const at::Tensor& self, int64_t dim, bool descending, int64_t start,
                    int64_t limit, at::IntArrayRef sizes) {
  const std::array<ShapeRef, 2> shapes{ShapeRef{element_type(self), span_of(sizes)},
                                       ShapeRef{ElementType::kS64, span_of(sizes)}};
  if (shapes[0].num_elements() == 0) {
    return {lazy::full(0, shapes[0].type, shapes[0].dims),
            lazy::full(0, shapes[1].type, shapes[1].dims)};
  }
  const Value operand = value_of(self);
  const ir::NodePtr node = Node::make(kSort, std::span(&operand, 1),
                                      Attributes::of(dim, descending, start, limit), shapes);
  return {Value(node, 0), Value(node, 1)};
}

// What works on each row by itself, of rows that are cut off behind some size: of the whole.
template <class Function>
Values<2> of_all_rows(const Trimmed& cut, const at::Tensor& self, const Function& function) {
  const Values<2> found = function(lazy::make(cut.whole, self.scalar_type(), self.device()));
  return {lazy::trim(found[0], cut.count, cut.dim, cut.size),
          lazy::trim(found[1], cut.count, cut.dim, cut.size)};
}

int64_t wrap(int64_t dim, const at::Tensor& self) {
  return c10::maybe_wrap_dim(dim, std::max<int64_t>(self.dim(), 1));
}
int64_t size_along(const at::Tensor& self, int64_t dim) {
  return self.dim() == 0 ? 1 : self.size(dim);
}

void check_orderable(const char* name, const at::Tensor& self) {
  TORCH_CHECK(!self.is_complex(), name, "(): does not support complex dtypes on XLA");
}

// Torch's own selection of values and positions, where programs can call it (else null): it need
// not sort everything, and which of equal elements it finds is its own affair.
ir::NodePtr selection(const char* op, const torch::jit::Stack& arguments, const at::Tensor& self,
                      at::IntArrayRef sizes) {
  if (c10::multiply_integers(sizes) == 0) return {};
  const std::array<ShapeRef, 2> shapes{ShapeRef{element_type(self), span_of(sizes)},
                                       ShapeRef{ElementType::kS64, span_of(sizes)}};
  return host_node(op, arguments, shapes);
}

// Where equal elements may change places, CPU's sort moves them in rows of more than 16 elements.
constexpr int64_t kAlwaysStable = 16;

// As on CPU: no two elements of the results in one place.
template <class Meta>
void check_outputs(const Infer<Meta, 2>& it) {
  for (const at::Tensor& output : it.outputs()) at::assert_no_internal_overlap(output);
}

Values<2> sort(Infer<at::meta::structured_sort_stable, 2>& it, const at::Tensor& self,
               std::optional<bool> stable, int64_t dim, bool descending) {
  check_orderable("sort", self);
  check_outputs(it);
  dim = wrap(dim, self);
  const int64_t size = size_along(self, dim);
  const auto sort_each = [&](const at::Tensor& x) -> Values<2> {
    if (!stable.value_or(false) && size > kAlwaysStable) {
      const torch::jit::Stack arguments{x, stable, dim, descending};
      if (const auto node = selection("aten::sort.stable", arguments, x, x.sizes())) {
        return {Value(node, 0), Value(node, 1)};
      }
    }
    return sort_node(x, dim, descending, 0, size, x.sizes());
  };
  const auto cut = lazy::trimmed(value_of(self));
  if (!cut) return sort_each(self);
  return cut->dim == dim ? sort_trimmed(*cut, descending, 0, size)
                         : of_all_rows(*cut, self, sort_each);
}

Values<2> topk(Infer<at::meta::structured_topk, 2>& it, const at::Tensor& self, int64_t k,
               int64_t dim, bool largest, bool sorted) {
  check_orderable("topk", self);
  check_outputs(it);
  TORCH_CHECK(self.scalar_type() != at::kBool, "topk does not support bool dtypes on XLA");
  dim = wrap(dim, self);
  const auto pick_each = [&](const at::Tensor& x) -> Values<2> {
    at::DimVector sizes(x.sizes());
    if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = k;
    if (const auto node = selection("aten::topk", {x, k, dim, largest, sorted}, x, sizes)) {
      return {Value(node, 0), Value(node, 1)};
    }
    return sort_node(x, dim, largest, 0, k, sizes);
  };
  const auto cut = lazy::trimmed(value_of(self));
  if (!cut) return pick_each(self);
  return cut->dim == dim ? sort_trimmed(*cut, largest, 0, k) : of_all_rows(*cut, self, pick_each);
}

std::tuple<at::Tensor, at::Tensor> kthvalue(const at::Tensor& self, int64_t k, int64_t dim,
                                            bool keepdim) {
  check_orderable("kthvalue", self);
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() != at::kBool,
                              "\"kthvalue_cpu\" not implemented for 'Bool'");
  dim = wrap(dim, self);
  const int64_t size = size_along(self, dim);
  at::native::zero_numel_check_dims(self, dim, "kthvalue()");
  TORCH_CHECK(k >= 1 && k <= size, "kthvalue(): selected number k out of range for dimension ",
              dim);
  c10::SmallVector<int64_t, 6> sizes(self.sizes().begin(), self.sizes().end());
  if (self.dim() > 0) {
    if (keepdim) {
      sizes[static_cast<size_t>(dim)] = 1;
    } else {
      sizes.erase(sizes.begin() + dim);
    }
  }
  const ir::NodePtr node = selection("aten::kthvalue", {self, k, dim, keepdim}, self, sizes);
  const Values<2> values = node ? Values<2>{Value(node, 0), Value(node, 1)}
                                : sort_node(self, dim, false, k - 1, k, sizes);
  return {lazy::make(values[0], self.scalar_type(), self.device()),
          lazy::make(values[1], at::kLong, self.device())};
}

// --- searchsorted, bucketize ---

// Operands: the sorted sequences, what to look for, and perhaps the order that sorts the first.
// Attributes: the type to compare in, right.
const Op kSearchSorted{
    "aten::searchsorted", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      auto attributes = n.attributes();
      const auto common = attributes.enumeration<ElementType>();
      const bool right = attributes.boolean();
      XlaValue sequence = l.operand(0, common);
      if (l.num_operands() == 3) {
        sequence = gather_elements(b, sequence, sequence.rank() - 1, l.operand(2));
      }
      const XlaValue found = search_sorted(b, sequence, l.operand(1, common), right);
      return b.convert(found, n.output().type);
    }};

at::Tensor search(const at::Tensor& sequence, const at::Tensor& self, bool out_int32, bool right,
                  std::optional<std::string_view> side, const std::optional<at::Tensor>& sorter) {
  const at::ScalarType type = out_int32 ? at::kInt : at::kLong;
  const at::Tensor result = lazy::allocate(self.sizes(), type, device_of({sequence, self}));
  const at::Tensor order = sorter.value_or(at::Tensor());
  at::native::searchsorted_pre_check(sequence, self, result, out_int32, right, side, order);
  if (self.numel() == 0 || sequence.numel() == 0) {
    return lazy::make(lazy::full(0, lazy::element_type(type), span_of(self.sizes())), type,
                      result.device());
  }
  const ElementType common = lazy::element_type(at::result_type(sequence, self));
  Value sought = value_of(self);
  c10::SmallVector<Value, 3> operands{value_of(sequence), sought};
  // In one sequence each is sought by itself.
  if (sequence.dim() == 1) operands[1] = lazy::computed(sought);
  if (order.defined()) operands.push_back(value_of(order));
  const ShapeRef shape{lazy::element_type(type), operands[1].dims()};
  const Value found =
      Node::make(kSearchSorted, std::span<const Value>(operands.data(), operands.size()),
                 Attributes::of(common, side ? *side == "right" : right), std::span(&shape, 1));
  lazy::write(result, sequence.dim() == 1 ? lazy::with_computed(sought, found) : found);
  return result;
}

// A Python number: no more than a tensor without dimensions that yields to the others' dtype.
at::Tensor number_tensor(const at::Scalar& number, const at::Tensor& like) {
  at::Tensor tensor = lazy::make(lazy::full(number, lazy::element_type(number.type()), {}),
                                 number.type(), like.device());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

at::Tensor searchsorted_scalar(const at::Tensor& sequence, const at::Scalar& self, bool out_int32,
                               bool right, std::optional<std::string_view> side,
                               const std::optional<at::Tensor>& sorter) {
  return search(sequence, number_tensor(self, sequence), out_int32, right, side, sorter);
}

at::Tensor bucket(const at::Tensor& self, const at::Tensor& boundaries, bool out_int32,
                  bool right) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(",
              boundaries.dim(), ")");
  return search(boundaries, self, out_int32, right, {}, {});
}

at::Tensor bucketize_scalar(const at::Scalar& self, const at::Tensor& boundaries, bool out_int32,
                            bool right) {
  return bucket(number_tensor(self, boundaries), boundaries, out_int32, right);
}

}  // namespace

XLA_KERNELS(m) {
  structured<at::meta::structured_sort_stable, sort, 2>(
      m, {"sort.stable", nullptr, "sort.values_stable"});
  structured<at::meta::structured_topk, topk, 2>(m, {"topk", nullptr, "topk.values"});
  m.impl("kthvalue", kthvalue);
  m.impl("searchsorted.Tensor", search);
  m.impl("searchsorted.Scalar", searchsorted_scalar);
  m.impl("bucketize.Tensor", bucket);
  m.impl("bucketize.Scalar", bucketize_scalar);
}

}  // namespace torch_xla::aten
