// Maximum and average pooling over fixed windows, and their gradients.

#include <ATen/native/Pool.h>
#include <ATen/ops/avg_pool2d_backward_meta.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool3d_backward_meta.h>
#include <ATen/ops/avg_pool3d_meta.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>

#include "aten/checks.h"
#include "aten/indices.h"
#include "aten/resample.h"
#include "aten/windows.h"

namespace torch_xla::aten {
namespace {

using at::IntArrayRef;
using at::Tensor;

// Entry i of a list that may give one number for all dimensions.
int64_t entry(IntArrayRef list, size_t i) { return list.size() == 1 ? list[0] : list[i]; }

// The window of every spatial dimension (the last ones), as attributes and back.
struct Pool {
  IntArrayRef kernel, stride, padding, dilation;

  int64_t stride_at(size_t i) const { return stride.empty() ? entry(kernel, i) : entry(stride, i); }
  Attributes attributes(size_t spatial) const {
    Attributes a;
    a.add(static_cast<int64_t>(spatial));
    for (size_t i = 0; i < spatial; ++i) {
      a.add(entry(kernel, i));
      a.add(stride_at(i));
      a.add(entry(padding, i));
      a.add(dilation.empty() ? 1 : entry(dilation, i));
    }
    return a;
  }
};

std::vector<WindowAxis> read_axes(ir::AttributeReader& a, std::span<const int64_t> outputs) {
  std::vector<WindowAxis> axes(static_cast<size_t>(a.integer()));
  auto dimension = static_cast<int64_t>(outputs.size() - axes.size());
  for (WindowAxis& axis : axes) {
    axis.dimension = dimension++;
    axis.kernel = a.integer();
    axis.stride = a.integer();
    axis.padding = a.integer();
    axis.dilation = a.integer();
    axis.outputs = outputs[static_cast<size_t>(axis.dimension)];
  }
  return axes;
}

XlaValue widened(Lowering& l, size_t i) {
  return l.operand(i, stablehlo::opmath_type(l.operand(i).element_type()));
}

// --- Maximum ---

const Op kMaxPool{"aten::max_pool", [](Lowering& l, const Node& n) -> Results {
                    ir::AttributeReader a = n.attributes();
                    const Maximum best =
                        window_maximum(l.builder(), l.operand(0), read_axes(a, n.output(0).dims));
                    return {best.value, l->convert(best.index, ElementType::kS64)};
                  }};

const Op kMaxPoolBackward{"aten::max_pool_backward", [](Lowering& l, const Node& n) -> Results {
                            const int64_t spatial = n.attributes().integer();
                            const XlaValue grad = add_at(l.builder(), widened(l, 0), l.operand(1),
                                                         Dims(n.output().dims), spatial);
                            return l->convert(grad, n.output().type);
                          }};

Values<2> max_pool(const Tensor& self, const Pool& pool, size_t spatial, ShapeRef output) {
  const std::array<ShapeRef, 2> shapes{output, ShapeRef{ElementType::kS64, output.dims}};
  Value x = value_of(self);
  const ir::NodePtr node = Node::take(kMaxPool, std::span(&x, 1), pool.attributes(spatial), shapes);
  return {Value(node, 0), Value(node, 1)};
}

void check_supported(const char* name, bool supported, const Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(supported, "\"", name, "\" not implemented for '", self.scalar_type(),
                              "'");
}

Values<2> max_pool2d(Infer<at::meta::structured_max_pool2d_with_indices, 2>& it, const Tensor& self,
                     IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                     IntArrayRef dilation, bool) {
  check_supported("max_pool2d", self.scalar_type() != at::kBool && !self.is_complex(), self);
  return max_pool(self, {kernel, stride, padding, dilation}, 2, it.output_shape(0));
}

Value max_pool2d_backward(Infer<at::meta::structured_max_pool2d_with_indices_backward, 1>& it,
                          const Tensor& grad, const Tensor& self, IntArrayRef, IntArrayRef,
                          IntArrayRef, IntArrayRef, bool, const Tensor& indices) {
  TORCH_CHECK(self.scalar_type() == grad.scalar_type(), "expected dtype ", self.scalar_type(),
              " for `gradOutput` but got dtype ", grad.scalar_type());
  return Node::make(kMaxPoolBackward, {value_of(grad), value_of(indices)},
                    Attributes::of(int64_t{2}), it.output_shape());
}

// Window arguments of a 3-d pool: checks of CPU's kernel.
void check_pool3d_lists(const char* name, const Pool& pool) {
  const auto one_or_three = [](IntArrayRef list) { return list.size() == 1 || list.size() == 3; };
  TORCH_CHECK(one_or_three(pool.kernel), name,
              ": kernel_size must either be a single int, or a tuple of three ints");
  TORCH_CHECK(pool.stride.empty() || one_or_three(pool.stride), name,
              ": stride must either be omitted, a single int, or a tuple of three ints");
  TORCH_CHECK(one_or_three(pool.padding), name,
              ": padding must either be a single int, or a tuple of three ints");
  TORCH_CHECK(one_or_three(pool.dilation), name,
              ": dilation must be either a single int, or a tuple of three ints");
}

std::vector<int64_t> max_pool3d_sizes(const Tensor& self, const Pool& pool, bool ceil_mode) {
  check_pool3d_lists("max_pool3d", pool);
  TORCH_CHECK(
      self.dim() == 4 || self.dim() == 5,
      "max_pool3d_with_indices(): Expected 4D or 5D tensor for input, but got: ", self.sizes());
  std::vector<int64_t> sizes = self.sizes().vec();
  std::array<int64_t, 3> kernel, stride, padding, dilation;
  for (size_t i = 0; i < 3; ++i) {
    kernel[i] = entry(pool.kernel, i);
    stride[i] = pool.stride_at(i);
    padding[i] = entry(pool.padding, i);
    dilation[i] = entry(pool.dilation, i);
    int64_t& size = sizes[sizes.size() - 3 + i];
    size = at::native::pooling_output_shape<int64_t>(size, kernel[i], padding[i], stride[i],
                                                     dilation[i], ceil_mode);
  }
  const int64_t* out = sizes.data() + sizes.size() - 3;
  const auto int_of = [](int64_t value) { return static_cast<int>(value); };
  at::native::pool3d_shape_check(self, self.size(-4), int_of(kernel[0]), int_of(kernel[1]),
                                 int_of(kernel[2]), int_of(stride[0]), int_of(stride[1]),
                                 int_of(stride[2]), int_of(padding[0]), int_of(padding[1]),
                                 int_of(padding[2]), int_of(dilation[0]), int_of(dilation[1]),
                                 int_of(dilation[2]), self.size(-3), self.size(-2), self.size(-1),
                                 out[0], out[1], out[2], "max_pool3d_with_indices()");
  return sizes;
}

// A result in the memory format of `like`.
Tensor in_format_of(const Tensor& like, Value value, at::ScalarType dtype) {
  const std::vector<int64_t> sizes(value.dims().begin(), value.dims().end());
  if (like.dim() == 5 && like.suggest_memory_format() == at::MemoryFormat::ChannelsLast3d) {
    return lazy::make_strided(std::move(value), c10::get_channels_last_strides_3d(sizes),
                              like.device());
  }
  if (like.dim() == 4 && like.suggest_memory_format() == at::MemoryFormat::ChannelsLast) {
    return lazy::make_strided(std::move(value), c10::get_channels_last_strides_2d(sizes),
                              like.device());
  }
  return lazy::make(std::move(value), dtype, like.device());
}

std::tuple<Tensor, Tensor> max_pool3d(const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                                      IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  const Pool pool{kernel, stride, padding, dilation};
  const std::vector<int64_t> sizes = max_pool3d_sizes(self, pool, ceil_mode);
  check_supported("max_pool3d", self.scalar_type() != at::kBool && !self.is_complex(), self);
  Values<2> result = max_pool(self, pool, 3, {element_type(self), sizes});
  // A 4-d input is one image: channels last says nothing about it.
  if (self.dim() == 4) {
    return {lazy::make(std::move(result[0]), self.scalar_type(), self.device()),
            lazy::make(std::move(result[1]), at::kLong, self.device())};
  }
  return {in_format_of(self, std::move(result[0]), self.scalar_type()),
          in_format_of(self, std::move(result[1]), at::kLong)};
}

Tensor max_pool3d_backward(const Tensor& grad, const Tensor& self, IntArrayRef kernel,
                           IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                           bool ceil_mode, const Tensor& indices) {
  const std::vector<int64_t> sizes =
      max_pool3d_sizes(self, {kernel, stride, padding, dilation}, ceil_mode);
  TORCH_CHECK(grad.sizes() == IntArrayRef(sizes) && indices.sizes() == grad.sizes(),
              "max_pool3d_with_indices_backward: expected grad_output and indices of size ",
              IntArrayRef(sizes), " but got ", grad.sizes(), " and ", indices.sizes());
  Value value =
      Node::make(kMaxPoolBackward, {value_of(grad), value_of(indices)}, Attributes::of(int64_t{3}),
                 ShapeRef{element_type(grad), span_of(self.sizes())});
  if (self.dim() == 4) return lazy::make(std::move(value), grad.scalar_type(), self.device());
  return in_format_of(self, std::move(value), grad.scalar_type());
}

// --- Average ---

struct Average {
  std::vector<WindowAxis> axes;
  bool count_include_pad;
  int64_t divisor;  // 0: the size of each window

