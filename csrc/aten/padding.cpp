// Padding with a constant, by reflection and by repeating the edge, and the gradients.

#include <ATen/ExpandUtils.h>
#include <ATen/native/Padding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad3d_backward_meta.h>
#include <ATen/ops/reflection_pad3d_meta.h>
#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad2d_meta.h>
#include <ATen/ops/replication_pad3d_meta.h>

#include "aten/masked.h"
#include "aten/resample.h"

namespace torch_xla::aten {
namespace {

using at::IntArrayRef;
using at::Tensor;
using c10::MemoryFormat;

// --- Constant ---

const Op kConstantPad{"aten::constant_pad_nd", [](Lowering& l, const Node& n) -> Results {
                        ir::AttributeReader a = n.attributes();
                        const Dims low(a.list()), high(a.list());
                        const ElementType type = n.output().type;
                        return l->pad(l.operand(0), l.operand(1, type), low, high);
                      }};

Tensor wrap(Value value, at::ScalarType dtype, const Tensor& like, MemoryFormat format) {
  const std::vector<int64_t> sizes(value.dims().begin(), value.dims().end());
  if (format == MemoryFormat::ChannelsLast && sizes.size() == 4) {
    return lazy::make_strided(std::move(value), c10::get_channels_last_strides_2d(sizes),
                              like.device());
  }
  if (format == MemoryFormat::ChannelsLast3d && sizes.size() == 5) {
    return lazy::make_strided(std::move(value), c10::get_channels_last_strides_3d(sizes),
                              like.device());
  }
  return lazy::make(std::move(value), dtype, like.device());
}

Tensor constant_pad_nd(const Tensor& self, IntArrayRef pad, const at::Scalar& value) {
  TORCH_CHECK(pad.size() % 2 == 0, "Length of pad must be even but instead it equals ", pad.size());
  const size_t rank = self.sizes().size(), padded = pad.size() / 2;
  TORCH_CHECK(rank >= padded, "Length of pad should be no more than twice the number of ",
              "dimensions of the input. Pad length is ", pad.size(), " while the input has ", rank,
              " dimensions.");
  std::vector<int64_t> low(rank, 0), high(rank, 0), sizes = self.sizes().vec();
  for (size_t i = 0; i < padded; ++i) {
    const size_t d = rank - 1 - i;
    low[d] = pad[2 * i];
    high[d] = pad[2 * i + 1];
    sizes[d] += low[d] + high[d];
    TORCH_CHECK(sizes[d] >= 0, "The input size ", self.size(static_cast<int64_t>(d)),
                ", plus negative padding ", low[d], " and ", high[d],
                ", resulted in a negative output size, which is invalid. Check dimension ", d,
                " of your input.");
  }
  const bool grows = std::any_of(pad.begin(), pad.end(), [](int64_t width) { return width > 0; });
  if (grows) check_filling(value, self.scalar_type(), c10::multiply_integers(sizes));
  const ElementType type = element_type(self);
  const Value padded_value = Node::make(kConstantPad, {value_of(self), lazy::scalar(value, type)},
                                        Attributes::of(low, high), ShapeRef{type, sizes});
  // What only becomes smaller keeps the order of its strides, as the copy of a slice does.
  if (!grows) {
    const std::vector<int64_t> strides = lazy::is_dense(sizes, self.strides())
                                             ? self.strides().vec()
                                             : at::infer_dense_strides(sizes, self.strides());
    return lazy::make_strided(padded_value, strides, self.device());
  }
  return wrap(padded_value, self.scalar_type(), self, self.suggest_memory_format());
}

// --- Reflection and replication ---

// Where position i of a padded dimension comes from: at `reflect` the edge element is the mirror
// and not repeated.
int64_t source(int64_t i, int64_t size, bool reflect) {
  if (!reflect) return std::clamp<int64_t>(i, 0, size - 1);
  if (i < 0) i = -i;
  return i < size ? i : 2 * (size - 1) - i;
}

// The padding of one dimension of `size` elements as a linear map; negative padding crops.
Taps padding_taps(int64_t size, int64_t low, int64_t high, bool reflect) {
  Taps taps(size + low + high);
  for (int64_t i = 0; i < size + low + high; ++i) {
    taps.add(i, source(i - low, size, reflect));
  }
  return taps;
}

// Attributes: reflect, then the padding as torch gives it, last dimension first.
Results lower_edge_pad(Lowering& l, const Node& n) {
  ir::AttributeReader a = n.attributes();
  const bool reflect = a.boolean();
  const Dims pad(a.list());
  XlaValue x = l.operand(0);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const int64_t d = x.rank() - 1 - static_cast<int64_t>(i);
    const Taps taps = padding_taps(x.dim(d), pad[2 * i], pad[2 * i + 1], reflect);
    std::vector<int64_t> indices;
    for (const auto& row : taps.rows) indices.push_back(row[0].input);
    x = take(l.builder(), x, d, indices);
  }
  return x;
}

Results lower_edge_pad_backward(Lowering& l, const Node& n) {
  ir::AttributeReader a = n.attributes();
  const bool reflect = a.boolean();
  const Dims pad(a.list());
  XlaValue grad = l.operand(0);
  grad = l->convert(grad, stablehlo::opmath_type(grad.element_type()));
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const int64_t d = grad.rank() - 1 - static_cast<int64_t>(i);
    const int64_t size = n.output().dims[static_cast<size_t>(d)];
    grad = resample(l.builder(), grad, d,
                    padding_taps(size, pad[2 * i], pad[2 * i + 1], reflect).transposed(size));
  }
  return l->convert(grad, n.output().type);
}

