// Random numbers: draws from the counter-based generator of lazy/random.h, and the distributions
// made of them. A draw is uniform on [0, 1); everything else is a formula over draws. What
// samples from tensors is in sampling.cpp.

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Utils.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "aten/checks.h"
#include "aten/random.h"
#include "lazy/runtime.h"

namespace torch_xla::aten {
namespace {

using Args = PointwiseArgs&;

// Random bits as they come, u32 or u64.
const Op kBits{"xla::random_bits", [](Lowering& l, const Node& n) -> Results {
                 const ShapeRef shape = n.output();
                 return l
                     ->rng_bit_generator(stablehlo::RngAlgorithm::kPhilox, l.operand(0),
                                         {shape.type, Dims(shape.dims)})
                     .bits;
               }};

// Multiples of the dtype's 2^-digits in [0, 1), so that every value is exact.
const Op kUnit{"xla::random_uniform", [](Lowering& l, const Node& n) -> Results {
                 const ShapeRef shape = n.output();
                 const bool wide = shape.type == ElementType::kF64;
                 const ElementType word = wide ? ElementType::kU64 : ElementType::kU32;
                 const ElementType compute = wide ? ElementType::kF64 : ElementType::kF32;
                 const double step = stablehlo::epsilon(shape.type) / 2;
                 const XlaValue bits = l->rng_bit_generator(stablehlo::RngAlgorithm::kPhilox,
                                                            l.operand(0), {word, Dims(shape.dims)})
                                           .bits;
                 const int unused = stablehlo::bit_width(word) + std::ilogb(step);
                 const XlaValue kept = l->shift_right_logical(bits, l->full_like(bits, unused));
                 return l->convert(l->convert(kept, compute) * step, shape.type);
               }};

Value draw(const Op& op, const OptionalGenerator& generator, c10::Device device, ElementType type,
           at::IntArrayRef sizes) {
  const int64_t count = c10::multiply_integers(sizes);
  if (count == 0) return lazy::full(0, type, span_of(sizes));
  return Node::make(op, {lazy::generator_for(generator, device).next_state(count)}, {},
                    ShapeRef{type, span_of(sizes)});
}

}  // namespace

Value random_bits(const OptionalGenerator& generator, c10::Device device, ElementType word,
                  at::IntArrayRef sizes) {
  return draw(kBits, generator, device, word, sizes);
}

Value random_unit(const OptionalGenerator& generator, c10::Device device, ElementType type,
                  at::IntArrayRef sizes) {
  return draw(kUnit, generator, device, type, sizes);
}

Value random_unit(const OptionalGenerator& generator, const at::Tensor& like) {
  return random_unit(generator, like.device(), draw_type(like.scalar_type()), like.sizes());
}

ElementType draw_type(at::ScalarType dtype) {
  const ElementType type = stablehlo::real_type(lazy::element_type(dtype));
  return type == ElementType::kF64 ? type : ElementType::kF32;
}

Value formula(const PointwiseOp& op, const Value& draw, std::initializer_list<double> numbers,
              ElementType type) {
  std::vector<Value> operands{draw};
  for (double number : numbers) operands.push_back(scalar_operand(number, draw.type()));
  return pointwise(op, operands, draw.type(), ShapeRef{type, draw.dims()});
}

at::Tensor& fill(at::Tensor& self, const Value& value) {
  at::assert_no_internal_overlap(self);
  lazy::write(self, convert(value, element_type(self)));
  return self;
}

// 1 - u is in (0, 1]: never more often than with probability p, and always for p = 1.
const PointwiseOp kBernoulli{"aten::bernoulli",
                             [](PointwiseArgs& x) { return x.b.le(1 - x[0], x[1]); }};

int significand_digits(ElementType type) { return 1 - std::ilogb(stablehlo::epsilon(type)); }

int64_t largest_integer(ElementType type) {
  if (stablehlo::is_pred(type)) return 1;
  if (stablehlo::is_float(type)) return int64_t{1} << significand_digits(type);
  const int bits = stablehlo::bit_width(type) - (stablehlo::is_signed(type) ? 1 : 0);
  return bits >= 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
}

namespace {

const Op kComplexOf{"aten::complex", [](Lowering& l, const Node& n) -> Results {
                      const ElementType part = stablehlo::real_type(n.output().type);
                      return l->complex(l.operand(0, part), l.operand(1, part));
                    }};

// A value of `dtype` from make(real dtype); of two of them for complex numbers.
template <class Make>
Value parts(at::ScalarType dtype, Make make) {
  const ElementType type = lazy::element_type(dtype);
  const at::ScalarType real = c10::toRealValueType(dtype);
  Value first = make(real);
  if (!stablehlo::is_complex(type)) return first;
  const Value second = make(real);
  return Node::make(kComplexOf, {first, second}, {}, ShapeRef{type, first.dims()});
}

// --- uniform ---

// draw, from, to. Rounding may reach `to`, which is not part of the range.
const PointwiseOp kUniform{"aten::uniform", [](Args x) {
                             Builder& b = x.b;
                             const auto type = x.attributes.enumeration<ElementType>();
                             const XlaValue value = b.convert(x[1] + x[0] * (x[2] - x[1]), type);
                             return b.select(b.ge(value, b.convert(x[2], type)),
                                             b.convert(x[1], type), value);
                           }};

Value uniform_value(const OptionalGenerator& generator, c10::Device device, at::ScalarType dtype,
                    at::IntArrayRef sizes, double from, double to) {
  return parts(dtype, [&](at::ScalarType real) {
    const ElementType type = lazy::element_type(real);
    const Value unit = random_unit(generator, device, type, sizes);
    if (from == 0 && to == 1) return unit;
    return pointwise(kUniform, {unit, scalar_operand(from, type), scalar_operand(to, type)}, type,
                     ShapeRef{type, span_of(sizes)}, Attributes::of(type));
  });
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, OptionalGenerator generator) {
  check_domain("check_uniform_bounds", Domain::kFloatOrComplex, self.scalar_type());
  const double limit = stablehlo::max_finite(stablehlo::real_type(element_type(self)));
  TORCH_CHECK(std::abs(from) <= limit, "from is out of bounds for ", self.scalar_type());
  TORCH_CHECK(std::abs(to) <= limit, "to is out of bounds for ", self.scalar_type());
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
              " > to=", to);
  TORCH_CHECK(to - from <= limit, "uniform_ expects to-from <= std::numeric_limits<",
              self.scalar_type(), ">::max(), but found to=", to, " and from=", from,
              " which result in to-from to exceed the limit");
  return fill(self,
              uniform_value(generator, self.device(), self.scalar_type(), self.sizes(), from, to));
}

// --- normal: the inverse of its distribution function at a draw ---

// draw, mean, std. The draw is centred between its multiples of 2^-23 (2^-52), so that it is
// symmetric around 1/2 and never 0 or 1.
const PointwiseOp kNormal{"aten::normal", [](Args x) {
                            Builder& b = x.b;
                            const double step = 2 * stablehlo::epsilon(x[0].element_type());
                            const XlaValue whole = b.floor(x[0] * (2 / step));
                            const XlaValue centred = (whole + 0.5) * step - 1;
                            const XlaValue standard = b.erf_inv(centred) * std::numbers::sqrt2;
                            return x[1] + x[2] * standard;
                          }};
const PointwiseOp kStandardNormal{
    "aten::normal", [](Args x) {
      PointwiseArgs full{x.b, {x[0], x.number(0), x.number(1)}, x.attributes, x.common};
      return kNormal.formula(full);
    }};

void check_std(double std) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
}