  Average(const Node& node, std::span<const int64_t> outputs) {
    ir::AttributeReader a = node.attributes();
    axes = read_axes(a, outputs);
    count_include_pad = a.boolean();
    divisor = a.integer();
  }

  // x divided by how many elements its window counts; `inputs` are the pooled array's dims.
  XlaValue divide(Builder& b, const XlaValue& x, std::span<const int64_t> inputs) const {
    if (divisor != 0) return b.divide(x, b.full_like(x, divisor));
    XlaValue count;
    for (const WindowAxis& axis : axes) {
      const int64_t size = inputs[static_cast<size_t>(axis.dimension)];
      std::vector<double> counts;
      for (int64_t i = 0; i < axis.outputs; ++i) {
        int64_t start = i * axis.stride - axis.padding;
        int64_t end = std::min(start + axis.kernel, size + axis.padding);
        if (!count_include_pad) {
          start = std::max<int64_t>(start, 0);
          end = std::min(end, size);
        }
        counts.push_back(static_cast<double>(end - start));
      }
      const XlaValue factor = along(b, counts, axis.dimension, x.dims(), x.element_type());
      count = count ? b.multiply(count, factor) : factor;
    }
    return b.divide(x, count);
  }
};

const Op kAvgPool{"aten::avg_pool", [](Lowering& l, const Node& n) -> Results {
                    const Average average(n, n.output().dims);
                    const XlaValue x = widened(l, 0);
                    const XlaValue sum = window_sum(l.builder(), x, average.axes);
                    return l->convert(average.divide(l.builder(), sum, x.dims()), n.output().type);
                  }};

const Op kAvgPoolBackward{"aten::avg_pool_backward", [](Lowering& l, const Node& n) -> Results {
                            const XlaValue grad = widened(l, 0);
                            const Average average(n, grad.dims());
                            const Dims inputs(n.output().dims);
                            const XlaValue shares = average.divide(l.builder(), grad, inputs);
                            return l->convert(
                                window_sum_gradient(l.builder(), shares, average.axes, inputs),
                                n.output().type);
                          }};

Value average_node(const Op& op, const char* name, const Tensor& operand, const Pool& pool,
                   size_t spatial, bool count_include_pad, std::optional<int64_t> divisor,
                   ShapeRef output) {
  check_supported(name,
                  at::isFloatingType(operand.scalar_type()) || operand.scalar_type() == at::kLong,
                  operand);
  Attributes a = pool.attributes(spatial);
  a.add(count_include_pad);
  a.add(divisor.value_or(0));
  return Node::make(op, {value_of(operand)}, a, output);
}

template <class Meta, size_t kSpatial>
struct AvgPool {
  static Value forward(Infer<Meta, 1>& it, const Tensor& self, IntArrayRef kernel,
                       IntArrayRef stride, IntArrayRef padding, bool, bool count_include_pad,
                       std::optional<int64_t> divisor) {
    return average_node(kAvgPool, kSpatial == 2 ? "avg_pool2d" : "avg_pool3d_out_frame", self,
                        {kernel, stride, padding, {}}, kSpatial, count_include_pad, divisor,
                        it.output_shape());
  }
  static Value backward(Infer<Meta, 1>& it, const Tensor& grad, const Tensor&, IntArrayRef kernel,
                        IntArrayRef stride, IntArrayRef padding, bool, bool count_include_pad,
                        std::optional<int64_t> divisor) {
    return average_node(
        kAvgPoolBackward,
        kSpatial == 2 ? "avg_pool2d_backward_out_cpu" : "avg_pool3d_backward_out_frame", grad,
        {kernel, stride, padding, {}}, kSpatial, count_include_pad, divisor, it.output_shape());
  }
};

// --- Unpooling ---

// Each element goes to its index; the rest is zero. Of elements that meet, any may stay.
const Op kMaxUnpool{"aten::max_unpool", [](Lowering& l, const Node& n) -> Results {
                      Builder& b = l.builder();
                      const XlaValue x = l.operand(0);
                      return put_at(b, x, l.operand(1), Dims(n.output().dims),
                                    n.attributes().integer());
                    }};

Value unpool(const Tensor& self, const Tensor& indices, IntArrayRef output_size) {
  const size_t spatial = output_size.size();
  std::vector<int64_t> sizes = self.sizes().vec();
  std::copy(output_size.begin(), output_size.end(), sizes.end() - static_cast<long>(spatial));
  const int64_t places = c10::multiply_integers(output_size);
  const Value index = value_of(indices);
  const auto outside = known_outside(index, 0, places);
  TORCH_CHECK(!outside, "Found an invalid max index: ", *outside, " (output volumes are of size ",
              c10::Join("x", output_size), ")");
  return Node::make(
      kMaxUnpool,
      {value_of(self), checked_index(index, 0, places, kMaxUnpool.name, CheckError::kRuntime)},
      Attributes::of(spatial), ShapeRef{element_type(self), sizes});
}

void check_unpool(const Tensor& self, const Tensor& indices) {
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(self.sizes() == indices.sizes(),
              "Expected shape of indices to be same as that of the input tensor (", self.sizes(),
              ") but got indices tensor with shape: ", indices.sizes());
}

void check_not_empty(const char* name, const Tensor& self) {
  for (int64_t i = 1; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) > 0, name,
                ": Expected input to have non-zero size for non-batch dimensions, but got ",
                self.sizes(), " with dimension ", i, " being empty.");
  }
}

