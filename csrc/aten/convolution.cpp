// Convolutions of one to three spatial dimensions, transposed ones, and their gradients.

#include <ATen/ops/convolution_native.h>

#include <algorithm>
#include <limits>
#include <string>

#include "aten/cpu_kernels.h"
#include "aten/depthwise.h"
#include "aten/host_call.h"
#include "aten/product.h"
#include "ir/sharding.h"
#include "sharding/dialect.h"

namespace torch_xla::aten {
namespace {

using at::IntArrayRef;
using at::Tensor;
using c10::MemoryFormat;

// --- The three contractions -------------------------------------------------------------------
//
// With x [batch, C, ...], w [O, C / groups, kernel] and y [batch, O, ...], a convolution is
//   y[o, i] = sum over c, k of w[o, c, k] x[c, stride i + dilation k - padding].
// Each of the three arrays is a convolution of the other two; transposed convolutions and gradients
// are all of these.

using Geometry = ConvolutionGeometry;

Geometry geometry_of(const Node& node) {
  ir::AttributeReader a = node.attributes();
  Geometry g;
  g.transposed = a.boolean();
  g.stride = Dims(a.list());
  g.padding = Dims(a.list());
  g.dilation = Dims(a.list());
  g.groups = a.integer();
  return g;
}

int64_t spatial_rank(const XlaValue& x) { return x.rank() - 2; }

XlaValue convolve(Lowering& l, const XlaValue& a, const XlaValue& b,
                  const stablehlo::ConvolutionDimensions& dimensions,
                  stablehlo::ConvolutionOptions options) {
  options.precision = precision(l);
  options.preferred_type = stablehlo::opmath_type(a.element_type());
  return l->convolution(a, b, dimensions, options);
}

// y of these dims from x and w.
XlaValue correlate(Lowering& l, const XlaValue& x, const XlaValue& w, const Geometry& g,
                   const Dims& y) {
  if (is_depthwise(x.dim(1), w.dims(), g)) return depthwise_correlate(l.builder(), x, w, g, y);
  stablehlo::ConvolutionOptions options;
  options.strides = g.stride;
  options.rhs_dilation = g.dilation;
  options.padding_low = g.padding;
  options.feature_group_count = g.groups;
  for (int64_t i = 0; i < spatial_rank(x); ++i) {
    const int64_t reach = (y[i + 2] - 1) * g.stride[i] + g.dilation[i] * (w.dim(i + 2) - 1) + 1;
    options.padding_high.push_back(reach - x.dim(i + 2) - g.padding[i]);
  }
  return convolve(l, x, w, stablehlo::default_convolution_dimensions(spatial_rank(x)), options);
}

// w [O, C / groups, kernel] as [C, O / groups, kernel].
XlaValue swap_features(Builder& b, const XlaValue& w, int64_t groups) {
  Dims order = stablehlo::iota_dims(static_cast<size_t>(w.rank()));
  if (groups == 1) {
    std::swap(order[0], order[1]);
    return b.transpose(w, order);
  }
  Dims split = w.dims();
  split[0] /= groups;
  split.insert(0, groups);
  order.push_back(w.rank());
  std::swap(order[1], order[2]);
  Dims merged = w.dims();
  merged[0] = groups * w.dim(1);
  merged[1] = w.dim(0) / groups;
  return b.reshape(b.transpose(b.reshape(w, split), order), merged);
}

// x of these dims from y and w: y is spread by the stride and met by the reversed kernel.
XlaValue spread(Lowering& l, const XlaValue& y, const XlaValue& w, const Geometry& g,
                const Dims& x) {
  if (is_depthwise(y.dim(1), w.dims(), g)) return depthwise_spread(l.builder(), y, w, g, x);
  stablehlo::ConvolutionOptions options;
  options.lhs_dilation = g.stride;
  options.rhs_dilation = g.dilation;
  options.feature_group_count = g.groups;
  Dims reversed;
  for (int64_t i = 0; i < spatial_rank(y); ++i) {
    const int64_t kernel = g.dilation[i] * (w.dim(i + 2) - 1);
    const int64_t spread_size = (y.dim(i + 2) - 1) * g.stride[i] + 1;
    options.padding_low.push_back(kernel - g.padding[i]);
    options.padding_high.push_back(x[i + 2] - spread_size + g.padding[i]);
    if (w.dim(i + 2) > 1) reversed.push_back(i + 2);
  }
  XlaValue kernel = swap_features(l.builder(), w, g.groups);
  if (!reversed.empty()) kernel = l->reverse(kernel, reversed);
  return convolve(l, y, kernel, stablehlo::default_convolution_dimensions(spatial_rank(y)),
                  options);
}

// What a gradient of weights is made of, whole on each device along its spatial dimensions, and
// with groups along the batch too. Where these are cut by some axes of the mesh only, XLA's
// partitioner adds up partial sums over all devices, those with the same parts too (openxla/xla,
// spmd/convolution_handler.cc: one all-reduce without groups).
XlaValue without_copied_sums(Lowering& l, const XlaValue& x, const Geometry& g) {
  const sharding::Mesh* mesh = l.meshes().main();
  if (!mesh || l.is_in_part() || sharding::dialect() == sharding::Dialect::kGspmd) return x;
  const auto cuts = [](int64_t size) { return size > 1; };
  const bool has_one_axis = std::ranges::count_if(mesh->sizes(), cuts) <= 1;
  std::string text =
      l.meshes().text(sharding::Sharding::replicated(mesh, static_cast<size_t>(x.rank())));
  const size_t batch = text.find("{}");
  text.replace(text.find("{}", batch + 1), 2, "{?}");  // features: as XLA sees fit
  if (g.groups == 1 || has_one_axis) text.replace(batch, 2, "{?}");
  return l->sharding_constraint(x, text);
}

// w of these dims from x and y: batch and features change places.
XlaValue match(Lowering& l, const XlaValue& x, const XlaValue& y, const Geometry& g,
               const Dims& w) {
  if (is_depthwise(x.dim(1), w, g)) return depthwise_match(l.builder(), x, y, g, w);
  stablehlo::ConvolutionOptions options;
  options.strides = g.dilation;
  options.rhs_dilation = g.stride;
  options.padding_low = g.padding;
  options.batch_group_count = g.groups;
  for (int64_t i = 0; i < spatial_rank(x); ++i) {
    const int64_t reach = g.dilation[i] * (w[i + 2] - 1) + (y.dim(i + 2) - 1) * g.stride[i] + 1;
    options.padding_high.push_back(reach - x.dim(i + 2) - g.padding[i]);
  }
  stablehlo::ConvolutionDimensions d = stablehlo::default_convolution_dimensions(spatial_rank(x));
  std::swap(d.input_batch, d.input_feature);
  std::swap(d.kernel_output_feature, d.kernel_input_feature);
  std::swap(d.output_batch, d.output_feature);
  return convolve(l, without_copied_sums(l, x, g), without_copied_sums(l, y, g), d, options);
}

bool is_empty(const XlaValue& a, const XlaValue& b) {
  return a.num_elements() == 0 || b.num_elements() == 0;
}
XlaValue zeros(Lowering& l, const XlaValue& like, const Dims& dims) {
  return l->constant(stablehlo::opmath_type(like.element_type()), dims, 0);
}

// --- Ops ---

const Op kConvolution{"aten::convolution", [](Lowering& l, const Node& n) -> Results {
                        const Geometry g = geometry_of(n);
                        const XlaValue x = l.operand(0), w = l.operand(1);
                        const Dims out(n.output().dims);
                        XlaValue y = is_empty(x, w) ? zeros(l, x, out)
                                     : g.transposed ? spread(l, x, w, g, out)
                                                    : correlate(l, x, w, g, out);
                        if (l.num_operands() == 3) {
                          y = l->add(y,
                                     l->broadcast_in_dim(l.operand(2, y.element_type()), out, {1}));
                        }
                        return l->convert(y, n.output().type);
                      }};

const Op kGradInput{"aten::convolution_backward", [](Lowering& l, const Node& n) -> Results {
                      const Geometry g = geometry_of(n);
                      const XlaValue dy = l.operand(0), w = l.operand(1);
                      const Dims out(n.output().dims);
                      const XlaValue dx = is_empty(dy, w) ? zeros(l, dy, out)
                                          : g.transposed  ? correlate(l, dy, w, g, out)
                                                          : spread(l, dy, w, g, out);
                      return l->convert(dx, n.output().type);
                    }};

const Op kGradWeight{"aten::convolution_backward", [](Lowering& l, const Node& n) -> Results {
                       const Geometry g = geometry_of(n);
                       const XlaValue dy = l.operand(0), x = l.operand(1);
                       const Dims out(n.output().dims);
                       const XlaValue dw = is_empty(dy, x) ? zeros(l, dy, out)
                                           : g.transposed  ? match(l, dy, x, g, out)
                                                           : match(l, x, dy, g, out);
                       return l->convert(dw, n.output().type);
                     }};

const Op kGradBias{"aten::convolution_backward", [](Lowering& l, const Node& n) -> Results {
                     XlaValue dy = l.operand(0);
                     dy = l->convert(dy, stablehlo::opmath_type(dy.element_type()));
                     Dims dims = stablehlo::iota_dims(static_cast<size_t>(dy.rank()));
                     dims.erase(1);
                     return l->convert(l->reduce_sum(dy, dims), n.output().type);
                   }};

// --- Kernels ---

// Entry i of a list that may give one number for all dimensions.
int64_t entry(IntArrayRef list, size_t i) { return list.size() == 1 ? list[0] : list[i]; }

struct Call {
  IntArrayRef stride, padding, dilation;
  bool transposed;
  IntArrayRef output_padding;
  int64_t groups;