Value normal_value(const OptionalGenerator& generator, c10::Device device, at::ScalarType dtype,
                   at::IntArrayRef sizes, double mean, double std) {
  // The variance of a complex number is that of both parts together.
  if (at::isComplexType(dtype)) std /= std::numbers::sqrt2;
  return parts(dtype, [&](at::ScalarType real) {
    const Value unit = random_unit(generator, device, draw_type(real), sizes);
    const ElementType type = lazy::element_type(real);
    if (mean == 0 && std == 1) return formula(kStandardNormal, unit, {}, type);
    return formula(kNormal, unit, {mean, std}, type);
  });
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, OptionalGenerator generator) {
  check_std(std);
  check_domain("normal_kernel", Domain::kFloatOrComplex, self.scalar_type());
  return fill(self,
              normal_value(generator, self.device(), self.scalar_type(), self.sizes(), mean, std));
}

at::Tensor normal_tensors(const Value& mean, const Value& std, const at::Tensor& like,
                          at::IntArrayRef sizes, const OptionalGenerator& generator) {
  check_domain("normal_kernel", Domain::kFloat, like.scalar_type());
  const ElementType type = element_type(like);
  const Value unit = random_unit(generator, like.device(), draw_type(like.scalar_type()), sizes);
  const Value result =
      pointwise(kNormal, {unit, mean, std}, unit.type(), ShapeRef{type, span_of(sizes)});
  const Value valid = &std.node->op() == &ir::kScalar
                          ? result
                          : checked(result, std, {0, std::numeric_limits<double>::infinity()},
                                    "aten::normal", "normal expects all elements of std >= 0.0");
  return lazy::make(valid, like.scalar_type(), like.device());
}

