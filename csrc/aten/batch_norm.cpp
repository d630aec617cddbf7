// Normalization over the batch and the places, one mean and variance a channel (dim 1).

#include "aten/normalization.h"
#include "aten/pointwise.h"

namespace torch_xla::aten {
namespace {

// Every dim but the channels'.
Dims but_channels(XlaValue x) {
  Dims dims;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != 1) dims.push_back(i);
  }
  return dims;
}

// Reads a node's operands in the order in which the kernel gave them.
class Operands {
 public:
  Operands(Lowering& l, ElementType compute) : l_(l), compute_(compute) {}
  XlaValue next() { return l_.operand(position_++, compute_); }
  XlaValue next_if(bool present) { return present ? next() : XlaValue(); }

 private:
  Lowering& l_;
  ElementType compute_;
  size_t position_ = 0;
};

XlaValue affine(Builder& b, XlaValue x, XlaValue mean, XlaValue invstd, XlaValue weight,
                XlaValue bias) {
  const Dims& full = x.dims();
  if (weight) invstd = b.multiply(invstd, weight);
  XlaValue y = b.multiply(b.subtract(x, by_channel(b, mean, full)), by_channel(b, invstd, full));
  return bias ? b.add(y, by_channel(b, bias, full)) : y;
}

// Attributes: whether there are a weight, a bias and running statistics. Operands: x, epsilon,
// weight, bias; momentum, running mean and variance. Outputs: y, mean, 1 / deviation; new running
// mean and variance. The running variance is of the unbiased kind.
const Op kTraining{"aten::native_batch_norm", [](Lowering& l, const Node& n) -> Results {
                     auto attributes = n.attributes();
                     const bool has_weight = attributes.boolean(), has_bias = attributes.boolean();
                     const bool tracks = attributes.boolean();
                     Builder& b = l.builder();
                     Operands operands(l, stablehlo::opmath_type(n.output().type));
                     const XlaValue x = operands.next(), epsilon = operands.next();
                     const XlaValue weight = operands.next_if(has_weight),
                                    bias = operands.next_if(has_bias);
                     const Dims dims = but_channels(x);
                     const int64_t count = count_over(x, dims);
                     const Moments m = moments(b, x, dims);
                     const XlaValue invstd = inverse_deviation(b, m.squares / count, epsilon);
                     const XlaValue y = affine(b, x, m.mean, invstd, weight, bias);
                     std::vector<XlaValue> results;
                     const auto push = [&](XlaValue value) {
                       results.push_back(as_output(l, n, value, results.size()).values[0]);
                     };
                     push(y);
                     push(m.mean);
                     push(invstd);
                     if (tracks) {
                       const XlaValue momentum = b.broadcast_to(operands.next(), m.mean.dims());
                       const auto follow = [&](XlaValue running, XlaValue now) {
                         running = b.multiply(b.reshape(running, now.dims()), 1 - momentum);
                         return b.add(b.multiply(momentum, now), running);
                       };
                       push(follow(operands.next(), m.mean));
                       push(follow(operands.next(), m.squares / (count - 1)));
                     }
                     return results;
                   }};

// Attributes: whether there are a weight and a bias. Operands: x, epsilon, weight, bias, running
// mean and variance.
const Op kInference{"aten::native_batch_norm", [](Lowering& l, const Node& n) -> Results {
                      auto attributes = n.attributes();
                      const bool has_weight = attributes.boolean(), has_bias = attributes.boolean();
                      Builder& b = l.builder();
                      Operands operands(l, stablehlo::opmath_type(n.output().type));
                      const XlaValue x = operands.next(), epsilon = operands.next();
                      const XlaValue weight = operands.next_if(has_weight),
                                     bias = operands.next_if(has_bias);
                      const XlaValue mean = operands.next(), variance = operands.next();
                      const XlaValue invstd = inverse_deviation(b, variance, epsilon);
                      return as_output(l, n, affine(b, x, mean, invstd, weight, bias));
                    }};

void check_parameters(const at::Tensor& input,
                      std::initializer_list<std::reference_wrapper<const at::Tensor>> parameters) {
  TORCH_CHECK(input.dim() >= 2,
              "batch_norm: expected at least 2 dims [N, C, ...], got an input of ", input.sizes());
  for (const at::Tensor& parameter : parameters) {
    TORCH_CHECK(!parameter.defined() || parameter.numel() == input.size(1), "batch_norm: expected ",
                input.size(1), " elements, one a channel, got ",
                parameter.defined() ? parameter.numel() : 0);
  }
}

