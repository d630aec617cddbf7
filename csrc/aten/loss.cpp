// Losses of an input and a target of one shape, and their gradients.

#include <ATen/core/Reduction.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>

#include "aten/checks.h"
#include "aten/elementwise.h"

namespace torch_xla::aten {
namespace {

using Args = PointwiseArgs&;

at::Tensor reduced(const at::Tensor& loss, int64_t reduction) {
  if (reduction == at::Reduction::Mean) return at::mean(loss);
  if (reduction == at::Reduction::Sum) return at::sum(loss);
  return loss;
}

// What the gradient of one element is divided by. An empty mean has no elements to divide.
double mean_factor(const at::Tensor& self, int64_t reduction) {
  return reduction == at::Reduction::Mean && self.numel() > 0
             ? 1.0 / static_cast<double>(self.numel())
             : 1.0;
}

// --- squared, smooth L1 and Huber loss ---

const PointwiseOp kMse{"aten::mse_loss", [](Args x) {
                         const XlaValue difference = x[0] - x[1];
                         return difference * difference;
                       }};
// grad, input, target, factor.
const PointwiseOp kMseBackward{"aten::mse_loss_backward",
                               [](Args x) { return x[3] * 2 * (x[1] - x[2]) * x[0]; }};

at::Tensor mse_loss(const at::Tensor& self, const at::Tensor& target, int64_t reduction) {
  return reduced(structured_functional<BinaryMeta<>, Numeric<kMse, Domain::kFloat>{}>(self, target),
                 reduction);
}

// The gradient of `op` with operands grad, input, target, the mean's factor and `extra`.
template <const PointwiseOp& op, class... Extra>
at::Tensor gradient(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                    int64_t reduction, Extra... extra) {
  using Meta = TernaryMeta<double, Extra...>;
  return structured_functional<Meta, Numeric<op, Domain::kFloat>{}>(
      grad, self, target, mean_factor(self, reduction), extra...);
}

at::Tensor mse_loss_backward(const at::Tensor& grad, const at::Tensor& self,
                             const at::Tensor& target, int64_t reduction) {
  return gradient<kMseBackward>(grad, self, target, reduction);
}

// input, target, beta: quadratic below beta, linear above (Girshick 2015, eq. 3).
const PointwiseOp kSmoothL1{"aten::smooth_l1_loss", [](Args x) {
                              const XlaValue z = x.b.abs(x[0] - x[1]);
                              return x.b.select(x.b.lt(z, x[2]), 0.5 * z * z / x[2],
                                                z - 0.5 * x[2]);
                            }};
// grad, input, target, factor, beta.
const PointwiseOp kSmoothL1Backward{
    "aten::smooth_l1_loss_backward", [](Args x) {
      Builder& b = x.b;
      const XlaValue difference = x[1] - x[2], scaled = x[3] * x[0];
      const XlaValue outer = b.select(b.ge(difference, x[4]), scaled, scaled * (difference / x[4]));
      return b.select(b.le(difference, b.negate(x[4])), b.negate(scaled), outer);
    }};

at::Tensor smooth_l1_loss(const at::Tensor& self, const at::Tensor& target, int64_t reduction,
                          double beta) {
  TORCH_CHECK(beta >= 0, "smooth_l1_loss does not support negative values for beta.");
  return reduced(structured_functional<BinaryMeta<double>, Numeric<kSmoothL1, Domain::kFloat>{}>(
                     self, target, beta),
                 reduction);
}

at::Tensor smooth_l1_loss_backward(const at::Tensor& grad, const at::Tensor& self,
                                   const at::Tensor& target, int64_t reduction, double beta) {
  return gradient<kSmoothL1Backward>(grad, self, target, reduction, beta);
}

// input, target, delta (Huber 1964).
const PointwiseOp kHuber{"aten::huber_loss", [](Args x) {
                           const XlaValue z = x.b.abs(x[0] - x[1]);
                           return x.b.select(x.b.le(z, x[2]), 0.5 * z * z, x[2] * (z - 0.5 * x[2]));
                         }};
// grad, input, target, factor, delta.
const PointwiseOp kHuberBackward{
    "aten::huber_loss_backward", [](Args x) {
      Builder& b = x.b;
      const XlaValue difference = x[1] - x[2], scaled = x[3] * x[0];
      const XlaValue outer = b.select(b.ge(difference, x[4]), scaled * x[4], scaled * difference);
      return b.select(b.le(difference, b.negate(x[4])), b.negate(scaled * x[4]), outer);
    }};

at::Tensor huber_loss(const at::Tensor& self, const at::Tensor& target, int64_t reduction,
                      double delta) {
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.");
  return reduced(structured_functional<BinaryMeta<double>, Numeric<kHuber, Domain::kFloat>{}>(
                     self, target, delta),
                 reduction);
}

at::Tensor huber_loss_backward(const at::Tensor& grad, const at::Tensor& self,
                               const at::Tensor& target, int64_t reduction, double delta) {
  return gradient<kHuberBackward>(grad, self, target, reduction, delta);
}

// --- binary cross entropy ---

// input, target, [weight]: logarithms are cut off at -100, so that probabilities 0 and 1 cost a
// finite amount.
const PointwiseOp kBce{"aten::binary_cross_entropy", [](Args x) {
                         Builder& b = x.b;
                         const XlaValue floor = x.number(-100);
                         const XlaValue log_p = b.maximum(b.log(x[0]), floor);
                         const XlaValue log_q = b.maximum(b.log_plus_one(b.negate(x[0])), floor);
                         const XlaValue loss = (x[1] - 1) * log_q - x[1] * log_p;
                         return x.size() > 2 ? loss * x[2] : loss;
                       }};
// grad, input, target, factor, [weight].
const PointwiseOp kBceBackward{"aten::binary_cross_entropy_backward", [](Args x) {
                                 const XlaValue p = x[1];
                                 const XlaValue scale = x.b.maximum((1 - p) * p, x.number(1e-12));
                                 const XlaValue grad = x[0] * (p - x[2]) / scale * x[3];
                                 return x.size() > 4 ? grad * x[4] : grad;
                               }};

bool has(const std::optional<at::Tensor>& tensor) { return tensor && tensor->defined(); }

// `result`, where input and target are probabilities.
at::Tensor of_probabilities(const at::Tensor& result, const at::Tensor& self,
                            const at::Tensor& target) {
  if (!checks_values()) return result;
  const Value of_input = checked(lazy::read(result), value_of(self), {0, 1}, kBce.name,
                                 "all elements of input should be between 0 and 1");
  const Value of_both = checked(of_input, value_of(target), {0, 1}, kBce.name,
                                "all elements of target should be between 0 and 1");
  return lazy::make_strided(of_both, result.strides(), result.device());
}

at::Tensor binary_cross_entropy(const at::Tensor& self, const at::Tensor& target,
                                const std::optional<at::Tensor>& weight, int64_t reduction) {
  using Plain = BinaryMeta<>;
  using Weighted = TernaryMeta<>;
  constexpr auto compute = Numeric<kBce, Domain::kFloat>{};
  TORCH_CHECK(self.sizes() == target.sizes(), "Using a target size (", target.sizes(),
              ") that is different to the input size (", self.sizes(),
              ") is deprecated. Please ensure they have the same size.");
  const at::Tensor loss = has(weight)
                              ? structured_functional<Weighted, compute>(self, target, *weight)
                              : structured_functional<Plain, compute>(self, target);
  return reduced(of_probabilities(loss, self, target), reduction);
}

struct BceBackwardMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target, double,
            const at::Tensor& weight) {
    build(at::TensorIteratorConfig()
              .add_output(maybe_get_output(0))
              .add_const_input(grad)
              .add_const_input(self)
              .add_const_input(target)
              .add_const_input(weight)
              .allow_cpu_scalars(true)
              .promote_inputs_to_common_dtype(true));
  }
};

at::Tensor binary_cross_entropy_backward(const at::Tensor& grad, const at::Tensor& self,
                                         const at::Tensor& target,
                                         const std::optional<at::Tensor>& weight,
                                         int64_t reduction) {
  const at::Tensor result =
      has(weight) ? structured_functional<BceBackwardMeta, Numeric<kBceBackward, Domain::kFloat>{}>(
                        grad, self, target, mean_factor(self, reduction), *weight)
                  : gradient<kBceBackward>(grad, self, target, reduction);
  return of_probabilities(result, self, target);
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("mse_loss", &mse_loss);
  m.impl("mse_loss_backward", &mse_loss_backward);
  m.impl("smooth_l1_loss", &smooth_l1_loss);
  m.impl("smooth_l1_loss_backward", &smooth_l1_loss_backward);
  m.impl("huber_loss", &huber_loss);
  m.impl("huber_loss_backward", &huber_loss_backward);
  m.impl("binary_cross_entropy", &binary_cross_entropy);
  m.impl("binary_cross_entropy_backward", &binary_cross_entropy_backward);
}

}  // namespace torch_xla::aten
