// Elementwise operations: one result element from the elements at the same place.

#include <limits>

#include "stablehlo/builder.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {
namespace {

// What an operation takes, as a set.
constexpr unsigned kP = 1;   // kPred
constexpr unsigned kS = 2;   // signed integers
constexpr unsigned kU = 4;   // unsigned integers
constexpr unsigned kF = 8;   // real floats
constexpr unsigned kC = 16;  // complex numbers
constexpr unsigned kI = kS | kU;
constexpr unsigned kFC = kF | kC;
constexpr unsigned kNumbers = kI | kFC;

unsigned kind_of(ElementType type) {
  if (is_pred(type)) return kP;
  if (is_integer(type)) return is_signed(type) ? kS : kU;
  if (is_float(type)) return kF;
  if (is_complex(type)) return kC;
  return 0;
}

std::string kind_names(unsigned kinds) {
  std::string names;
  auto add = [&](unsigned kind, std::string_view name) {
    if (!(kinds & kind)) return;
    if (!names.empty()) names += ", ";
    names += name;
  };
  add(kP, "pred");
  add(kS, "signed integer");
  add(kU, "unsigned integer");
  add(kF, "float");
  add(kC, "complex");
  return names;
}

void check_kind(std::string_view op, Value x, unsigned kinds) {
  if (!(kind_of(x.element_type()) & kinds)) {
    fail(op, "takes ", kind_names(kinds), ", not ", x.type());
  }
}

TensorType with_element(TensorType type, ElementType element) {
  type.type = element;
  return type;
}

constexpr std::string_view kDirections[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};

}  // namespace

Value Builder::unary(std::string_view name, Value x, unsigned kinds) {
  check_operand(name, x);
  check_kind(name, x, kinds);
  return write(name, {x}, x.type_);
}

Value Builder::binary(std::string_view name, Value a, Value b, unsigned kinds) {
  check_operand(name, a);
  check_operand(name, b);
  if (a.type_ != b.type_) fail(name, "operand types differ: ", a.type(), " and ", b.type());
  check_kind(name, a, kinds);
  return write(name, {a, b}, a.type_);
}

// --- One operand -------------------------------------------------------------------------------

Value Builder::abs(Value x) {
  check_operand("stablehlo.abs", x);
  check_kind("stablehlo.abs", x, kNumbers);
  ElementType type = x.element_type();
  if (is_integer(type) && !is_signed(type)) return x;
  return write("stablehlo.abs", {x}, intern(with_element(x.type(), real_type(type))));
}

Value Builder::sign(Value x) {
  check_operand("stablehlo.sign", x);
  ElementType type = x.element_type();
  if (is_integer(type) && !is_signed(type)) return minimum(x, ones_like(x));
  return unary("stablehlo.sign", x, kS | kFC);
}

Value Builder::negate(Value x) { return unary("stablehlo.negate", x, kNumbers); }
Value Builder::exponential(Value x) { return unary("stablehlo.exponential", x, kFC); }
Value Builder::exponential_minus_one(Value x) {
  return unary("stablehlo.exponential_minus_one", x, kFC);
}
Value Builder::log(Value x) { return unary("stablehlo.log", x, kFC); }
Value Builder::log_plus_one(Value x) { return unary("stablehlo.log_plus_one", x, kFC); }
Value Builder::logistic(Value x) { return unary("stablehlo.logistic", x, kFC); }
Value Builder::tanh(Value x) { return unary("stablehlo.tanh", x, kFC); }
Value Builder::tan(Value x) { return unary("stablehlo.tan", x, kFC); }
Value Builder::sine(Value x) { return unary("stablehlo.sine", x, kFC); }
Value Builder::cosine(Value x) { return unary("stablehlo.cosine", x, kFC); }
Value Builder::sqrt(Value x) { return unary("stablehlo.sqrt", x, kFC); }
Value Builder::rsqrt(Value x) { return unary("stablehlo.rsqrt", x, kFC); }
Value Builder::cbrt(Value x) { return unary("stablehlo.cbrt", x, kF); }
Value Builder::floor(Value x) { return unary("stablehlo.floor", x, kF); }
Value Builder::ceil(Value x) { return unary("stablehlo.ceil", x, kF); }
Value Builder::round_nearest_even(Value x) { return unary("stablehlo.round_nearest_even", x, kF); }
Value Builder::round_nearest_afz(Value x) { return unary("stablehlo.round_nearest_afz", x, kF); }
Value Builder::not_(Value x) { return unary("stablehlo.not", x, kP | kI); }
Value Builder::popcnt(Value x) { return unary("stablehlo.popcnt", x, kI); }
Value Builder::count_leading_zeros(Value x) {
  return unary("stablehlo.count_leading_zeros", x, kI);
}

