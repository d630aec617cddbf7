// Fused steps of optimizers: one node a parameter, whose outputs are the new parameter and state.
// The formulas are those of torch.optim, in the same order, in f32 for 16-bit parameters.

#include <cmath>
#include <optional>

#include "aten/kernel.h"

namespace torch_xla::aten {
namespace {

using Tensors = at::TensorList;
using OptionalTensor = std::optional<at::Tensor>;

// What a step is computed from.
struct Step {
  const char* name;
  // Parameters, gradients, then state: lists of one length, of real floats. All but the gradients
  // are written.
  std::vector<Tensors> lists;
  Tensors counts = {};   // how many steps were made, with this one; empty: the formula does not ask
  at::Tensor rate = {};  // the learning rate in a tensor, in the place of numbers[0]
  std::vector<double> numbers;
  bool maximize;
  OptionalTensor scale = {};     // what gradients are divided by first; they are written then
  OptionalTensor overflow = {};  // 1: nothing changes
};

// The step as its lowering sees it, in the parameter's compute type and dims. Attributes, before
// the formula's own: the numbers of lists and numbers, and which of the optional operands are
// there.
class Formula {
 public:
  Formula(Lowering& l, const Node& n)
      : b_(l.builder()),
        node_(n),
        attributes_(n.attributes()),
        compute_(stablehlo::opmath_type(n.output().type)),
        dims_(n.output().dims) {
    const int64_t lists = attributes_.integer(), numbers = attributes_.integer();
    const bool counted = attributes_.boolean(), scaled = attributes_.boolean();
    const bool guarded = attributes_.boolean(), maximize = attributes_.boolean();
    size_t next = 0;
    for (int64_t i = 0; i < lists; ++i) {
      before_.push_back(l.operand(next));
      tensors_.push_back(l.operand(next++, compute_));
    }
    const auto number = [&] { return b_.reshape(l.operand(next++, compute_), {}); };
    for (int64_t i = 0; i < numbers; ++i) numbers_.push_back(number());
    if (counted) count_ = number();
    if (scaled) unscaled_ = gradient() = gradient() / spread(number());
    if (guarded) {
      const XlaValue flag = number();
      overflow_ = b_.broadcast_to(b_.eq(flag, b_.ones_like(flag)), dims_);
    }
    if (maximize) gradient() = b_.negate(gradient());
  }

  Builder& builder() { return b_; }
  ir::AttributeReader& attributes() { return attributes_; }
  XlaValue& parameter() { return tensors_[0]; }
  XlaValue& gradient() { return tensors_[1]; }
  XlaValue& state(size_t i) { return tensors_[2 + i]; }
  // Of rank 0.
  XlaValue count() const { return count_; }
  XlaValue number(size_t i) const { return numbers_[i]; }
  XlaValue spread(XlaValue number) const { return b_.broadcast_to(number, dims_); }

  // What the tensors are after the step: the parameter, the gradient if it was scaled, the state.
  Results results() {
    std::vector<XlaValue> values;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (i == 1 && !unscaled_) continue;
      const XlaValue after =
          b_.convert(i == 1 ? *unscaled_ : tensors_[i], node_.output(values.size()).type);
      values.push_back(overflow_ ? b_.select(*overflow_, before_[i], after) : after);
    }
    return values;
  }

 private:
  Builder& b_;
  const Node& node_;
  ir::AttributeReader attributes_;
  ElementType compute_;
  Dims dims_;
  std::vector<XlaValue> before_, tensors_, numbers_;
  XlaValue count_;
  std::optional<XlaValue> unscaled_, overflow_;
};

void check(const Step& step) {
  const Tensors& parameters = step.lists[0];
  for (const Tensors& list : step.lists) {
    TORCH_CHECK(list.size() == parameters.size(), step.name, ": expected ", parameters.size(),
                " tensors in each list, as there are parameters, got ", list.size());
  }
  TORCH_CHECK(step.counts.empty() || step.counts.size() == parameters.size(), step.name,
              ": expected ", parameters.size(), " counts of steps, got ", step.counts.size());
  for (const Tensors& list : step.lists) {
    for (size_t i = 0; i < list.size(); ++i) {
      const at::Tensor& tensor = list[i];
      TORCH_CHECK(tensor.device() == parameters[i].device() && lazy::is_xla(tensor), step.name,
                  ": expected all tensors of a parameter on its xla device, got one on ",
                  tensor.device(), " and a parameter on ", parameters[i].device());
      TORCH_CHECK(at::isFloatingType(tensor.scalar_type()), step.name,
                  ": expected floating point tensors, got ", tensor.scalar_type());
      TORCH_CHECK(tensor.sizes() == parameters[i].sizes(), step.name,
                  ": expected state and gradient of the parameter's sizes ", parameters[i].sizes(),
                  ", got ", tensor.sizes());
    }
  }
}

// A number in a tensor of one element, on the device or the host.
Value number_of(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.numel() == 1, name, ": expected a tensor of one element, got one of sizes ",
              tensor.sizes());
  if (tensor.is_cpu()) return lazy::scalar(tensor.item(), element_type(tensor));
  return lazy::read(tensor);
}