Tensor max_unpool2d(const Tensor& self, const Tensor& indices, IntArrayRef output_size) {
  TORCH_CHECK(output_size.size() == 2, "There should be exactly two elements (height, width) in ",
              "output_size, but got ", output_size.size(), " elements.");
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4,
              "Input to max_unpooling2d should be a 3d or 4d Tensor, but got a tensor with ",
              self.dim(), " dimensions.");
  check_unpool(self, indices);
  check_not_empty("max_unpool2d()", self);
  return in_format_of(self, unpool(self, indices, output_size), self.scalar_type());
}

Tensor max_unpool3d(const Tensor& self, const Tensor& indices, IntArrayRef output_size,
                    IntArrayRef stride, IntArrayRef padding) {
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5,
              "Input to max_unpooling3d should be a 4d or 5d Tensor, but got a tensor with ",
              self.dim(), " dimensions.");
  TORCH_CHECK(output_size.size() == 3, "There should be exactly three elements (depth, height, ",
              "width) in output_size, but got ", output_size.size(), " elements.");
  TORCH_CHECK(stride.size() == 3, "There should be exactly three elements (depth, height, width) ",
              "in stride, but got: ", stride.size(), " elements.");
  TORCH_CHECK(padding.size() == 3, "There should be exactly three elements (depth, height, width) ",
              "in padding, but got: ", padding.size(), " elements.");
  for (int64_t s : stride) {
    TORCH_CHECK(s > 0, "strides should be greater than zero, but got stride: ", stride);
  }
  check_unpool(self, indices);
  check_not_empty("max_unpool3d()", self);
  return lazy::make(unpool(self, indices, output_size), self.scalar_type(), self.device());
}

}  // namespace

