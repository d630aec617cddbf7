// Moving elements: joining, repeating, flipping, triangles, and the gradients and copies of views.

#include <ATen/EmptyTensor.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/_conj_copy_native.h>
#include <ATen/ops/_neg_view_copy_native.h>
#include <ATen/ops/_reshape_alias_copy_native.h>
#include <ATen/ops/alias_copy_native.h>
#include <ATen/ops/as_strided_copy_native.h>
#include <ATen/ops/as_strided_scatter_native.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/channel_shuffle_native.h>
#include <ATen/ops/detach_copy_native.h>
#include <ATen/ops/diag_embed_native.h>
#include <ATen/ops/diagonal_copy_native.h>
#include <ATen/ops/diagonal_scatter_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/expand_copy_native.h>
#include <ATen/ops/narrow_copy_native.h>
#include <ATen/ops/permute_copy_native.h>
#include <ATen/ops/pixel_shuffle_native.h>
#include <ATen/ops/pixel_unshuffle_native.h>
#include <ATen/ops/select_copy_native.h>
#include <ATen/ops/select_scatter_native.h>
#include <ATen/ops/slice_copy_native.h>
#include <ATen/ops/slice_scatter_native.h>
#include <ATen/ops/split_copy_native.h>
#include <ATen/ops/split_with_sizes_copy_native.h>
#include <ATen/ops/squeeze_copy_native.h>
#include <ATen/ops/stack_native.h>
#include <ATen/ops/t_copy_native.h>
#include <ATen/ops/transpose_copy_native.h>
#include <ATen/ops/tril_meta.h>
#include <ATen/ops/triu_meta.h>
#include <ATen/ops/unbind_copy_native.h>
#include <ATen/ops/unfold_copy_native.h>
#include <ATen/ops/unsqueeze_copy_native.h>
#include <ATen/ops/view_as_complex_copy_native.h>
#include <ATen/ops/view_as_real_copy_native.h>
#include <ATen/ops/view_copy_native.h>

#include "aten/indices.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

using at::MemoryFormat;

using Operands = c10::SmallVector<Value, 8>;
using Sizes = c10::SmallVector<int64_t, 6>;

// A new tensor of self's sizes, and of its strides where those are dense.
at::Tensor make_like(const at::Tensor& self, Value value) {
  if (self.is_contiguous()) return lazy::make(std::move(value), self.scalar_type(), self.device());
  at::Tensor result = at::empty_like(self, self.options(), at::MemoryFormat::Preserve);
  lazy::write(result, std::move(value));
  return result;
}

// --- cat, stack ---

const Op kCat{"aten::cat", [](Lowering& l, const Node& n) -> Results {
                std::vector<XlaValue> parts;
                for (size_t i = 0; i < l.num_operands(); ++i) {
                  parts.push_back(l.operand(i, n.output().type));
                }
                return l->concatenate(parts, n.attributes().integer());
              }};

// Parts one behind the other, each of its size among operands as large as it can get: what stands
// behind one is written over by the next. Operands: the wholes, then their sizes. Attribute: dim.
const Op kCatSome{"aten::cat", [](Lowering& l, const Node& n) -> Results {
                    const ElementType type = n.output().type;
                    const size_t parts = l.num_operands() / 2;
                    const auto dim = static_cast<size_t>(n.attributes().integer());
                    XlaValue result = l->constant(type, Dims(n.output().dims), 0);
                    XlaValue start = l->scalar(0, ElementType::kS64);
                    for (size_t i = 0; i < parts; ++i) {
                      std::vector<XlaValue> starts(n.output().dims.size(),
                                                   l->scalar(0, ElementType::kS64));
                      starts[dim] = start;
                      result = l->dynamic_update_slice(result, l.operand(i, type), starts);
                      start = l->add(start, l.operand(parts + i));
                    }
                    return result;
                  }};

const Op kSumOfSizes{"xla::sum_of_sizes", [](Lowering& l, const Node&) -> Results {
                       XlaValue sum = l.operand(0);
                       for (size_t i = 1; i < l.num_operands(); ++i)
                         sum = l->add(sum, l.operand(i));
                       return sum;
                     }};

