// torch.matmul with batch dimensions as one node forward and one for each gradient.

#include <ATen/ExpandUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/matmul_native.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>

#include "aten/autograd.h"
#include "aten/product.h"
#include "lazy/trimmed.h"

namespace torch_xla::aten {
namespace {

using at::Tensor;
using stablehlo::iota_dims;

const Op kMatmul{"aten::matmul", [](Lowering& l, const Node& n) -> Results {
                   return l->convert(matrix_product(l, l.operand(0), l.operand(1)),
                                     n.output().type);
                 }};

// --- Gradients ---
//
// Vectors are matrices with a dimension of 1 that the result does not have. Attributes: whether
// the left and the right operand of the product are vectors.

struct Operands {
  bool left_vector, right_vector;
  explicit Operands(const Node& n) {
    ir::AttributeReader a = n.attributes();
    left_vector = a.boolean();
    right_vector = a.boolean();
  }
};

XlaValue insert_one(Builder& b, const XlaValue& x, int64_t position) {
  Dims dims = x.dims();
  dims.insert(static_cast<size_t>(position), 1);
  return b.reshape(x, dims);
}

XlaValue grad_matrix(Lowering& l, const Operands& vectors) {
  Builder& b = l.builder();
  XlaValue grad = l.operand(0);
  if (vectors.right_vector) grad = insert_one(b, grad, grad.rank());
  if (vectors.left_vector) grad = insert_one(b, grad, grad.rank() - 1);
  return grad;
}

// The sum of x over batch dimensions that `dims` does not have or has with size 1.
XlaValue sum_to(Builder& b, XlaValue x, const Dims& dims) {
  const int64_t extra = x.rank() - static_cast<int64_t>(dims.size());
  Dims summed;
  for (int64_t i = 0; i < x.rank() - 2; ++i) {
    if (i < extra || (dims[i - extra] == 1 && x.dim(i) != 1)) summed.push_back(i);
  }
  return b.reshape(summed.empty() ? x : b.reduce_sum(x, summed), dims);
}

const Op kGradLeft{"aten::matmul_backward", [](Lowering& l, const Node& n) -> Results {
                     Builder& b = l.builder();
                     const Operands vectors(n);
                     XlaValue right = l.operand(1);
                     if (vectors.right_vector) right = insert_one(b, right, 1);
                     const XlaValue product =
                         matrix_product(l, grad_matrix(l, vectors), transpose_matrices(b, right));
                     Dims dims(n.output().dims);
                     if (vectors.left_vector) dims.insert(0, 1);
                     return b.convert(b.reshape(sum_to(b, product, dims), Dims(n.output().dims)),
                                      n.output().type);
                   }};

const Op kGradRight{"aten::matmul_backward", [](Lowering& l, const Node& n) -> Results {
                      Builder& b = l.builder();
                      const Operands vectors(n);
                      const XlaValue grad = grad_matrix(l, vectors);
                      XlaValue left = l.operand(1);
                      if (vectors.left_vector) left = insert_one(b, left, 0);
                      Dims dims(n.output().dims);
                      if (vectors.right_vector) dims.push_back(1);
                      XlaValue result;
                      if (dims.size() == 2 && left.rank() == grad.rank()) {
                        // One matrix for all batches: they are rows of one product.
                        const Dims rows = iota_dims(static_cast<size_t>(grad.rank() - 1));
                        result = contract(l, left, grad, {{}, {}, rows, rows});
                      } else {
                        result =
                            sum_to(b, matrix_product(l, transpose_matrices(b, left), grad), dims);
                      }
                      return b.convert(b.reshape(result, Dims(n.output().dims)), n.output().type);
                    }};

// --- Kernels ---

// Sizes of the product, or false where torch has to say what is wrong.
bool product_sizes(const Tensor& a, const Tensor& b, c10::SmallVector<int64_t, 6>& sizes) {
  const auto m = a.sizes(), n = b.sizes();
  if (m.empty() || n.empty() || a.dtype() != b.dtype() || a.scalar_type() == at::kBool ||
      !lazy::is_xla(a) || !lazy::is_xla(b) || a.device() != b.device() ||
      m.back() != n[n.size() < 2 ? 0 : n.size() - 2]) {
    return false;
  }
  const size_t a_batch = m.size() < 2 ? 0 : m.size() - 2, b_batch = n.size() < 2 ? 0 : n.size() - 2;
  const size_t batch = std::max(a_batch, b_batch);
  for (size_t i = 0; i < batch; ++i) {
    const int64_t x = i + a_batch < batch ? 1 : m[i + a_batch - batch];
    const int64_t y = i + b_batch < batch ? 1 : n[i + b_batch - batch];
    if (x != y && x != 1 && y != 1) return false;
    sizes.push_back(x == 1 ? y : x);
  }
  if (m.size() > 1) sizes.push_back(m[m.size() - 2]);
  if (n.size() > 1) sizes.push_back(n.back());
  return true;
}

Tensor matmul_node(const Tensor& a, const Tensor& b, at::IntArrayRef sizes) {
  return lazy::make(Node::make(kMatmul, {lazy::read(a), lazy::read(b)}, {},
                               ShapeRef{element_type(a), span_of(sizes)}),
                    a.scalar_type(), a.device());
}

// Rows whose number depends on data, times one matrix: torch folds them into rows of mm, which
// knows of them.
bool folds_rows(const Tensor& a, const Tensor& b) {
  return b.dim() <= 2 && a.dim() > 2 && lazy::is_xla(a) && lazy::is_trimmed(lazy::read(a));
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  c10::SmallVector<int64_t, 6> sizes;
  if (folds_rows(a, b)) return at::native::matmul(a, b);
  return product_sizes(a, b, sizes) ? matmul_node(a, b, sizes) : at::native::matmul(a, b);
}

const auto& generated_matmul() {
  static const GeneratedAutograd<Tensor(const Tensor&, const Tensor&)> matmul("aten::matmul");
  return matmul;
}

Tensor matmul_autograd(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  c10::SmallVector<int64_t, 6> sizes;
  if (a.dim() <= 2 && b.dim() <= 2) return at::native::matmul(a, b);
  if (!at::isFloatingType(a.scalar_type()) || !product_sizes(a, b, sizes) ||
      !generated_matmul().exists() || !keep_whole(keys, {a, b}) || folds_rows(a, b)) {
    return at::native::matmul(a, b);
  }
  if (!needs_gradient({a, b})) return matmul_node(a, b, sizes);
  return generated_matmul()(keys, a, b);
}

using Gradients = std::tuple<Tensor, Tensor>;

Tensor gradient(const Op& op, const Tensor& grad, const Tensor& other, const Tensor& like,
                const Attributes& vectors) {
  return lazy::make(Node::make(op, {lazy::read(grad), value_of(other)}, vectors,
                               ShapeRef{element_type(like), span_of(like.sizes())}),
                    like.scalar_type(), like.device());
}

// The same out of operators that have derivatives, for gradients of gradients.
Gradients composed_gradients(const Tensor& grad, const Tensor& a, const Tensor& b,
                             std::array<bool, 2> mask) {
  const Tensor left = a.dim() == 1 ? a.unsqueeze(0) : a;
  const Tensor right = b.dim() == 1 ? b.unsqueeze(1) : b;
  Tensor g = b.dim() == 1 ? grad.unsqueeze(-1) : grad;
  if (a.dim() == 1) g = g.unsqueeze(-2);
  Gradients result;
  if (mask[0]) {
    std::get<0>(result) = at::sum_to(at::matmul(g, right.mT()), left.sizes()).reshape(a.sizes());
  }
  if (mask[1]) {
    std::get<1>(result) = at::sum_to(at::matmul(left.mT(), g), right.sizes()).reshape(b.sizes());
  }
  return result;
}

Gradients matmul_backward(const Tensor& grad, const Tensor& a, const Tensor& b,
                          std::array<bool, 2> mask) {
  if (!grad.defined()) return {};
  if (at::GradMode::is_enabled() || grad.scalar_type() != a.scalar_type() || a.is_complex()) {
    return composed_gradients(grad, a, b, mask);
  }
  const Attributes vectors = Attributes::of(a.dim() == 1, b.dim() == 1);
  Gradients result;
  if (mask[0]) std::get<0>(result) = gradient(kGradLeft, grad, b, a, vectors);
  if (mask[1]) std::get<1>(result) = gradient(kGradRight, grad, a, b, vectors);
  return result;
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("matmul", matmul);
  m.impl("matmul_backward", matmul_backward);
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  m.impl("matmul", TORCH_FN(matmul_autograd));
  m.impl("matmul_backward", matmul_backward);
}

}  // namespace torch_xla::aten
