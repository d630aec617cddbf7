// Negative log likelihood: the loss at the end of every classifier (cross_entropy is log_softmax
// and this).

#include <ATen/core/Reduction.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_forward_meta.h>

#include <tuple>

#include "aten/checks.h"
#include "aten/reduction.h"
#include "aten/trimmed.h"
#include "lazy/host_range.h"

namespace torch_xla::aten {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Reduction = at::Reduction::Reduction;

// What a lowering works with, batches and places made one: scores f[n, classes, places...],
// targets s64[n, places...].
struct Terms {
  XlaValue scores;
  XlaValue target;
  XlaValue counted;  // kPred: is not ignore_index
  XlaValue weight;   // of each target; 0 where it does not count
};

// Dim 1 of the scores against the targets' dims around it: x[n, target, places...].
XlaValue at_target(Builder& b, XlaValue x, XlaValue target) {
  if (x.num_elements() == 0) return b.constant(x.element_type(), target.dims(), 0);
  stablehlo::GatherDimensions dims;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i == 1) continue;
    dims.start_indices_batching_dims.push_back(
        static_cast<int64_t>(dims.operand_batching_dims.size()));
    dims.operand_batching_dims.push_back(i);
  }
  dims.collapsed_slice_dims = {1};
  dims.start_index_map = {1};
  dims.index_vector_dim = target.rank();
  Dims with_vector = target.dims();
  with_vector.push_back(1);
  return b.gather(x, b.reshape(target, with_vector), dims, Dims(x.dims().size(), 1));
}

XlaValue weight_at(Builder& b, XlaValue weight, XlaValue target) {
  stablehlo::GatherDimensions dims;
  dims.collapsed_slice_dims = {0};
  dims.start_index_map = {0};
  dims.index_vector_dim = target.rank();
  Dims with_vector = target.dims();
  with_vector.push_back(1);
  return b.gather(weight, b.reshape(target, with_vector), dims, {1});
}

// Scores and target are operands `first` and `first` + 1; the weight, if any, is the last one.
Terms terms(Lowering& l, size_t first, bool weighted, int64_t ignore_index) {
  Builder& b = l.builder();
  const ElementType type = l.operand(first).element_type();
  Terms t;
  t.scores = l.operand(first, stablehlo::opmath_type(type));
  t.target = l.operand(first + 1, ElementType::kS64);
  if (t.scores.rank() == 1) {
    t.scores = b.reshape(t.scores, {1, t.scores.dim(0)});
    t.target = b.reshape(t.target, {1});
  }
  const ElementType compute = t.scores.element_type();
  t.counted = b.ne(t.target, b.full_like(t.target, ignore_index));
  const XlaValue zero = b.constant(compute, t.target.dims(), 0);
  const XlaValue each = weighted ? weight_at(b, l.operand(l.num_operands() - 1, compute), t.target)
                                 : b.ones_like(zero);
  t.weight = b.select(t.counted, each, zero);
  return t;
}

// A mean or sum of the terms; PyTorch reduces a single sample without a batch dim always.
bool reduces(int64_t reduction, size_t rank) { return reduction != Reduction::None || rank == 1; }

// Attributes: reduction, ignore_index, whether there is a weight. Outputs: the loss, total weight.
// Where nothing is checked (checks.h), the loss of a target that is no class is NaN.
const Op kForward{
    "aten::nll_loss_forward", [](Lowering& l, const Node& n) -> Results {
      auto attributes = n.attributes();
      const int64_t reduction = attributes.integer();
      const int64_t ignore_index = attributes.integer();
      const bool weighted = attributes.boolean();
      Builder& b = l.builder();
      const size_t rank = l.operand(0).dims().size();
      const Terms t = terms(l, 0, weighted, ignore_index);
      const XlaValue zero = b.zeros_like(t.weight);
      XlaValue loss = b.multiply(b.negate(at_target(b, t.scores, t.target)), t.weight);
      loss = b.select(t.counted, loss, zero);
      const XlaValue first = b.zeros_like(t.target);
      const XlaValue end = b.full_like(t.target, t.scores.dim(1));
      const XlaValue valid =
          b.or_(b.not_(t.counted), b.and_(b.ge(t.target, first), b.lt(t.target, end)));
      const XlaValue nan = b.broadcast_to(b.nan(loss.element_type()), loss.dims());
      loss = b.select(valid, loss, nan);
      XlaValue total = b.scalar(0, loss.element_type());
      if (reduces(reduction, rank)) {
        const Dims all = stablehlo::iota_dims(loss.dims().size());
        total = b.reduce_sum(t.weight, all);
        loss = b.reduce_sum(loss, all);
        if (reduction == Reduction::Mean) loss = b.divide(loss, total);
      }
      return {as_output(l, n, loss, 0).values[0], as_output(l, n, total, 1).values[0]};
    }};

