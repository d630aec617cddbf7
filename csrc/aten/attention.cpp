// Scaled dot product attention as one node forward and one backward:
//   softmax(q k^T scale + mask) v.
// The backward pass computes the probabilities again from the logarithm of their sum, as in Dao et
// al., "FlashAttention", 2022, so that no [L, S] matrix lives between the two.

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>

#include <cmath>

#include "aten/autograd.h"
#include "aten/product.h"
#include "lazy/random.h"

namespace torch_xla::aten {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// --- The formula ---
//
// q [B, H, L, D], k and v [B, K, S, D] where K divides H: each key head serves H / K query heads.
// Scores and probabilities are [B, H, L, S], in f32 (f64 for f64).

struct Shape {
  bool causal, mask, scale, dropout;

  static Shape of(const Node& n) {
    ir::AttributeReader a = n.attributes();
    return {a.boolean(), a.boolean(), a.boolean(), a.boolean()};
  }
  Attributes attributes() const { return Attributes::of(causal, mask, scale, dropout); }
};

struct Inputs {
  Shape shape;
  XlaValue q, k, v, mask, scale, keep_probability, random_state;
};

// The operands behind q, k, v are there as the shape says; `next` is the first of them.
Inputs read_inputs(Lowering& l, const Node& n, size_t q, size_t next) {
  Inputs x{Shape::of(n), l.operand(q), l.operand(q + 1), l.operand(q + 2), {}, {}, {}, {}};
  if (x.shape.mask) x.mask = l.operand(next++);
  const ElementType type = stablehlo::opmath_type(x.q.element_type());
  x.scale = x.shape.scale ? l.operand(next++, type)
                          : l->scalar(1 / std::sqrt(static_cast<double>(x.q.dim(3))), type);
  if (x.shape.dropout) {
    x.keep_probability = l.operand(next++, type);
    x.random_state = l.operand(next);
  }
  return x;
}

// The query heads of one key head side by side: [B, H, L, X] -> [B, K, H / K L, X].
XlaValue group(Builder& b, const XlaValue& x, int64_t key_heads) {
  if (x.dim(1) == key_heads) return x;
  return b.reshape(x, {x.dim(0), key_heads, x.dim(1) / key_heads * x.dim(2), x.dim(3)});
}
XlaValue ungroup(Builder& b, const XlaValue& x, int64_t heads) {
  if (x.dim(1) == heads) return x;
  return b.reshape(x, {x.dim(0), heads, x.dim(2) * x.dim(1) / heads, x.dim(3)});
}

// x [B, H, L, S] y [B, K, S, D] -> [B, H, L, D], and x y^T for y [B, K, D, S].
XlaValue times(Lowering& l, const XlaValue& x, const XlaValue& y, int64_t contracted) {
  const XlaValue product =
      contract(l, group(l.builder(), x, y.dim(1)), y, {{0, 1}, {0, 1}, {3}, {contracted}});
  return ungroup(l.builder(), product, x.dim(1));
}

// x^T y over the queries of each key head: [B, K, S, D].
XlaValue transposed_times(Lowering& l, const XlaValue& x, const XlaValue& y, int64_t key_heads) {
  return contract(l, group(l.builder(), x, key_heads), group(l.builder(), y, key_heads),
                  {{0, 1}, {0, 1}, {2}, {2}});
}

// q k^T scale + mask, -inf where attention may not look.
XlaValue scores(Lowering& l, const Inputs& x) {
  Builder& b = l.builder();
  XlaValue s = times(l, x.q, x.k, 3);
  s = b.multiply(s, b.broadcast_to(x.scale, s.dims()));
  const XlaValue never = b.constant(s.element_type(), s.dims(), -INFINITY);
  if (x.shape.mask && stablehlo::is_pred(x.mask.element_type())) {
    s = b.select(b.broadcast_to(x.mask, s.dims()), s, never);
  } else if (x.shape.mask) {
    s = b.add(s, b.broadcast_to(b.convert(x.mask, s.element_type()), s.dims()));
  }
  if (x.shape.causal) {
    s = b.select(
        b.ge(b.iota(ElementType::kS32, s.dims(), 2), b.iota(ElementType::kS32, s.dims(), 3)), s,
        never);
  }
  return s;
}

// One for each query, as large as the scores.
XlaValue spread(Builder& b, const XlaValue& x, const Dims& dims) {
  return b.broadcast_in_dim(x, dims, {0, 1, 2});
}

// exp(s - x), zero for queries that may look nowhere.
XlaValue exp_minus(Builder& b, const XlaValue& s, const XlaValue& x) {
  const XlaValue nowhere = b.eq(x, b.full_like(x, -INFINITY));
  const XlaValue shift = b.select(nowhere, b.zeros_like(x), x);
  return b.exponential(b.subtract(s, spread(b, shift, s.dims())));
}

// Elements to keep are scaled by 1 / keep_probability, the others are zero.
XlaValue dropped_out(Lowering& l, const Inputs& x, const XlaValue& p) {
  if (!x.shape.dropout) return p;
  Builder& b = l.builder();
  const XlaValue bits = b.rng_bit_generator(stablehlo::RngAlgorithm::kPhilox, x.random_state,
                                            {ElementType::kU32, p.dims()})
                            .bits;
  const XlaValue high = b.shift_right_logical(bits, b.full_like(bits, 8));
  const XlaValue unit = b.convert(high, p.element_type()) * std::ldexp(1.0, -24);
  const XlaValue keep = b.broadcast_to(x.keep_probability, p.dims());
  return b.select(b.lt(unit, keep), b.divide(p, keep), b.zeros_like(p));
}

const Op kAttention{
    "aten::scaled_dot_product_attention", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const Inputs x = read_inputs(l, n, 0, 3);
      const XlaValue s = scores(l, x);
      const XlaValue highest = b.reduce_max(s, {3});
      const XlaValue weights = exp_minus(b, s, highest);
      const XlaValue sum = b.reduce_sum(weights, {3});
      const XlaValue none = b.eq(sum, b.zeros_like(sum));
      const XlaValue divisor = b.select(none, b.ones_like(sum), sum);
      const XlaValue p = b.divide(weights, spread(b, divisor, s.dims()));
      const XlaValue out = times(l, b.convert(dropped_out(l, x, p), x.v.element_type()), x.v, 2);
      const XlaValue log_sum =
          b.select(none, b.full_like(sum, -INFINITY), b.add(highest, b.log(divisor)));
      return {b.convert(out, n.output().type), log_sum};
    }};