using Outputs = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Outputs batch_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                   const at::Tensor& running_mean, const at::Tensor& running_var, bool training,
                   double momentum, double eps) {
  check_parameters(input, {weight, bias, running_mean, running_var});
  const at::ScalarType statistics =
      statistics_type("batch_norm", input, {weight, bias, running_mean, running_var});
  const ElementType type = element_type(input);
  const c10::Device device = input.device();
  c10::SmallVector<Value, 7> operands{value_of(input), scalar_operand(eps, type)};
  if (weight.defined()) operands.push_back(value_of(weight));
  if (bias.defined()) operands.push_back(value_of(bias));

  if (!training) {
    TORCH_CHECK(running_mean.defined(), "running_mean must be defined in evaluation mode");
    TORCH_CHECK(running_var.defined(), "running_var must be defined in evaluation mode");
    operands.push_back(value_of(running_mean));
    operands.push_back(value_of(running_var));
    const ShapeRef output{type, span_of(input.sizes())};
    const Value y =
        Node::make(kInference, std::span<const Value>(operands.data(), operands.size()),
                   Attributes::of(weight.defined(), bias.defined()), std::span(&output, 1));
    return {make_like(input, y), lazy::allocate({0}, statistics, device),
            lazy::allocate({0}, statistics, device)};
  }

  TORCH_CHECK(running_mean.defined() == running_var.defined(),
              "batch_norm: running_mean and running_var must be given together");
  const bool tracks = running_mean.defined();
  const int64_t channels[] = {input.size(1)};
  c10::SmallVector<ShapeRef, 5> outputs{{type, span_of(input.sizes())},
                                        {lazy::element_type(statistics), channels},
                                        {lazy::element_type(statistics), channels}};
  if (tracks) {
    operands.push_back(scalar_operand(momentum, type));
    for (const at::Tensor* running : {&running_mean, &running_var}) {
      operands.push_back(value_of(*running));
      outputs.push_back({element_type(*running), span_of(running->sizes())});
    }
  }
  const ir::NodePtr node =
      Node::make(kTraining, std::span<const Value>(operands.data(), operands.size()),
                 Attributes::of(weight.defined(), bias.defined(), tracks),
                 std::span<const ShapeRef>(outputs.data(), outputs.size()));
  if (tracks) {
    lazy::write(running_mean, Value(node, 3));
    lazy::write(running_var, Value(node, 4));
  }
  return {make_like(input, node), lazy::make(Value(node, 1), statistics, device),
          lazy::make(Value(node, 2), statistics, device)};
}

// With h = (x - mean) * invstd: dweight = sum(g * h), dbias = sum(g), and
//   dx = weight * invstd * (g - mean(g) - h * mean(g * h)) for the statistics of the batch itself,
//   dx = weight * invstd * g for running ones.
// Attributes: training, whether there is a weight, the mask. Operands: g, x, epsilon, mean, then
// 1 / deviation in training, else the variance; weight.
const Op kBackward{
    "aten::native_batch_norm_backward", [](Lowering& l, const Node& n) -> Results {
      auto attributes = n.attributes();
      const bool training = attributes.boolean(), has_weight = attributes.boolean();
      Mask mask;
      for (bool& wanted : mask) wanted = attributes.boolean();
      Builder& b = l.builder();
      Operands operands(l, stablehlo::opmath_type(l.operand(1).element_type()));
      const XlaValue g = operands.next(), x = operands.next(), epsilon = operands.next();
      const XlaValue mean = operands.next();
      XlaValue invstd = operands.next();
      if (!training) invstd = inverse_deviation(b, invstd, epsilon);
      const XlaValue weight = operands.next_if(has_weight);
      const Dims& full = x.dims();
      const Dims dims = but_channels(x);
      const XlaValue h =
          b.multiply(b.subtract(x, by_channel(b, mean, full)), by_channel(b, invstd, full));
      const XlaValue along = b.reduce_sum(b.multiply(g, h), dims);
      const XlaValue sum = b.reduce_sum(g, dims);
      std::vector<XlaValue> results;
      const auto push = [&](XlaValue value) {
        results.push_back(as_output(l, n, value, results.size()).values[0]);
      };
      if (mask[0]) {
        const int64_t count = count_over(x, dims);
        XlaValue dx = g;
        if (training) {
          dx = b.subtract(dx, by_channel(b, sum / count, full));
          dx = b.subtract(dx, b.multiply(h, by_channel(b, along / count, full)));
        }
        const XlaValue scale =
            weight ? b.multiply(b.reshape(invstd, {full[1]}), b.reshape(weight, {full[1]}))
                   : invstd;
        push(b.multiply(dx, by_channel(b, scale, full)));
      }
      if (mask[1]) push(along);
      if (mask[2]) push(sum);
      return results;
    }};