at::Tensor normal_tensor_tensor(const at::Tensor& mean, const at::Tensor& std,
                                OptionalGenerator generator) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  const at::Tensor& like = lazy::is_xla(mean) ? mean : std;
  return normal_tensors(value_of(mean), value_of(std), like,
                        at::infer_size(mean.sizes(), std.sizes()), generator);
}
at::Tensor normal_tensor_float(const at::Tensor& mean, double std, OptionalGenerator generator) {
  check_std(std);
  return normal_tensors(lazy::read(mean), scalar_operand(std, ElementType::kF64), mean,
                        mean.sizes(), generator);
}
at::Tensor normal_float_tensor(double mean, const at::Tensor& std, OptionalGenerator generator) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  return normal_tensors(scalar_operand(mean, ElementType::kF64), lazy::read(std), std, std.sizes(),
                        generator);
}

// --- other continuous distributions ---

// draw, lambda.
const PointwiseOp kExponential{"aten::exponential", [](Args x) {
                                 return x.b.negate(x.b.log_plus_one(x.b.negate(x[0]))) / x[1];
                               }};
// draw, mean, std.
const PointwiseOp kLogNormal{"aten::log_normal",
                             [](Args x) { return x.b.exponential(kNormal.formula(x)); }};
// draw, median, sigma.
const PointwiseOp kCauchy{
    "aten::cauchy", [](Args x) { return x[1] + x[2] * x.b.tan((x[0] - 0.5) * std::numbers::pi); }};

at::Tensor& exponential_(at::Tensor& self, double lambda, OptionalGenerator generator) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "Exponential distribution is a continuous probability distribution. dtype must be a "
              "floating point but you specified ",
              self.scalar_type());
  TORCH_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  return fill(self,
              formula(kExponential, random_unit(generator, self), {lambda}, element_type(self)));
}

at::Tensor& log_normal_(at::Tensor& self, double mean, double std, OptionalGenerator generator) {
  TORCH_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", std);
  check_domain("log_normal", Domain::kFloat, self.scalar_type());
  return fill(self,
              formula(kLogNormal, random_unit(generator, self), {mean, std}, element_type(self)));
}

at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, OptionalGenerator generator) {
  TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "Cauchy distribution is a continuous probability distribution. dtype must be a "
              "floating point but you specified ",
              self.scalar_type());
  return fill(self,
              formula(kCauchy, random_unit(generator, self), {median, sigma}, element_type(self)));
}

// --- discrete distributions ---

// draw, p: the first success of repeated trials.
const PointwiseOp kGeometric{"aten::geometric", [](Args x) {
                               Builder& b = x.b;
                               const XlaValue trials = b.ceil(b.log_plus_one(b.negate(x[0])) /
                                                              b.log_plus_one(b.negate(x[1])));
                               return b.maximum(trials, x.number(1));
                             }};