Value Builder::erf(Value x) { return unary("chlo.erf", x, kF); }
Value Builder::erfc(Value x) { return unary("chlo.erfc", x, kF); }
Value Builder::erf_inv(Value x) { return unary("chlo.erf_inv", x, kF); }
Value Builder::lgamma(Value x) { return unary("chlo.lgamma", x, kF); }
Value Builder::digamma(Value x) { return unary("chlo.digamma", x, kF); }
Value Builder::acos(Value x) { return unary("chlo.acos", x, kFC); }
Value Builder::asin(Value x) { return unary("chlo.asin", x, kFC); }
Value Builder::atan(Value x) { return unary("chlo.atan", x, kFC); }
Value Builder::acosh(Value x) { return unary("chlo.acosh", x, kFC); }
Value Builder::asinh(Value x) { return unary("chlo.asinh", x, kFC); }
Value Builder::atanh(Value x) { return unary("chlo.atanh", x, kFC); }
Value Builder::sinh(Value x) { return unary("chlo.sinh", x, kFC); }
Value Builder::cosh(Value x) { return unary("chlo.cosh", x, kFC); }
Value Builder::bessel_i1e(Value x) { return unary("chlo.bessel_i1e", x, kF); }

Value Builder::conj(Value x) {
  check_operand("chlo.conj", x);
  return is_complex(x.element_type()) ? unary("chlo.conj", x, kC) : x;
}

Value Builder::square(Value x) {
  check_operand("chlo.square", x);
  // chlo.square keeps complex infinities that a plain product turns into NaN.
  return is_complex(x.element_type()) ? unary("chlo.square", x, kC) : multiply(x, x);
}

Value Builder::is_finite(Value x) {
  check_operand("stablehlo.is_finite", x);
  check_kind("stablehlo.is_finite", x, kF);
  return write("stablehlo.is_finite", {x}, intern(with_element(x.type(), ElementType::kPred)));
}

Value Builder::is_inf(Value x) {
  check_operand("is_inf", x);
  check_kind("is_inf", x, kF);
  if (!has_infinity(x.element_type())) {
    return constant(with_element(x.type(), ElementType::kPred), false);
  }
  return eq(abs(x), full_like(x, std::numeric_limits<double>::infinity()));
}

Value Builder::is_nan(Value x) {
  check_operand("is_nan", x);
  check_kind("is_nan", x, kFC);
  return ne(x, x);  // For complex numbers true when either part is NaN.
}

Value Builder::real(Value x) {
  check_operand("stablehlo.real", x);
  check_kind("stablehlo.real", x, kFC);
  if (!is_complex(x.element_type())) return x;
  return write("stablehlo.real", {x}, intern(with_element(x.type(), real_type(x.element_type()))));
}

Value Builder::imag(Value x) {
  check_operand("stablehlo.imag", x);
  check_kind("stablehlo.imag", x, kFC);
  if (!is_complex(x.element_type())) return zeros_like(x);
  return write("stablehlo.imag", {x}, intern(with_element(x.type(), real_type(x.element_type()))));
}

// --- Two operands ------------------------------------------------------------------------------