// d loss / d scores: -weight at the target, 0 elsewhere, times the gradient; over the total weight
// for a mean. Operands: grad, scores, target, total weight, weight. Attributes as forward.
const Op kBackward{"aten::nll_loss_backward", [](Lowering& l, const Node& n) -> Results {
                     auto attributes = n.attributes();
                     const int64_t reduction = attributes.integer();
                     const int64_t ignore_index = attributes.integer();
                     const bool weighted = attributes.boolean();
                     Builder& b = l.builder();
                     const Terms t = terms(l, 1, weighted, ignore_index);
                     const ElementType compute = t.scores.element_type();
                     XlaValue grad = l.operand(0, compute);
                     if (reduces(reduction, n.output().dims.size())) {
                       grad = b.reshape(grad, {});
                       if (reduction == Reduction::Mean) {
                         grad = b.divide(grad, b.reshape(l.operand(3, compute), {}));
                       }
                       grad = b.broadcast_to(grad, t.target.dims());
                     }
                     grad = b.multiply(b.negate(grad), t.weight);
                     // Over an undefined gradient (a total weight of 0) nothing ignored gets NaN.
                     grad = b.select(t.counted, grad, b.zeros_like(grad));
                     const Dims& full = t.scores.dims();
                     const XlaValue classes = b.iota(ElementType::kS64, full, 1);
                     const XlaValue hit = b.eq(classes, spread(b, t.target, full, {1}));
                     const XlaValue result =
                         b.select(hit, spread(b, grad, full, {1}), b.zeros_like(t.scores));
                     return as_output(l, n, result);
                   }};

struct Loss {
  Value loss, total_weight;
};

// Labels of which only the first count: the others are ignored. Operands: labels, their number.
// Attribute: the label to ignore.
const Op kIgnoreRest{"aten::nll_loss_forward", [](Lowering& l, const Node& n) -> Results {
                       const XlaValue labels = l.operand(0, ElementType::kS64);
                       const XlaValue place = l->iota(ElementType::kS64, labels.dims(), 0);
                       const XlaValue count = l->broadcast_to(l.operand(1), labels.dims());
                       return l->select(l->lt(place, count), labels,
                                        l->full_like(labels, n.attributes().integer()));
                     }};

// Scores and labels of samples whose number depends on data, as wholes.
struct SomeSamples {
  Value scores, labels;
  Trimmed cut;
};

std::optional<SomeSamples> some_samples(const Value& self, const Value& target,
                                        int64_t ignore_index) {
  const auto scores = lazy::trimmed(self), labels = lazy::trimmed(target);
  if (!scores || !labels || scores->dim != 0 || labels->dim != 0 || self.dims().size() < 2 ||
      scores->bound() != labels->bound()) {
    return std::nullopt;
  }
  const Value kept =
      Node::make(kIgnoreRest, {labels->whole, labels->count}, Attributes::of(ignore_index),
                 ShapeRef{ElementType::kS64, labels->whole.dims()});
  return SomeSamples{scores->whole, kept, *scores};
}

