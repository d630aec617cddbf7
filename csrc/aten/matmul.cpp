// Products of matrices and vectors, with and without something to add.

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_addmm_activation_meta.h>
#include <ATen/ops/_trilinear_native.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/addr_native.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_meta.h>

#include <cmath>

#include "aten/masked.h"
#include "aten/product.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

using at::Tensor;
using c10::Scalar;

Results lower_product(Lowering& l, const Node& n) {
  const XlaValue product = n.output().dims.size() == 3
                               ? contract(l, l.operand(0), l.operand(1), {{0}, {0}, {2}, {1}})
                               : matrix_product(l, l.operand(0), l.operand(1));
  return l->convert(product, n.output().type);
}

const Op kMm{"aten::mm", lower_product};
const Op kBmm{"aten::bmm", lower_product};
const Op kMv{"aten::mv", lower_product};
const Op kDot{"aten::dot", lower_product};
const Op kVdot{"aten::vdot", [](Lowering& l, const Node&) -> Results {
                 return contract(l, l->conj(l.operand(0)), l.operand(1), {{}, {}, {0}, {0}});
               }};

// What `self` and the product are scaled by, in the order of the operands behind them.
struct Scaling {
  bool add_self, scale_self, scale_product;
};

// beta self + alpha product, rounded once. `self` broadcasts; with beta 0 its NaNs do not count.
XlaValue scaled_sum(Lowering& l, const Node& n, XlaValue product) {
  ir::AttributeReader a = n.attributes();
  const Scaling scaling{a.boolean(), a.boolean(), a.boolean()};
  const ElementType type = product.element_type();
  size_t next = 3;
  XlaValue self;
  if (scaling.add_self) {
    self = l->broadcast_to(l.operand(0, type), product.dims());
    if (scaling.scale_self) {
      self = l->multiply(l->broadcast_to(l.operand(next++, type), product.dims()), self);
    }
  }
  if (scaling.scale_product) {
    product = l->multiply(l->broadcast_to(l.operand(next, type), product.dims()), product);
  }
  return l->convert(self ? l->add(self, product) : product, n.output().type);
}

Results lower_add_product(Lowering& l, const Node& n) {
  const XlaValue product = n.output().dims.size() == 3
                               ? contract(l, l.operand(1), l.operand(2), {{0}, {0}, {2}, {1}})
                               : matrix_product(l, l.operand(1), l.operand(2));
  return scaled_sum(l, n, product);
}

const Op kAddmm{"aten::addmm", lower_add_product};
const Op kBaddbmm{"aten::baddbmm", lower_add_product};
const Op kAddmv{"aten::addmv", lower_add_product};
// The sum over the batch is part of the contraction.
const Op kAddbmm{"aten::addbmm", [](Lowering& l, const Node& n) -> Results {
                   const XlaValue product =
                       contract(l, l.operand(1), l.operand(2), {{}, {}, {0, 2}, {0, 1}});
                   return scaled_sum(l, n, product);
                 }};

// Attributes: as addmm, then whether the activation is gelu and not relu.
const Op kAddmmActivation{"aten::_addmm_activation", [](Lowering& l, const Node& n) -> Results {
                            ir::AttributeReader a = n.attributes();
                            for (int i = 0; i < 3; ++i) a.boolean();
                            XlaValue x = lower_add_product(l, n).values[0];
                            x = l->convert(x, stablehlo::opmath_type(x.element_type()));
                            const XlaValue y = a.boolean() ? x * (1.0 + l->erf(x * M_SQRT1_2)) * 0.5
                                                           : l->maximum(x, l->zeros_like(x));
                            return l->convert(y, n.output().type);
                          }};

bool is_one(const Scalar& number) {
  return number.isIntegral(false) ? number.toLong() == 1 : number.equal(1.0);
}
bool is_zero(const Scalar& number) {
  return number.isIntegral(false) ? number.toLong() == 0 : number.equal(0.0);
}