// Of bools: said as what it means, since XLA adds constants modulo 2.
Value Builder::add(Value a, Value b) {
  return binary(is_pred(a.element_type()) ? "stablehlo.or" : "stablehlo.add", a, b, kP | kNumbers);
}
Value Builder::subtract(Value a, Value b) { return binary("stablehlo.subtract", a, b, kNumbers); }
Value Builder::multiply(Value a, Value b) {
  return binary("stablehlo.multiply", a, b, kP | kNumbers);
}
Value Builder::divide(Value a, Value b) { return binary("stablehlo.divide", a, b, kNumbers); }
Value Builder::maximum(Value a, Value b) { return binary("stablehlo.maximum", a, b, kP | kI | kF); }
Value Builder::minimum(Value a, Value b) { return binary("stablehlo.minimum", a, b, kP | kI | kF); }
Value Builder::remainder(Value a, Value b) { return binary("stablehlo.remainder", a, b, kI | kF); }
Value Builder::power(Value a, Value b) { return binary("stablehlo.power", a, b, kNumbers); }
Value Builder::atan2(Value a, Value b) { return binary("stablehlo.atan2", a, b, kFC); }
Value Builder::and_(Value a, Value b) { return binary("stablehlo.and", a, b, kP | kI); }
Value Builder::or_(Value a, Value b) { return binary("stablehlo.or", a, b, kP | kI); }
Value Builder::xor_(Value a, Value b) { return binary("stablehlo.xor", a, b, kP | kI); }
Value Builder::shift_left(Value a, Value b) { return binary("stablehlo.shift_left", a, b, kI); }
Value Builder::shift_right_logical(Value a, Value b) {
  return binary("stablehlo.shift_right_logical", a, b, kI);
}
Value Builder::shift_right_arithmetic(Value a, Value b) {
  return binary("stablehlo.shift_right_arithmetic", a, b, kI);
}
Value Builder::zeta(Value x, Value q) { return binary("chlo.zeta", x, q, kF); }
Value Builder::polygamma(Value n, Value x) { return binary("chlo.polygamma", n, x, kF); }
Value Builder::next_after(Value x, Value y) { return binary("chlo.next_after", x, y, kF); }

Value Builder::complex(Value real, Value imag) {
  check_operand("stablehlo.complex", real);
  check_operand("stablehlo.complex", imag);
  ElementType type = real.element_type();
  if (real.type_ != imag.type_ || (type != ElementType::kF32 && type != ElementType::kF64)) {
    fail("stablehlo.complex", "takes two f32 or two f64 of one shape, not ", real.type(), " and ",
         imag.type());
  }
  return write("stablehlo.complex", {real, imag},
               intern(with_element(real.type(), complex_type(type))));
}

Value Builder::compare(Value a, Value b, Direction direction, bool total_order) {
  constexpr std::string_view kName = "stablehlo.compare";
  check_operand(kName, a);
  check_operand(kName, b);
  if (a.type_ != b.type_) fail(kName, "operand types differ: ", a.type(), " and ", b.type());
  check_kind(kName, a, kP | kNumbers);
  ElementType type = a.element_type();
  if (is_complex(type) && direction != Direction::kEq && direction != Direction::kNe) {
    fail(kName, "complex numbers have no order: ", a.type());
  }
  if (total_order && !is_float(type)) fail(kName, "total order is for floats, not ", a.type());
  std::string_view how = "UNSIGNED";
  if (is_float(type) || is_complex(type)) {
    how = total_order ? "TOTALORDER" : "FLOAT";
  } else if (is_signed(type)) {
    how = "SIGNED";
  }
  Attributes attributes;
  attributes.raw("comparison_direction", cat("#stablehlo<comparison_direction ",
                                             kDirections[static_cast<int>(direction)], ">"));
  attributes.raw("compare_type", cat("#stablehlo<comparison_type ", how, ">"));
  return write(kName, {a, b}, intern(with_element(a.type(), ElementType::kPred)), attributes);
}

