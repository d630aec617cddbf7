// Element and tensor types of StableHLO, their names and their arithmetic properties.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace torch_xla::stablehlo {

// The element types of StableHLO (spec, "Types"). kToken is no number: it orders side effects.
enum class ElementType : uint8_t {
  kPred,
  kS4,
  kS8,
  kS16,
  kS32,
  kS64,
  kU4,
  kU8,
  kU16,
  kU32,
  kU64,
  kF4E2M1FN,
  kF8E3M4,
  kF8E4M3,
  kF8E4M3FN,
  kF8E4M3FNUZ,
  kF8E4M3B11FNUZ,
  kF8E5M2,
  kF8E5M2FNUZ,
  kF8E8M0FNU,
  kBF16,
  kF16,
  kF32,
  kF64,
  kC64,
  kC128,
  kToken,
};

inline constexpr int kElementTypeCount = static_cast<int>(ElementType::kToken) + 1;

// Real floating point; complex types are not.
bool is_float(ElementType type);
bool is_complex(ElementType type);
// Two's complement or unsigned integers; kPred is not one.
bool is_integer(ElementType type);
// True for signed integers, floats and complex numbers.
bool is_signed(ElementType type);
inline bool is_pred(ElementType type) { return type == ElementType::kPred; }

// Bits of one element: 1 for kPred, 64 for kC64, 0 for kToken.
int bit_width(ElementType type);
// Bytes of one element in host memory, where everything narrower than a byte takes a whole one.
int byte_size(ElementType type);

// The name in MLIR text: "i1", "f32", "ui8", "complex<f32>".
std::string_view mlir_name(ElementType type);
// The name in HLO text: "pred", "f32", "u8", "c64".
std::string_view hlo_name(ElementType type);

// kC64 -> kF32, kC128 -> kF64, everything else unchanged.
ElementType real_type(ElementType type);
// kF32 -> kC64, kF64 -> kC128. Throws std::logic_error for what has no complex counterpart.
ElementType complex_type(ElementType type);
// The type to compute in so that rounding happens once: 16 bit and narrower floats -> kF32, else
// unchanged.
ElementType opmath_type(ElementType type);

// Largest finite magnitude and machine epsilon (distance from 1 to the next number) of a float
// type, exact in a double. Throw std::logic_error unless is_float(type).
double max_finite(ElementType type);
double epsilon(ElementType type);
// Smallest positive normal number.
double min_normal(ElementType type);
bool has_infinity(ElementType type);

// A short list of int64: sizes, axes, strides. Up to kInline entries need no allocation.
class Dims {
 public:
  static constexpr uint32_t kInline = 6;
  using value_type = int64_t;
  using iterator = int64_t*;
  using const_iterator = const int64_t*;

  Dims() = default;
  Dims(std::initializer_list<int64_t> values) { assign(values.begin(), values.size()); }
  explicit Dims(size_t count, int64_t value) { resize(count, value); }
  // Any contiguous range of int64: std::span, std::vector, std::array, c10::ArrayRef.
  template <typename Range,
            typename = std::enable_if_t<
                !std::is_same_v<std::remove_cvref_t<Range>, Dims> &&
                std::is_same_v<std::remove_cvref_t<decltype(*std::declval<const Range&>().data())>,
                               int64_t>>>
  Dims(const Range& range) {
    assign(range.data(), range.size());
  }
  Dims(const int64_t* first, const int64_t* last) {
    assign(first, static_cast<size_t>(last - first));
  }
  Dims(const Dims& other) { assign(other.data(), other.size()); }
  Dims(Dims&& other) noexcept { steal(other); }
  Dims& operator=(const Dims& other) {
    if (this != &other) assign(other.data(), other.size());
    return *this;
  }
  Dims& operator=(Dims&& other) noexcept {
    if (this != &other) {
      release();
      steal(other);
    }
    return *this;
  }
  ~Dims() { release(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* data() { return heap_ ? heap_ : inline_; }
  const int64_t* data() const { return heap_ ? heap_ : inline_; }
  int64_t* begin() { return data(); }
  int64_t* end() { return data() + size_; }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size_; }
  int64_t& operator[](size_t i) { return data()[i]; }
  int64_t operator[](size_t i) const { return data()[i]; }
  int64_t& back() { return data()[size_ - 1]; }
  int64_t back() const { return data()[size_ - 1]; }
  int64_t front() const { return data()[0]; }

  void reserve(size_t count);
  void resize(size_t count, int64_t value = 0);
  void push_back(int64_t value) {
    if (size_ == capacity_) reserve(2 * static_cast<size_t>(capacity_));
    data()[size_++] = value;
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  // Inserts before, or removes, the entry at `position`.
  void insert(size_t position, int64_t value);
  void erase(size_t position);
  bool contains(int64_t value) const { return std::find(begin(), end(), value) != end(); }

  operator std::span<const int64_t>() const { return {data(), size_}; }
  friend bool operator==(const Dims& a, const Dims& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  void assign(const int64_t* values, size_t count);
  void steal(Dims& other) noexcept;
  void release() { delete[] heap_; }

  uint32_t size_ = 0;
  uint32_t capacity_ = kInline;
  int64_t* heap_ = nullptr;
  int64_t inline_[kInline];
};

// "[2, 3]", for messages.
std::string to_string(const Dims& dims);
// {0, 1, ..., count - 1}.
Dims iota_dims(size_t count);

// The type of one value: a dense array of `type` with static sizes `dims`, or a token.
struct TensorType {
  ElementType type = ElementType::kF32;
  Dims dims;
  // Bit i set: the true size of dimension i is only known at run time and dims[i] bounds it.
  uint64_t bounded = 0;

  size_t rank() const { return dims.size(); }
  int64_t num_elements() const;
  // Bytes of the dense array in host memory.
  int64_t byte_size() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

TensorType token_type();

// MLIR text: "tensor<2x3xf32>", "tensor<f32>", "!stablehlo.token".
std::string to_string(const TensorType& type);
void append_to(std::string& text, const TensorType& type);

}  // namespace torch_xla::stablehlo