Loss forward_values(const at::Tensor& self, const at::Tensor& target, const Value& labels,
                    const at::Tensor* weight, int64_t reduction, int64_t ignore_index) {
  const bool each = !reduces(reduction, self.sizes().size());
  const ElementType type = element_type(self);
  ShapeRef outputs[] = {{type, each ? span_of(target.sizes()) : std::span<const int64_t>()},
                        {type, {}}};
  const Attributes attributes = Attributes::of(reduction, ignore_index, weight != nullptr);
  Value operands[3] = {value_of(self), labels};
  if (weight) operands[2] = value_of(*weight);
  const auto some = some_samples(operands[0], operands[1], ignore_index);
  Dims whole(outputs[0].dims);
  if (some) {
    operands[0] = some->scores;
    operands[1] = some->labels;
    if (each) whole[0] = some->cut.bound();
    outputs[0].dims = whole;
  }
  const Value loss =
      Node::make(kForward, std::span<const Value>(operands, weight ? 3 : 2), attributes, outputs);
  const Value total(loss.node, 1);
  if (!some || !each) return {loss, total};
  return {lazy::trim(loss, some->cut.count, 0, some->cut.size), total};
}

Value backward_value(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                     const at::Tensor* weight, int64_t reduction, int64_t ignore_index,
                     const at::Tensor& total_weight) {
  Value operands[5] = {value_of(grad), value_of(self), value_of(target), value_of(total_weight)};
  if (weight) operands[4] = value_of(*weight);
  const auto attributes = Attributes::of(reduction, ignore_index, weight != nullptr);
  const size_t count = weight ? 5 : 4;
  if (const auto some = some_samples(operands[1], operands[2], ignore_index)) {
    const Value whole_grad =
        whole_operand(operands[0], target.dim(), 0, some->cut.size, some->cut.bound());
    if (whole_grad) {
      operands[0] = whole_grad;
      operands[1] = some->scores;
      operands[2] = some->labels;
      const ShapeRef output{element_type(self), some->scores.dims()};
      return lazy::trim(Node::make(kBackward, std::span<const Value>(operands, count), attributes,
                                   std::span(&output, 1)),
                        some->cut.count, 0, some->cut.size);
    }
  }
  const ShapeRef output{element_type(self), span_of(self.sizes())};
  return Node::make(kBackward, std::span<const Value>(operands, count), attributes,
                    std::span(&output, 1));
}

const at::Tensor* given(const OptionalTensor& weight) {
  return weight && weight->defined() ? &*weight : nullptr;
}

at::OptionalTensorRef reference(const at::Tensor* weight) {
  return weight ? at::OptionalTensorRef(*weight) : at::OptionalTensorRef();
}

