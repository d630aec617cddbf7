// Normalizations over what one sample holds: layer_norm and group_norm, forward and backward.
// batch_norm.cpp has those over the batch.

#include "aten/normalization.h"

#include <ATen/native/layer_norm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/group_norm_native.h>
#include <ATen/ops/native_group_norm.h>

#include "aten/pointwise.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {

at::ScalarType statistics_type(
    const char* name, const at::Tensor& input,
    std::initializer_list<std::reference_wrapper<const at::Tensor>> parameters) {
  const at::ScalarType type = input.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(type), "\"", name, "\" not implemented for '",
                              c10::toString(type), "'");
  bool mixed = false;
  for (const at::Tensor& parameter : parameters) {
    mixed |= parameter.defined() && parameter.scalar_type() != type;
  }
  if (!mixed) return type;
  for (const at::Tensor& parameter : parameters) {
    TORCH_CHECK(!parameter.defined() || parameter.scalar_type() == at::kFloat,
                "mixed dtype (CPU): expect parameter to have scalar type of Float");
  }
  TORCH_CHECK(at::isReducedFloatingType(type),
              "mixed dtype (CPU): all inputs must share same datatype.");
  return at::kFloat;
}

at::Tensor make_like(const at::Tensor& input, Value value) {
  if (input.is_contiguous()) {
    return lazy::make(std::move(value), input.scalar_type(), input.device());
  }
  at::Tensor result = at::empty_like(input, input.options(), input.suggest_memory_format());
  lazy::write(result, std::move(value));
  return result;
}

int64_t count_over(XlaValue x, const Dims& dims) {
  int64_t count = 1;
  for (int64_t dim : dims) count *= x.dim(dim);
  return count;
}

Moments moments(Builder& b, XlaValue x, const Dims& dims) {
  const XlaValue mean = b.reduce_sum(x, dims) / count_over(x, dims);
  const XlaValue centred = b.subtract(x, spread(b, mean, x.dims(), dims));
  return {mean, b.reduce_sum(b.multiply(centred, centred), dims)};
}

XlaValue by_channel(Builder& b, XlaValue value, const Dims& full) {
  return b.broadcast_in_dim(b.reshape(value, {full[1]}), full, {1});
}

XlaValue inverse_deviation(Builder& b, XlaValue variance, XlaValue epsilon) {
  return b.rsqrt(b.add(variance, b.broadcast_to(epsilon, variance.dims())));
}

