// Constants: how numbers are spelled in MLIR text.

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "stablehlo/builder.h"
#include "stablehlo/scope.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {
namespace {

// Arrays up to this size are spelled out, larger ones are hexadecimal bytes.
constexpr int64_t kMaxSpelledElements = 32;

// Bits of a quiet NaN, and of +infinity where the type has one.
uint64_t nan_bits(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return 0x7FF8000000000000u;
    case ElementType::kF32:
      return 0x7FC00000u;
    case ElementType::kF16:
      return 0x7E00u;
    case ElementType::kBF16:
      return 0x7FC0u;
    case ElementType::kF8E5M2:
      return 0x7Eu;
    case ElementType::kF8E4M3:
      return 0x7Cu;
    case ElementType::kF8E3M4:
      return 0x78u;
    case ElementType::kF8E4M3FN:
      return 0x7Fu;
    case ElementType::kF8E4M3FNUZ:
    case ElementType::kF8E4M3B11FNUZ:
    case ElementType::kF8E5M2FNUZ:
      return 0x80u;
    case ElementType::kF8E8M0FNU:
      return 0xFFu;
    default:
      fail("nan", hlo_name(type), " has no NaN");
  }
}

uint64_t infinity_bits(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return 0x7FF0000000000000u;
    case ElementType::kF32:
      return 0x7F800000u;
    case ElementType::kF16:
      return 0x7C00u;
    case ElementType::kBF16:
      return 0x7F80u;
    case ElementType::kF8E5M2:
      return 0x7Cu;
    case ElementType::kF8E4M3:
      return 0x78u;
    case ElementType::kF8E3M4:
      return 0x70u;
    default:
      return nan_bits(type);  // As a conversion that overflows does in these types.
  }
}

void append_hex(std::string& text, uint64_t bits, int digits) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  for (int i = digits - 1; i >= 0; --i) text += kHex[bits >> (4 * i) & 15];
}

void append_float_bits(std::string& text, uint64_t bits, ElementType type) {
  text += "0x";
  append_hex(text, bits, (bit_width(type) + 3) / 4);
}

// Decimal with a point, as MLIR wants it; not finite ones as bits.
void append_float(std::string& text, double value, ElementType type) {
  if (!std::isfinite(value)) {
    uint64_t sign = std::signbit(value) ? uint64_t{1} << (bit_width(type) - 1) : 0;
    if (std::isnan(value)) {
      append_float_bits(text, nan_bits(type), type);
    } else if (has_infinity(type)) {
      append_float_bits(text, infinity_bits(type) | sign, type);
    } else {
      append_float_bits(text, nan_bits(type), type);
    }
    return;
  }
  char digits[40];
  auto end =
      type == ElementType::kF64
          ? std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific)
          : std::to_chars(digits, digits + sizeof digits, static_cast<float>(value),
                          std::chars_format::scientific);
  std::string_view spelled(digits, static_cast<size_t>(end.ptr - digits));
  size_t exponent = spelled.find('e');
  text += spelled.substr(0, exponent);
  if (spelled.substr(0, exponent).find('.') == std::string_view::npos) text += ".0";
  if (spelled.substr(exponent) != "e+00") text += spelled.substr(exponent);
}

void append_number(std::string& text, Number value, ElementType type) {
  if (is_pred(type)) {
    text += value.is_zero() ? "false" : "true";
  } else if (is_float(type)) {
    double real = value.real();
    // Rounds to infinity where f32 overflows; narrower types round by way of f32, as PyTorch's
    // scalars do.
    if (type != ElementType::kF64) real = static_cast<float>(real);
    append_float(text, real, type);
  } else if (is_complex(type)) {
    text += '(';
    append_number(text, value.real(), real_type(type));
    text += ", ";
    append_number(text, value.imag(), real_type(type));
    text += ')';
  } else if (is_integer(type)) {
    // Wraps as two's complement does.
    uint64_t bits = value.integer_bits();
    int width = bit_width(type);
    int unused = 64 - width;
    char digits[24];
    if (is_signed(type)) {
      auto wrapped = static_cast<int64_t>(bits << unused) >> unused;
      text.append(digits, std::to_chars(digits, digits + sizeof digits, wrapped).ptr);
    } else {
      uint64_t wrapped = bits << unused >> unused;
      text.append(digits, std::to_chars(digits, digits + sizeof digits, wrapped).ptr);
    }
  } else {
    fail("constant", "no constants of type ", hlo_name(type));
  }
}

template <typename T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

uint64_t load_bits(const std::byte* bytes, int count) {
  uint64_t bits = 0;
  for (int i = 0; i < count; ++i) bits |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return bits;
}