XLA_KERNELS(m) {
  using namespace at::meta;
  structured<structured_max_pool2d_with_indices, &max_pool2d, 2>(
      m, {"max_pool2d_with_indices", nullptr, "max_pool2d_with_indices.out"});
  structured<structured_max_pool2d_with_indices_backward, &max_pool2d_backward>(
      m,
      {"max_pool2d_with_indices_backward", nullptr, "max_pool2d_with_indices_backward.grad_input"});
  m.impl("max_pool3d_with_indices", max_pool3d);
  m.impl("max_pool3d_with_indices_backward", max_pool3d_backward);
  structured<structured_avg_pool2d, &AvgPool<structured_avg_pool2d, 2>::forward>(
      m, {"avg_pool2d", nullptr, "avg_pool2d.out"});
  structured<structured_avg_pool2d_backward, &AvgPool<structured_avg_pool2d_backward, 2>::backward>(
      m, {"avg_pool2d_backward", nullptr, "avg_pool2d_backward.grad_input"});
  structured<structured_avg_pool3d, &AvgPool<structured_avg_pool3d, 3>::forward>(
      m, {"avg_pool3d", nullptr, "avg_pool3d.out"});
  structured<structured_avg_pool3d_backward, &AvgPool<structured_avg_pool3d_backward, 3>::backward>(
      m, {"avg_pool3d_backward", nullptr, "avg_pool3d_backward.grad_input"});
  m.impl("max_unpool2d", max_unpool2d);
  m.impl("max_unpool3d", max_unpool3d);
}

}  // namespace torch_xla::aten