at::Tensor& bernoulli_(at::Tensor& self, double p, OptionalGenerator generator) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return fill(self, formula(kBernoulli, random_unit(generator, self), {p}, element_type(self)));
}

// Probabilities outside [0, 1] fail the program.
Value bernoulli_value(const at::Tensor& p, const at::Tensor& like,
                      const OptionalGenerator& generator) {
  const Value unit = random_unit(generator, like);
  return checked(pointwise(kBernoulli, {unit, value_of(p)}, unit.type(), shape_of(like)),
                 value_of(p), {0, 1}, "aten::bernoulli",
                 "expected probabilities of at least 0 and at most 1");
}

at::Tensor& bernoulli_tensor_(at::Tensor& self, const at::Tensor& p, OptionalGenerator generator) {
  check_domain("bernoulli_tensor", Domain::kFloat, p.scalar_type());
  TORCH_CHECK(at::is_expandable_to(p.sizes(), self.sizes()), "bernoulli_: probabilities of sizes ",
              p.sizes(), " do not expand to ", self.sizes());
  return fill(self, bernoulli_value(p, self, generator));
}

at::Tensor bernoulli(const at::Tensor& self, OptionalGenerator generator) {
  check_domain("bernoulli_tensor", Domain::kFloat, self.scalar_type());
  return make_like(bernoulli_value(self, self, generator), self);
}

at::Tensor bernoulli_p(const at::Tensor& self, double p, OptionalGenerator generator) {
  at::Tensor result = lazy::allocate(self.sizes(), self.scalar_type(), self.device());
  return bernoulli_(result, p, std::move(generator));
}

at::Tensor& geometric_(at::Tensor& self, double p, OptionalGenerator generator) {
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  check_domain("geometric", self.scalar_type() == at::kBool ? Domain::kFloat : Domain::kNotComplex,
               self.scalar_type());
  return fill(self, formula(kGeometric, random_unit(generator, self), {p}, element_type(self)));
}

// --- integers ---

// bits (u32 or u64), size of the range (0 for all of 64 bits), its start: wraps around.
const Op kRandomInteger{
    "aten::random", [](Lowering& l, const Node& n) -> Results {
      const XlaValue bits = l.operand(0);
      const XlaValue range = l->broadcast_to(l.operand(1, bits.element_type()), bits.dims());
      const XlaValue all = l->eq(range, l->zeros_like(range));
      const XlaValue offset =
          l->select(all, bits, l->remainder(bits, l->select(all, l->ones_like(range), range)));
      const XlaValue start = l->broadcast_to(l.operand(2, ElementType::kS64), bits.dims());
      return l->convert(l->convert(offset, ElementType::kS64) + start, n.output().type);
    }};

Value integer_value(const OptionalGenerator& generator, c10::Device device, ElementType type,
                    at::IntArrayRef sizes, int64_t from, uint64_t range) {
  const bool wide = range == 0 || range > std::numeric_limits<uint32_t>::max();
  const ElementType word = wide ? ElementType::kU64 : ElementType::kU32;
  const Value bits = random_bits(generator, device, word, sizes);
  return Node::make(kRandomInteger,
                    {bits, ir::scalar(static_cast<int64_t>(range), ElementType::kU64),
                     ir::scalar(from, ElementType::kS64)},
                    {}, ShapeRef{type, span_of(sizes)});
}

void check_integers(at::ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isComplexType(dtype), "\"random_kernel\" not implemented for '",
                              c10::toString(dtype), "'");
}

// The bounds must be numbers of the dtype.
void check_bound(const char* name, int64_t bound, at::ScalarType dtype) {
  const ElementType type = lazy::element_type(dtype);
  if (stablehlo::is_float(type)) {
    TORCH_CHECK(std::abs(static_cast<double>(bound)) <= stablehlo::max_finite(type), name,
                " is out of bounds for ", dtype);
    if (std::abs(static_cast<double>(bound)) > std::ldexp(1.0, significand_digits(type))) {
      TORCH_WARN(name, " is out of bounds [-(2^", significand_digits(type), "), 2^",
                 significand_digits(type), "]: ", dtype,
                 " does not hold all whole numbers beyond them");
    }
    return;
  }
  const bool is_signed = stablehlo::is_signed(type);
  const int64_t high = largest_integer(type);
  TORCH_CHECK(bound <= high && bound >= (is_signed ? -high - 1 : 0), name, " is out of bounds for ",
              dtype);
}