// Where some of the operands are trimmed; empty where they are along several dims.
Value cat_of_some(const Operands& operands, int64_t dim, ShapeRef shape) {
  const auto axis = static_cast<size_t>(dim);
  std::optional<Trimmed> other;  // along another dim, as all others then must be
  Operands wholes, sizes;
  Dims dims(shape.dims);
  dims[axis] = 0;
  for (const Value& operand : operands) {
    const auto cut = lazy::trimmed(operand);
    if (cut && cut->dim != dim) other = cut;
    wholes.push_back(cut ? cut->whole : operand);
    sizes.push_back(cut ? cut->count : ir::scalar(operand.dims()[axis], ElementType::kS64));
    dims[axis] += wholes.back().dims()[axis];
  }
  if (!other) {
    const Value count = Node::make(kSumOfSizes, std::span<const Value>(sizes.data(), sizes.size()),
                                   {}, std::array{ShapeRef{ElementType::kS64, {}}});
    wholes.append(sizes.begin(), sizes.end());
    const ShapeRef all{shape.type, dims};
    return lazy::trim(Node::make(kCatSome, std::span<const Value>(wholes.data(), wholes.size()),
                                 Attributes::of(dim), std::span(&all, 1)),
                      count, dim, shape.dims[axis]);
  }
  const auto rank = static_cast<int64_t>(shape.dims.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    wholes[i] = whole_operand(operands[i], rank, other->dim, other->size, other->bound());
    if (!wholes[i]) return {};
  }
  dims = Dims(shape.dims);
  dims[static_cast<size_t>(other->dim)] = other->bound();
  const ShapeRef all{shape.type, dims};
  return lazy::trim(Node::make(kCat, std::span<const Value>(wholes.data(), wholes.size()),
                               Attributes::of(dim), std::span(&all, 1)),
                    other->count, other->dim, other->size);
}

Value cat_node(Operands operands, int64_t dim, ShapeRef shape) {
  if (any_trimmed(std::span<const Value>(operands.data(), operands.size()))) [[unlikely]] {
    if (Value value = cat_of_some(operands, dim, shape)) return value;
  }
  return Node::take(kCat, std::span(operands.data(), operands.size()), Attributes::of(dim),
                    std::span(&shape, 1));
}

using CatMeta = at::meta::structured_cat;

Value cat_compute(Infer<CatMeta, 1>& it, const at::ITensorListRef& tensors, int64_t dim) {
  Operands operands;
  for (const at::Tensor& tensor : tensors) {
    // cat has always skipped vectors without elements, whatever the rank of the others.
    const bool skipped = tensor.dim() == 1 && tensor.numel() == 0;
    if (!skipped) operands.push_back(value_of(tensor));
  }
  const ShapeRef shape = it.output_shape();
  if (shape.num_elements() == 0) return lazy::full(0, shape.type, shape.dims);
  return cat_node(std::move(operands),
                  c10::maybe_wrap_dim(dim, static_cast<int64_t>(shape.dims.size())), shape);
}

// The result of such tensors is row-major (torch asks for the inputs' memory format).
bool gives_row_major(const at::Tensor& tensor) {
  return tensor.is_contiguous() || tensor.suggest_memory_format() == at::MemoryFormat::Contiguous;
}

// Xla tensors of one dtype that differ in nothing but their size along dim.
bool plain_parts(const at::Tensor& first, const at::Tensor& other, int64_t dim) {
  const at::IntArrayRef a = first.sizes(), b = other.sizes();
  if (!lazy::is_xla(other) || other.scalar_type() != first.scalar_type() || a.size() != b.size() ||
      !gives_row_major(other) || other.device() != first.device()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && static_cast<int64_t>(i) != dim) return false;
  }
  return true;
}

