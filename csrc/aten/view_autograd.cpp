// Views that need no gradient when they are made. torch takes xla for a device without as_strided
// and keeps, with every view of a view, a copy of all view functions on the way to the base: a
// chain of k views costs k steps each. Here a view is its geometry over the base, whatever the way.
//
// Views that need a gradient at once, or that somebody observes, are torch's own, as are those of
// sparse tensors, which have no strides.

#include <ATen/ops/_reshape_alias_ops.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/expand_ops.h>
#include <ATen/ops/permute_ops.h>
#include <ATen/ops/select_ops.h>
#include <ATen/ops/slice_ops.h>
#include <ATen/ops/squeeze_ops.h>
#include <ATen/ops/t_ops.h>
#include <ATen/ops/transpose_ops.h>
#include <ATen/ops/unsqueeze_ops.h>
#include <ATen/ops/view_ops.h>
#include <torch/csrc/autograd/variable.h>

#include "aten/autograd.h"

namespace torch_xla::aten {
namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using torch::autograd::CreationMeta;
using torch::autograd::ViewInfo;

// Makes the view again from its base, for gradients that come later (an in-place op on the view).
class GeometryView final : public torch::autograd::ViewFunc {
 public:
  explicit GeometryView(const Tensor& view)
      : sizes_(view.sizes()), strides_(view.strides()), offset_(view.storage_offset()) {}

  Tensor operator()(const Tensor& base) const override {
    return base.as_strided(sizes_, strides_, offset_);
  }
  std::unique_ptr<ViewFunc> clone_and_set(
      std::optional<std::vector<c10::SymInt>> = std::nullopt,
      std::optional<std::vector<Tensor>> = std::nullopt) const override {
    return std::make_unique<GeometryView>(*this);
  }

 private:
  at::DimVector sizes_, strides_;
  int64_t offset_;
};

// What torch's as_view does, with a view function of the base's own. False, and nothing done, for
// the cases that are torch's.
bool attach(const Tensor& self, const Tensor& view) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(self);
  if (meta && (!meta->shared_view_info() || !meta->has_bw_view())) return false;
  const Tensor& base = meta ? meta->get_backward_view().base_ : self;
  if (base.scalar_type() != view.scalar_type() || base.is_conj() || base.is_neg() ||
      view.is_conj() || view.is_neg() || view.is_same(self)) {
    return false;
  }
  CreationMeta creation =
      at::GradMode::is_enabled() ? CreationMeta::DEFAULT : CreationMeta::NO_GRAD_MODE;
  if (meta)
    creation = torch::autograd::propagate_creation_meta(meta->get_creation_meta(), creation);
  auto function = std::make_unique<GeometryView>(view);
  // The base lives as long as what this is a part of: a plain pointer, which needs no allocation.
  const auto inverse = [base = base.unsafeGetTensorImpl()](const Tensor& other) {
    return other.as_strided(base->sizes(), base->strides(), base->storage_offset());
  };
  torch::autograd::make_variable_differentiable_view(
      view, ViewInfo(base, std::move(function), inverse), std::nullopt, /*shared_view_info=*/true,
      creation);
  return true;
}

template <class Op, class Signature = typename Op::schema>
struct ViewKernel;

template <class Op, class... Args>
struct ViewKernel<Op, Tensor(const Tensor&, Args...)> {
  static Tensor call(DispatchKeySet keys, const Tensor& self, Args... args) {
    if (!needs_gradient({self}) && keep_whole(keys, {self}) && !self.is_inference() &&
        !c10::InferenceMode::is_enabled() && self.layout() == c10::kStrided) {
      Tensor view;
      {
        const at::AutoDispatchBelowADInplaceOrView below;
        view = Op::redispatch(keys & c10::after_ADInplaceOrView_keyset, self, args...);
      }
      if (attach(self, view)) return view;
    }
    // torch's kernel stands on the alias of all autograd keys, so it is found on this one too.
    return Op::redispatch(
        (keys & c10::after_autograd_keyset) | DispatchKeySet(DispatchKey::AutogradOther), self,
        args...);
  }
};

template <class Op>
void impl(torch::Library& m, const char* name) {
  m.impl(name, TORCH_FN((ViewKernel<Op>::call)));
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  impl<at::_ops::view>(m, "view");
  impl<at::_ops::_reshape_alias>(m, "_reshape_alias");
  impl<at::_ops::as_strided>(m, "as_strided");
  impl<at::_ops::expand>(m, "expand");
  impl<at::_ops::permute>(m, "permute");
  impl<at::_ops::select_int>(m, "select.int");
  impl<at::_ops::slice_Tensor>(m, "slice.Tensor");
  impl<at::_ops::squeeze>(m, "squeeze");
  impl<at::_ops::squeeze_dim>(m, "squeeze.dim");
  impl<at::_ops::squeeze_dims>(m, "squeeze.dims");
  impl<at::_ops::t>(m, "t");
  impl<at::_ops::transpose_int>(m, "transpose.int");
  impl<at::_ops::unsqueeze>(m, "unsqueeze");
}

}  // namespace
}  // namespace torch_xla::aten