void run(const Op& op, const Step& step, std::initializer_list<bool> options) {
  check(step);
  Attributes attributes =
      Attributes::of(step.lists.size(), step.numbers.size(), !step.counts.empty(),
                     step.scale.has_value(), step.overflow.has_value(), step.maximize);
  for (bool option : options) attributes.add(option);

  // Numbers are the same nodes for all parameters of a compute type.
  std::vector<Value> numbers;
  const auto use_numbers = [&](ElementType type) {
    if (!numbers.empty() && numbers.back().type() == type) return;
    numbers.clear();
    for (double number : step.numbers) numbers.push_back(lazy::scalar(number, type));
    if (step.rate.defined()) numbers[0] = number_of(step.name, step.rate);
  };
  const Value scale = step.scale ? number_of(step.name, *step.scale) : Value();
  const Value overflow = step.overflow ? number_of(step.name, *step.overflow) : Value();

  std::vector<Value> operands;
  std::vector<ShapeRef> outputs;
  for (size_t i = 0; i < step.lists[0].size(); ++i) {
    operands.clear();
    outputs.clear();
    for (size_t k = 0; k < step.lists.size(); ++k) {
      operands.push_back(lazy::read(step.lists[k][i]));
      if (k != 1 || scale) outputs.push_back(operands.back().shape());
    }
    use_numbers(stablehlo::opmath_type(operands[0].type()));
    operands.insert(operands.end(), numbers.begin(), numbers.end());
    if (!step.counts.empty()) operands.push_back(number_of(step.name, step.counts[i]));
    if (scale) operands.push_back(scale);
    if (overflow) operands.push_back(overflow);
    const ir::NodePtr node = Node::take(op, operands, attributes, outputs);
    uint32_t output = 0;
    for (size_t k = 0; k < step.lists.size(); ++k) {
      if (k != 1 || scale) lazy::write(step.lists[k][i], Value(node, output++));
    }
  }
}

// --- Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019) ---

// As torch.lerp: from the nearer end.
XlaValue lerp(Formula& f, XlaValue start, XlaValue end, XlaValue weight) {
  Builder& b = f.builder();
  const XlaValue difference = end - start, share = f.spread(weight);
  const XlaValue half = b.full_like(weight, 0.5);
  return b.select(f.spread(b.lt(weight, half)), start + share * difference,
                  end - difference * (1 - share));
}

// 1 - beta^count, with the logarithm of beta: in f32 the difference itself would lose digits.
XlaValue bias_correction(Formula& f, XlaValue log_beta) {
  return f.builder().negate(f.builder().exponential_minus_one(f.count() * log_beta));
}

// State: the averages of the gradient and of its square, and with amsgrad the greatest of the
// latter. Numbers: rate, decay, 1 - beta1, log beta1, beta2, 1 - beta2, log beta2, eps.
const Op kAdam{"aten::_fused_adam", [](Lowering& l, const Node& n) -> Results {
                 Formula f(l, n);
                 Builder& b = f.builder();
                 const bool decays = f.attributes().boolean();
                 const bool decoupled = f.attributes().boolean();
                 const bool amsgrad = f.attributes().boolean();
                 const XlaValue rate = f.number(0), decay = f.number(1);
                 XlaValue &parameter = f.parameter(), &gradient = f.gradient();
                 XlaValue &mean = f.state(0), &square = f.state(1);
                 if (decays && decoupled) parameter = parameter * f.spread(1 - rate * decay);
                 if (decays && !decoupled) gradient = gradient + parameter * f.spread(decay);
                 mean = lerp(f, mean, gradient, f.number(2));
                 square =
                     square * f.spread(f.number(4)) + f.spread(f.number(5)) * gradient * gradient;
                 if (amsgrad) f.state(2) = b.maximum(f.state(2), square);
                 const XlaValue largest = amsgrad ? f.state(2) : square;
                 const XlaValue root = f.spread(b.sqrt(bias_correction(f, f.number(6))));
                 const XlaValue denominator = b.sqrt(largest) / root + f.spread(f.number(7));
                 const XlaValue size = f.spread(rate / bias_correction(f, f.number(3)));
                 parameter = parameter - size * mean / denominator;
                 return f.results();
               }};