// --- Three operands, conversions ---------------------------------------------------------------

Value Builder::select(Value pred, Value on_true, Value on_false) {
  constexpr std::string_view kName = "stablehlo.select";
  for (Value v : {pred, on_true, on_false}) check_operand(kName, v);
  if (on_true.type_ != on_false.type_) {
    fail(kName, "branch types differ: ", on_true.type(), " and ", on_false.type());
  }
  if (!is_pred(pred.element_type()) || (pred.rank() != 0 && pred.dims() != on_true.dims())) {
    fail(kName, "the condition ", pred.type(), " does not fit ", on_true.type());
  }
  return write(kName, {pred, on_true, on_false}, on_true.type_);
}

Value Builder::clamp(Value low, Value x, Value high) {
  constexpr std::string_view kName = "stablehlo.clamp";
  for (Value v : {low, x, high}) check_operand(kName, v);
  check_kind(kName, x, kP | kI | kF);
  for (Value bound : {low, high}) {
    if (bound.element_type() != x.element_type() ||
        (bound.rank() != 0 && bound.dims() != x.dims())) {
      fail(kName, "the bound ", bound.type(), " does not fit ", x.type());
    }
  }
  return write(kName, {low, x, high}, x.type_);
}

Value Builder::convert(Value x, ElementType type) {
  constexpr std::string_view kName = "stablehlo.convert";
  check_operand(kName, x);
  ElementType from = x.element_type();
  if (from == type) return x;
  if (from == ElementType::kToken || type == ElementType::kToken) {
    fail(kName, "cannot convert ", x.type(), " to ", hlo_name(type));
  }
  if (is_complex(from)) {
    if (is_pred(type)) return ne(x, zeros_like(x));
    if (!is_complex(type)) return convert(real(x), type);
  }
  if (is_pred(from) && is_float(type)) {
    // XLA takes a factor that it sees converted for a choice, and NaN * false for 0.
    return select(x, constant(type, x.dims(), 1), constant(type, x.dims(), 0));
  }
  if (is_pred(from) && is_complex(type)) return convert(convert(x, real_type(type)), type);
  return write(kName, {x}, intern(with_element(x.type(), type)));
}

Value Builder::bitcast_convert(Value x, ElementType type) {
  constexpr std::string_view kName = "stablehlo.bitcast_convert";
  check_operand(kName, x);
  ElementType from = x.element_type();
  if (from == type) return x;
  int from_bits = bit_width(from);
  int to_bits = bit_width(type);
  bool impossible = is_pred(from) || is_pred(type) || from_bits == 0 || to_bits == 0 ||
                    is_complex(from) != is_complex(type);
  if (impossible) fail(kName, "cannot reinterpret ", x.type(), " as ", hlo_name(type));
  Dims dims = x.dims();
  if (from_bits > to_bits) {
    dims.push_back(from_bits / to_bits);
  } else if (from_bits < to_bits) {
    if (dims.empty() || dims.back() != to_bits / from_bits) {
      fail(kName, hlo_name(type), " takes a last dimension of ", to_bits / from_bits, ", not ",
           x.type());
    }
    dims.pop_back();
  }
  return write(kName, {x}, intern(type, dims));
}

Value Builder::reduce_precision(Value x, int exponent_bits, int mantissa_bits) {
  constexpr std::string_view kName = "stablehlo.reduce_precision";
  check_operand(kName, x);
  check_kind(kName, x, kF);
  if (exponent_bits < 1 || mantissa_bits < 0) {
    fail(kName, exponent_bits, " exponent and ", mantissa_bits, " mantissa bits");
  }
  return write(kName, {x}, x.type_,
               Attributes()
                   .integer("exponent_bits", exponent_bits, "i32")
                   .integer("mantissa_bits", mantissa_bits, "i32"));
}

}  // namespace torch_xla::stablehlo
