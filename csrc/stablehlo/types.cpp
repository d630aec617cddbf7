#include "stablehlo/types.h"

#include <charconv>
#include <cmath>
#include <stdexcept>

namespace torch_xla::stablehlo {
namespace {

enum class Kind : uint8_t { kPred, kSigned, kUnsigned, kFloat, kComplex, kToken };

struct TypeInfo {
  std::string_view mlir;
  std::string_view hlo;
  Kind kind;
  uint8_t bits;
};

// In the order of ElementType.
constexpr TypeInfo kTypes[kElementTypeCount] = {
    {"i1", "pred", Kind::kPred, 1},
    {"i4", "s4", Kind::kSigned, 4},
    {"i8", "s8", Kind::kSigned, 8},
    {"i16", "s16", Kind::kSigned, 16},
    {"i32", "s32", Kind::kSigned, 32},
    {"i64", "s64", Kind::kSigned, 64},
    {"ui4", "u4", Kind::kUnsigned, 4},
    {"ui8", "u8", Kind::kUnsigned, 8},
    {"ui16", "u16", Kind::kUnsigned, 16},
    {"ui32", "u32", Kind::kUnsigned, 32},
    {"ui64", "u64", Kind::kUnsigned, 64},
    {"f4E2M1FN", "f4e2m1fn", Kind::kFloat, 4},
    {"f8E3M4", "f8e3m4", Kind::kFloat, 8},
    {"f8E4M3", "f8e4m3", Kind::kFloat, 8},
    {"f8E4M3FN", "f8e4m3fn", Kind::kFloat, 8},
    {"f8E4M3FNUZ", "f8e4m3fnuz", Kind::kFloat, 8},
    {"f8E4M3B11FNUZ", "f8e4m3b11fnuz", Kind::kFloat, 8},
    {"f8E5M2", "f8e5m2", Kind::kFloat, 8},
    {"f8E5M2FNUZ", "f8e5m2fnuz", Kind::kFloat, 8},
    {"f8E8M0FNU", "f8e8m0fnu", Kind::kFloat, 8},
    {"bf16", "bf16", Kind::kFloat, 16},
    {"f16", "f16", Kind::kFloat, 16},
    {"f32", "f32", Kind::kFloat, 32},
    {"f64", "f64", Kind::kFloat, 64},
    {"complex<f32>", "c64", Kind::kComplex, 64},
    {"complex<f64>", "c128", Kind::kComplex, 128},
    {"token", "token", Kind::kToken, 0},
};

const TypeInfo& info(ElementType type) { return kTypes[static_cast<int>(type)]; }

// Largest number, digits after the binary point of 1.x, and exponent of the smallest normal number.
struct FloatInfo {
  double max;
  int mantissa_bits;
  int min_exponent;
  bool infinity;
};

// f8 and f4: the OCP and the "FNUZ" definitions in the MLIR built-in types.
FloatInfo float_info(ElementType type) {
  switch (type) {
    case ElementType::kF4E2M1FN:
      return {6.0, 1, 0, false};
    case ElementType::kF8E3M4:
      return {15.5, 4, -2, true};
    case ElementType::kF8E4M3:
      return {240.0, 3, -6, true};
    case ElementType::kF8E4M3FN:
      return {448.0, 3, -6, false};
    case ElementType::kF8E4M3FNUZ:
      return {240.0, 3, -7, false};
    case ElementType::kF8E4M3B11FNUZ:
      return {30.0, 3, -10, false};
    case ElementType::kF8E5M2:
      return {57344.0, 2, -14, true};
    case ElementType::kF8E5M2FNUZ:
      return {57344.0, 2, -15, false};
    case ElementType::kF8E8M0FNU:
      return {std::ldexp(1.0, 127), 0, -127, false};
    case ElementType::kBF16:
      return {std::ldexp(255.0, 120), 7, -126, true};
    case ElementType::kF16:
      return {65504.0, 10, -14, true};
    case ElementType::kF32:
      return {std::ldexp(16777215.0, 104), 23, -126, true};
    case ElementType::kF64:
      return {std::ldexp(9007199254740991.0, 971), 52, -1022, true};
    default:
      throw std::logic_error("not a floating point type: " + std::string(info(type).hlo));
  }
}

void append_integer(std::string& text, int64_t value) {
  char digits[24];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

}  // namespace

bool is_float(ElementType type) { return info(type).kind == Kind::kFloat; }
bool is_complex(ElementType type) { return info(type).kind == Kind::kComplex; }
bool is_integer(ElementType type) {
  return info(type).kind == Kind::kSigned || info(type).kind == Kind::kUnsigned;
}
bool is_signed(ElementType type) {
  return info(type).kind == Kind::kSigned || is_float(type) || is_complex(type);
}

int bit_width(ElementType type) { return info(type).bits; }
int byte_size(ElementType type) { return (info(type).bits + 7) / 8; }

std::string_view mlir_name(ElementType type) { return info(type).mlir; }
std::string_view hlo_name(ElementType type) { return info(type).hlo; }

ElementType real_type(ElementType type) {
  if (type == ElementType::kC64) return ElementType::kF32;
  if (type == ElementType::kC128) return ElementType::kF64;
  return type;
}

ElementType complex_type(ElementType type) {
  if (type == ElementType::kF32) return ElementType::kC64;
  if (type == ElementType::kF64) return ElementType::kC128;
  throw std::logic_error("no complex type has parts of type " + std::string(hlo_name(type)));
}

ElementType opmath_type(ElementType type) {
  return is_float(type) && bit_width(type) <= 16 ? ElementType::kF32 : type;
}

double max_finite(ElementType type) { return float_info(type).max; }
double epsilon(ElementType type) { return std::ldexp(1.0, -float_info(type).mantissa_bits); }
double min_normal(ElementType type) { return std::ldexp(1.0, float_info(type).min_exponent); }
bool has_infinity(ElementType type) { return float_info(type).infinity; }

void Dims::reserve(size_t count) {
  if (count <= capacity_) return;
  int64_t* grown = new int64_t[count];
  std::copy(begin(), end(), grown);
  release();
  heap_ = grown;
  capacity_ = static_cast<uint32_t>(count);
}

void Dims::resize(size_t count, int64_t value) {
  reserve(count);
  if (count > size_) std::fill(data() + size_, data() + count, value);
  size_ = static_cast<uint32_t>(count);
}

void Dims::insert(size_t position, int64_t value) {
  push_back(value);
  std::rotate(begin() + position, end() - 1, end());
}

void Dims::erase(size_t position) {
  std::copy(begin() + position + 1, end(), begin() + position);
  --size_;
}

void Dims::assign(const int64_t* values, size_t count) {
  size_ = 0;
  reserve(count);
  std::copy(values, values + count, data());
  size_ = static_cast<uint32_t>(count);
}

void Dims::steal(Dims& other) noexcept {
  size_ = other.size_;
  capacity_ = other.capacity_;
  heap_ = other.heap_;
  if (!heap_) std::copy(other.inline_, other.inline_ + size_, inline_);
  other.heap_ = nullptr;
  other.size_ = 0;
  other.capacity_ = kInline;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i) text += ", ";
    append_integer(text, dims[i]);
  }
  return text += ']';
}