Value add_product(const Op& op, const Tensor& self, const Tensor& a, const Tensor& b,
                  const Scalar& beta, const Scalar& alpha, ShapeRef output,
                  std::optional<bool> gelu = {}) {
  const at::ScalarType dtype = self.scalar_type();
  const bool in_dtype = &op == &kAddmv || !at::isReducedFloatingType(dtype);  // as CPU's kernels
  for (const Scalar* number : {&beta, &alpha}) check_number(*number, in_dtype ? dtype : at::kFloat);
  std::array<Value, 5> operands{value_of(self), value_of(a), value_of(b)};
  size_t count = 3;
  const Scaling scaling{!is_zero(beta), !is_zero(beta) && !is_one(beta), !is_one(alpha)};
  const ElementType type = operands[1].type();
  if (scaling.scale_self) operands[count++] = lazy::scalar(beta, stablehlo::opmath_type(type));
  if (scaling.scale_product) operands[count++] = lazy::scalar(alpha, stablehlo::opmath_type(type));
  Attributes attributes =
      Attributes::of(scaling.add_self, scaling.scale_self, scaling.scale_product);
  if (gelu) attributes.add(*gelu);
  const auto rows = lazy::trimmed(operands[1]);
  if (&op == &kAddmm && rows && rows->dim == 0) [[unlikely]] {
    Value added = whole_operand(operands[0], 2, 0, rows->size, rows->bound());
    if (added) {
      Dims dims(output.dims);
      dims[0] = rows->bound();
      const Value cut = operands[1];
      operands[0] = std::move(added);
      operands[1] = rows->whole;
      return lazy::with_computed(cut, Node::make(op, std::span<const Value>(operands.data(), count),
                                                 attributes, ShapeRef{output.type, dims}));
    }
  }
  return Node::take(op, std::span(operands.data(), count), attributes, std::span(&output, 1));
}

void check_not_bool(const char* name, const Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.scalar_type() != at::kBool, "\"", name,
                              "\" not implemented for 'Bool'");
}

// Nothing to multiply, whatever the dtype.
bool has_no_products(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == at::kBool && b.scalar_type() == at::kBool &&
         (a.numel() == 0 || b.numel() == 0);
}
Value zeros(ShapeRef shape) { return lazy::full(0, shape.type, shape.dims); }

// What is added broadcasts to the product.
void check_expands(const Tensor& self, at::IntArrayRef sizes) {
  if (at::is_expandable_to(self.sizes(), sizes)) return;
  TORCH_CHECK(self.dim() <= static_cast<int64_t>(sizes.size()), "expand(", self.toString(), "{",
              self.sizes(), "}, size=", sizes, "): the number of sizes provided (", sizes.size(),
              ") must be greater or equal to the number of dimensions in the tensor (", self.dim(),
              ")");
  at::inferExpandGeometry_dimvector(self.sizes(), self.strides(), sizes);  // says what differs
}

void check_same_dtype(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "expected scalar type ", a.scalar_type(),
              " but found ", b.scalar_type());
}

// Two xla tensors of one dtype that products are defined for.
bool same_kind(const Tensor& a, const Tensor& b) {
  return a.is_xla() && b.is_xla() && a.dtype() == b.dtype() && a.device() == b.device() &&
         a.scalar_type() != at::kBool;
}

template <size_t kRank>
Tensor make(const Op& op, std::array<int64_t, kRank> sizes, const Tensor& a, const Tensor& b) {
  return lazy::make(
      Node::make(op, {lazy::read(a), lazy::read(b)}, {}, ShapeRef{element_type(a), sizes}),
      a.scalar_type(), a.device());
}

// --- mm, bmm ---

// mm, or bmm. Rows of a, columns of b, or matrices, whose number depends on data: so many in the
// result.
Value product_node(const Op& op, const Value& a, const Value& b, ShapeRef output) {
  const auto left = lazy::trimmed(a), right = lazy::trimmed(b);
  if (!left && !right) [[likely]]
    return Node::make(op, {a, b}, {}, output);
  const auto rank = static_cast<int64_t>(output.dims.size());
  const int64_t rows = rank - 2, columns = rank - 1;
  Dims dims(output.dims);
  if (left && left->dim == rows) {
    dims[static_cast<size_t>(rows)] = left->bound();
    return lazy::with_computed(a, product_node(op, left->whole, b, {output.type, dims}));
  }
  if (right && right->dim == columns) {
    dims[static_cast<size_t>(columns)] = right->bound();
    return lazy::with_computed(b, product_node(op, a, right->whole, {output.type, dims}));
  }
  const Trimmed& cut = left ? *left : *right;
  const bool matrices = rank == 3 && cut.dim == 0;
  // Otherwise the sum is over what counts: the rest is zero.
  const int64_t a_dim = matrices ? 0 : columns, b_dim = matrices ? 0 : rows;
  Value x = whole_operand(a, rank, a_dim, cut.size, cut.bound());
  Value y = whole_operand(b, rank, b_dim, cut.size, cut.bound());
  if (!x || !y) return Node::make(op, {a, b}, {}, output);
  if (matrices) {
    dims[0] = cut.bound();
    return lazy::trim(Node::make(op, {x, y}, {}, ShapeRef{output.type, dims}), cut.count, 0,
                      cut.size);
  }
  x = lazy::filled({x, cut.count, a_dim, cut.size}, Neutral::kZero);
  y = lazy::filled({y, cut.count, b_dim, cut.size}, Neutral::kZero);
  return Node::make(op, {x, y}, {}, output);
}