namespace {

// --- layer_norm ---

// Attributes: how many last dims are normalized, whether there are a weight and a bias.
// Operands: x, epsilon, weight, bias. Outputs: y, mean, 1 / deviation.
const Op kLayerNorm{"aten::native_layer_norm", [](Lowering& l, const Node& n) -> Results {
                      auto attributes = n.attributes();
                      const int64_t normalized = attributes.integer();
                      const bool has_weight = attributes.boolean(), has_bias = attributes.boolean();
                      Builder& b = l.builder();
                      const ElementType compute = stablehlo::opmath_type(n.output().type);
                      const XlaValue x = l.operand(0, compute);
                      Dims dims;
                      for (int64_t i = x.rank() - normalized; i < x.rank(); ++i) dims.push_back(i);
                      const Moments m = moments(b, x, dims);
                      const XlaValue rstd = inverse_deviation(b, m.squares / count_over(x, dims),
                                                              l.operand(1, compute));
                      XlaValue y = b.multiply(b.subtract(x, spread(b, m.mean, x.dims(), dims)),
                                              spread(b, rstd, x.dims(), dims));
                      if (has_weight)
                        y = b.multiply(y, b.broadcast_to(l.operand(2, compute), x.dims()));
                      if (has_bias) {
                        const XlaValue bias = l.operand(has_weight ? 3 : 2, compute);
                        y = b.add(y, b.broadcast_to(bias, x.dims()));
                      }
                      return {as_output(l, n, y, 0).values[0], as_output(l, n, m.mean, 1).values[0],
                              as_output(l, n, rstd, 2).values[0]};
                    }};

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(const at::Tensor& input,
                                                                 at::IntArrayRef normalized_shape,
                                                                 const OptionalTensor& weight_opt,
                                                                 const OptionalTensor& bias_opt,
                                                                 double eps) {
  const at::Tensor weight = or_undefined(weight_opt), bias = or_undefined(bias_opt);
  at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  const at::ScalarType statistics = statistics_type("LayerNormKernelImpl", input, {weight, bias});
  const ElementType type = element_type(input);
  const size_t normalized = normalized_shape.size();
  Dims sizes(input.sizes());
  for (size_t i = sizes.size() - normalized; i < sizes.size(); ++i) sizes[i] = 1;

  Value operands[4] = {value_of(input), scalar_operand(eps, type)};
  size_t count = 2;
  if (weight.defined()) operands[count++] = value_of(weight);
  if (bias.defined()) operands[count++] = value_of(bias);
  const ElementType statistics_element = lazy::element_type(statistics);
  // Rows for rows: of a trimmed input, the whole.
  const auto cut = lazy::trimmed(operands[0]);
  const bool by_rows = cut && cut->dim < input.dim() - static_cast<int64_t>(normalized);
  Dims whole(input.sizes()), whole_rows = sizes;
  if (by_rows) {
    operands[0] = cut->whole;
    whole[static_cast<size_t>(cut->dim)] = whole_rows[static_cast<size_t>(cut->dim)] = cut->bound();
  }
  const ShapeRef outputs[] = {
      {type, whole}, {statistics_element, whole_rows}, {statistics_element, whole_rows}};
  const Value y = Node::take(kLayerNorm, std::span(operands, count),
                             Attributes::of(normalized, weight.defined(), bias.defined()), outputs);
  const auto result = [&](uint32_t i, at::ScalarType dtype) {
    const Value value(y.node, i);
    return lazy::make(by_rows ? lazy::trim(value, cut->count, cut->dim, cut->size) : value, dtype,
                      input.device());
  };
  return {result(0, input.scalar_type()), result(1, statistics), result(2, statistics)};
}

// With h = (x - mean) * rstd and u = g * weight:
//   dx = rstd * (u - mean(u) - h * mean(u * h)), dweight = sum(g * h), dbias = sum(g).
// Attributes: normalized dims, whether there is a weight, the mask. Operands: g, x, mean, rstd,
// weight.
const Op kLayerNormBackward{
    "aten::native_layer_norm_backward", [](Lowering& l, const Node& n) -> Results {
      auto attributes = n.attributes();
      const int64_t normalized = attributes.integer();
      const bool has_weight = attributes.boolean();
      Mask mask;
      for (bool& wanted : mask) wanted = attributes.boolean();
      Builder& b = l.builder();
      const ElementType compute = stablehlo::opmath_type(l.operand(1).element_type());
      const XlaValue g = l.operand(0, compute), x = l.operand(1, compute);
      const XlaValue mean = b.broadcast_to(l.operand(2, compute), x.dims());
      const XlaValue rstd = b.broadcast_to(l.operand(3, compute), x.dims());
      const XlaValue h = b.multiply(b.subtract(x, mean), rstd);
      Dims batch, inner;
      for (int64_t i = 0; i < x.rank(); ++i)
        (i < x.rank() - normalized ? batch : inner).push_back(i);
      const auto average = [&](XlaValue value) {
        return spread(b, b.reduce_sum(value, inner) / count_over(x, inner), x.dims(), inner);
      };
      std::vector<XlaValue> results;
      const auto push = [&](XlaValue value) {
        results.push_back(as_output(l, n, value, results.size()).values[0]);
      };
      if (mask[0]) {
        const XlaValue u =
            has_weight ? b.multiply(g, b.broadcast_to(l.operand(4, compute), x.dims())) : g;
        const XlaValue along = b.multiply(h, average(b.multiply(u, h)));
        push(b.multiply(rstd, b.subtract(b.subtract(u, average(u)), along)));
      }
      if (mask[1]) push(b.reduce_sum(b.multiply(g, h), batch));
      if (mask[2]) push(b.reduce_sum(g, batch));
      return results;
    }};

Gradients native_layer_norm_backward(const at::Tensor& grad, const at::Tensor& input,
                                     at::IntArrayRef normalized_shape, const at::Tensor& mean,
                                     const at::Tensor& rstd, const OptionalTensor& weight_opt,
                                     const OptionalTensor& bias_opt, Mask mask) {
  const at::Tensor weight = or_undefined(weight_opt), bias = or_undefined(bias_opt);
  at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  TORCH_CHECK(grad.sizes() == input.sizes(), "native_layer_norm_backward: the gradient's sizes ",
              grad.sizes(), " are not those of the input, ", input.sizes());
  const ElementType type = element_type(input);
  const ElementType parameter = weight.defined() ? element_type(weight)
                                : bias.defined() ? element_type(bias)
                                                 : type;
  Value operands[5] = {value_of(grad), value_of(input), value_of(mean), value_of(rstd)};
  Dims sizes(input.sizes());
  const auto wholes = wholes_of(std::span(operands, 4), sizes);
  const bool by_rows =
      wholes && wholes->dim < input.dim() - static_cast<int64_t>(normalized_shape.size());
  if (by_rows) {
    sizes = wholes->dims;
    for (size_t i = 0; i < 4; ++i) {  // rows that do not count add nothing
      operands[i] = lazy::filled({wholes->operands[i], wholes->count, wholes->dim, wholes->size},
                                 Neutral::kZero);
    }
  }
  MaskedOutputs outputs;
  outputs.add(mask[0], type, at::IntArrayRef(sizes));
  outputs.add(mask[1], parameter, normalized_shape);
  outputs.add(mask[2], parameter, normalized_shape);
  if (outputs.shapes().empty()) return {};
  if (weight.defined()) operands[4] = value_of(weight);
  const ir::NodePtr node = Node::make(
      kLayerNormBackward, std::span<const Value>(operands, weight.defined() ? 5 : 4),
      Attributes::of(normalized_shape.size(), weight.defined(), mask[0], mask[1], mask[2]),
      outputs.shapes());
  Value dx = outputs.of(node, 0);
  if (by_rows && dx) dx = wholes->trimmed(std::move(dx));
  return {make_if(dx, input), make_if(outputs.of(node, 1), input),
          make_if(outputs.of(node, 2), input)};
}

// --- group_norm: x as [n, groups, channels of a group * places], normalized over the last ---

// [n, groups] against x of [n, channels, places...].
XlaValue by_group(Builder& b, XlaValue value, XlaValue grouped, const Dims& full) {
  return b.reshape(
      spread(b, b.reshape(value, {grouped.dim(0), grouped.dim(1)}), grouped.dims(), {2}), full);
}

// Attributes: the grouped sizes, whether there are a weight and a bias. Operands: x, epsilon,
// weight, bias. Outputs: y, mean, 1 / deviation.
const Op kGroupNorm{
    "aten::native_group_norm", [](Lowering& l, const Node& n) -> Results {
      auto attributes = n.attributes();
      const Dims grouped(attributes.list());
      const bool has_weight = attributes.boolean(), has_bias = attributes.boolean();
      Builder& b = l.builder();
      const ElementType compute = stablehlo::opmath_type(n.output().type);
      const XlaValue whole = l.operand(0, compute);
      const XlaValue x = b.reshape(whole, grouped);
      const Moments m = moments(b, x, {2});
      const XlaValue rstd = inverse_deviation(b, m.squares / grouped[2], l.operand(1, compute));
      XlaValue y =
          b.multiply(b.subtract(x, spread(b, m.mean, grouped, {2})), spread(b, rstd, grouped, {2}));
      y = b.reshape(y, whole.dims());
      if (has_weight) y = b.multiply(y, by_channel(b, l.operand(2, compute), whole.dims()));
      if (has_bias) {
        y = b.add(y, by_channel(b, l.operand(has_weight ? 3 : 2, compute), whole.dims()));
      }
      return {as_output(l, n, y, 0).values[0], as_output(l, n, m.mean, 1).values[0],
              as_output(l, n, rstd, 2).values[0]};
    }};

void check_group_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      int64_t n, int64_t channels, int64_t places, int64_t groups) {
  TORCH_CHECK(groups > 0 && channels % groups == 0, "Expected number of channels in input to be ",
              "divisible by num_groups, but got ", channels, " channels and num_groups=", groups);
  TORCH_CHECK(input.dim() >= 2 && input.size(0) == n && input.size(1) == channels &&
                  input.numel() == n * channels * places,
              "native_group_norm: an input of ", input.sizes(), " does not have N=", n,
              ", C=", channels, ", HxW=", places);
  for (const at::Tensor* parameter : {&weight, &bias}) {
    TORCH_CHECK(!parameter->defined() || parameter->numel() == channels,
                "native_group_norm: expected weight and bias of ", channels, " elements, got ",
                parameter->numel());
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_group_norm(
    const at::Tensor& input, const OptionalTensor& weight_opt, const OptionalTensor& bias_opt,
    int64_t n, int64_t channels, int64_t places, int64_t groups, double eps) {
  const at::Tensor weight = or_undefined(weight_opt), bias = or_undefined(bias_opt);
  check_group_norm(input, weight, bias, n, channels, places, groups);
  const at::ScalarType statistics = statistics_type("GroupNormKernelImpl", input, {weight, bias});
  const ElementType type = element_type(input);
  const ElementType statistics_element = lazy::element_type(statistics);
  Value operands[4] = {value_of(input), scalar_operand(eps, type)};
  size_t count = 2;
  if (weight.defined()) operands[count++] = value_of(weight);
  if (bias.defined()) operands[count++] = value_of(bias);
  const int64_t sizes[] = {n, groups};
  const int64_t grouped[] = {n, groups, channels / groups * places};
  const ShapeRef outputs[] = {
      {type, span_of(input.sizes())}, {statistics_element, sizes}, {statistics_element, sizes}};
  const Value y = Node::make(
      kGroupNorm, std::span<const Value>(operands, count),
      Attributes::of(std::span<const int64_t>(grouped), weight.defined(), bias.defined()), outputs);
  return {make_like(input, y), lazy::make(Value(y.node, 1), statistics, input.device()),
          lazy::make(Value(y.node, 2), statistics, input.device())};
}

// torch's own composition makes every input row-major on devices other than CPU, where images that
// lie channels last stay so.
at::Tensor group_norm(const at::Tensor& input, int64_t groups, const OptionalTensor& weight,
                      const OptionalTensor& bias, double eps, bool) {
  const auto format = input.suggest_memory_format();
  const int64_t channels = input.dim() < 2 ? 0 : input.size(1);
  const auto fits = [&](const OptionalTensor& parameter) {
    return !parameter || !parameter->defined() ||
           (parameter->dim() == 1 && parameter->numel() == channels);
  };
  if (format == at::MemoryFormat::Contiguous || groups <= 0 || channels % groups != 0 ||
      !fits(weight) || !fits(bias)) {
    return at::native::group_norm(input, groups, weight, bias, eps, false);  // or its error
  }
  const int64_t n = input.size(0);
  const int64_t places = c10::multiply_integers(input.sizes().slice(2));
  return std::get<0>(at::native_group_norm(input.contiguous(format), or_undefined(weight),
                                           or_undefined(bias), n, channels, places, groups, eps));
}

// As layer_norm's, over the groups. Attributes: the grouped sizes, whether there is a weight, the
// mask. Operands: g, x, mean, rstd, weight.
const Op kGroupNormBackward{
    "aten::native_group_norm_backward", [](Lowering& l, const Node& n) -> Results {
      auto attributes = n.attributes();
      const Dims grouped(attributes.list());
      const bool has_weight = attributes.boolean();
      Mask mask;
      for (bool& wanted : mask) wanted = attributes.boolean();
      Builder& b = l.builder();
      const ElementType compute = stablehlo::opmath_type(l.operand(1).element_type());
      const XlaValue g = l.operand(0, compute), x = l.operand(1, compute);
      const Dims& full = x.dims();
      const XlaValue frame = b.reshape(x, grouped);
      const XlaValue mean = by_group(b, l.operand(2, compute), frame, full);
      const XlaValue rstd = by_group(b, l.operand(3, compute), frame, full);
      const XlaValue h = b.multiply(b.subtract(x, mean), rstd);
      const auto average = [&](XlaValue value) {
        const XlaValue sum = b.reduce_sum(b.reshape(value, grouped), {2});
        return by_group(b, sum / grouped[2], frame, full);
      };
      Dims but_channels;
      for (int64_t i = 0; i < x.rank(); ++i) {
        if (i != 1) but_channels.push_back(i);
      }
      std::vector<XlaValue> results;
      const auto push = [&](XlaValue value) {
        results.push_back(as_output(l, n, value, results.size()).values[0]);
      };
      if (mask[0]) {
        const XlaValue u =
            has_weight ? b.multiply(g, by_channel(b, l.operand(4, compute), full)) : g;
        const XlaValue along = b.multiply(h, average(b.multiply(u, h)));
        push(b.multiply(rstd, b.subtract(b.subtract(u, average(u)), along)));
      }
      if (mask[1]) push(b.reduce_sum(b.multiply(g, h), but_channels));
      if (mask[2]) push(b.reduce_sum(g, but_channels));
      return results;
    }};

Gradients native_group_norm_backward(const at::Tensor& grad, const at::Tensor& input,
                                     const at::Tensor& mean, const at::Tensor& rstd,
                                     const OptionalTensor& weight_opt, int64_t n, int64_t channels,
                                     int64_t places, int64_t groups, Mask mask) {
  const at::Tensor weight = or_undefined(weight_opt);
  check_group_norm(input, weight, {}, n, channels, places, groups);
  TORCH_CHECK(grad.sizes() == input.sizes(), "Expected dy sizes ", grad.sizes(),
              " to be those of x, ", input.sizes());
  TORCH_CHECK(mean.numel() == n * groups && rstd.numel() == n * groups,
              "native_group_norm_backward: expected mean and rstd of ", n * groups, " elements");
  const ElementType type = element_type(input);
  const ElementType parameter = weight.defined() ? element_type(weight) : element_type(mean);
  MaskedOutputs outputs;
  outputs.add(mask[0], type, input.sizes());
  outputs.add(mask[1], parameter, channels);
  outputs.add(mask[2], parameter, channels);
  if (outputs.shapes().empty()) return {};
  Value operands[5] = {value_of(grad), value_of(input), value_of(mean), value_of(rstd)};
  if (weight.defined()) operands[4] = value_of(weight);
  const int64_t grouped[] = {n, groups, channels / groups * places};
  const ir::NodePtr node =
      Node::make(kGroupNormBackward, std::span<const Value>(operands, weight.defined() ? 5 : 4),
                 Attributes::of(std::span<const int64_t>(grouped), weight.defined(), mask[0],
                                mask[1], mask[2]),
                 outputs.shapes());
  return {mask[0] ? make_like(input, outputs.of(node, 0)) : at::Tensor(),
          make_if(outputs.of(node, 1), input), make_if(outputs.of(node, 2), input)};
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("native_layer_norm", native_layer_norm);
  m.impl("native_layer_norm_backward", native_layer_norm_backward);
  m.impl("native_group_norm", native_group_norm);
  m.impl("native_group_norm_backward", native_group_norm_backward);
  m.impl("group_norm", group_norm);
}

// A composition for autograd, as torch's own.
TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { m.impl("group_norm", group_norm); }

}  // namespace torch_xla::aten