void check_dtypes(const at::Tensor& self, const at::Tensor& target, const at::Tensor* weight) {
  TORCH_CHECK(target.scalar_type() == at::kLong || target.scalar_type() == at::kByte,
              "expected target dtype to be Long or Byte, but got ", target.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(self.is_floating_point(),
                              "\"nll_loss_out_frame\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  TORCH_CHECK(!weight || weight->scalar_type() == self.scalar_type(), "expected scalar type ",
              self.scalar_type(), " but found ", weight ? weight->scalar_type() : at::kFloat);
}

// --- [n, classes] or [classes] ---

// CPU's error: at the call where the labels came from the host, else from the program.
Value checked_labels(const at::Tensor& target, int64_t classes, int64_t ignore_index) {
  const auto wrong = [&](const std::optional<lazy::Range>& range) -> std::optional<int64_t> {
    if (!range) return std::nullopt;
    for (int64_t label : {range->least, range->greatest}) {
      if (label != ignore_index && (label < 0 || label >= classes)) return label;
    }
    return std::nullopt;
  };
  const Value labels = value_of(target);
  lazy::note_bounds(labels, {0, classes, ignore_index});
  if (wrong(lazy::known_range(labels))) {
    if (const auto label = wrong(lazy::exact_range(labels))) {
      TORCH_CHECK_INDEX(false, "Target ", *label, " is out of bounds.");
    }
  }
  return checked_index(labels, 0, classes, kForward.name, CheckError::kIndex, ignore_index);
}

// What needs no check by PyTorch's meta function: a batch of matching sizes without weights.
bool is_usual(const at::Tensor& self, const at::Tensor& target, const at::Tensor* weight) {
  return !weight && self.dim() == 2 && target.dim() == 1 && self.size(0) == target.size(0);
}

std::tuple<at::Tensor, at::Tensor> nll_loss_forward(const at::Tensor& self,
                                                    const at::Tensor& target,
                                                    const OptionalTensor& weight_opt,
                                                    int64_t reduction, int64_t ignore_index) {
  const at::Tensor* weight = given(weight_opt);
  if (!is_usual(self, target, weight)) {
    Infer<at::meta::structured_nll_loss_forward, 2> it;
    it.meta(self, target, reference(weight), reduction, ignore_index);
  }
  check_dtypes(self, target, weight);
  const Value labels = checked_labels(target, self.size(-1), ignore_index);
  const Loss loss = forward_values(self, target, labels, weight, reduction, ignore_index);
  return {lazy::make(loss.loss, self.scalar_type(), self.device()),
          lazy::make(loss.total_weight, self.scalar_type(), self.device())};
}

at::Tensor nll_loss_backward(const at::Tensor& grad, const at::Tensor& self,
                             const at::Tensor& target, const OptionalTensor& weight_opt,
                             int64_t reduction, int64_t ignore_index,
                             const at::Tensor& total_weight) {
  const at::Tensor* weight = given(weight_opt);
  const bool usual = is_usual(self, target, weight) && reduction != Reduction::None &&
                     grad.dim() == 0 && total_weight.dim() == 0;
  if (!usual) {
    Infer<at::meta::structured_nll_loss_backward, 1> it;
    it.meta(grad, self, target, reference(weight), reduction, ignore_index, total_weight);
  }
  check_dtypes(self, target, weight);
  return lazy::make(
      backward_value(grad, self, target, weight, reduction, ignore_index, total_weight),
      self.scalar_type(), self.device());
}

// --- [n, classes, height, width] ---

void check_2d(const at::Tensor& self, const at::Tensor& target, const at::Tensor* weight) {
  TORCH_CHECK(target.dim() == 3,
              "only batches of spatial targets supported (3D tensors) but got targets of "
              "dimension: ",
              target.dim());
  TORCH_CHECK(self.dim() == 4,
              "only batches of spatial inputs supported (4D tensors), but got input of "
              "dimension: ",
              self.dim());
  TORCH_CHECK(!weight || weight->numel() == self.size(1),
              "weight tensor should be defined either for all or no classes");
  TORCH_CHECK(self.size(0) == target.size(0) && self.size(2) == target.size(1) &&
                  self.size(3) == target.size(2),
              "size mismatch (got input: ", self.sizes(), " , target: ", target.sizes());
  check_dtypes(self, target, weight);
}

std::tuple<at::Tensor, at::Tensor> nll_loss2d_forward(const at::Tensor& self,
                                                      const at::Tensor& target,
                                                      const OptionalTensor& weight_opt,
                                                      int64_t reduction, int64_t ignore_index) {
  const at::Tensor* weight = given(weight_opt);
  check_2d(self, target, weight);
  const Value labels = checked_labels(target, self.size(1), ignore_index);
  const Loss loss = forward_values(self, target, labels, weight, reduction, ignore_index);
  return {lazy::make(loss.loss, self.scalar_type(), self.device()),
          lazy::make(loss.total_weight, self.scalar_type(), self.device())};
}

at::Tensor nll_loss2d_backward(const at::Tensor& grad, const at::Tensor& self,
                               const at::Tensor& target, const OptionalTensor& weight_opt,
                               int64_t reduction, int64_t ignore_index,
                               const at::Tensor& total_weight) {
  const at::Tensor* weight = given(weight_opt);
  check_2d(self, target, weight);
  TORCH_CHECK(total_weight.numel() == 1,
              "expected total_weight to be a single element tensor, got: ", total_weight.sizes(),
              " (", total_weight.numel(), " elements)");
  if (reduction == Reduction::None) {
    TORCH_CHECK(grad.sizes() == target.sizes(), "grad_output must have the target's sizes ",
                target.sizes(), ", got ", grad.sizes());
  } else {
    TORCH_CHECK(grad.dim() <= 1 && grad.numel() == 1,
                "expected grad_output to be a single element tensor, got: ", grad.sizes());
  }
  return lazy::make(
      backward_value(grad, self, target, weight, reduction, ignore_index, total_weight),
      self.scalar_type(), self.device());
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("nll_loss_forward", nll_loss_forward);
  m.impl("nll_loss_backward", nll_loss_backward);
  m.impl("nll_loss2d_forward", nll_loss2d_forward);
  m.impl("nll_loss2d_backward", nll_loss2d_backward);
}

}  // namespace torch_xla::aten