// Sums of products of two vectors, or of a matrix and a vector.
Value vector_node(const Op& op, const Value& a, const Value& b, ShapeRef output) {
  const auto rows = lazy::trimmed(a), elements = lazy::trimmed(b);
  if (!rows && !elements) [[likely]]
    return Node::make(op, {a, b}, {}, output);
  const auto last = static_cast<int64_t>(a.dims().size()) - 1;
  if (rows && rows->dim < last) {
    const std::array<int64_t, 1> dims{rows->bound()};
    return lazy::with_computed(a, vector_node(op, rows->whole, b, {output.type, dims}));
  }
  const Trimmed& inner = rows ? *rows : *elements;
  const Value left = whole_operand(a, last + 1, last, inner.size, inner.bound());
  const Value right = whole_operand(b, 1, 0, inner.size, inner.bound());
  if (!left || !right) return Node::make(op, {a, b}, {}, output);
  return Node::make(op,
                    {lazy::filled({left, inner.count, last, inner.size}, Neutral::kZero),
                     lazy::filled({right, inner.count, 0, inner.size}, Neutral::kZero)},
                    {}, output);
}

Value mm_compute(Infer<at::meta::structured_mm, 1>& it, const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dtype() == other.dtype(),
              "expected m1 and m2 to have the same dtype, but got: ", self.dtype(),
              " != ", other.dtype());
  if (has_no_products(self, other)) return zeros(it.output_shape());
  check_not_bool("addmm_impl_cpu_", self);
  at::assert_no_internal_overlap(it.output());
  return product_node(kMm, value_of(self), value_of(other), it.output_shape());
}

Tensor mm(const Tensor& self, const Tensor& other) {
  if (same_kind(self, other) && self.dim() == 2 && other.dim() == 2 &&
      self.size(1) == other.size(0)) {
    const std::array<int64_t, 2> sizes{self.size(0), other.size(1)};
    return lazy::make(
        product_node(kMm, lazy::read(self), lazy::read(other), {element_type(self), sizes}),
        self.scalar_type(), self.device());
  }
  return structured_functional<at::meta::structured_mm, &mm_compute>(self, other);
}

Value bmm_compute(Infer<at::meta::structured_bmm, 1>& it, const Tensor& self, const Tensor& other) {
  if (has_no_products(self, other)) return zeros(it.output_shape());
  check_not_bool("bmm", self);  // before the other, as on CPU
  check_same_dtype(self, other);
  return product_node(kBmm, value_of(self), value_of(other), it.output_shape());
}

Tensor bmm(const Tensor& self, const Tensor& other) {
  if (same_kind(self, other) && self.dim() == 3 && other.dim() == 3 &&
      self.size(0) == other.size(0) && self.size(2) == other.size(1)) {
    const std::array<int64_t, 3> sizes{self.size(0), self.size(1), other.size(2)};
    return lazy::make(
        product_node(kBmm, lazy::read(self), lazy::read(other), {element_type(self), sizes}),
        self.scalar_type(), self.device());
  }
  return structured_functional<at::meta::structured_bmm, &bmm_compute>(self, other);
}

// --- addmm, baddbmm, addmv ---

Value addmm_compute(Infer<at::meta::structured_addmm, 1>& it, const Tensor& self, const Tensor& a,
                    const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  TORCH_CHECK(a.dtype() == b.dtype(),
              "expected m1 and m2 to have the same dtype, but got: ", a.dtype(), " != ", b.dtype());
  check_not_bool("addmm_impl_cpu_", self);
  check_expands(self, it.output().sizes());
  at::assert_no_internal_overlap(it.output());
  return add_product(kAddmm, self, a, b, beta, alpha, it.output_shape());
}

Tensor addmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
             const Scalar& alpha) {
  if (same_kind(a, b) && same_kind(self, a) && a.dim() == 2 && b.dim() == 2 &&
      a.size(1) == b.size(0)) {
    const std::array<int64_t, 2> sizes{a.size(0), b.size(1)};
    if ((self.dim() == 1 && self.size(0) == sizes[1]) || self.sizes() == at::IntArrayRef(sizes)) {
      return lazy::make(
          add_product(kAddmm, self, a, b, beta, alpha, ShapeRef{element_type(a), sizes}),
          a.scalar_type(), a.device());
    }
  }
  return structured_functional<at::meta::structured_addmm, &addmm_compute>(self, a, b, beta, alpha);
}