Outputs batch_norm_backward(const at::Tensor& grad, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& mean,
                            const at::Tensor& deviation, bool training, double eps, Mask mask) {
  TORCH_CHECK(mean.defined() && deviation.defined(), "native_batch_norm_backward: expected ",
              training ? "save_mean and save_invstd" : "running_mean and running_var");
  check_parameters(input, {weight, mean, deviation});
  TORCH_CHECK(grad.sizes() == input.sizes(), "native_batch_norm_backward: the gradient's sizes ",
              grad.sizes(), " are not those of the input, ", input.sizes());
  const ElementType type = element_type(input);
  const ElementType parameter = weight.defined() ? element_type(weight) : element_type(mean);
  const int64_t channels = input.size(1);
  MaskedOutputs outputs;
  outputs.add(mask[0], type, input.sizes());
  outputs.add(mask[1], parameter, channels);
  outputs.add(mask[2], parameter, channels);
  if (outputs.shapes().empty()) return {};
  Value operands[6] = {value_of(grad), value_of(input), scalar_operand(eps, type), value_of(mean),
                       value_of(deviation)};
  if (weight.defined()) operands[5] = value_of(weight);
  const ir::NodePtr node = Node::make(
      kBackward, std::span<const Value>(operands, weight.defined() ? 6 : 5),
      Attributes::of(training, weight.defined(), mask[0], mask[1], mask[2]), outputs.shapes());
  return {mask[0] ? make_like(input, outputs.of(node, 0)) : at::Tensor(),
          make_if(outputs.of(node, 1), input), make_if(outputs.of(node, 2), input)};
}

// --- The operators ---

// What cuDNN keeps between forward and backward; nothing here.
at::Tensor no_reserve(const at::Tensor& input) {
  return lazy::allocate({0}, at::kByte, input.device());
}

Outputs native_batch_norm(const at::Tensor& input, const OptionalTensor& weight,
                          const OptionalTensor& bias, const OptionalTensor& running_mean,
                          const OptionalTensor& running_var, bool training, double momentum,
                          double eps) {
  return batch_norm(input, or_undefined(weight), or_undefined(bias), or_undefined(running_mean),
                    or_undefined(running_var), training, momentum, eps);
}

Outputs legit(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
              at::Tensor& running_mean, at::Tensor& running_var, bool training, double momentum,
              double eps) {
  return batch_norm(input, or_undefined(weight), or_undefined(bias), running_mean, running_var,
                    training, momentum, eps);
}

Outputs legit_no_stats(const at::Tensor& input, const OptionalTensor& weight,
                       const OptionalTensor& bias, bool training, double momentum, double eps) {
  return batch_norm(input, or_undefined(weight), or_undefined(bias), {}, {}, training, momentum,
                    eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> with_update(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    at::Tensor& running_mean, at::Tensor& running_var, double momentum, double eps) {
  auto [y, mean, invstd] = batch_norm(input, or_undefined(weight), or_undefined(bias), running_mean,
                                      running_var, true, momentum, eps);
  return {y, mean, invstd, no_reserve(input)};
}

Outputs native_batch_norm_backward(const at::Tensor& grad, const at::Tensor& input,
                                   const OptionalTensor& weight, const OptionalTensor& running_mean,
                                   const OptionalTensor& running_var,
                                   const OptionalTensor& save_mean,
                                   const OptionalTensor& save_invstd, bool training, double eps,
                                   Mask mask) {
  return batch_norm_backward(
      grad, input, or_undefined(weight), or_undefined(training ? save_mean : running_mean),
      or_undefined(training ? save_invstd : running_var), training, eps, mask);
}

Outputs batch_norm_backward_with_reserve(const at::Tensor& grad, const at::Tensor& input,
                                         const at::Tensor& weight,
                                         const OptionalTensor& running_mean,
                                         const OptionalTensor& running_var,
                                         const OptionalTensor& save_mean,
                                         const OptionalTensor& save_invstd, bool update, double eps,
                                         Mask mask, const at::Tensor&) {
  return native_batch_norm_backward(grad, input, weight, running_mean, running_var, save_mean,
                                    save_invstd, update, eps, mask);
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("native_batch_norm", native_batch_norm);
  m.impl("_native_batch_norm_legit", legit);
  m.impl("_native_batch_norm_legit.no_stats", legit_no_stats);
  m.impl("_batch_norm_with_update", with_update);
  m.impl("native_batch_norm_backward", native_batch_norm_backward);
  m.impl("batch_norm_backward", batch_norm_backward_with_reserve);
}

}  // namespace torch_xla::aten