const Op kReflect{"aten::reflection_pad", lower_edge_pad};
const Op kReplicate{"aten::replication_pad", lower_edge_pad};
const Op kReflectBackward{"aten::reflection_pad_backward", lower_edge_pad_backward};
const Op kReplicateBackward{"aten::replication_pad_backward", lower_edge_pad_backward};

Value edge_pad(const Op& op, const Tensor& self, IntArrayRef padding, ShapeRef output) {
  const bool reflect = &op == &kReflect || &op == &kReflectBackward;
  return Node::make(op, {value_of(self)}, Attributes::of(reflect, span_of(padding)), output);
}

template <class Meta, const Op& op>
Value pad_compute(Infer<Meta, 1>& it, const Tensor& self, IntArrayRef padding) {
  return edge_pad(op, self, padding, it.output_shape());
}
template <class Meta, const Op& op>
Value pad_backward_compute(Infer<Meta, 1>& it, const Tensor& grad, const Tensor&,
                           IntArrayRef padding) {
  return edge_pad(op, grad, padding, it.output_shape());
}

// CPU's kernels, not the meta functions, decide to keep channels last.
template <class Meta, const Op& op>
Tensor pad_in_format(const Tensor& self, IntArrayRef padding) {
  Tensor result = structured_functional<Meta, &pad_compute<Meta, op>>(self, padding);
  const MemoryFormat format = self.suggest_memory_format();
  if (format == MemoryFormat::Contiguous) return result;
  return wrap(lazy::read(result), self.scalar_type(), self, format);
}

// The kernels that torch has no meta function for.

Tensor reflection_pad2d(const Tensor& self, IntArrayRef padding) {
  at::native::padding::check_valid_input<2>(self, padding);
  const int64_t height = self.size(-2), width = self.size(-1);
  TORCH_CHECK(padding[0] < width && padding[1] < width,
              "Argument #4: Padding size should be less than the corresponding input dimension, ",
              "but got: padding (", padding[0], ", ", padding[1], ") at dimension ", self.dim() - 1,
              " of input ", self.sizes());
  TORCH_CHECK(padding[2] < height && padding[3] < height,
              "Argument #6: Padding size should be less than the corresponding input dimension, ",
              "but got: padding (", padding[2], ", ", padding[3], ") at dimension ", self.dim() - 2,
              " of input ", self.sizes());
  std::vector<int64_t> sizes = self.sizes().vec();
  int64_t& out_width = sizes[sizes.size() - 1];
  int64_t& out_height = sizes[sizes.size() - 2];
  out_width += padding[0] + padding[1];
  out_height += padding[2] + padding[3];
  TORCH_CHECK(out_width >= 1 || out_height >= 1, "input (H: ", height, ", W: ", width,
              ") is too small. Calculated output H: ", out_height, " W: ", out_width);
  return wrap(edge_pad(kReflect, self, padding, {element_type(self), sizes}), self.scalar_type(),
              self, self.suggest_memory_format());
}

// Gradients of 2-d and 3-d padding, which differ only in where they come from.
template <const Op& op>
Tensor pad_backward(const Tensor& grad, const Tensor& self, IntArrayRef padding) {
  std::vector<int64_t> sizes = self.sizes().vec();
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    sizes[sizes.size() - 1 - i] += padding[2 * i] + padding[2 * i + 1];
  }
  TORCH_CHECK(grad.sizes() == IntArrayRef(sizes), "grad_output of size ", IntArrayRef(sizes),
              " expected, got: ", grad.sizes());
  return wrap(edge_pad(op, grad, padding, {element_type(grad), span_of(self.sizes())}),
              grad.scalar_type(), self, self.suggest_memory_format());
}

}  // namespace

XLA_KERNELS(m) {
  using namespace at::meta;
  m.impl("constant_pad_nd", constant_pad_nd);
  structured<structured_reflection_pad1d, &pad_compute<structured_reflection_pad1d, kReflect>>(
      m, {"reflection_pad1d", nullptr, "reflection_pad1d.out"});
  structured<structured_reflection_pad1d_backward,
             &pad_backward_compute<structured_reflection_pad1d_backward, kReflectBackward>>(
      m, {"reflection_pad1d_backward", nullptr, "reflection_pad1d_backward.grad_input"});
  m.impl("reflection_pad2d", reflection_pad2d);
  m.impl("reflection_pad2d_backward", pad_backward<kReflectBackward>);
  structured<structured_reflection_pad3d, &pad_compute<structured_reflection_pad3d, kReflect>>(
      m, {nullptr, nullptr, "reflection_pad3d.out"});
  m.impl("reflection_pad3d", pad_in_format<structured_reflection_pad3d, kReflect>);
  m.impl("reflection_pad3d_backward", pad_backward<kReflectBackward>);
  structured<structured_replication_pad1d, &pad_compute<structured_replication_pad1d, kReplicate>>(
      m, {"replication_pad1d", nullptr, "replication_pad1d.out"});
  structured<structured_replication_pad1d_backward,
             &pad_backward_compute<structured_replication_pad1d_backward, kReplicateBackward>>(
      m, {"replication_pad1d_backward", nullptr, "replication_pad1d_backward.grad_input"});
  structured<structured_replication_pad2d, &pad_compute<structured_replication_pad2d, kReplicate>>(
      m, {nullptr, nullptr, "replication_pad2d.out"});
  m.impl("replication_pad2d", pad_in_format<structured_replication_pad2d, kReplicate>);
  m.impl("replication_pad2d_backward", pad_backward<kReplicateBackward>);
  structured<structured_replication_pad3d, &pad_compute<structured_replication_pad3d, kReplicate>>(
      m, {nullptr, nullptr, "replication_pad3d.out"});
  m.impl("replication_pad3d", pad_in_format<structured_replication_pad3d, kReplicate>);
  m.impl("replication_pad3d_backward", pad_backward<kReplicateBackward>);
}

}  // namespace torch_xla::aten