// One element as it lies in memory.
void append_element(std::string& text, const std::byte* bytes, ElementType type) {
  int size = byte_size(type);
  if (type == ElementType::kF32) {
    float value = load<float>(bytes);
    if (std::isnan(value)) return append_float_bits(text, load_bits(bytes, size), type);
    append_float(text, value, type);
  } else if (type == ElementType::kF64) {
    double value = load<double>(bytes);
    if (std::isnan(value)) return append_float_bits(text, load_bits(bytes, size), type);
    append_float(text, value, type);
  } else if (is_float(type)) {
    append_float_bits(text, load_bits(bytes, size), type);
  } else if (is_complex(type)) {
    text += '(';
    append_element(text, bytes, real_type(type));
    text += ", ";
    append_element(text, bytes + size / 2, real_type(type));
    text += ')';
  } else {
    append_number(text, load_bits(bytes, size), type);
  }
}

// [[a, b], [c, d]]
void append_nested(std::string& text, const std::byte*& bytes, const TensorType& type,
                   size_t dimension) {
  if (dimension == type.rank()) {
    append_element(text, bytes, type.type);
    bytes += byte_size(type.type);
    return;
  }
  text += '[';
  for (int64_t i = 0; i < type.dims[dimension]; ++i) {
    if (i) text += ", ";
    append_nested(text, bytes, type, dimension + 1);
  }
  text += ']';
}

}  // namespace

// --- Number ------------------------------------------------------------------------------------

double Number::real() const {
  switch (kind_) {
    case Kind::kSigned:
      return static_cast<double>(static_cast<int64_t>(bits_));
    case Kind::kUnsigned:
      return static_cast<double>(bits_);
    default:
      return real_;
  }
}

uint64_t Number::integer_bits() const {
  if (kind_ == Kind::kSigned || kind_ == Kind::kUnsigned) return bits_;
  // Out of range conversions are undefined in C++; saturate, and take NaN for 0, as XLA does.
  if (std::isnan(real_)) return 0;
  if (real_ >= 18446744073709551616.0) return std::numeric_limits<uint64_t>::max();
  if (real_ >= 9223372036854775808.0) return static_cast<uint64_t>(real_);
  if (real_ <= -9223372036854775808.0) {
    return static_cast<uint64_t>(std::numeric_limits<int64_t>::min());
  }
  return static_cast<uint64_t>(static_cast<int64_t>(real_));
}

bool Number::is_zero() const {
  if (kind_ == Kind::kSigned || kind_ == Kind::kUnsigned) return bits_ == 0;
  return real_ == 0 && imag_ == 0;
}

// --- Builder -----------------------------------------------------------------------------------

Value Builder::cached_scalar(ElementType type, std::string_view literal) {
  uint32_t index = intern(type, {});
  for (const Scope::Scalar& entry : scope_->scalars) {
    if (entry.value.type_ == index && entry.literal == literal) return entry.value;
  }
  Attributes attributes;
  attributes.raw("value", cat("dense<", literal, "> : ", types_[index].text));
  Value v = write("stablehlo.constant", {}, index, attributes);
  scope_->scalars.push_back({std::string(literal), v});
  return v;
}

Value Builder::scalar(Number value, ElementType type) {
  std::string literal;
  append_number(literal, value, type);
  return cached_scalar(type, literal);
}

Value Builder::constant(const TensorType& type, Number value) {
  Value s = scalar(value, type.type);
  if (type.dims.empty()) return s;
  uint32_t index = intern(type);
  for (const Scope::Splat& entry : scope_->splats) {
    if (entry.scalar == s.id_ && entry.value.type_ == index) return entry.value;
  }
  Value v = broadcast_in_dim(s, type.dims, {});
  scope_->splats.push_back({s.id_, v});
  return v;
}

Value Builder::constant(ElementType type, const Dims& dims, Number value) {
  return constant(TensorType{type, dims}, value);
}