// Operands: grad, q, k, v, out, log_sum, then as forward. With dp = grad v^T,
// ds = p (dp - sum over keys of p dp), and that sum is the one of grad out.
const Op kAttentionBackward{
    "aten::scaled_dot_product_attention_backward", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const Inputs x = read_inputs(l, n, 1, 6);
      const XlaValue grad = l.operand(0), log_sum = l.operand(5);
      const ElementType type = log_sum.element_type(), narrow = x.q.element_type();
      const XlaValue p = exp_minus(b, scores(l, x), log_sum);
      const XlaValue dv =
          transposed_times(l, b.convert(dropped_out(l, x, p), narrow), grad, x.v.dim(1));
      const XlaValue dp = dropped_out(l, x, times(l, grad, x.v, 3));
      const XlaValue mean =
          b.reduce_sum(b.multiply(b.convert(grad, type), l.operand(4, type)), {3});
      XlaValue ds = b.multiply(p, b.subtract(dp, spread(b, mean, p.dims())));
      ds = b.convert(b.multiply(ds, b.broadcast_to(x.scale, ds.dims())), narrow);
      return {b.convert(times(l, ds, x.k, 2), narrow),
              b.convert(transposed_times(l, ds, x.q, x.k.dim(1)), narrow), b.convert(dv, narrow)};
    }};

// --- Kernels ---

std::vector<Value> tail(const OptionalTensor& mask, std::optional<double> scale, double dropout_p,
                        const Tensor& random_state, ElementType type) {
  std::vector<Value> operands;
  const ElementType compute = stablehlo::opmath_type(type);
  if (mask && mask->defined()) operands.push_back(value_of(*mask));
  if (scale) operands.push_back(lazy::scalar(*scale, compute));
  if (dropout_p > 0) {
    operands.push_back(lazy::scalar(1 - dropout_p, compute));
    operands.push_back(value_of(random_state));
  }
  return operands;
}

using Attention =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Attention attention(const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& mask,
                    double dropout_p, bool causal, bool, std::optional<double> scale) {
  TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4,
              "scaled dot product attention: expected query, key and value of 4 dimensions, got ",
              q.sizes(), ", ", k.sizes(), " and ", v.sizes());
  const ElementType type = element_type(q);
  Tensor random_state;
  if (dropout_p > 0) {
    const int64_t count = q.size(0) * q.size(1) * q.size(2) * k.size(2);
    random_state =
        lazy::make(lazy::generator_for({}, q.device()).next_state(count), at::kUInt64, q.device());
  }
  const Shape shape{causal, mask && mask->defined(), scale.has_value(), dropout_p > 0};
  std::vector<Value> operands{value_of(q), value_of(k), value_of(v)};
  for (Value& value : tail(mask, scale, dropout_p, random_state, type)) {
    operands.push_back(std::move(value));
  }
  const std::array<int64_t, 4> sizes{q.size(0), q.size(1), q.size(2), v.size(3)};
  const ElementType compute = stablehlo::opmath_type(type);
  const std::array<ShapeRef, 2> shapes{ShapeRef{type, sizes},
                                       ShapeRef{compute, std::span(sizes).first(3)}};
  const ir::NodePtr node = Node::make(kAttention, operands, shape.attributes(), shapes);
  // Laid out like the query, as CPU's fused kernel does, which takes rows of neighbours only.
  const bool rows = q.stride(3) == 1 && k.stride(3) == 1 && v.stride(3) == 1;
  Tensor out = q.is_contiguous() || dropout_p > 0 || !rows
                   ? lazy::make(Value(node, 0), q.scalar_type(), q.device())
                   : lazy::make_strided(Value(node, 0), at::infer_dense_strides(sizes, q.strides()),
                                        q.device());
  Tensor log_sum = lazy::make(Value(node, 1), lazy::scalar_type(compute), q.device());
  return {std::move(out), std::move(log_sum), Tensor(), Tensor(), q.sym_size(2),
          k.sym_size(2),  random_state,       Tensor(), Tensor()};
}