at::Tensor cat(const at::ITensorListRef& list, int64_t dim) {
  const auto tensors = list.materialize();
  if (!tensors.empty()) {
    const at::Tensor& first = tensors.front();
    const int64_t rank = first.dim(), axis = dim < 0 ? dim + rank : dim;
    if (rank > 0 && axis >= 0 && axis < rank && lazy::is_xla(first) && first.numel() > 0) {
      Sizes sizes(first.sizes().begin(), first.sizes().end());
      sizes[static_cast<size_t>(axis)] = 0;
      Operands operands;
      for (const at::Tensor& tensor : tensors) {
        if (!plain_parts(first, tensor, axis)) break;
        sizes[static_cast<size_t>(axis)] += tensor.size(axis);
        operands.push_back(lazy::read(tensor));
      }
      if (operands.size() == tensors.size()) {
        return lazy::make(
            cat_node(operands, axis, ShapeRef{element_type(first), {sizes.data(), sizes.size()}}),
            first.scalar_type(), first.device());
      }
    }
  }
  return structured_functional<CatMeta, cat_compute>(list, dim);
}

const Op kStack{"aten::stack", [](Lowering& l, const Node& n) -> Results {
                  const int64_t dim = n.attributes().integer();
                  Dims part(n.output().dims);
                  part[static_cast<size_t>(dim)] = 1;
                  std::vector<XlaValue> parts;
                  for (const XlaValue& x : l.operands()) parts.push_back(l->reshape(x, part));
                  return l->concatenate(parts, dim);
                }};

at::Tensor stack(at::TensorList tensors, int64_t dim) {
  Operands operands;
  for (const at::Tensor& tensor : tensors) {
    if (!lazy::is_xla(tensors[0]) || tensors[0].numel() == 0 ||
        !plain_parts(tensors[0], tensor, -1)) {
      return at::native::stack(tensors, dim);
    }
    operands.push_back(lazy::read(tensor));
  }
  if (operands.empty()) return at::native::stack(tensors, dim);  // its error
  const at::Tensor& first = tensors[0];
  dim = c10::maybe_wrap_dim(dim, first.dim() + 1);
  const auto stacked = [&](std::span<const Value> parts, Dims sizes) -> Value {
    sizes.insert(static_cast<size_t>(dim), static_cast<int64_t>(parts.size()));
    const ShapeRef shape{element_type(first), sizes};
    return Node::make(kStack, parts, Attributes::of(dim), std::span(&shape, 1));
  };
  const std::span<const Value> parts(operands.data(), operands.size());
  Value result;
  if (const auto wholes =
          any_trimmed(parts) ? wholes_of(parts, span_of(first.sizes())) : std::nullopt) {
    result = lazy::trim(stacked(wholes->operands, wholes->dims), wholes->count,
                        wholes->dim + (dim <= wholes->dim ? 1 : 0), wholes->size);
  } else {
    result = stacked(parts, Dims(first.sizes()));
  }
  return lazy::make(std::move(result), first.scalar_type(), first.device());
}

// A new tensor of the dtype of `like` in that memory format.
at::Tensor in_format(const Value& value, const at::Tensor& like, MemoryFormat format) {
  if (format == MemoryFormat::Contiguous) {
    return lazy::make(value, like.scalar_type(), like.device());
  }
  const at::Tensor result =
      at::empty(at::IntArrayRef(value.dims().data(), value.dims().size()), like.options(), format);
  lazy::write(result, value);
  return result;
}

// --- repeat, flip, roll ---

// [a, b] repeated [r, s] times: broadcast [a, b] to [r, a, s, b], and merge.
const Op kRepeat{"aten::repeat", [](Lowering& l, const Node& n) -> Results {
                   const auto repeats = n.attributes().list();
                   const XlaValue x = l.operand(0);
                   const size_t lead = repeats.size() - x.dims().size();
                   Dims dims, places;
                   for (size_t i = 0; i < repeats.size(); ++i) {
                     dims.push_back(repeats[i]);
                     if (i < lead) continue;
                     places.push_back(static_cast<int64_t>(dims.size()));
                     dims.push_back(x.dims()[i - lead]);
                   }
                   return l->reshape(l->broadcast_in_dim(x, dims, places), Dims(n.output().dims));
                 }};