Value addmm_activation(Infer<at::meta::structured__addmm_activation, 1>& it, const Tensor& self,
                       const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha,
                       bool gelu) {
  check_same_dtype(a, b);
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()),
                              "\"_addmm_activation\" not implemented for '", self.scalar_type(),
                              "'");
  check_expands(self, it.output().sizes());
  return add_product(kAddmmActivation, self, a, b, beta, alpha, it.output_shape(), gelu);
}

Value baddbmm_compute(Infer<at::meta::structured_baddbmm, 1>& it, const Tensor& self,
                      const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  check_same_dtype(a, b);
  check_not_bool("baddbmm", self);
  check_expands(self, it.output().sizes());
  return add_product(kBaddbmm, self, a, b, beta, alpha, it.output_shape());
}

Value addmv_compute(Infer<at::meta::structured_addmv, 1>& it, const Tensor& self,
                    const Tensor& matrix, const Tensor& vector, const Scalar& beta,
                    const Scalar& alpha) {
  TORCH_CHECK(self.dtype() == matrix.dtype() && matrix.dtype() == vector.dtype(),
              "addmv input tensors must have the same dtype, but got ", matrix.scalar_type(), ", ",
              vector.scalar_type(), ", and ", self.scalar_type());
  if (has_no_products(matrix, vector)) return zeros(it.output_shape());
  check_not_bool("addmv_impl_cpu", self);
  if (!it.output().is_same(self)) at::assert_no_internal_overlap(it.output());
  check_expands(self, it.output().sizes());
  return add_product(kAddmv, self, matrix, vector, beta, alpha, it.output_shape());
}

Tensor mv(const Tensor& self, const Tensor& vector) {
  if (same_kind(self, vector) && self.dim() == 2 && vector.dim() == 1 &&
      self.size(1) == vector.size(0)) {
    const std::array<int64_t, 1> sizes{self.size(0)};
    return lazy::make(
        vector_node(kMv, lazy::read(self), lazy::read(vector), {element_type(self), sizes}),
        self.scalar_type(), self.device());
  }
  const Tensor rows = at::empty({self.dim() == 2 ? self.size(0) : 0}, vector.options());
  return structured_functional<at::meta::structured_addmv, &addmv_compute>(rows, self, vector, 0,
                                                                           1);
}

// --- dot, vdot ---

void check_dot(const char* name, const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(),
              "D and ", other.dim(), "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", self.scalar_type(),
              " and ", other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [",
              self.numel(), "] and src [", other.numel(),
              "] to have the same number of elements, but got ", self.numel(), " and ",
              other.numel(), " elements respectively");
  TORCH_CHECK(self.device() == other.device(), "Expected all tensors to be on the same device. ",
              "Found: ", self.device(), ", ", other.device());
  check_not_bool(name, self);
}

Tensor dot(const Tensor& self, const Tensor& other) {
  check_dot("dot", self, other);
  return lazy::make(
      vector_node(kDot, lazy::read(self), lazy::read(other), {element_type(self), {}}),
      self.scalar_type(), self.device());
}

Tensor vdot(const Tensor& self, const Tensor& other) {
  check_dot("vdot", self, other);
  return make<0>(self.is_complex() ? kVdot : kDot, {}, self, other);
}

// --- addbmm ---