template <bool decoupled>
struct Adam {
  static constexpr auto kName = decoupled ? "_fused_adamw_" : "_fused_adam_";

  static void step(Tensors self, Tensors grads, Tensors exp_avgs, Tensors exp_avg_sqs,
                   Tensors max_exp_avg_sqs, Tensors state_steps, const at::Tensor& rate_tensor,
                   double lr, double beta1, double beta2, double weight_decay, double eps,
                   bool amsgrad, bool maximize, const OptionalTensor& grad_scale,
                   const OptionalTensor& found_inf) {
    Step step{.name = kName,
              .lists = {self, grads, exp_avgs, exp_avg_sqs},
              .counts = state_steps,
              .rate = rate_tensor,
              .numbers = {lr, weight_decay, 1 - beta1, std::log(beta1), beta2, 1 - beta2,
                          std::log(beta2), eps},
              .maximize = maximize,
              .scale = grad_scale,
              .overflow = found_inf};
    if (amsgrad) step.lists.push_back(max_exp_avg_sqs);
    run(kAdam, step, {weight_decay != 0, decoupled, amsgrad});
  }

  static void with_number(Tensors self, Tensors grads, Tensors exp_avgs, Tensors exp_avg_sqs,
                          Tensors max_exp_avg_sqs, Tensors state_steps, double lr, double beta1,
                          double beta2, double weight_decay, double eps, bool amsgrad,
                          bool maximize, const OptionalTensor& grad_scale,
                          const OptionalTensor& found_inf) {
    step(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, {}, lr, beta1, beta2,
         weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
  }
  static void with_tensor(Tensors self, Tensors grads, Tensors exp_avgs, Tensors exp_avg_sqs,
                          Tensors max_exp_avg_sqs, Tensors state_steps, const at::Tensor& lr,
                          double beta1, double beta2, double weight_decay, double eps, bool amsgrad,
                          bool maximize, const OptionalTensor& grad_scale,
                          const OptionalTensor& found_inf) {
    step(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, 0, beta1, beta2,
         weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
  }
};

// --- SGD with momentum (Sutskever et al. 2013, in torch's form) ---

// State: the momentum, if there is one. Numbers: rate, decay, momentum, 1 - dampening.
const Op kSgd{"aten::_fused_sgd", [](Lowering& l, const Node& n) -> Results {
                Formula f(l, n);
                const bool decays = f.attributes().boolean();
                const bool has_momentum = f.attributes().boolean();
                const bool nesterov = f.attributes().boolean();
                const bool first = f.attributes().boolean();
                XlaValue &parameter = f.parameter(), &gradient = f.gradient();
                if (decays) gradient = gradient + parameter * f.spread(f.number(1));
                if (has_momentum) {
                  const XlaValue momentum = f.spread(f.number(2));
                  XlaValue& state = f.state(0);
                  state = first ? gradient : state * momentum + gradient * f.spread(f.number(3));
                  gradient = nesterov ? gradient + state * momentum : state;
                }
                parameter = parameter - gradient * f.spread(f.number(0));
                return f.results();
              }};

void sgd_step(Tensors self, Tensors grads, Tensors momentum_buffers, const at::Tensor& rate_tensor,
              double lr, double weight_decay, double momentum, double dampening, bool nesterov,
              bool maximize, bool is_first_step, const OptionalTensor& grad_scale,
              const OptionalTensor& found_inf) {
  const bool has_momentum = !momentum_buffers.empty();
  TORCH_CHECK(has_momentum || momentum == 0,
              "_fused_sgd_: expected a momentum buffer for each "
              "parameter, as momentum is ",
              momentum);
  Step step{.name = "_fused_sgd_",
            .lists = {self, grads},
            .rate = rate_tensor,
            .numbers = {lr, weight_decay, momentum, 1 - dampening},
            .maximize = maximize,
            .scale = grad_scale,
            .overflow = found_inf};
  if (has_momentum) step.lists.push_back(momentum_buffers);
  run(kSgd, step, {weight_decay != 0, has_momentum, nesterov, is_first_step});
}

void sgd(Tensors self, Tensors grads, Tensors momentum_buffers, double weight_decay,
         double momentum, double lr, double dampening, bool nesterov, bool maximize,
         bool is_first_step, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  sgd_step(self, grads, momentum_buffers, {}, lr, weight_decay, momentum, dampening, nesterov,
           maximize, is_first_step, grad_scale, found_inf);
}
void sgd_tensor_lr(Tensors self, Tensors grads, Tensors momentum_buffers, double weight_decay,
                   double momentum, const at::Tensor& lr, double dampening, bool nesterov,
                   bool maximize, bool is_first_step, const OptionalTensor& grad_scale,
                   const OptionalTensor& found_inf) {
  sgd_step(self, grads, momentum_buffers, lr, 0, weight_decay, momentum, dampening, nesterov,
           maximize, is_first_step, grad_scale, found_inf);
}

// --- Adagrad (Duchi et al. 2011) ---

// State: the sum of squares. Numbers: rate, decay, decay of the rate, eps.
const Op kAdagrad{"aten::_fused_adagrad", [](Lowering& l, const Node& n) -> Results {
                    Formula f(l, n);
                    Builder& b = f.builder();
                    XlaValue &parameter = f.parameter(), &gradient = f.gradient();
                    const bool decays = f.attributes().boolean();
                    if (decays) gradient = gradient + parameter * f.spread(f.number(1));
                    f.state(0) = f.state(0) + gradient * gradient;
                    const XlaValue rate = f.number(0) / (1 + (f.count() - 1) * f.number(2));
                    const XlaValue denominator = b.sqrt(f.state(0)) + f.spread(f.number(3));
                    parameter = parameter - f.spread(rate) * gradient / denominator;
                    return f.results();
                  }};

void adagrad_step(Tensors self, Tensors grads, Tensors state_sums, Tensors state_steps,
                  const at::Tensor& rate_tensor, double lr, double lr_decay, double weight_decay,
                  double eps, bool maximize, const OptionalTensor& grad_scale,
                  const OptionalTensor& found_inf) {
  const Step step{.name = "_fused_adagrad_",
                  .lists = {self, grads, state_sums},
                  .counts = state_steps,
                  .rate = rate_tensor,
                  .numbers = {lr, weight_decay, lr_decay, eps},
                  .maximize = maximize,
                  .scale = grad_scale,
                  .overflow = found_inf};
  run(kAdagrad, step, {weight_decay != 0});
}

void adagrad(Tensors self, Tensors grads, Tensors state_sums, Tensors state_steps, double lr,
             double lr_decay, double weight_decay, double eps, bool maximize,
             const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  adagrad_step(self, grads, state_sums, state_steps, {}, lr, lr_decay, weight_decay, eps, maximize,
               grad_scale, found_inf);
}
void adagrad_tensor_lr(Tensors self, Tensors grads, Tensors state_sums, Tensors state_steps,
                       const at::Tensor& lr, double lr_decay, double weight_decay, double eps,
                       bool maximize, const OptionalTensor& grad_scale,
                       const OptionalTensor& found_inf) {
  adagrad_step(self, grads, state_sums, state_steps, lr, 0, lr_decay, weight_decay, eps, maximize,
               grad_scale, found_inf);
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("_fused_adam_", Adam<false>::with_number);
  m.impl("_fused_adam_.tensor_lr", Adam<false>::with_tensor);
  m.impl("_fused_adamw_", Adam<true>::with_number);
  m.impl("_fused_adamw_.tensor_lr", Adam<true>::with_tensor);
  m.impl("_fused_sgd_", sgd);
  m.impl("_fused_sgd_.tensor_lr", sgd_tensor_lr);
  m.impl("_fused_adagrad_", adagrad);
  m.impl("_fused_adagrad_.tensor_lr", adagrad_tensor_lr);
}

}  // namespace torch_xla::aten