Value repeat_node(const Value& self, std::span<const int64_t> repeats, ShapeRef output) {
  const Attributes attributes = Attributes::of(repeats);
  const size_t lead = repeats.size() - self.dims().size();
  if (const auto cut = lazy::trimmed(self)) {
    const size_t dim = lead + static_cast<size_t>(cut->dim);
    if (repeats[dim] == 1) {
      Dims dims(output.dims);
      dims[dim] = cut->bound();
      return lazy::trim(Node::make(kRepeat, {cut->whole}, attributes, ShapeRef{output.type, dims}),
                        cut->count, static_cast<int64_t>(dim), cut->size);
    }
  }
  return Node::make(kRepeat, {self}, attributes, output);
}

at::Tensor repeat(const at::Tensor& self, at::IntArrayRef repeats) {
  const auto rank = static_cast<size_t>(self.dim());
  TORCH_CHECK(repeats.size() >= rank,
              "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
              "tensor");
  Sizes sizes(repeats.begin(), repeats.end());
  for (size_t i = 0; i < rank; ++i) sizes[repeats.size() - rank + i] *= self.sizes()[i];
  at::detail::check_size_nonnegative(repeats);
  const ShapeRef shape{element_type(self), {sizes.data(), sizes.size()}};
  const Value result = shape.num_elements() == 0
                           ? lazy::full(0, shape.type, shape.dims)
                           : repeat_node(value_of(self), span_of(repeats), shape);
  return lazy::make(result, self.scalar_type(), self.device());
}

const Op kFlip{"aten::flip", [](Lowering& l, const Node& n) -> Results {
                 return l->reverse(l.operand(0), Dims(n.attributes().list()));
               }};

// What counts of a reversed whole lies at its end. Operands: that, how much counts. Attribute: dim.
const Op kToFront{"xla::to_front", [](Lowering& l, const Node& n) -> Results {
                    Builder& b = l.builder();
                    const auto dim = static_cast<size_t>(n.attributes().integer());
                    const XlaValue x = l.operand(0), count = l.operand(1);
                    const XlaValue zero = b.zeros_like(count);
                    stablehlo::Values starts(x.dims().size(), zero);
                    starts[dim] = b.subtract(b.full_like(count, x.dims()[dim]), count);
                    const XlaValue twice = b.concatenate({x, x}, static_cast<int64_t>(dim));
                    return b.dynamic_slice(twice, starts, x.dims());
                  }};

Value flip_node(const Value& x, const Dims& axes) {
  const auto attributes = Attributes::of(std::span<const int64_t>(axes));
  const auto cut = lazy::trimmed(x);
  if (!cut) return Node::make(kFlip, {x}, attributes, x.shape());
  const ShapeRef whole = cut->whole.shape();
  Value flipped = Node::make(kFlip, {cut->whole}, attributes, whole);
  if (axes.contains(cut->dim)) {
    flipped = Node::make(kToFront, {flipped, cut->count}, Attributes::of(cut->dim), whole);
  }
  return lazy::with_computed(x, flipped);
}

at::Tensor flip(const at::Tensor& self, at::IntArrayRef dims) {
  const auto flipped = at::dim_list_to_bitset(dims, self.dim());
  Dims axes;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (flipped[static_cast<size_t>(i)]) axes.push_back(i);
  }
  return make_like(self, flip_node(value_of(self), axes));
}

// Operand as it is or flattened; one non-negative shift a dim.
const Op kRoll{"aten::roll", [](Lowering& l, const Node& n) -> Results {
                 auto attributes = n.attributes();
                 const auto shifts = attributes.list();
                 const auto dims = attributes.list();
                 XlaValue x = l.operand(0);
                 if (dims.empty()) x = l->reshape(x, {x.num_elements()});
                 for (size_t i = 0; i < shifts.size(); ++i) {
                   const int64_t dim = dims.empty() ? 0 : dims[i], size = x.dim(dim);
                   if (shifts[i] == 0) continue;
                   x = l->concatenate({l->slice_in_dim(x, size - shifts[i], size, 1, dim),
                                       l->slice_in_dim(x, 0, size - shifts[i], 1, dim)},
                                      dim);
                 }
                 return l->reshape(x, Dims(n.output().dims));
               }};