  // Whether these arguments need no further looking at; what does not goes through torch's own
  // checks.
  bool is_plain(const Tensor& input, const Tensor& weight, const Tensor& bias) const;
  std::vector<int64_t> output_sizes(const Tensor& input, const Tensor& weight) const;
  Attributes attributes(size_t spatial) const;
};

bool Call::is_plain(const Tensor& input, const Tensor& weight, const Tensor& bias) const {
  const auto rank = static_cast<size_t>(input.dim());
  if (rank < 3 || rank > 5 || weight.dim() != input.dim() || groups < 1) return false;
  if (input.dtype() != weight.dtype() || input.scalar_type() == at::kBool) return false;
  if (!lazy::is_xla(input) || !lazy::is_xla(weight)) return false;
  const size_t spatial = rank - 2;
  for (IntArrayRef list : {stride, padding, dilation, output_padding}) {
    if (list.size() != spatial && list.size() != 1) return false;
  }
  if (weight.size(0) < groups || weight.size(0) % groups != 0) return false;
  if (input.size(1) != (transposed ? weight.size(0) : weight.size(1) * groups)) return false;
  if (bias.defined()) {
    const int64_t features = transposed ? weight.size(1) * groups : weight.size(0);
    if (!lazy::is_xla(bias) || bias.dim() != 1 || bias.size(0) != features ||
        bias.dtype() != input.dtype()) {
      return false;
    }
  }
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t in = input.size(static_cast<int64_t>(i) + 2);
    const int64_t kernel = weight.size(static_cast<int64_t>(i) + 2);
    const int64_t s = entry(stride, i), p = entry(padding, i), d = entry(dilation, i);
    if (s <= 0 || p < 0 || d <= 0 || in <= 0 || kernel <= 0) return false;
    const int64_t o = entry(output_padding, i);
    if (transposed ? o < 0 || (o >= s && o >= d) : d * (kernel - 1) + 1 > in + 2 * p) return false;
  }
  for (int64_t size : output_sizes(input, weight)) {
    if (size <= 0) return false;
  }
  return input.numel() > 0;
}

std::vector<int64_t> Call::output_sizes(const Tensor& input, const Tensor& weight) const {
  std::vector<int64_t> sizes{input.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (int64_t i = 2; i < input.dim(); ++i) {
    const auto k = static_cast<size_t>(i - 2);
    const int64_t s = entry(stride, k), p = entry(padding, k);
    const int64_t kernel = entry(dilation, k) * (weight.size(i) - 1);
    sizes.push_back(transposed
                        ? (input.size(i) - 1) * s - 2 * p + kernel + 1 + entry(output_padding, k)
                        : (input.size(i) + 2 * p - kernel - 1) / s + 1);
  }
  return sizes;
}

Attributes Call::attributes(size_t spatial) const {
  Attributes a = Attributes::of(transposed);
  for (IntArrayRef list : {stride, padding, dilation}) {
    a.add(static_cast<int64_t>(spatial));
    for (size_t i = 0; i < spatial; ++i) a.add(entry(list, i));
  }
  a.add(groups);
  return a;
}

// The memory format of results, as on CPU: channels last when either operand is.
MemoryFormat result_format(const Tensor& a, const Tensor& b) {
  const MemoryFormat format = a.dim() == 4   ? MemoryFormat::ChannelsLast
                              : a.dim() == 5 ? MemoryFormat::ChannelsLast3d
                                             : MemoryFormat::Contiguous;
  if (format == MemoryFormat::Contiguous ||
      (format == MemoryFormat::ChannelsLast3d && a.scalar_type() != at::kFloat)) {
    return MemoryFormat::Contiguous;
  }
  return a.suggest_memory_format() == format || b.suggest_memory_format() == format
             ? format
             : MemoryFormat::Contiguous;
}

ShapeRef shape_of(IntArrayRef sizes, const Tensor& like) {
  return {element_type(like), span_of(sizes)};
}

Tensor wrap(Value value, const Tensor& like, MemoryFormat format) {
  if (!value) return {};
  const IntArrayRef sizes(value.dims().data(), value.dims().size());
  if (format == MemoryFormat::Contiguous) {
    return lazy::make(std::move(value), like.scalar_type(), like.device());
  }
  return lazy::make_strided(std::move(value),
                            format == MemoryFormat::ChannelsLast
                                ? c10::get_channels_last_strides_2d(sizes)
                                : c10::get_channels_last_strides_3d(sizes),
                            like.device());
}

// Whether torch's own CPU kernel is the faster one, by the multiply-adds of the convolution. What
// XLA does badly, and where, is in docs/performance.md.
bool prefers_host(const Tensor& input, const Tensor& weight, IntArrayRef output, const Call& call,
                  bool backward) {
  if (input.scalar_type() != at::kFloat || weight.numel() == 0) return false;
  const bool depthwise = call.groups > 1 && call.groups == input.size(1);
  int64_t least = backward ? 4'000'000 : 32'000'000;
  if (depthwise) {
    least = backward ? 1'500'000 : std::numeric_limits<int64_t>::max();
  } else if (call.groups > 1 || input.dim() == 5) {
    least = 250'000;
  }
  const int64_t positions = call.transposed ? input.numel() : c10::multiply_integers(output);
  return prefers_cpu_kernel(positions * (weight.numel() / weight.size(0)), least);
}

Tensor run(const Tensor& input, const Tensor& weight, const Tensor& bias, const Call& call) {
  const std::vector<int64_t> sizes = call.output_sizes(input, weight);
  const ShapeRef shape = shape_of(sizes, input);
  ir::NodePtr node;
  if (prefers_host(input, weight, sizes, call, /*backward=*/false)) {
    node =
        host_node("aten::convolution",
                  {input, weight, bias.defined() ? c10::IValue(bias) : c10::IValue(), call.stride,
                   call.padding, call.dilation, call.transposed, call.output_padding, call.groups},
                  std::span(&shape, 1));
  }
  if (!node) {
    const Attributes attributes = call.attributes(sizes.size() - 2);
    const Value x = value_of(input), w = value_of(weight);
    node = bias.defined() ? Node::make(kConvolution, {x, w, value_of(bias)}, attributes, shape)
                          : Node::make(kConvolution, {x, w}, attributes, shape);
  }
  return wrap(std::move(node), input, result_format(input, weight));
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                   IntArrayRef output_padding, int64_t groups) {
  const Call call{stride, padding, dilation, transposed, output_padding, groups};
  const Tensor b = bias.value_or(Tensor());
  if (call.is_plain(input, weight, b)) return run(input, weight, b, call);
  // Checks, messages and the odd forms are torch's; what is left comes to the kernel below.
  return at::native::convolution(input, weight, bias, stride, padding, dilation, transposed,
                                 output_padding, groups);
}

// What torch's convolution comes to on a back end of its own.
Tensor convolution_overrideable(const Tensor& input, const Tensor& weight,
                                const std::optional<Tensor>& bias, IntArrayRef stride,
                                IntArrayRef padding, IntArrayRef dilation, bool transposed,
                                IntArrayRef output_padding, int64_t groups) {
  const Tensor b = bias.value_or(Tensor());
  TORCH_CHECK_NOT_IMPLEMENTED(input.scalar_type() != at::kBool,
                              "convolution is not implemented for 'Bool'");
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "Input type (", input.dtype(),
              ") and weight type (", weight.dtype(), ") should be the same");
  TORCH_CHECK(!b.defined() || input.scalar_type() == b.scalar_type(), "Input type (", input.dtype(),
              ") and bias type (", b.dtype(), ") should be the same");
  const Call call{stride, padding, dilation, transposed, output_padding, groups};
  TORCH_CHECK(input.numel() == 0 || call.is_plain(input, weight, b), "convolution: input of size ",
              input.sizes(), ", weight of size ", weight.sizes(), ", stride ", stride, ", padding ",
              padding, ", dilation ", dilation, ", groups ", groups,
              " do not fit together or are on different devices");
  return run(input, weight, b, call);
}

using Gradients = std::tuple<Tensor, Tensor, Tensor>;

// The gradients that `mask` asks for as outputs of one host node; none where there is no such node.
std::array<Value, 3> host_gradients(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                    const Call& call, const std::array<ShapeRef, 3>& shapes,
                                    std::array<bool, 3> mask) {
  std::vector<ShapeRef> wanted;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i]) wanted.push_back(shapes[i]);
  }
  if (wanted.empty()) return {};
  const ir::NodePtr node =
      host_node("aten::convolution_backward",
                {grad, input, weight, grad.sizes().slice(1, 1), call.stride, call.padding,
                 call.dilation, call.transposed, call.output_padding, call.groups,
                 c10::List<bool>({mask[0], mask[1], mask[2]})},
                wanted);
  std::array<Value, 3> values;
  uint32_t next = 0;
  for (size_t i = 0; node && i < mask.size(); ++i) {
    if (mask[i]) values[i] = Value(node, next++);
  }
  return values;
}

