// Distributions that are sampled by rejection: gamma, Dirichlet, Poisson, binomial; and the
// gradients of the first two. Elements are proposed until each is accepted, in one loop of the
// program. All is computed in f64, as on CPU.

#include <ATen/ExpandUtils.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "aten/checks.h"
#include "aten/random.h"

namespace torch_xla::aten {
namespace {

using stablehlo::Values;

// Proposals for an element before it counts as hopeless and becomes NaN (parameters that are no
// parameters). Each is accepted in more than half of all cases.
constexpr int64_t kMostProposals = 64;
constexpr int64_t kMostSteps = 20'000;  // of a series

// Numbers from the generator's stream, one batch after the other.
class Stream {
 public:
  Stream(Builder& b, XlaValue state) : b_(b), state_(state) {}

  const XlaValue& state() const { return state_; }
  void move_to(XlaValue state) { state_ = state; }
  // f64[size], in (0, 1).
  XlaValue uniform(int64_t size) {
    const auto drawn =
        b_.rng_bit_generator(stablehlo::RngAlgorithm::kPhilox, state_, {ElementType::kU64, {size}});
    state_ = drawn.state;
    const XlaValue kept = b_.shift_right_logical(drawn.bits, b_.full_like(drawn.bits, 12));
    return (b_.convert(kept, ElementType::kF64) + 0.5) * std::ldexp(1.0, -52);
  }