at::Tensor roll(const at::Tensor& self, at::IntArrayRef shifts, at::IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  TORCH_CHECK(shifts.size() == dims.size() || (dims.empty() && shifts.size() == 1),
              "shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size());
  Dims axes, places;
  for (int64_t dim : dims) axes.push_back(c10::maybe_wrap_dim(dim, self.dim(), false));
  if (self.numel() == 0) return self.clone(at::MemoryFormat::Preserve);
  for (size_t i = 0; i < shifts.size(); ++i) {
    const int64_t size = dims.empty() ? self.numel() : self.dim() == 0 ? 1 : self.size(axes[i]);
    places.push_back(((shifts[i] % size) + size) % size);
  }
  if (self.dim() == 0) return self.clone();
  const Value rolled =
      Node::make(kRoll, {value_of(self)},
                 Attributes::of(std::span<const int64_t>(places), std::span<const int64_t>(axes)),
                 ShapeRef{element_type(self), span_of(self.sizes())});
  // CPU's rolls by nothing, or over all elements, are row-major copies; others keep the format.
  const bool moves = !axes.empty() && !places.contains(0);
  return in_format(rolled, self, moves ? self.suggest_memory_format() : MemoryFormat::Contiguous);
}

// --- tril, triu ---

// Attributes: lower or upper, the diagonal. Row i and column j of tril stay where j - i <=
// diagonal.
const Op kTriangle{"aten::tril", [](Lowering& l, const Node& n) -> Results {
                     auto attributes = n.attributes();
                     const bool lower = attributes.boolean();
                     const int64_t diagonal = attributes.integer();
                     const XlaValue x = l.operand(0);
                     const int64_t rank = x.rank();
                     const Dims matrix{x.dim(rank - 2), x.dim(rank - 1)};
                     const XlaValue row = l->iota(ElementType::kS64, matrix, 0);
                     const XlaValue column = l->iota(ElementType::kS64, matrix, 1);
                     const XlaValue limit = l->add(row, l->full_like(row, diagonal));
                     const XlaValue keep = lower ? l->le(column, limit) : l->ge(column, limit);
                     return l->select(l->broadcast_to(keep, x.dims()), x, l->zeros_like(x));
                   }};

template <class Meta, bool lower>
Value triangle(Infer<Meta, 1>& it, const at::Tensor& self, int64_t diagonal) {
  if (self.numel() == 0) return value_of(self);
  return Node::make(kTriangle, {value_of(self)}, Attributes::of(lower, diagonal),
                    it.output_shape());
}

// --- Gradients of views: the gradient in its place among zeros ---

// Attributes: dim, start, step.
const Op kSliceBackward{
    "aten::slice_backward", [](Lowering& l, const Node& n) -> Results {
      auto attributes = n.attributes();
      const auto dim = static_cast<size_t>(attributes.integer());
      const int64_t start = attributes.integer();
      const int64_t step = attributes.integer();
      const Dims dims(n.output().dims);
      Dims part = dims, low(dims.size(), 0), high = low, interior = low;
      // select's gradient lacks the dimension
      part[dim] = n.operand(0).dims().size() == dims.size() ? n.operand(0).dims()[dim] : 1;
      low[dim] = start;
      interior[dim] = step - 1;
      high[dim] = dims[dim] - start - ((part[dim] - 1) * step + 1);
      const XlaValue x = l->reshape(l.operand(0), part);
      return l->pad(x, l->scalar(0, x.element_type()), low, high, interior);
    }};

at::Tensor padded_gradient(const at::Tensor& grad, at::IntArrayRef sizes, int64_t dim,
                           int64_t start, int64_t step) {
  const ShapeRef shape{element_type(grad), span_of(sizes)};
  const Value result = grad.numel() == 0
                           ? lazy::full(0, shape.type, shape.dims)
                           : Value(Node::make(kSliceBackward, {value_of(grad)},
                                              Attributes::of(dim, start, step), shape));
  return lazy::make(result, grad.scalar_type(), grad.device());
}

at::Tensor slice_backward(const at::Tensor& grad, at::IntArrayRef sizes, int64_t dim, int64_t start,
                          int64_t, int64_t step) {
  dim = c10::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  const int64_t size = sizes[static_cast<size_t>(dim)];
  if (start < 0) start += size;
  return padded_gradient(grad, sizes, dim, std::clamp<int64_t>(start, 0, size), step);
}

at::Tensor select_backward(const at::Tensor& grad, at::IntArrayRef sizes, int64_t dim,
                           int64_t index) {
  dim = c10::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size()));
  return padded_gradient(grad, sizes, dim,
                         index < 0 ? index + sizes[static_cast<size_t>(dim)] : index, 1);
}

