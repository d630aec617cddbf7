// Which elements occur in a set of others.

#include <ATen/ScalarOps.h>
#include <ATen/ops/isin_meta.h>
#include <ATen/ops/result_type.h>

#include "aten/elementwise.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

// elements, set: compares all pairs and reduces at once, which XLA fuses into one loop. Attributes:
// the type to compare in, and whether to negate the answer.
const Op kIsin{"aten::isin", [](Lowering& l, const Node& n) -> Results {
                 ir::AttributeReader attributes = n.attributes();
                 const auto type = attributes.enumeration<ElementType>();
                 const bool invert = attributes.boolean();
                 const XlaValue elements = l.operand(0, type), set = l.operand(1, type);
                 const int64_t rank = elements.rank(), count = set.num_elements();
                 Dims pairs(elements.dims()), leading, all;
                 for (int64_t i = 0; i < rank; ++i) leading.push_back(i);
                 pairs.push_back(count);
                 const XlaValue left = l->broadcast_in_dim(elements, pairs, leading);
                 const XlaValue right =
                     l->broadcast_in_dim(l->reshape(set, {count}), pairs, {rank});
                 const XlaValue found = l->reduce_or(l->eq(left, right), {rank});
                 return invert ? l->not_(found) : found;
               }};

template <class It>
Value isin(It& it, const at::Tensor& elements, const at::Tensor& set, bool invert) {
  const at::ScalarType common = at::result_type(elements, set);
  check_domain("isin", Domain::kNotComplex, common);
  if (set.numel() == 0) return lazy::full(invert, ElementType::kPred, it.output_dims());
  const Value each = value_of(elements);
  const Value& all = lazy::computed(each);
  return lazy::with_computed(each, Node::make(kIsin, {all, value_of(set)},
                                              Attributes::of(lazy::element_type(common), invert),
                                              ShapeRef{ElementType::kPred, all.dims()}));
}

using TensorTensor = at::meta::structured_isin_Tensor_Tensor;
using TensorScalar = at::meta::structured_isin_Tensor_Scalar;
using ScalarTensor = at::meta::structured_isin_Scalar_Tensor;

Value isin_tensors(Infer<TensorTensor, 1>& it, const at::Tensor& elements, const at::Tensor& set,
                   bool /*assume_unique*/, bool invert) {
  return isin(it, elements, set, invert);
}
Value isin_scalar_set(Infer<TensorScalar, 1>& it, const at::Tensor& elements, const at::Scalar& set,
                      bool /*assume_unique*/, bool invert) {
  return isin(it, elements, at::native::wrapped_scalar_tensor(set), invert);
}
Value isin_scalar_element(Infer<ScalarTensor, 1>& it, const at::Scalar& element,
                          const at::Tensor& set, bool /*assume_unique*/, bool invert) {
  return isin(it, at::native::wrapped_scalar_tensor(element), set, invert);
}

}  // namespace

XLA_KERNELS(m) {
  structured<TensorTensor, isin_tensors>(m,
                                         {"isin.Tensor_Tensor", nullptr, "isin.Tensor_Tensor_out"});
  structured<TensorScalar, isin_scalar_set>(
      m, {"isin.Tensor_Scalar", nullptr, "isin.Tensor_Scalar_out"});
  structured<ScalarTensor, isin_scalar_element>(
      m, {"isin.Scalar_Tensor", nullptr, "isin.Scalar_Tensor_out"});
}

}  // namespace torch_xla::aten
