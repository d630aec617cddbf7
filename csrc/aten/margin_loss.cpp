// Margin losses of classification, composed of other operators: one formula gives the loss, its
// derivative the gradient.

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "aten/elementwise.h"

namespace torch_xla::aten {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool has(const OptionalTensor& tensor) { return tensor && tensor->defined(); }

void check_input(const at::Tensor& self) {
  const bool batch = self.dim() == 2 && self.size(1) != 0;
  const bool single = self.dim() < 2 && self.numel() != 0;
  TORCH_CHECK(batch || single,
              "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ",
              self.sizes());
}

// Samples as rows; a lone sample is one row.
at::Tensor as_rows(const at::Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.reshape({1, -1});
}

at::Tensor reduced(const at::Tensor& loss, int64_t reduction, at::IntArrayRef sizes) {
  if (reduction == at::Reduction::Mean) return at::mean(loss);
  if (reduction == at::Reduction::Sum) return at::sum(loss);
  return loss.reshape(sizes);
}

// The gradient of each row's loss [rows, 1].
at::Tensor row_gradient(const at::Tensor& grad, int64_t rows, int64_t reduction) {
  const at::Tensor column = grad.numel() == 1 ? grad.reshape({1, 1}) : grad.reshape({rows, 1});
  return reduction == at::Reduction::Mean ? column / static_cast<double>(rows) : column;
}

// --- multi_margin_loss: mean over the other classes of max(0, margin - x[target] + x[i])^p ---

struct Margins {
  at::Tensor rows, target;  // [rows, classes], [rows, 1]
  at::Tensor is_target;     // where i is the target
  at::Tensor margins;       // margin - x[target] + x[i], weighted by `weight`, not cut off
  at::Tensor weight;        // [rows, 1] or undefined
};

Margins margins_of(const at::Tensor& self, const at::Tensor& target, const at::Scalar& p,
                   const at::Scalar& margin, const OptionalTensor& weight) {
  TORCH_CHECK(p.equal(1) || p.equal(2), "only p == 1 and p == 2 supported");
  check_input(self);
  check_domain("multi_margin_loss", Domain::kFloat, self.scalar_type());
  TORCH_CHECK(target.scalar_type() == at::kLong, "expected scalar type Long but found ",
              target.scalar_type());
  Margins m{as_rows(self), target.reshape({-1, 1}), {}, {}, {}};
  const int64_t rows = m.rows.size(0), classes = m.rows.size(1);
  TORCH_CHECK(target.dim() <= 1 && target.numel() == rows,
              "multi_margin_loss: target tensor should be 1-D with size equal to the number of "
              "input samples (batch size). Expected target size [",
              rows, "], but got ", target.sizes(), ". Input has shape ", self.sizes(), ".");
  m.is_target = at::eq(at::arange(classes, target.options()), m.target);
  m.margins = m.rows - at::gather(m.rows, 1, m.target) + margin;
  if (has(weight)) {
    TORCH_CHECK(weight->dim() <= 1 && weight->numel() == classes,
                "inconsistent weight size, expected ", classes, " but got ", weight->sizes());
    m.weight = at::index_select(weight->reshape({-1}), 0, m.target.reshape({-1})).unsqueeze(1);
  }
  return m;
}

at::Tensor multi_margin_loss(const at::Tensor& self, const at::Tensor& target, const at::Scalar& p,
                             const at::Scalar& margin, const OptionalTensor& weight,
                             int64_t reduction) {
  const Margins m = margins_of(self, target, p, margin, weight);
  at::Tensor loss = at::clamp_min(m.margins, 0);
  if (p.equal(2)) loss = loss * loss;
  if (m.weight.defined()) loss = loss * m.weight;
  loss = at::sum(loss.masked_fill(m.is_target, 0), 1) / static_cast<double>(m.rows.size(1));
  return reduced(loss, reduction, target.sizes());
}

at::Tensor multi_margin_loss_backward(const at::Tensor& grad, const at::Tensor& self,
                                      const at::Tensor& target, const at::Scalar& p,
                                      const at::Scalar& margin, const OptionalTensor& weight,
                                      int64_t reduction) {
  const Margins m = margins_of(self, target, p, margin, weight);
  const at::Tensor above = (m.margins > 0).logical_and(m.is_target.logical_not());
  at::Tensor slope = p.equal(2) ? at::clamp_min(m.margins, 0) * 2 : at::zeros_like(m.margins) + 1;
  if (m.weight.defined()) slope = slope * m.weight;
  slope = at::where(above, slope, at::zeros_like(slope)) / static_cast<double>(m.rows.size(1));
  slope = at::where(m.is_target, -at::sum(slope, 1, /*keepdim=*/true), slope);
  return (slope * row_gradient(grad, m.rows.size(0), reduction)).reshape(self.sizes());
}

// --- multilabel_margin_loss: the targets of a row are its entries before the first -1 ---

struct Labels {
  at::Tensor rows;       // [rows, classes]
  at::Tensor target;     // [rows, labels], clamped to classes
  at::Tensor valid;      // which of them count, 1 or 0 in the input's dtype
  at::Tensor is_target;  // [rows, classes], 1 or 0
  at::Tensor margins;    // [rows, labels, classes]: 1 - x[label] + x[class]
  at::Tensor counted;    // which of them count, 1 or 0
};

Labels labels_of(const at::Tensor& self, const at::Tensor& target) {
  check_input(self);
  TORCH_CHECK(target.sizes() == self.sizes(), "inconsistent target size: ", target.sizes(),
              " for input of size: ", self.sizes());
  check_domain("multilabel_margin_loss", Domain::kFloat, self.scalar_type());
  TORCH_CHECK(target.scalar_type() == at::kLong, "expected scalar type Long but found ",
              target.scalar_type());
  Labels l{as_rows(self), as_rows(target), {}, {}, {}, {}};
  l.valid = at::cumprod((l.target >= 0).to(self.scalar_type()), 1);
  l.target = at::clamp_min(l.target, 0);
  l.is_target = (at::zeros_like(l.rows).scatter_add(1, l.target, l.valid) > 0).to(l.rows.dtype());
  l.margins = 1 - at::gather(l.rows, 1, l.target).unsqueeze(2) + l.rows.unsqueeze(1);
  l.counted = l.valid.unsqueeze(2) * (1 - l.is_target).unsqueeze(1);
  return l;
}

std::tuple<at::Tensor, at::Tensor> multilabel_margin_loss(const at::Tensor& self,
                                                          const at::Tensor& target,
                                                          int64_t reduction) {
  const Labels l = labels_of(self, target);
  const int64_t both[] = {1, 2};
  const at::Tensor loss =
      at::sum(at::clamp_min(l.margins, 0) * l.counted, both) / static_cast<double>(l.rows.size(1));
  const at::IntArrayRef sizes = self.dim() == 2 ? self.sizes().slice(0, 1) : at::IntArrayRef();
  return {reduced(loss, reduction, sizes), l.is_target.reshape(target.sizes())};
}

at::Tensor multilabel_margin_loss_backward(const at::Tensor& grad, const at::Tensor& self,
                                           const at::Tensor& target, int64_t reduction,
                                           const at::Tensor& /*is_target*/) {
  const Labels l = labels_of(self, target);
  const at::Tensor slope =
      (l.margins > 0).to(self.scalar_type()) * l.counted / static_cast<double>(l.rows.size(1));
  const at::Tensor pulled = -at::sum(slope, 2);  // [rows, labels]
  const at::Tensor pushed = at::sum(slope, 1);   // [rows, classes]
  return (pushed.scatter_add(1, l.target, pulled) * row_gradient(grad, l.rows.size(0), reduction))
      .reshape(self.sizes());
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("multi_margin_loss", &multi_margin_loss);
  m.impl("multi_margin_loss_backward", &multi_margin_loss_backward);
  m.impl("multilabel_margin_loss_forward", &multilabel_margin_loss);
  m.impl("multilabel_margin_loss_backward", &multilabel_margin_loss_backward);
}

}  // namespace torch_xla::aten