 private:
  Builder& b_;
  XlaValue state_;
};

// A number for all elements.
XlaValue all(const XlaValue& like, double number) { return like.builder().full_like(like, number); }

struct Proposal {
  XlaValue value;     // f64[n]
  XlaValue accepted;  // pred[n]
};

// `propose(stream)` until everything is accepted. `settled` elements need no proposal: theirs stays
// NaN.
template <class Propose>
XlaValue rejection(Builder& b, Stream& stream, XlaValue settled, Propose propose) {
  const Dims dims = settled.dims();
  const auto unfinished = [&](const Values& v) {
    const XlaValue open = b.not_(b.reduce_and(v[2], {0}));
    return b.and_(open, b.lt(v[0], b.full_like(v[0], kMostProposals)));
  };
  const auto step = [&](const Values& v) -> Values {
    Stream inner(b, v[1]);
    const Proposal proposal = propose(inner);
    return {v[0] + 1, inner.state(), b.or_(v[2], proposal.accepted),
            b.select(b.and_(proposal.accepted, b.not_(v[2])), proposal.value, v[3])};
  };
  const XlaValue nothing = b.broadcast_to(b.nan(ElementType::kF64), dims);
  const Values last = b.while_({b.scalar(0, ElementType::kS32), stream.state(), settled, nothing},
                               unfinished, step);
  stream.move_to(last[1]);
  return last[3];
}

Value draw_state(const OptionalGenerator& generator, const at::Tensor& like) {
  // At most two numbers for a proposal, and two before.
  return lazy::generator_for(generator, like.device())
      .next_state(like.numel() * 2 * (kMostProposals + 1));
}

XlaValue flat(Lowering& l, size_t operand, const Dims& dims) {
  const XlaValue x = l->broadcast_to(l.operand(operand, ElementType::kF64), dims);
  return l->reshape(x, {x.num_elements()});
}

// --- gamma ---

// Marsaglia & Tsang 2000; below 1 by their section 6: of alpha + 1, times u^(1/alpha).
XlaValue gamma_samples(Builder& b, Stream& stream, const XlaValue& alpha) {
  const int64_t size = alpha.dim(0);
  const XlaValue low = b.lt(alpha, all(alpha, 1));
  const XlaValue d = b.select(low, alpha + 1, alpha) - 1.0 / 3;
  const XlaValue c = 1 / b.sqrt(9 * d);
  const XlaValue lift = b.exponential(b.log(stream.uniform(size)) / alpha);
  const auto propose = [&](Stream& in) -> Proposal {
    const XlaValue x = b.erf_inv(2 * in.uniform(size) - 1) * std::numbers::sqrt2;
    const XlaValue t = 1 + c * x, v = t * t * t;
    const XlaValue positive = b.gt(v, all(v, 0));
    const XlaValue limit = 0.5 * x * x + d - d * v + d * b.log(b.select(positive, v, all(v, 1)));
    const XlaValue below = b.lt(b.log(in.uniform(size)), limit);
    return {d * v, b.and_(positive, below)};
  };
  const XlaValue none = b.constant(ElementType::kPred, alpha.dims(), 0);
  const XlaValue sample = rejection(b, stream, none, propose);
  return b.select(low, sample * lift, sample);
}

// As type, and positive.
XlaValue positive_as(Builder& b, const XlaValue& x, const ShapeRef& shape) {
  const double least = std::max(std::ldexp(1.0, -1022), stablehlo::min_normal(shape.type));
  return b.convert(b.reshape(b.maximum(x, all(x, least)), Dims(shape.dims)), shape.type);
}

const Op kGamma{"aten::_standard_gamma", [](Lowering& l, const Node& n) -> Results {
                  const ShapeRef shape = n.output();
                  Stream stream(l.builder(), l.operand(1));
                  const XlaValue alpha = flat(l, 0, Dims(shape.dims));
                  return positive_as(l.builder(), gamma_samples(l.builder(), stream, alpha), shape);
                }};

// A sample of `op` for each element of `parameter`, row-major.
at::Tensor sample(const Op& op, const char* name, const at::Tensor& parameter,
                  const OptionalGenerator& generator) {
  check_domain(name, Domain::kFloat, parameter.scalar_type());
  const ShapeRef shape = shape_of(parameter);
  const Value value =
      parameter.numel() == 0
          ? lazy::full(0, shape.type, shape.dims)
          : Value(
                Node::make(op, {value_of(parameter), draw_state(generator, parameter)}, {}, shape));
  return make_like(value, parameter);
}

at::Tensor standard_gamma(const at::Tensor& self, OptionalGenerator generator) {
  return sample(kGamma, "_standard_gamma", self, generator);
}

// Gammas over their sum, along the last dim.
const Op kDirichlet{"aten::_sample_dirichlet", [](Lowering& l, const Node& n) -> Results {
                      Builder& b = l.builder();
                      const ShapeRef shape = n.output();
                      const Dims dims(shape.dims);
                      const int64_t last = static_cast<int64_t>(dims.size()) - 1;
                      Stream stream(b, l.operand(1));
                      const XlaValue gamma = positive_as(
                          b, gamma_samples(b, stream, flat(l, 0, dims)), {ElementType::kF64, dims});
                      Dims kept = stablehlo::iota_dims(dims.size());
                      kept.pop_back();
                      const XlaValue sum =
                          b.broadcast_in_dim(b.reduce_sum(gamma, {last}), dims, kept);
                      const XlaValue most = all(gamma, 1 - stablehlo::epsilon(shape.type) / 2);
                      return positive_as(b, b.minimum(gamma / sum, most), shape);
                    }};

at::Tensor sample_dirichlet(const at::Tensor& self, OptionalGenerator generator) {
  TORCH_CHECK(self.dim() > 0, "_sample_dirichlet: expected at least one dimension");
  return sample(kDirichlet, "dirichlet", self, generator);
}

// --- Gradients: how a sample moves with its parameter ---

// Adds `add(state)` while a term of the series still counts somewhere. The state begins with a term
// and the sum of the terms; the number of the step is passed along.
template <class Add>
Values series(Builder& b, Values state, Add add) {
  const auto unfinished = [&](const Values& v) {
    const XlaValue counts = b.gt(b.abs(v[1]), b.abs(v[2]) * 1e-17);
    return b.and_(b.reduce_or(counts, stablehlo::iota_dims(counts.dims().size())),
                  b.lt(v[0], b.full_like(v[0], static_cast<double>(kMostSteps))));
  };
  const auto step = [&](const Values& v) -> Values {
    const XlaValue k = v[0] + 1;
    Values next = add(b.broadcast_to(k, v[1].dims()), Values(v.begin() + 1, v.end()));
    next.insert(next.begin(), k);
    return next;
  };
  state.insert(state.begin(), b.scalar(0, ElementType::kF64));
  const Values last = b.while_(state, unfinished, step);
  return Values(last.begin() + 1, last.end());
}

// dx/da = -(dP(a, x)/da) / p(x), where P = x^a e^-x / Gamma(a + 1) sum T_n with
// T_n = prod_{i=1..n} x / (a + i) (DLMF 8.7.1), hence with H_n = sum_{i=1..n} 1 / (a + i)
//   dx/da = -x/a ((log x - psi(a + 1)) sum T_n - sum T_n H_n).
// For large a at a constant normal deviate of Wilson & Hilferty 1931.
const PointwiseOp kGammaGrad{
    "aten::_standard_gamma_grad", [](PointwiseArgs& args) {
      Builder& b = args.b;
      const XlaValue alpha = b.convert(args[0], ElementType::kF64);
      const XlaValue sample = b.convert(args[1], ElementType::kF64);
      const XlaValue large = b.gt(alpha, all(alpha, 1e4)), one = all(alpha, 1);
      const XlaValue a = b.select(large, one, alpha), x = b.select(large, one, sample);
      const auto add = [&](const XlaValue& k, const Values& v) -> Values {
        const XlaValue term = v[0] * x / (a + k), h = v[2] + 1 / (a + k);
        return {term, v[1] + term, h, v[3] + term * h};
      };
      const Values sums = series(b, {one, one, all(a, 0), all(a, 0)}, add);
      const XlaValue small = b.negate(x / a) * ((b.log(x) - b.digamma(a + 1)) * sums[1] - sums[3]);
      const XlaValue u = b.cbrt(sample / alpha);
      const XlaValue deviate = u - 1 + 1 / (9 * alpha);
      const XlaValue far = u * u * (u + 1 / (3 * alpha) - 1.5 * deviate);
      return b.convert(b.select(large, far, small), args[0].element_type());
    }};

at::Tensor standard_gamma_grad(const at::Tensor& self, const at::Tensor& output) {
  return structured_functional<BinaryMeta<>, Numeric<kGammaGrad, Domain::kFloat>{}>(self, output);
}

// For x of Beta(a, c - a), -(dI_x(a, c - a)/da) / p(x) / (1 - x), which is what a Dirichlet needs.
// I_x = x^a (1-x)^b / (a B(a, b)) sum S_n with S_n = prod_{i<n} (a + b + i) / (a + 1 + i) x
// (DLMF 8.17.8): above the mean that of 1 - x, whose series is the shorter one.
const PointwiseOp kDirichletGrad{
    "aten::_dirichlet_grad", [](PointwiseArgs& args) {
      Builder& b = args.b;
      const XlaValue x = b.convert(args[0], ElementType::kF64);
      const XlaValue alpha = b.convert(args[1], ElementType::kF64);
      const XlaValue total = b.convert(args[2], ElementType::kF64);
      const XlaValue low = b.lt(x * total, alpha), one = all(x, 1), zero = all(x, 0);
      // The series of this side: in y, with a + 1 + i below.
      const XlaValue y = b.select(low, x, 1 - x), own = b.select(low, alpha, total - alpha);
      const auto add = [&](const XlaValue& k, const Values& v) -> Values {
        const XlaValue above = total + k - 1, below = own + k;
        const XlaValue term = v[0] * above / below * y;
        // d log S_n / d alpha, which stands in both numbers or only in the upper one.
        const XlaValue h = v[2] + 1 / above - b.select(low, 1 / below, zero);
        return {term, v[1] + term, h, v[3] + term * h};
      };
      const Values sums = series(b, {one, one, zero, zero}, add);
      const XlaValue first =
          b.log(x) + b.digamma(total) - b.digamma(b.select(low, alpha + 1, alpha));
      const XlaValue slope = (x / own) * (first * sums[1] + sums[3]);
      return b.convert(b.select(low, b.negate(slope), slope), args[0].element_type());
    }};

at::Tensor dirichlet_grad(const at::Tensor& x, const at::Tensor& alpha, const at::Tensor& total) {
  return structured_functional<TernaryMeta<>, Numeric<kDirichletGrad, Domain::kFloat>{}>(x, alpha,
                                                                                         total);
}

// --- Counts ---

// The first k whose distribution function reaches u: probabilities from first = P(0) on, each
// `ratio(k)` times the one before. Where `wanted`; 0 elsewhere.
template <class Ratio>
XlaValue inversion(Builder& b, const XlaValue& u, const XlaValue& first, const XlaValue& wanted,
                   Ratio ratio) {
  constexpr int64_t kMost = 200;  // for means below 10, of which u does not reach a half
  const auto open = [&](const Values& v) { return b.and_(wanted, b.gt(u, v[2])); };
  const auto unfinished = [&](const Values& v) {
    return b.and_(b.reduce_or(open({v[1], v[2], v[3]}), {0}), b.lt(v[0], b.full_like(v[0], kMost)));
  };
  const auto step = [&](const Values& v) -> Values {
    const XlaValue more = b.and_(wanted, b.gt(u, v[3]));
    const XlaValue k = v[1] + 1, p = v[2] * ratio(k);
    return {v[0] + 1, b.select(more, k, v[1]), b.select(more, p, v[2]),
            b.select(more, v[3] + p, v[3])};
  };
  const Values start{b.scalar(0, ElementType::kS32), all(u, 0), first, first};
  return b.while_(start, unfinished, step)[1];
}

// Hörmann's transformed rejection (1993): a value (2a/s + b) u + c for u around 0 and
// s = 1/2 - |u|, accepted at once inside the rectangle up to `rectangle`, else by its probability.
struct Hat {
  XlaValue a, b, c, rectangle, scale;
};

template <class LogProbability>
Proposal proposed(Builder& b, Stream& in, const Hat& hat, LogProbability log_probability) {
  const int64_t size = hat.a.dim(0);
  const XlaValue u = in.uniform(size) - 0.5, v = in.uniform(size);
  const XlaValue s = 0.5 - b.abs(u);
  const XlaValue k = b.floor((2 * hat.a / s + hat.b) * u + hat.c);
  const XlaValue inside = b.and_(b.ge(s, all(s, 0.07)), b.le(v, hat.rectangle));
  const XlaValue height = b.log(v * hat.scale / (hat.a / (s * s) + hat.b));
  return {k, b.or_(inside, b.le(height, log_probability(k)))};
}

const Op kPoisson{
    "aten::poisson", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const ShapeRef shape = n.output();
      Stream stream(b, l.operand(1));
      const XlaValue rate = flat(l, 0, Dims(shape.dims));
      const XlaValue small = b.lt(rate, all(rate, 10));
      const XlaValue few = inversion(b, stream.uniform(rate.dim(0)), b.exponential(b.negate(rate)),
                                     small, [&](const XlaValue& k) { return rate / k; });
      // PTRS. Where the rate is small, any that the loop is done with.
      const XlaValue mean = b.select(small, all(rate, 10), rate), log_mean = b.log(mean);
      const XlaValue width = 0.931 + 2.53 * b.sqrt(mean);
      const Hat hat{-0.059 + 0.02483 * width, width, mean + 0.43, 0.9277 - 3.6224 / (width - 2),
                    1.1239 + 1.1328 / (width - 3.4)};
      const auto log_probability = [&](const XlaValue& k) {
        const XlaValue valid = b.ge(k, all(k, 0)), at = b.select(valid, k, all(k, 0));
        const XlaValue log = at * log_mean - mean - b.lgamma(at + 1);
        return b.select(valid, log, all(k, -std::numeric_limits<double>::infinity()));
      };
      const XlaValue many = rejection(
          b, stream, small, [&](Stream& in) { return proposed(b, in, hat, log_probability); });
      const XlaValue counts = b.select(small, few, many);
      const XlaValue valid = b.ge(rate, all(rate, 0));
      return b.convert(
          b.reshape(b.select(valid, counts, all(rate, std::numeric_limits<double>::quiet_NaN())),
                    Dims(shape.dims)),
          shape.type);
    }};

// Where nothing is checked, the samples of negative rates are NaN.
at::Tensor poisson(const at::Tensor& self, OptionalGenerator generator) {
  const at::Tensor result = sample(kPoisson, "poisson_cpu", self, generator);
  return make_like(
      checked(lazy::read(result), value_of(self), {0, std::numeric_limits<double>::infinity()},
              kPoisson.name, "invalid Poisson rate, expected rate to be non-negative"),
      self);
}

// Operands: trials, probability, state.
const Op kBinomial{
    "aten::binomial", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const ShapeRef shape = n.output();
      const Dims dims(shape.dims);
      Stream stream(b, l.operand(2));
      const XlaValue trials = flat(l, 0, dims), given = flat(l, 1, dims);
      // The rarer of success and failure is counted.
      const XlaValue flip = b.gt(given, all(given, 0.5));
      const XlaValue p = b.select(flip, 1 - given, given), q = 1 - p, odds = p / q;
      const XlaValue small = b.lt(trials * p, all(p, 10));
      const XlaValue none = b.exponential(trials * b.log_plus_one(b.negate(p)));
      const XlaValue few =
          inversion(b, stream.uniform(p.dim(0)), none, small,
                    [&](const XlaValue& k) { return odds * (trials - k + 1) / k; });
      // BTRS.
      const XlaValue total = b.select(small, all(p, 40), trials);
      const XlaValue chance = b.select(small, all(p, 0.5), p);
      const XlaValue deviation = b.sqrt(total * chance * (1 - chance));
      const XlaValue width = 1.15 + 2.53 * deviation;
      const Hat hat{-0.0873 + 0.0248 * width + 0.01 * chance, width, total * chance + 0.5,
                    0.92 - 4.2 / width, (2.83 + 5.1 / width) * deviation};
      const XlaValue mode = b.floor((total + 1) * chance);
      const XlaValue log_odds = b.log(chance / (1 - chance));
      const auto ways = [&](const XlaValue& k) {  // log of 1 / (k! (total - k)!)
        return b.negate(b.lgamma(k + 1) + b.lgamma(total - k + 1));
      };
      const XlaValue most = ways(mode);
      const auto log_probability = [&](const XlaValue& k) {
        const XlaValue valid = b.and_(b.ge(k, all(k, 0)), b.le(k, total));
        const XlaValue at = b.select(valid, k, mode);
        const XlaValue log = ways(at) - most + (at - mode) * log_odds;
        return b.select(valid, log, all(k, -std::numeric_limits<double>::infinity()));
      };
      const XlaValue many = rejection(
          b, stream, small, [&](Stream& in) { return proposed(b, in, hat, log_probability); });
      XlaValue counts = b.select(small, few, many);
      counts = b.select(flip, trials - counts, counts);
      const XlaValue zero = all(p, 0);
      const XlaValue never = b.or_(b.le(trials, zero), b.le(given, zero));
      counts = b.select(b.ge(given, all(p, 1)), trials, counts);
      counts = b.select(never, zero, counts);
      const XlaValue valid = b.and_(b.eq(given, given), b.eq(trials, trials));
      counts = b.select(valid, counts, all(p, std::numeric_limits<double>::quiet_NaN()));
      return b.convert(b.reshape(counts, dims), shape.type);
    }};

at::Tensor binomial(const at::Tensor& count, const at::Tensor& prob, OptionalGenerator generator) {
  check_domain("binomial_cpu", Domain::kFloat, count.scalar_type());
  TORCH_CHECK(count.scalar_type() == prob.scalar_type(),
              "binomial: expected count and prob of one "
              "dtype, got ",
              count.scalar_type(), " and ", prob.scalar_type());
  TORCH_CHECK(at::is_expandable_to(prob.sizes(), count.sizes()),
              "binomial: probabilities of sizes ", prob.sizes(), " do not expand to ",
              count.sizes());
  const ShapeRef shape = shape_of(count);
  const Value value =
      count.numel() == 0
          ? lazy::full(0, shape.type, shape.dims)
          : Value(Node::make(kBinomial,
                             {value_of(count), value_of(prob), draw_state(generator, count)}, {},
                             shape));
  return make_like(value, count);
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("_standard_gamma", &standard_gamma);
  m.impl("_standard_gamma_grad", &standard_gamma_grad);
  m.impl("_sample_dirichlet", &sample_dirichlet);
  m.impl("_dirichlet_grad", &dirichlet_grad);
  m.impl("poisson", &poisson);
  m.impl("binomial", &binomial);
}

}  // namespace torch_xla::aten