Dims iota_dims(size_t count) {
  Dims dims;
  dims.resize(count);
  for (size_t i = 0; i < count; ++i) dims[i] = static_cast<int64_t>(i);
  return dims;
}

int64_t TensorType::num_elements() const {
  int64_t count = 1;
  for (int64_t size : dims) count *= size;
  return count;
}

int64_t TensorType::byte_size() const { return num_elements() * stablehlo::byte_size(type); }

TensorType token_type() { return {ElementType::kToken, {}}; }

void append_to(std::string& text, const TensorType& type) {
  if (type.type == ElementType::kToken) {
    text += "!stablehlo.token";
    return;
  }
  text += "tensor<";
  for (size_t i = 0; i < type.dims.size(); ++i) {
    if (type.bounded >> i & 1) {
      text += '?';
    } else {
      append_integer(text, type.dims[i]);
    }
    text += 'x';
  }
  text += mlir_name(type.type);
  if (type.bounded) {
    text += ", #stablehlo.bounds<";
    for (size_t i = 0; i < type.dims.size(); ++i) {
      if (i) text += ", ";
      if (type.bounded >> i & 1) {
        append_integer(text, type.dims[i]);
      } else {
        text += '?';
      }
    }
    text += '>';
  }
  text += '>';
}

std::string to_string(const TensorType& type) {
  std::string text;
  append_to(text, type);
  return text;
}

}  // namespace torch_xla::stablehlo