Tensor addbmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
              const Scalar& alpha) {
  TORCH_CHECK(a.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(b.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(a.size(0) == b.size(0), "batch1 and batch2 must have same number of batches, got ",
              a.size(0), " and ", b.size(0));
  TORCH_CHECK(a.size(2) == b.size(1), "Incompatible matrix sizes for bmm (", a.size(1), "x",
              a.size(2), " and ", b.size(1), "x", b.size(2), ")");
  const std::array<int64_t, 2> sizes{a.size(1), b.size(2)};
  check_expands(self, sizes);
  TORCH_CHECK(self.scalar_type() == b.scalar_type(),
              "self and mat2 must have the same dtype, but got ", self.scalar_type(), " and ",
              b.scalar_type());
  check_same_dtype(a, b);
  check_not_bool("addmm_impl_cpu_", self);
  return lazy::make(add_product(kAddbmm, self, a, b, beta, alpha, ShapeRef{element_type(a), sizes}),
                    a.scalar_type(), device_of({a, b, self}));
}

// As on CPU, an input that was broadcast grows to the result.
Tensor& addbmm_(Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                const Scalar& alpha) {
  at::assert_no_internal_overlap(self);
  const Tensor result = torch_xla::aten::addbmm(self, a, b, beta, alpha);
  if (self.sizes() != result.sizes()) self.resize_(result.sizes());
  lazy::write(self, lazy::read(result));
  return self;
}

// --- addr ---

void check_vectors(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1,
              "vec1 and vec2 should be 1-dimensional vectors. Got dimensions ", a.dim(), " and ",
              b.dim());
}

void check_factors(const Tensor& self, const Scalar& beta, const Scalar& alpha) {
  const bool whole = at::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  TORCH_CHECK(!whole || beta.isIntegral(/*includeBool=*/true),
              "For integral input tensors, argument beta must not be a floating point number.");
  TORCH_CHECK(!whole || alpha.isIntegral(/*includeBool=*/true),
              "For integral input tensors, argument alpha must not be a floating point number.");
  check_number(beta, self.scalar_type());
  check_number(alpha, self.scalar_type());
}

Tensor addr(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
            const Scalar& alpha) {
  check_vectors(a, b);
  check_factors(self, beta, alpha);
  const auto expanded = at::expand_size(self, {a.size(0), b.size(0)}, "addr");
  return at::native::math_addr(*expanded, a, b, beta, alpha);
}

Tensor& addr_(Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
              const Scalar& alpha) {
  check_vectors(a, b);
  check_factors(self, beta, alpha);
  TORCH_CHECK(self.dim() == 2, "2D tensor expected, got ", self.dim(), "D tensor for input");
  TORCH_CHECK(self.size(0) == a.size(0) && self.size(1) == b.size(0),
              "size mismatch, input: ", self.sizes(), ", v1: ", a.sizes(), ", v2: ", b.sizes());
  return at::native::math_addr_out(self, a, b, beta, alpha, self);
}

// --- int8 product with an int32 result ---

const Op kIntMm{"aten::_int_mm", [](Lowering& l, const Node&) -> Results {
                  return l->dot_general(l.operand(0), l.operand(1), {{}, {}, {1}, {0}},
                                        ElementType::kS32);
                }};

Tensor int_mm(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dim() == 2, "Expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(other.dim() == 2, "Expected mat2 to be of dimension 2 but got ", other.dim());
  TORCH_CHECK(self.size(1) == other.size(0), "self.size(1) needs to match mat2.size(0) but got ",
              self.size(1), " and ", other.size(0));
  TORCH_CHECK(self.scalar_type() == at::kChar, "Expected self dtype to be of type int8 but got ",
              self.scalar_type());
  TORCH_CHECK(other.scalar_type() == at::kChar, "Expected mat2 dtype to be of type int8 but got ",
              other.scalar_type());
  const std::array<int64_t, 2> sizes{self.size(0), other.size(1)};
  return lazy::make(
      Node::make(kIntMm, {value_of(self), value_of(other)}, {}, ShapeRef{ElementType::kS32, sizes}),
      at::kInt, device_of({self, other}));
}

}  // namespace

XLA_KERNELS(m) {
  using namespace at::meta;
  m.impl("mm", mm);
  structured<structured_mm, &mm_compute>(m, {nullptr, nullptr, "mm.out"});
  m.impl("bmm", bmm);
  structured<structured_bmm, &bmm_compute>(m, {nullptr, nullptr, "bmm.out"});
  m.impl("addmm", addmm);
  structured<structured_addmm, &addmm_compute>(m, {nullptr, "addmm_", "addmm.out"});
  structured<structured_baddbmm, &baddbmm_compute>(m, {"baddbmm", "baddbmm_", "baddbmm.out"});
  structured<structured_addmv, &addmv_compute>(m, {"addmv", "addmv_", "addmv.out"});
  structured<structured__addmm_activation, &addmm_activation>(
      m, {"_addmm_activation", nullptr, "_addmm_activation.out"});
  m.impl("mv", mv);
  m.impl("dot", dot);
  m.impl("vdot", vdot);
  m.impl("addbmm", addbmm);
  m.impl("addbmm_", addbmm_);
  m.impl("addr", addr);
  m.impl("addr_", addr_);
  m.impl("_int_mm", int_mm);
  m.impl("_trilinear", at::native::_trilinear);  // a composition
}

}  // namespace torch_xla::aten