Gradients convolution_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                               at::OptionalIntArrayRef, IntArrayRef stride, IntArrayRef padding,
                               IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                               int64_t groups, std::array<bool, 3> mask) {
  const int64_t rank = input.dim();
  TORCH_CHECK(rank >= 3 && rank <= 5 && weight.dim() == rank,
              "convolution_backward: expected input and weight of 3 to 5 dimensions, got ",
              input.sizes(), " and ", weight.sizes());
  const Call call{stride, padding, dilation, transposed, output_padding, groups};
  const std::vector<int64_t> sizes = call.output_sizes(input, weight);
  TORCH_CHECK(grad.sizes() == IntArrayRef(sizes), "convolution_backward: expected grad_output of ",
              "size ", IntArrayRef(sizes), " but got ", grad.sizes());
  TORCH_CHECK(
      grad.scalar_type() == input.scalar_type() && input.scalar_type() == weight.scalar_type(),
      "expected scalar type ", input.scalar_type(), " but found ",
      grad.scalar_type() == input.scalar_type() ? weight.scalar_type() : grad.scalar_type());
  const std::array<int64_t, 1> features{grad.size(1)};
  const std::array<ShapeRef, 3> shapes{shape_of(input.sizes(), input),
                                       shape_of(weight.sizes(), input), shape_of(features, input)};
  std::array<Value, 3> values;
  if (prefers_host(input, weight, sizes, call, /*backward=*/true)) {
    values = host_gradients(grad, input, weight, call, shapes, mask);
  }
  if (!(values[0] || values[1] || values[2])) {
    const Attributes attributes = call.attributes(static_cast<size_t>(rank) - 2);
    const Value dy = value_of(grad);
    if (mask[0]) values[0] = Node::make(kGradInput, {dy, value_of(weight)}, attributes, shapes[0]);
    if (mask[1]) values[1] = Node::make(kGradWeight, {dy, value_of(input)}, attributes, shapes[1]);
    if (mask[2]) values[2] = Node::make(kGradBias, {dy}, {}, shapes[2]);
  }
  const MemoryFormat format = result_format(input, weight);
  return {wrap(values[0], input, format), wrap(values[1], input, format),
          wrap(values[2], input, MemoryFormat::Contiguous)};
}

Gradients convolution_backward_overrideable(const Tensor& grad, const Tensor& input,
                                            const Tensor& weight, IntArrayRef stride,
                                            IntArrayRef padding, IntArrayRef dilation,
                                            bool transposed, IntArrayRef output_padding,
                                            int64_t groups, std::array<bool, 3> mask) {
  return convolution_backward(grad, input, weight, {}, stride, padding, dilation, transposed,
                              output_padding, groups, mask);
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("convolution", convolution);
  m.impl("convolution_backward", convolution_backward);
  m.impl("convolution_overrideable", convolution_overrideable);
  m.impl("convolution_backward_overrideable", convolution_backward_overrideable);
}

}  // namespace torch_xla::aten