// Windows overlap, so their gradients add up. Attributes: dim, step.
const Op kUnfoldBackward{
    "aten::unfold_backward", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      auto attributes = n.attributes();
      const int64_t dim = attributes.integer(), step = attributes.integer();
      XlaValue grad = l.operand(0);  // [..., windows, ..., size]
      const Dims dims(n.output().dims);
      const int64_t rank = grad.rank();
      const Dims window{grad.dim(dim), grad.dim(rank - 1)};
      Dims order, rows = dims;
      for (int64_t i = 0; i < rank - 1; ++i) {
        order.push_back(i);
        if (i == dim) order.push_back(rank - 1);
      }
      rows[static_cast<size_t>(dim)] = window[0] * window[1];
      grad = b.reshape(b.transpose(grad, order), rows);
      const XlaValue first = b.iota(ElementType::kS64, window, 0);
      const XlaValue place =
          b.add(b.multiply(first, b.full_like(first, step)), b.iota(ElementType::kS64, window, 1));
      return scatter_at(b, b.constant(grad.element_type(), dims, 0),
                        {b.reshape(place, {window[0] * window[1]})}, {dim}, grad, Combine::kAdd);
    }};

at::Tensor unfold_backward(const at::Tensor& grad, at::IntArrayRef sizes, int64_t dim, int64_t size,
                           int64_t step) {
  const ShapeRef shape{element_type(grad), span_of(sizes)};
  Value result;
  if (sizes.empty()) {
    result = size == 0 ? lazy::full(0, shape.type, shape.dims) : reshape(value_of(grad), {});
  } else if (grad.numel() == 0) {
    result = lazy::full(0, shape.type, shape.dims);
  } else {
    dim = c10::maybe_wrap_dim(dim, static_cast<int64_t>(sizes.size()));
    result = Node::make(kUnfoldBackward, {value_of(grad)}, Attributes::of(dim, step), shape);
  }
  return lazy::make(result, grad.scalar_type(), grad.device());
}

// --- channel_shuffle: groups and channels change places ---

at::Tensor channel_shuffle(const at::Tensor& self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2,
              "channel_shuffle expects input with > 2 dims, but got input with sizes ",
              self.sizes());
  const int64_t channels = self.size(1);
  TORCH_CHECK(groups > 0,
              "Number of groups to divide channels in must be positive. Value of groups:", groups);
  TORCH_CHECK(channels % groups == 0, "Number of channels must be divisible by groups. Got ",
              channels, " channels and ", groups, " groups.");
  const auto format = self.dim() == 4 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
  at::Tensor result = at::empty_like(self, self.options(), format);
  if (self.numel() == 0) return result;
  const at::Tensor split = self.reshape({self.size(0), groups, channels / groups, -1});
  lazy::write(result, reshape(value_of(split.transpose(1, 2)), self.sizes()));
  return result;
}

// `shuffled` as CPU lays it out, whose kernel keeps the format of what it shuffles.
at::Tensor formatted_as(const at::Tensor& self, const at::Tensor& shuffled) {
  const auto format = self.suggest_memory_format();
  return format == MemoryFormat::Contiguous ? shuffled : shuffled.clone(format);
}