Value Builder::dense(const TensorType& type, std::span<const std::byte> bytes) {
  auto size = static_cast<size_t>(byte_size(type.type));
  if (type.type == ElementType::kToken || type.bounded) {
    fail("stablehlo.constant", "no constants of type ", type);
  }
  if (static_cast<int64_t>(bytes.size()) != type.byte_size()) {
    fail("stablehlo.constant", type, " takes ", type.byte_size(), " bytes, not ", bytes.size());
  }
  int64_t count = type.num_elements();
  bool splat = count > 0;
  for (size_t i = size; i < bytes.size() && splat; i += size) {
    splat = std::memcmp(bytes.data(), bytes.data() + i, size) == 0;
  }
  if (splat) {
    std::string literal;
    append_element(literal, bytes.data(), type.type);
    Value s = cached_scalar(type.type, literal);
    return type.dims.empty() ? s : broadcast_in_dim(s, type.dims, {});
  }
  uint32_t index = intern(type);
  std::string text = "dense<";
  if (count <= kMaxSpelledElements) {
    const std::byte* at = bytes.data();
    if (count > 0) append_nested(text, at, type, 0);
  } else if (bit_width(type.type) < 8) {
    // Whether packed or not has changed between MLIR versions: go through whole bytes.
    bool is_unsigned = !is_signed(type.type);
    if (is_float(type.type)) fail("stablehlo.constant", type, " is too large to spell out");
    std::vector<std::byte> whole(bytes.begin(), bytes.end());
    if (is_pred(type.type)) {
      for (std::byte& b : whole) b = std::byte{b != std::byte{0}};
    } else if (!is_unsigned) {
      for (std::byte& b : whole) {
        b = static_cast<std::byte>(static_cast<int8_t>(std::to_integer<uint8_t>(b) << 4) >> 4);
      }
    }
    ElementType wide = is_unsigned ? ElementType::kU8 : ElementType::kS8;
    return convert(dense({wide, type.dims}, whole), type.type);
  } else {
    text.reserve(2 * bytes.size() + 64);
    text += "\"0x";
    for (std::byte b : bytes) append_hex(text, std::to_integer<uint64_t>(b), 2);
    text += '"';
  }
  text += "> : ";
  text += types_[index].text;
  return write("stablehlo.constant", {}, index, Attributes().raw("value", text));
}

Value Builder::vector(std::span<const int64_t> values, ElementType type) {
  if (!is_integer(type) || bit_width(type) < 8) {
    fail("stablehlo.constant", "a vector of integers cannot have type ", hlo_name(type));
  }
  auto size = static_cast<size_t>(byte_size(type));
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(&bytes[i * size], &values[i], size);
  return dense({type, {static_cast<int64_t>(values.size())}}, bytes);
}

Value Builder::iota(const TensorType& type, int64_t dimension) {
  if (dimension < 0 || dimension >= static_cast<int64_t>(type.rank())) {
    fail("stablehlo.iota", "dimension ", dimension, " of ", type);
  }
  if (!is_integer(type.type) && !is_float(type.type) && !is_complex(type.type)) {
    fail("stablehlo.iota", "cannot count in ", type);
  }
  return write("stablehlo.iota", {}, intern(type),
               Attributes().integer("iota_dimension", dimension));
}

Value Builder::iota(ElementType type, const Dims& dims, int64_t dimension) {
  return iota(TensorType{type, dims}, dimension);
}

Value Builder::full_like(Value x, Number value) {
  check_operand("full_like", x);
  return constant(x.type(), value);
}

Value Builder::min_value(ElementType type) {
  if (is_float(type) && has_infinity(type)) {
    return scalar(-std::numeric_limits<double>::infinity(), type);
  }
  return lowest(type);
}

Value Builder::max_value(ElementType type) {
  if (is_float(type) && has_infinity(type)) {
    return scalar(std::numeric_limits<double>::infinity(), type);
  }
  return highest(type);
}

Value Builder::lowest(ElementType type) {
  if (is_float(type)) {
    // f8E8M0FNU has no sign.
    return scalar(type == ElementType::kF8E8M0FNU ? min_normal(type) : -max_finite(type), type);
  }
  if (is_pred(type)) return scalar(false, type);
  if (!is_integer(type)) fail("lowest", hlo_name(type), " is not ordered");
  if (!is_signed(type)) return scalar(0, type);
  return scalar(std::numeric_limits<int64_t>::min() >> (64 - bit_width(type)), type);
}

Value Builder::highest(ElementType type) {
  if (is_float(type)) return scalar(max_finite(type), type);
  if (is_pred(type)) return scalar(true, type);
  if (!is_integer(type)) fail("highest", hlo_name(type), " is not ordered");
  uint64_t ones = ~uint64_t{0} >> (64 - bit_width(type));
  return scalar(is_signed(type) ? ones >> 1 : ones, type);
}

Value Builder::infinity(ElementType type) {
  if (!is_float(type) || !has_infinity(type)) fail("infinity", hlo_name(type), " has no infinity");
  return scalar(std::numeric_limits<double>::infinity(), type);
}

Value Builder::nan(ElementType type) {
  if (is_complex(type)) {
    double nan = std::numeric_limits<double>::quiet_NaN();
    return scalar(std::complex<double>(nan, nan), type);
  }
  if (!is_float(type)) fail("nan", hlo_name(type), " has no NaN");
  return scalar(std::numeric_limits<double>::quiet_NaN(), type);
}

}  // namespace torch_xla::stablehlo