// Gradients are laid out [batch, length, heads, features], as on CPU.
Tensor gradient(const ir::NodePtr& node, uint32_t index, const Tensor& like) {
  const int64_t heads = like.size(1), length = like.size(2), features = like.size(3);
  return lazy::make_strided(Value(node, index),
                            {heads * length * features, features, heads * features, 1},
                            like.device());
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
    std::array<bool, 4> wanted, const Tensor& out, const Tensor& log_sum, const Tensor&,
    const Tensor&, c10::SymInt, c10::SymInt, double dropout_p, bool causal,
    const Tensor& random_state, const Tensor&, std::optional<double> scale) {
  TORCH_CHECK(!wanted[3], "the fused attention has no gradient for its mask");
  const ElementType type = element_type(q);
  const Shape shape{causal, mask.defined(), scale.has_value(), dropout_p > 0};
  std::vector<Value> operands{value_of(grad), value_of(q),   value_of(k),
                              value_of(v),    value_of(out), value_of(log_sum)};
  for (Value& value : tail(mask, scale, dropout_p, random_state, type)) {
    operands.push_back(std::move(value));
  }
  const std::array<ShapeRef, 3> shapes{ShapeRef{type, span_of(q.sizes())},
                                       ShapeRef{type, span_of(k.sizes())},
                                       ShapeRef{type, span_of(v.sizes())}};
  const ir::NodePtr node = Node::make(kAttentionBackward, operands, shape.attributes(), shapes);
  std::tuple<Tensor, Tensor, Tensor, Tensor> result;
  if (wanted[0]) std::get<0>(result) = gradient(node, 0, q);
  if (wanted[1]) std::get<1>(result) = gradient(node, 1, k);
  if (wanted[2]) std::get<2>(result) = gradient(node, 2, v);
  return result;
}

// --- When to take them ---

// The cases CPU's fused kernel takes, and dropout; the others are torch's composition of operators.
bool is_plain(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
              double dropout_p, bool causal, bool enable_gqa) {
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4) return false;
  const at::ScalarType type = q.scalar_type();
  if (!at::isFloatingType(type) || k.scalar_type() != type || v.scalar_type() != type) return false;
  const auto a = q.sizes(), b = k.sizes(), c = v.sizes();
  const bool heads = a[1] == b[1] || (enable_gqa && b[1] > 0 && a[1] % b[1] == 0);
  if (!heads || a[0] != b[0] || b[0] != c[0] || b[1] != c[1] || b[2] != c[2] || a[3] != b[3] ||
      a[3] != c[3] || q.numel() == 0 || k.numel() == 0) {
    return false;
  }
  if (dropout_p < 0 || dropout_p >= 1) return false;
  if (!mask.defined()) return true;
  if (mask.requires_grad() || (mask.scalar_type() != at::kBool && mask.scalar_type() != type) ||
      (mask.dim() != 2 && mask.dim() != 4) || (causal && dropout_p > 0)) {
    return false;
  }
  const std::array<int64_t, 4> scores{a[0], a[1], a[2], b[2]};
  return at::is_expandable_to(mask.sizes(), scores);
}

// Switched off by torch.nn.attention.sdpa_kernel(SDPBackend.MATH), which asks for the composition.
bool fused_allowed() {
  const at::Context& context = at::globalContext();
  return context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP() ||
         context.userEnabledOverrideableSDP();
}

Tensor scaled_dot_product_attention(c10::DispatchKeySet keys, const Tensor& q, const Tensor& k,
                                    const Tensor& v, const OptionalTensor& mask, double dropout_p,
                                    bool causal, std::optional<double> scale, bool enable_gqa) {
  const Tensor m = mask.value_or(Tensor());
  if (is_plain(q, k, v, m, dropout_p, causal, enable_gqa) && fused_allowed() &&
      keep_whole(keys, {q, k, v, m})) {
    if (!needs_gradient({q, k, v})) {
      return std::get<0>(attention(q, k, v, mask, dropout_p, causal, false, scale));
    }
    return std::get<0>(at::_scaled_dot_product_fused_attention_overrideable(
        q, k, v, mask, dropout_p, causal, /*return_debug_mask=*/false, scale));
  }
  return at::native::scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, scale,
                                                  enable_gqa);
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable", attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", attention_backward);
}

TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  m.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
}

}  // namespace torch_xla::aten
