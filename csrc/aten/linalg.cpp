// Linear algebra that StableHLO has an operation for: Cholesky factors and triangular systems.
// The other factorizations run through LAPACK (host_call.cpp), and so do Cholesky factors on CPU,
// where XLA takes a second to compile a loop that is ten times slower.

#include <ATen/ExpandUtils.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/linalg_cholesky_ex_meta.h>
#include <ATen/ops/linalg_pinv_native.h>
#include <ATen/ops/triangular_solve_meta.h>

#include "aten/host_call.h"
#include "aten/product.h"

namespace torch_xla::aten {
namespace {

using at::IntArrayRef;
using at::Tensor;
using stablehlo::Transpose;

void check_factorizable(const char* name, const Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(type == at::kFloat || type == at::kDouble || at::isComplexType(type),
                              "\"", name, "\" not implemented for '", type, "'");
}

// Matrices stored by column, as LAPACK and so PyTorch leave them.
Tensor by_columns(Value value, const Tensor& like) {
  const std::vector<int64_t> sizes(value.dims().begin(), value.dims().end());
  std::vector<int64_t> strides(sizes.size());
  const size_t rank = sizes.size();
  strides[rank - 2] = 1;
  strides[rank - 1] = std::max<int64_t>(sizes[rank - 2], 1);
  int64_t next = strides[rank - 1] * std::max<int64_t>(sizes[rank - 1], 1);
  for (size_t i = rank - 2; i-- > 0;) {
    strides[i] = next;
    next *= std::max<int64_t>(sizes[i], 1);
  }
  return lazy::make_strided(std::move(value), strides, like.device());
}

// --- Cholesky ---

// The triangle of x below (or above) and with the diagonal; zero elsewhere.
XlaValue triangle(Builder& b, const XlaValue& x, bool upper) {
  const XlaValue row = b.iota(ElementType::kS32, x.dims(), x.rank() - 2);
  const XlaValue column = b.iota(ElementType::kS32, x.dims(), x.rank() - 1);
  return b.select(upper ? b.le(row, column) : b.ge(row, column), x, b.zeros_like(x));
}

// The order of the first leading minor of each matrix that is not positive, found by eliminating
// column after column below the diagonal, or 0.
XlaValue first_failure(Builder& b, const XlaValue& a) {
  const int64_t rank = a.rank(), size = a.dim(rank - 1);
  Dims batch(a.dims().begin(), a.dims().end() - 2);
  const Dims along_rows = stablehlo::iota_dims(static_cast<size_t>(rank - 1));
  Dims along_columns = along_rows;
  along_columns[along_columns.size() - 1] = rank - 1;
  const XlaValue none = b.constant(ElementType::kS32, batch, 0);
  const auto scalar = [&](int64_t value) { return b.scalar(value, ElementType::kS32); };
  const stablehlo::Values result = b.while_(
      {scalar(0), a, none},
      [&](const stablehlo::Values& state) { return b.lt(state[0], scalar(size)); },
      [&](const stablehlo::Values& state) -> stablehlo::Values {
        const XlaValue& step = state[0];
        const XlaValue& matrix = state[1];
        stablehlo::Values start(static_cast<size_t>(rank), scalar(0));
        start.back() = step;
        Dims one = matrix.dims(), column_dims = matrix.dims();
        one[one.size() - 1] = 1;
        column_dims.pop_back();
        const XlaValue column = b.reshape(b.dynamic_slice(matrix, start, one), column_dims);
        stablehlo::Values at(static_cast<size_t>(rank - 1), scalar(0));
        at.back() = step;
        Dims single = column_dims;
        single[single.size() - 1] = 1;
        XlaValue pivot = b.reshape(b.dynamic_slice(column, at, single), batch);
        if (stablehlo::is_complex(pivot.element_type())) pivot = b.real(pivot);
        const XlaValue positive = b.gt(pivot, b.zeros_like(pivot));
        const XlaValue fails = b.and_(b.not_(positive), b.eq(state[2], none));
        const XlaValue order = b.broadcast_to(b.add(step, scalar(1)), batch);
        const XlaValue divisor =
            b.convert(b.select(positive, pivot, b.ones_like(pivot)), a.element_type());
        const XlaValue scaled = b.divide(
            column, b.broadcast_in_dim(divisor, column_dims, stablehlo::iota_dims(batch.size())));
        const XlaValue other = stablehlo::is_complex(a.element_type()) ? b.conj(column) : column;
        const XlaValue product = b.multiply(b.broadcast_in_dim(scaled, a.dims(), along_rows),
                                            b.broadcast_in_dim(other, a.dims(), along_columns));
        return {b.add(step, scalar(1)), b.subtract(matrix, product),
                b.select(fails, order, state[2])};
      });
  return result[2];
}

// Outputs: the factor, and for each matrix the order of the first leading minor that is not
// positive, or 0. XLA makes the factor of such a matrix NaN; only then is the order looked for.
const Op kCholesky{
    "aten::linalg_cholesky_ex", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const bool upper = n.attributes().boolean();
      const XlaValue a = l.operand(0);
      const XlaValue none = b.constant(ElementType::kS32, Dims(n.output(1).dims), 0);
      if (a.num_elements() == 0) return {a, none};
      const XlaValue factor = triangle(b, b.cholesky(a, !upper), upper);
      const XlaValue sum = b.reduce_sum(factor, stablehlo::iota_dims(a.dims().size()));
      const XlaValue real = stablehlo::is_complex(sum.element_type()) ? b.real(sum) : sum;
      const stablehlo::Values info = b.if_(
          b.is_finite(real), [&] { return stablehlo::Values{none}; },
          [&] {
            const XlaValue lower = upper ? transpose_matrices(b, a) : a;
            return stablehlo::Values{first_failure(
                b, upper && stablehlo::is_complex(a.element_type()) ? b.conj(lower) : lower)};
          });
      return {factor, info[0]};
    }};

Values<2> cholesky_ex(Infer<at::meta::structured_linalg_cholesky_ex, 2>& it, const Tensor& self,
                      bool upper, bool check_errors) {
  check_factorizable("cholesky_cpu", self);
  const std::array<ShapeRef, 2> shapes{it.output_shape(0), it.output_shape(1)};
  ir::NodePtr node = host_node("aten::linalg_cholesky_ex", {self, upper, false}, shapes);
  if (!node) {
    const Value a = value_of(self);
    node = Node::make(kCholesky, std::span(&a, 1), Attributes::of(upper), shapes);
  }
  if (check_errors) {
    const Tensor info = lazy::make(Value(node, 1), at::kInt, self.device());
    at::_linalg_check_errors(info, "torch.linalg.cholesky_ex", self.dim() == 2);
  }
  return {Value(node, 0), Value(node, 1)};
}

Tensor cholesky(const Tensor& self, bool upper) {
  TORCH_WARN_ONCE("torch.cholesky is deprecated in favor of torch.linalg.cholesky: L = ",
                  "torch.linalg.cholesky(A), and for the upper factor its .mH.");
  at::native::squareCheckInputs(self, "cholesky");
  auto [factor, info] = at::linalg_cholesky_ex(self, upper, /*check_errors=*/false);
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return factor;
}

// --- Triangular systems ---

struct System {
  bool upper, left, unit;
  Transpose transpose;
};

// x of op(a) x = b, or x op(a) = b; both batches alike.
XlaValue solve(Builder& b, const XlaValue& a, const XlaValue& rhs, const System& s) {
  if (rhs.num_elements() == 0 || a.num_elements() == 0) return rhs;
  return b.triangular_solve(a, rhs, s.left, !s.upper, s.unit, s.transpose);
}

XlaValue batched(Builder& b, const XlaValue& x, std::span<const int64_t> like) {
  Dims dims(like);
  dims[dims.size() - 2] = x.dim(x.rank() - 2);
  dims[dims.size() - 1] = x.dim(x.rank() - 1);
  return b.broadcast_to(x, dims);
}

// Attributes: upper, left, unit, whether a is transposed.
const Op kSolve{"aten::linalg_solve_triangular", [](Lowering& l, const Node& n) -> Results {
                  ir::AttributeReader a = n.attributes();
                  System s{a.boolean(), a.boolean(), a.boolean(), Transpose::kNone};
                  if (a.boolean()) s.transpose = Transpose::kTranspose;
                  Builder& b = l.builder();
                  return solve(b, batched(b, l.operand(0), n.output().dims),
                               batched(b, l.operand(1), n.output().dims), s);
                }};

std::vector<int64_t> with_matrix(std::vector<int64_t> batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

std::vector<int64_t> common_batch(const Tensor& a, const Tensor& b) {
  return at::infer_size(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
}

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left, bool unit) {
  at::native::checkInputsSolver(a, b, left, "linalg.solve_triangular");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "linalg.solve_triangular: Expected A and B to have the same dtype, but found A of ",
              "type ", a.scalar_type(), " and B of type ", b.scalar_type(), " instead");
  check_factorizable("triangular_solve_cpu", a);
  const std::vector<int64_t> batch = common_batch(a, b);
  const std::vector<int64_t> sizes = with_matrix(batch, b.size(-2), b.size(-1));
  const Value x =
      Node::make(kSolve, {value_of(a), value_of(b)}, Attributes::of(upper, left, unit, false),
                 ShapeRef{element_type(b), sizes});
  // Where LAPACK can solve the transposed system in place of a conjugated one, torch does not ask
  // for columns.
  const bool by_rows =
      a.is_conj() &&
      a.expand(with_matrix(batch, a.size(-2), a.size(-1))).transpose(-2, -1).is_contiguous();
  return by_rows ? lazy::make(x, b.device()) : by_columns(x, b);
}

// The second output is a copy of the coefficients.
Values<2> triangular_solve(Infer<at::meta::structured_triangular_solve, 2>& it, const Tensor& self,
                           const Tensor& a, bool upper, bool transpose, bool unit) {
  check_factorizable("triangular_solve_cpu", self);
  const Value matrix = value_of(a);
  return {Node::make(kSolve, {matrix, value_of(self)}, Attributes::of(upper, true, unit, transpose),
                     it.output_shape(0)),
          broadcast_to(matrix, it.output(1).sizes())};
}

// --- Systems and inverses from a Cholesky factor ---

// a = L L^H or U^H U; solves a x = b by two triangular systems.
XlaValue solve_factored(Builder& b, const XlaValue& factor, const XlaValue& rhs, bool upper) {
  const System first{upper, true, false, upper ? Transpose::kAdjoint : Transpose::kNone};
  const System second{upper, true, false, upper ? Transpose::kNone : Transpose::kAdjoint};
  return solve(b, factor, solve(b, factor, rhs, first), second);
}

const Op kCholeskySolve{"aten::cholesky_solve", [](Lowering& l, const Node& n) -> Results {
                          Builder& b = l.builder();
                          return solve_factored(b, l.operand(1), l.operand(0),
                                                n.attributes().boolean());
                        }};

const Op kCholeskyInverse{"aten::cholesky_inverse", [](Lowering& l, const Node& n) -> Results {
                            Builder& b = l.builder();
                            const XlaValue factor = l.operand(0);
                            const int64_t rank = factor.rank();
                            const XlaValue one =
                                b.eq(b.iota(ElementType::kS32, factor.dims(), rank - 2),
                                     b.iota(ElementType::kS32, factor.dims(), rank - 1));
                            return solve_factored(b, factor, b.convert(one, factor.element_type()),
                                                  n.attributes().boolean());
                          }};

// Batches are alike already: torch's cholesky_solve broadcasts them.
Tensor cholesky_solve_helper(const Tensor& self, const Tensor& factor, bool upper) {
  check_factorizable("cholesky_solve_cpu", self);
  TORCH_CHECK(self.scalar_type() == factor.scalar_type(), "Expected b and A to have the same ",
              "dtype, but found b of type ", self.scalar_type(), " and A of type ",
              factor.scalar_type(), " instead");
  return by_columns(
      Node::make(kCholeskySolve, {value_of(self), value_of(factor)}, Attributes::of(upper),
                 ShapeRef{element_type(self), span_of(self.sizes())}),
      self);
}

Tensor cholesky_inverse(const Tensor& self, bool upper) {
  at::native::squareCheckInputs(self, "cholesky_inverse");
  check_factorizable("cholesky_inverse_out_cpu", self);
  return by_columns(Node::make(kCholeskyInverse, {value_of(self)}, Attributes::of(upper),
                               ShapeRef{element_type(self), span_of(self.sizes())}),
                    self);
}

// Made of other operators, none of which looks at a value.
Tensor pinv(const Tensor& self, const std::optional<Tensor>& atol,
            const std::optional<Tensor>& rtol, bool hermitian) {
  return at::native::linalg_pinv(self, atol, rtol, hermitian);
}

}  // namespace

XLA_KERNELS(m) {
  using namespace at::meta;
  structured<structured_linalg_cholesky_ex, &cholesky_ex, 2>(
      m, {"linalg_cholesky_ex", nullptr, "linalg_cholesky_ex.L"});
  m.impl("cholesky", cholesky);
  m.impl("linalg_solve_triangular", solve_triangular);
  structured<structured_triangular_solve, &triangular_solve, 2>(
      m, {"triangular_solve", nullptr, "triangular_solve.X"});
  m.impl("_cholesky_solve_helper", cholesky_solve_helper);
  m.impl("cholesky_inverse", cholesky_inverse);
  m.impl("linalg_pinv.atol_rtol_tensor", pinv);
}

}  // namespace torch_xla::aten
