// What picks from a tensor at random: orders, categories, dropped elements.

#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/div.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>

#include "aten/checks.h"
#include "aten/random.h"

namespace torch_xla::aten {
namespace {

using Args = PointwiseArgs&;

// A random order: what sorting random keys does to 0, 1, 2, ...
const Op kRandomOrder{
    "aten::randperm", [](Lowering& l, const Node& n) -> Results {
      const XlaValue keys = l.operand(0);
      const XlaValue index = l->iota(ElementType::kS64, keys.dims(), 0);
      const auto sorted =
          l->sort({keys, index}, 0, true,
                  [&](const stablehlo::Values& a, const stablehlo::Values& b) -> stablehlo::Values {
                    return {l->lt(a[0], b[0])};
                  });
      return l->convert(sorted[1], n.output().type);
    }};

at::Tensor& randperm_out(int64_t n, OptionalGenerator generator, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  check_domain("randperm", out.scalar_type() == at::kBool ? Domain::kFloat : Domain::kNotComplex,
               out.scalar_type());
  const ElementType type = element_type(out);
  TORCH_CHECK(n - 1 <= largest_integer(type), "n cannot be greater than ",
              largest_integer(type) + 1, " for ", out.scalar_type(), " type.");
  out.resize_({n});
  if (n == 0) return out;
  const int64_t sizes[] = {n};
  const Value keys = random_bits(generator, out.device(), ElementType::kU64, sizes);
  lazy::write(out, Node::make(kRandomOrder, {keys}, {}, ShapeRef{type, sizes}));
  return out;
}

// --- multinomial ---

// Cumulative weights [rows, k] and draws [rows, n]: the first category whose cumulative weight
// exceeds the draw's share of the total.
const Op kInverseCdf{
    "aten::multinomial", [](Lowering& l, const Node& n) -> Results {
      const XlaValue cdf = l.operand(0), draws = l.operand(1);
      const int64_t rows = cdf.dim(0), k = cdf.dim(1), samples = draws.dim(1);
      const XlaValue total = l->slice_in_dim(cdf, k - 1, k, 1, 1);
      const XlaValue level = draws * l->broadcast_to(total, Dims{rows, samples});
      const Dims cube{rows, samples, k};
      const XlaValue steps = l->broadcast_in_dim(cdf, cube, {0, 2});
      const XlaValue passed = l->le(steps, l->broadcast_in_dim(level, cube, {0, 1}));
      // Rounding may lift the draw to the total, which no category exceeds.
      const XlaValue before_end = l->lt(steps, l->broadcast_in_dim(total, cube, {0, 2}));
      return l->reduce_sum(l->convert(l->and_(passed, before_end), ElementType::kS64), {2});
    }};

at::Tensor drawn(const at::Tensor& self, int64_t samples, bool replacement,
                 OptionalGenerator generator) {
  if (!replacement || samples == 1) {
    // The largest w / e over exponential e is w's category with probability w: an exponential race
    // (Efraimidis & Spirakis 2006).
    at::Tensor race = lazy::allocate(self.sizes(), self.scalar_type(), self.device());
    race.exponential_(1, std::move(generator));
    race = at::div(self, race);
    if (samples == 1) return at::argmax(race, -1, /*keepdim=*/true);
    return std::get<1>(at::topk(race, samples));
  }
  const at::Tensor rows = self.dim() == 2 ? self : self.unsqueeze(0);
  const at::ScalarType compute = lazy::scalar_type(draw_type(self.scalar_type()));
  const at::Tensor cumulative = at::cumsum(rows, 1, compute);
  const int64_t sizes[] = {rows.size(0), samples};
  const Value draws = random_unit(generator, self.device(), element_type(cumulative), sizes);
  const at::Tensor result = lazy::make(Node::make(kInverseCdf, {lazy::read(cumulative), draws}, {},
                                                  ShapeRef{ElementType::kS64, sizes}),
                                       at::kLong, self.device());
  return self.dim() == 2 ? result : result.squeeze(0);
}

// Weights that are negative, not finite or all zero fail the program.
at::Tensor multinomial(const at::Tensor& self, int64_t samples, bool replacement,
                       OptionalGenerator generator) {
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      at::isFloatingType(self.scalar_type()),
      "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  const int64_t categories = self.size(-1);
  TORCH_CHECK(replacement || samples <= categories,
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(categories <= int64_t{1} << 24, "number of categories cannot exceed 2^24");
  if (self.numel() == 0) {
    auto sizes = self.sizes().vec();
    sizes.back() = samples;
    return lazy::allocate(sizes, at::kLong, self.device());
  }
  const at::Tensor result = drawn(self, samples, replacement, std::move(generator));
  if (!checks_values()) return result;
  constexpr const char* kName = "aten::multinomial";
  const Value valid =
      checked(lazy::read(result), lazy::read(self), {0, stablehlo::max_finite(element_type(self))},
              kName, "probability tensor contains either `inf`, `nan` or element < 0");
  return lazy::make(checked(valid, lazy::read(at::sum(self, -1)),
                            {0, std::numeric_limits<double>::infinity(), /*without_least=*/true},
                            kName, "invalid multinomial distribution (sum of probabilities <= 0)"),
                    at::kLong, self.device());
}

at::Tensor& multinomial_out(const at::Tensor& self, int64_t samples, bool replacement,
                            OptionalGenerator generator, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "multinomial expects Long tensor out, got: ", out.scalar_type());
  const at::Tensor result =
      torch_xla::aten::multinomial(self, samples, replacement, std::move(generator));
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

// --- dropout, rrelu ---

// input, mask, scale.
const PointwiseOp kMasked{"aten::native_dropout", [](Args x) {
                            const XlaValue kept = x.b.ne(x[1], x.number(0));
                            return x.b.select(kept, x[0] * x[2], x[0] * 0);
                          }};

Value masked(const Value& value, const Value& mask, double scale) {
  return pointwise(kMasked, {value, mask, scalar_operand(scale, value.type())}, value.type(),
                   value.shape());
}

// A new tensor with the dims of self, laid out as `empty_like` lays it out.
at::Tensor laid_out_like(const at::Tensor& self, Value value) {
  if (self.is_contiguous()) {
    const at::ScalarType type = lazy::scalar_type(value.type());
    return lazy::make(std::move(value), type, self.device());
  }
  return lazy::make_strided(std::move(value), at::infer_dense_strides(self.sizes(), self.strides()),
                            self.device());
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& self, double p,
                                                  std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  const Value input = lazy::read(self);
  if (!train.value_or(true)) {
    return {laid_out_like(self, input),
            laid_out_like(self, lazy::full(1, ElementType::kPred, span_of(self.sizes())))};
  }
  if (p == 1 && at::isIntegralType(self.scalar_type(), /*includeBool=*/true)) {
    const auto zeros = [&](ElementType type) {
      return laid_out_like(self, lazy::full(0, type, span_of(self.sizes())));
    };
    return {zeros(element_type(self)), zeros(ElementType::kPred)};
  }
  TORCH_CHECK(!at::isIntegralType(self.scalar_type(), /*includeBool=*/true), "result type ",
              at::get_default_dtype_as_scalartype(), " can't be cast to the desired output type ",
              self.scalar_type());
  const Value mask =
      formula(kBernoulli, random_unit(std::nullopt, self), {1 - p}, ElementType::kPred);
  const double scale = p == 1 ? 0 : 1 / (1 - p);
  return {laid_out_like(self, masked(input, mask, scale)), laid_out_like(self, mask)};
}

at::Tensor native_dropout_backward(const at::Tensor& grad, const at::Tensor& mask, double scale) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be Bool Scalar Type, got ",
              mask.scalar_type());
  TORCH_CHECK(mask.sizes() == grad.sizes(), "native_dropout_backward: mask of sizes ", mask.sizes(),
              " and gradient of sizes ", grad.sizes(), " differ");
  if (at::isIntegralType(grad.scalar_type(), /*includeBool=*/true)) {
    return torch_xla::aten::native_dropout_backward(grad.to(at::get_default_dtype_as_scalartype()),
                                                    mask, scale);
  }
  // Two layouts give the result theirs by the rules of elementwise operators.
  if (!grad.is_contiguous()) return at::mul(at::mul(grad, mask), scale);
  return make_like(masked(lazy::read(grad), value_of(mask), scale), grad);
}

// at::dropout makes a mask of the input's dtype in several steps on devices it does not know; one
// that remembers a bool mask serves both autograd and what runs without.
at::Tensor dropout(const at::Tensor& self, double p, bool train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 0 || !train || self.numel() == 0) return self;
  return std::get<0>(at::native_dropout(self, p, train));
}