at::Tensor& random_(at::Tensor& self, OptionalGenerator generator) {
  check_integers(self.scalar_type());
  const ElementType type = element_type(self);
  const auto range = static_cast<uint64_t>(largest_integer(type)) + 1;
  return fill(self, integer_value(generator, self.device(), type, self.sizes(), 0, range));
}

at::Tensor& random_from_(at::Tensor& self, int64_t from, std::optional<int64_t> to,
                         OptionalGenerator generator) {
  check_integers(self.scalar_type());
  const ElementType type = element_type(self);
  uint64_t range = 0;
  if (to) {
    TORCH_CHECK(from < *to, "random_ expects 'from' to be less than 'to', but got from=", from,
                " >= to=", *to);
    check_bound("from", from, self.scalar_type());
    check_bound("to - 1", *to - 1, self.scalar_type());
    range = static_cast<uint64_t>(*to) - static_cast<uint64_t>(from);
  } else if (from != std::numeric_limits<int64_t>::min()) {
    check_bound("from", from, self.scalar_type());
    range = static_cast<uint64_t>(largest_integer(type)) - static_cast<uint64_t>(from) + 1;
  }
  return fill(self, integer_value(generator, self.device(), type, self.sizes(), from, range));
}
at::Tensor& random_to_(at::Tensor& self, int64_t to, OptionalGenerator generator) {
  return random_from_(self, 0, to, std::move(generator));
}

// --- factories: what at::rand and its kind do in one step ---

c10::Device target(std::optional<c10::Device> device) {
  return lazy::normalize(device.value_or(c10::Device(c10::kXLA)));
}

void check_layout(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided,
              "random tensors on xla are strided, not ", layout.value_or(c10::kStrided));
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

at::Tensor rand(at::IntArrayRef sizes, OptionalGenerator generator,
                std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_layout(layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  check_domain("check_uniform_bounds", Domain::kFloatOrComplex, type);
  const c10::Device on = target(device);
  return lazy::make(uniform_value(generator, on, type, sizes, 0, 1), type, on);
}
at::Tensor rand_default(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                        std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                        std::optional<bool> pin_memory) {
  return rand(sizes, std::nullopt, dtype, layout, device, pin_memory);
}

at::Tensor randn(at::IntArrayRef sizes, OptionalGenerator generator,
                 std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_layout(layout, pin_memory);
  at::detail::check_size_nonnegative(sizes);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  check_domain("normal_kernel", Domain::kFloatOrComplex, type);
  const c10::Device on = target(device);
  return lazy::make(normal_value(generator, on, type, sizes, 0, 1), type, on);
}
at::Tensor randn_default(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  return randn(sizes, std::nullopt, dtype, layout, device, pin_memory);
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("uniform_", &uniform_);
  m.impl("normal_", &normal_);
  m.impl("normal.Tensor_Tensor", &normal_tensor_tensor);
  m.impl("normal.Tensor_float", &normal_tensor_float);
  m.impl("normal.float_Tensor", &normal_float_tensor);
  m.impl("exponential_", &exponential_);
  m.impl("log_normal_", &log_normal_);
  m.impl("cauchy_", &cauchy_);
  m.impl("bernoulli", &bernoulli);
  m.impl("bernoulli.p", &bernoulli_p);
  m.impl("bernoulli_.float", &bernoulli_);
  m.impl("bernoulli_.Tensor", &bernoulli_tensor_);
  m.impl("geometric_", &geometric_);
  m.impl("random_", &random_);
  m.impl("random_.from", &random_from_);
  m.impl("random_.to", &random_to_);
  m.impl("rand", &rand_default);
  m.impl("rand.generator", &rand);
  m.impl("randn", &randn_default);
  m.impl("randn.generator", &randn);
}

}  // namespace torch_xla::aten