at::Tensor pixel_shuffle(const at::Tensor& self, int64_t upscale_factor) {
  return formatted_as(self, at::native::math_pixel_shuffle(self, upscale_factor));
}

at::Tensor pixel_unshuffle(const at::Tensor& self, int64_t downscale_factor) {
  return formatted_as(self, at::native::math_pixel_unshuffle(self, downscale_factor));
}

// CPU's kernel takes a dim that is too large for another kind of error than torch's meta function.
at::Tensor narrow_copy(const at::Tensor& self, int64_t dim, c10::SymInt start, c10::SymInt length) {
  TORCH_CHECK(dim < self.dim(), "narrow_copy: expected dim < ", self.dim(), ", got ", dim);
  return at::native::narrow_copy_dense_symint(self, dim, std::move(start), std::move(length));
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("cat", cat);
  structured<CatMeta, cat_compute>(m, {nullptr, nullptr, "cat.out"});
  m.impl("stack", stack);
  m.impl("repeat", repeat);
  m.impl("flip", flip);
  m.impl("roll", roll);
  using Tril = at::meta::structured_tril;
  using Triu = at::meta::structured_triu;
  structured<Tril, triangle<Tril, true>>(m, {"tril", "tril_", "tril.out"});
  structured<Triu, triangle<Triu, false>>(m, {"triu", "triu_", "triu.out"});
  m.impl("slice_backward", slice_backward);
  m.impl("select_backward", select_backward);
  m.impl("unfold_backward", unfold_backward);
  m.impl("channel_shuffle", channel_shuffle);

  // torch's own compositions of views, clones and copies.
  m.impl("diag_embed", at::native::diag_embed);
  m.impl("pixel_shuffle", pixel_shuffle);
  m.impl("pixel_unshuffle", pixel_unshuffle);
  m.impl("slice_scatter", at::native::slice_scatter);
  m.impl("select_scatter", at::native::select_scatter_symint);
  m.impl("diagonal_scatter", at::native::diagonal_scatter);
  m.impl("as_strided_scatter", at::native::as_strided_scatter_symint);
  m.impl("alias_copy", at::native::alias_copy);
  m.impl("as_strided_copy", at::native::as_strided_copy_symint);
  m.impl("detach_copy", at::native::detach_copy);
  m.impl("diagonal_copy", at::native::diagonal_copy);
  m.impl("expand_copy", at::native::expand_copy_symint);
  m.impl("narrow_copy", narrow_copy);
  m.impl("permute_copy", at::native::permute_copy);
  m.impl("select_copy.int", at::native::select_copy_symint);
  m.impl("slice_copy.Tensor", at::native::slice_copy_Tensor_symint);
  m.impl("split_copy.Tensor", at::native::split_copy_Tensor_symint);
  m.impl("split_with_sizes_copy", at::native::split_with_sizes_copy_symint);
  m.impl("squeeze_copy", at::native::squeeze_copy);
  m.impl("squeeze_copy.dim", at::native::squeeze_copy_dim);
  m.impl("squeeze_copy.dims", at::native::squeeze_copy_dims);
  m.impl("t_copy", at::native::t_copy);
  m.impl("transpose_copy.int", at::native::transpose_copy_int);
  m.impl("unbind_copy.int", at::native::unbind_copy_int);
  m.impl("unfold_copy", at::native::unfold_copy);
  m.impl("unsqueeze_copy", at::native::unsqueeze_copy);
  m.impl("view_as_complex_copy", at::native::view_as_complex_copy);
  m.impl("view_as_real_copy", at::native::view_as_real_copy);
  m.impl("view_copy", at::native::view_copy_symint);
  m.impl("view_copy.dtype", at::native::view_copy_dtype);
  m.impl("_reshape_alias_copy", at::native::_reshape_alias_copy_symint);
  m.impl("_neg_view_copy", at::native::_neg_view_copy);
  m.impl("_conj_copy", at::native::_conj_copy);
}

}  // namespace torch_xla::aten