// noise: 1 for a positive element, else uniform in [lower, upper).
const PointwiseOp kRreluNoise{"aten::rrelu_with_noise", [](Args x) {
                                const XlaValue slope = x[2] + x[1] * (x[3] - x[2]);
                                return x.b.select(x.b.le(x[0], x.number(0)), slope, x.number(1));
                              }};
const PointwiseOp kProduct{"aten::mul", [](Args x) { return x[0] * x[1]; }};

Value rrelu_value(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                  const at::Scalar& upper, const OptionalGenerator& generator) {
  TORCH_CHECK(noise.sizes() == self.sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
              " noise.shape = ", noise.sizes());
  const ElementType type = element_type(self);
  const Value drawn = pointwise(kRreluNoise,
                                {lazy::read(self), random_unit(generator, self),
                                 scalar_operand(lower, type), scalar_operand(upper, type)},
                                type, shape_of(self));
  fill(noise, drawn);
  return pointwise(kProduct, {lazy::read(self), drawn}, type, shape_of(self));
}

at::Scalar mean_slope(const at::Scalar& lower, const at::Scalar& upper) {
  return (lower.toDouble() + upper.toDouble()) / 2;
}

at::Tensor rrelu_with_noise(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                            const at::Scalar& upper, bool training, OptionalGenerator generator) {
  check_domain("rrelu_with_noise", Domain::kFloat, self.scalar_type());
  if (!training) return at::leaky_relu(self, mean_slope(lower, upper));
  return make_like(rrelu_value(self, noise, lower, upper, generator), self);
}
at::Tensor& rrelu_with_noise_(at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                              const at::Scalar& upper, bool training, OptionalGenerator generator) {
  check_domain("rrelu_with_noise", Domain::kFloat, self.scalar_type());
  if (!training) return at::leaky_relu_(self, mean_slope(lower, upper));
  return fill(self, rrelu_value(self, noise, lower, upper, generator));
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("randperm.generator_out", &randperm_out);
  m.impl("multinomial", &multinomial);
  m.impl("multinomial.out", &multinomial_out);
  m.impl("dropout", &dropout);
  m.impl("native_dropout", &native_dropout);
  m.impl("native_dropout_backward", &native_dropout_backward);
  m.impl("rrelu_with_noise", &rrelu_with_noise);
  m.impl("rrelu_with_noise_", &rrelu_with_noise_);
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) { m.impl("dropout", &dropout); }

}  // namespace torch_xla::aten
