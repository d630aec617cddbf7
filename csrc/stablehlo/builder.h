// Writes one StableHLO module: every method checks its operands, infers the type of its result and
// appends one operation to the text. The operations and their rules are those of the StableHLO
// specification (https://openxla.org/stablehlo/spec); each method names its section there.
//
// A call that breaks a rule is a bug in the caller: it throws std::logic_error naming the operation
// and the types it was given. Axes are never negative and nothing broadcasts by itself, except
// where a method says so.

#pragma once

#include <complex>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stablehlo/types.h"

namespace torch_xla::stablehlo {

class Builder;

// A handle on one result in a module. Copies are cheap; it lives as long as its builder.
class Value {
 public:
  Value() = default;
  Value(Builder* builder, uint32_t id, uint32_t type) : builder_(builder), id_(id), type_(type) {}

  explicit operator bool() const { return builder_ != nullptr; }
  Builder& builder() const { return *builder_; }
  uint32_t id() const { return id_; }

  const TensorType& type() const;
  ElementType element_type() const { return type().type; }
  const Dims& dims() const { return type().dims; }
  int64_t rank() const { return static_cast<int64_t>(type().dims.size()); }
  int64_t dim(int64_t i) const;
  int64_t num_elements() const { return type().num_elements(); }

 private:
  friend class Builder;
  Builder* builder_ = nullptr;
  uint32_t id_ = 0;
  uint32_t type_ = 0;  // Index into the builder's types; equal indices are equal types.
};

using Values = std::vector<Value>;

// A number of any kind on its way to becoming a constant of some element type. Integers keep all
// their 64 bits. Conversion is C's: to kPred "is not zero", to integers truncation.
class Number {
 public:
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Number(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      real_ = value;
    } else if constexpr (std::is_signed_v<T>) {
      kind_ = Kind::kSigned;
      bits_ = static_cast<uint64_t>(static_cast<int64_t>(value));
    } else {
      kind_ = Kind::kUnsigned;
      bits_ = value;
    }
  }
  template <typename T>
  Number(std::complex<T> value) : kind_(Kind::kComplex), real_(value.real()), imag_(value.imag()) {}

  double real() const;
  double imag() const { return imag_; }
  // Two's complement bits of the value truncated to an integer.
  uint64_t integer_bits() const;
  bool is_zero() const;

 private:
  enum class Kind : uint8_t { kReal, kSigned, kUnsigned, kComplex };
  Kind kind_ = Kind::kReal;
  double real_ = 0;
  double imag_ = 0;
  uint64_t bits_ = 0;
};

enum class Direction { kEq, kNe, kLt, kLe, kGt, kGe };
enum class Precision { kDefault, kHigh, kHighest };
enum class FftKind { kFft, kIfft, kRfft, kIrfft };
enum class RngAlgorithm { kDefault, kThreeFry, kPhilox };
enum class Transpose { kNone, kTranspose, kAdjoint };

using BinaryRegion = std::function<Value(Value, Value)>;
// For variadic reductions: left and right operands, one of each per input.
using ReduceRegion = std::function<Values(const Values&, const Values&)>;
using ValuesRegion = std::function<Values(const Values&)>;
using PredicateRegion = std::function<Value(const Values&)>;
using BranchRegion = std::function<Values()>;

// Attributes of a parameter or result of the main function.
struct ArgumentAttributes {
  std::optional<int> aliased_output;  // tf.aliasing_output: donated to that result.
  bool donated = false;               // jax.buffer_donor: may be donated to any result.
  std::string sharding;               // mhlo.sharding, HLO text such as "{devices=[2,1]0,1}".
  std::string sdy_sharding;           // sdy.sharding, MLIR text such as "#sdy.sharding<@m, [{}]>".
  std::string memory_kind;            // mhlo.memory_kind, such as "pinned_host".
  std::string extra;                  // Further MLIR attributes, "a = 1 : i32, b = unit".
};

struct GatherDimensions {
  Dims offset_dims;
  Dims collapsed_slice_dims;
  Dims operand_batching_dims;
  Dims start_indices_batching_dims;
  Dims start_index_map;
  int64_t index_vector_dim = 0;
};

struct ScatterDimensions {
  Dims update_window_dims;
  Dims inserted_window_dims;
  Dims input_batching_dims;
  Dims scatter_indices_batching_dims;
  Dims scatter_dims_to_operand_dims;
  int64_t index_vector_dim = 0;
};

// One entry a dimension; empty vectors mean 1 (window, strides, dilations) or 0 (padding).
struct Window {
  Dims size;
  Dims strides;
  Dims base_dilations;
  Dims window_dilations;
  Dims padding_low;
  Dims padding_high;
};

struct DotDimensions {
  Dims lhs_batch;
  Dims rhs_batch;
  Dims lhs_contracting;
  Dims rhs_contracting;
};

// Which dimension of each operand plays which part; spatial ones in order.
struct ConvolutionDimensions {
  int64_t input_batch = 0;
  int64_t input_feature = 1;
  Dims input_spatial;
  int64_t kernel_output_feature = 0;
  int64_t kernel_input_feature = 1;
  Dims kernel_spatial;
  int64_t output_batch = 0;
  int64_t output_feature = 1;
  Dims output_spatial;
};

// NCHW x OIHW -> NCHW for any number of spatial dimensions.
ConvolutionDimensions default_convolution_dimensions(int64_t spatial_rank);

struct ConvolutionOptions {
  Dims strides;          // Empty: all 1.
  Dims padding_low;      // Empty: all 0; may be negative.
  Dims padding_high;     // Empty: all 0; may be negative.
  Dims lhs_dilation;     // Empty: all 1.
  Dims rhs_dilation;     // Empty: all 1.
  Dims window_reversal;  // Empty: none; else 0 or 1 an entry.
  int64_t feature_group_count = 1;
  int64_t batch_group_count = 1;
  std::optional<ElementType> preferred_type;
  Precision precision = Precision::kDefault;
};

struct BatchNormTraining {
  Value output, mean, variance;  // The variance is the biased one.
};
struct BatchNormGrad {
  Value grad_operand, grad_scale, grad_offset;
};

// How ranks find each other in a collective.
struct CollectiveOptions {
  std::vector<Dims> groups;        // Empty: one group of everybody.
  std::optional<int64_t> channel;  // Channel id; with it groups hold partitions or global ids.
  int64_t channel_type = 1;        // 1 device to device; StableHLO's channel_handle type.
  bool use_global_device_ids = false;
};

struct OutputAlias {
  int64_t output = 0;   // Which result.
  int64_t operand = 0;  // Whose buffer it takes.
};

struct CustomCallOptions {
  // Text for API versions 1 to 3; for version 4 (typed FFI) the inside of an MLIR dictionary:
  // "alpha = 2.5 : f32, n = 7 : i64, group = \"0\", perm = array<i64: 1, 0>".
  std::string backend_config;
  int api_version = 4;
  bool has_side_effect = false;
  std::vector<std::string> called_computations;  // Names as outlined functions have them.
  std::vector<OutputAlias> output_operand_aliases;
  // Minor to major order a value; empty: the plugin's choice. Give both or none.
  std::vector<Dims> operand_layouts;
  std::vector<Dims> result_layouts;
  std::string extra;  // Further MLIR attributes, "mhlo.sharding = \"{replicated}\"".
};

// Builds one module with a `main` function and any number of private ones.
class Builder {
 public:
  Builder();
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // --- The module -------------------------------------------------------------------------------

  // The next argument of main. Call order is argument order.
  Value parameter(const TensorType& type, const ArgumentAttributes& attributes = {});
  // The results of main, exactly once. `attributes` is empty or has one entry a result.
  void ret(const Values& results, const std::vector<ArgumentAttributes>& attributes = {});
  // The whole text. Call after ret(). `name` may hold letters, digits, '_', '.', '-' and '$'.
  std::string module(std::string_view name = "step") const;

  // Every later operation carries this location (shown in plugin errors and profiles); "" ends it.
  void set_location(std::string_view name);
  // The same with a place in a source file.
  void set_location(std::string_view name, std::string_view file, int line);
  // Every later operation carries these further attributes (MLIR text); "" ends it.
  void set_op_attributes(std::string_view attributes);
  // A module attribute, such as ("mhlo.num_partitions", "8 : i32").
  void set_module_attribute(std::string_view name, std::string_view value);
  // Text before main at module level, such as `sdy.mesh @mesh = <["x"=2, "y"=4]>`.
  void add_module_text(std::string_view text);
  // Operations written so far.
  size_t op_count() const { return op_count_; }
  // Bytes of text written so far.
  size_t text_size() const { return body_.size() + functions_.size(); }

  // --- Constants --------------------------------------------------------------------------------

  // Rank 0. Equal scalars of one region are written once.
  Value scalar(Number value, ElementType type);
  // `value` in every element: a broadcast scalar, so size costs no text.
  Value constant(const TensorType& type, Number value);
  Value constant(ElementType type, const Dims& dims, Number value);
  // An array from host bytes, row major, byte_size() a element. Spec: constant.
  Value dense(const TensorType& type, std::span<const std::byte> bytes);
  // A rank 1 array.
  Value vector(std::span<const int64_t> values, ElementType type = ElementType::kS64);
  // 0, 1, 2, ... along `dimension`. Spec: iota.
  Value iota(const TensorType& type, int64_t dimension);
  Value iota(ElementType type, const Dims& dims, int64_t dimension);

  Value full_like(Value x, Number value);
  Value zeros_like(Value x) { return full_like(x, 0); }
  Value ones_like(Value x) { return full_like(x, 1); }
  // Rank 0: the smallest and largest value, infinities for floats that have them.
  Value min_value(ElementType type);
  Value max_value(ElementType type);
  // Rank 0: smallest and largest finite value.
  Value lowest(ElementType type);
  Value highest(ElementType type);
  Value infinity(ElementType type);
  Value nan(ElementType type);

  // --- Elementwise, one operand (spec sections of the same names) -----------------------------

  Value abs(Value x);  // Complex gives its real type.
  Value negate(Value x);
  Value exponential(Value x);
  Value exponential_minus_one(Value x);
  Value log(Value x);
  Value log_plus_one(Value x);
  Value logistic(Value x);
  Value tanh(Value x);
  Value tan(Value x);
  Value sine(Value x);
  Value cosine(Value x);
  Value sqrt(Value x);
  Value rsqrt(Value x);
  Value cbrt(Value x);
  Value floor(Value x);
  Value ceil(Value x);
  Value round_nearest_even(Value x);
  Value round_nearest_afz(Value x);
  Value sign(Value x);
  Value not_(Value x);  // Logical for kPred, bitwise for integers.
  Value popcnt(Value x);
  Value count_leading_zeros(Value x);
  Value is_finite(Value x);
  Value real(Value x);
  Value imag(Value x);
  // From the CHLO dialect, which every plugin expands (StableHLO repository, chlo.md).
  Value erf(Value x);
  Value erfc(Value x);
  Value erf_inv(Value x);
  Value lgamma(Value x);
  Value digamma(Value x);
  Value acos(Value x);
  Value asin(Value x);
  Value atan(Value x);
  Value acosh(Value x);
  Value asinh(Value x);
  Value atanh(Value x);
  Value sinh(Value x);
  Value cosh(Value x);
  Value bessel_i1e(Value x);
  Value conj(Value x);
  Value square(Value x);
  // Made of others.
  Value is_inf(Value x);  // Floats only.
  Value is_nan(Value x);  // For complex numbers true when either part is NaN.

  // --- Elementwise, two operands of one type (spec sections of the same names) ------------------

  Value add(Value a, Value b);  // Logical or for kPred.
  Value subtract(Value a, Value b);
  Value multiply(Value a, Value b);  // Logical and for kPred.
  Value divide(Value a, Value b);    // Integers truncate.
  Value maximum(Value a, Value b);
  Value minimum(Value a, Value b);
  Value remainder(Value a, Value b);  // Sign of the dividend.
  Value power(Value a, Value b);
  Value atan2(Value a, Value b);
  Value and_(Value a, Value b);
  Value or_(Value a, Value b);
  Value xor_(Value a, Value b);
  Value shift_left(Value a, Value b);
  Value shift_right_logical(Value a, Value b);
  Value shift_right_arithmetic(Value a, Value b);
  Value complex(Value real, Value imag);
  Value zeta(Value x, Value q);        // CHLO: Hurwitz zeta.
  Value polygamma(Value n, Value x);   // CHLO.
  Value next_after(Value x, Value y);  // CHLO.

  // Gives kPred. `total_order` tells -0 < +0 and orders NaNs at the ends. Spec: compare.
  Value compare(Value a, Value b, Direction direction, bool total_order = false);
  Value eq(Value a, Value b) { return compare(a, b, Direction::kEq); }
  Value ne(Value a, Value b) { return compare(a, b, Direction::kNe); }
  Value lt(Value a, Value b) { return compare(a, b, Direction::kLt); }
  Value le(Value a, Value b) { return compare(a, b, Direction::kLe); }
  Value gt(Value a, Value b) { return compare(a, b, Direction::kGt); }
  Value ge(Value a, Value b) { return compare(a, b, Direction::kGe); }

  // `pred` has the shape of the others or rank 0. Spec: select.
  Value select(Value pred, Value on_true, Value on_false);
  // `low` and `high` have the shape of x or rank 0. Spec: clamp.
  Value clamp(Value low, Value x, Value high);
  // Value conversion; nothing when x has that type already. Complex to real drops the imaginary
  // part. Spec: convert.
  Value convert(Value x, ElementType type);
  // Spec: bitcast_convert. A width change adds or removes a last dimension.
  Value bitcast_convert(Value x, ElementType type);
  // Spec: reduce_precision.
  Value reduce_precision(Value x, int exponent_bits, int mantissa_bits);

  // --- Shape -----------------------------------------------------------------------------------

  // Dimension i of x becomes dimension dimensions[i] of the result. Spec: broadcast_in_dim.
  Value broadcast_in_dim(Value x, const Dims& dims, const Dims& dimensions);
  // NumPy's rule: dimensions align at the end, sizes 1 stretch. Nothing when x has these dims.
  Value broadcast_to(Value x, const Dims& dims);
  // Same elements in row major order; nothing when x has these dims. Spec: reshape.
  Value reshape(Value x, const Dims& dims);
  // Result dimension i is dimension permutation[i] of x. Spec: transpose.
  Value transpose(Value x, const Dims& permutation);
  // Spec: reverse.
  Value reverse(Value x, const Dims& dimensions);
  // Spec: slice. Empty strides: all 1.
  Value slice(Value x, const Dims& start, const Dims& limit, const Dims& strides = {});
  // slice() of one dimension.
  Value slice_in_dim(Value x, int64_t start, int64_t limit, int64_t stride, int64_t dimension);
  // One scalar start of one integer type a dimension, clamped into range. Spec: dynamic_slice.
  Value dynamic_slice(Value x, const Values& starts, const Dims& sizes);
  // Spec: dynamic_update_slice.
  Value dynamic_update_slice(Value x, Value update, const Values& starts);
  // Spec: concatenate.
  Value concatenate(const Values& xs, int64_t dimension);
  // Negative low and high crop; empty interior: all 0. Spec: pad.
  Value pad(Value x, Value padding_value, const Dims& low, const Dims& high,
            const Dims& interior = {});
  // Spec: gather.
  Value gather(Value operand, Value start_indices, const GatherDimensions& dimensions,
               const Dims& slice_sizes, bool indices_are_sorted = false);
  // `combiner(old, update)` on scalars. Spec: scatter.
  Value scatter(Value input, Value indices, Value updates, const ScatterDimensions& dimensions,
                const BinaryRegion& combiner, bool indices_are_sorted = false,
                bool unique_indices = false);
  Values scatter(const Values& inputs, Value indices, const Values& updates,
                 const ScatterDimensions& dimensions, const ReduceRegion& combiner,
                 bool indices_are_sorted = false, bool unique_indices = false);
  // The size of a dimension as a rank 0 kS32. Spec: get_dimension_size.
  Value get_dimension_size(Value x, int64_t dimension);
  // Declares that only the first `size` (rank 0 kS32) entries count. Spec: set_dimension_size.
  Value set_dimension_size(Value x, Value size, int64_t dimension);

  // --- Reductions, windows, sorting --------------------------------------------------------------
  // The regions see no values from outside: make the constants that they need inside.

  // `body(accumulated, element)` on scalars; `init` has rank 0. Spec: reduce.
  Value reduce(Value x, Value init, const Dims& dimensions, const BinaryRegion& body);
  Values reduce(const Values& xs, const Values& inits, const Dims& dimensions,
                const ReduceRegion& body);
  // The usual reductions with their neutral element.
  Value reduce_sum(Value x, const Dims& dimensions);
  Value reduce_product(Value x, const Dims& dimensions);
  Value reduce_max(Value x, const Dims& dimensions);
  Value reduce_min(Value x, const Dims& dimensions);
  Value reduce_and(Value x, const Dims& dimensions);
  Value reduce_or(Value x, const Dims& dimensions);
  // Spec: reduce_window.
  Value reduce_window(Value x, Value init, const Window& window, const BinaryRegion& body);
  Values reduce_window(const Values& xs, const Values& inits, const Window& window,
                       const ReduceRegion& body);
  // Spec: select_and_scatter. Dilations are not allowed.
  Value select_and_scatter(Value operand, Value source, Value init, const Window& window,
                           const BinaryRegion& select, const BinaryRegion& scatter);
  // Sorts all inputs together along `dimension`; `less(left, right)` compares one scalar an input.
  // Spec: sort.
  Values sort(const Values& xs, int64_t dimension, bool stable, const ReduceRegion& less);
  // Largest k along the last dimension, descending, and their kS32 indices. CHLO: top_k.
  std::pair<Value, Value> top_k(Value x, int64_t k);

  // --- Linear algebra and neural networks ------------------------------------------------------

  // Result dimensions: batch, free of lhs, free of rhs. Spec: dot_general.
  Value dot_general(Value lhs, Value rhs, const DotDimensions& dimensions,
                    std::optional<ElementType> preferred_type = {},
                    Precision precision = Precision::kDefault);
  // Spec: convolution.
  Value convolution(Value lhs, Value rhs, const ConvolutionDimensions& dimensions,
                    const ConvolutionOptions& options = {});
  // Spec: batch_norm_inference, batch_norm_training, batch_norm_grad.
  Value batch_norm_inference(Value x, Value scale, Value offset, Value mean, Value variance,
                             double epsilon, int64_t feature);
  BatchNormTraining batch_norm_training(Value x, Value scale, Value offset, double epsilon,
                                        int64_t feature);
  BatchNormGrad batch_norm_grad(Value x, Value scale, Value mean, Value variance, Value grad,
                                double epsilon, int64_t feature);
  // Spec: cholesky.
  Value cholesky(Value a, bool lower);
  // Solves op(a) x = b, or x op(a) = b. Spec: triangular_solve.
  Value triangular_solve(Value a, Value b, bool left_side, bool lower, bool unit_diagonal,
                         Transpose transpose_a);
  // Over the last length.size() dimensions; length counts real elements for kRfft and kIrfft.
  // Spec: fft.
  Value fft(Value x, FftKind kind, const Dims& length);

  // --- Random numbers --------------------------------------------------------------------------

  struct RandomBits {
    Value state, bits;
  };
  // state: u64[2] (kThreeFry, kPhilox) or u64[3] (kPhilox). Spec: rng_bit_generator.
  RandomBits rng_bit_generator(RngAlgorithm algorithm, Value state, const TensorType& type);

  // --- Control flow ----------------------------------------------------------------------------

  // Values of enclosing regions may be used inside `condition` and `body`. Spec: while.
  Values while_(const Values& init, const PredicateRegion& condition, const ValuesRegion& body);
  // Branch `index` (rank 0 kS32), the last one when out of range. Spec: case.
  Values case_(Value index, const std::vector<BranchRegion>& branches);
  // Spec: if.
  Values if_(Value pred, const BranchRegion& on_true, const BranchRegion& on_false);

  // --- Functions and calls ---------------------------------------------------------------------

  // A private function. Returns its name, which is `name` made unique.
  std::string function(std::string_view name, const std::vector<TensorType>& arguments,
                       const ValuesRegion& body);
  // func.call of a function() of this builder.
  Values call(std::string_view function, const Values& arguments);
  // A named operation with `function` as its meaning. `attributes` is the inside of an MLIR
  // dictionary. Spec: composite.
  Values composite(std::string_view name, std::string_view function, const Values& operands,
                   std::string_view attributes = {}, int version = 0);
  // Spec: custom_call.
  Values custom_call(std::string_view target, const Values& operands,
                     const std::vector<TensorType>& results, const CustomCallOptions& options = {});
  // Spec: optimization_barrier.
  Values optimization_barrier(const Values& xs);

  // --- Collectives and tokens --------------------------------------------------------------------

  // Spec: all_reduce. `body` combines scalars.
  Value all_reduce(Value x, const BinaryRegion& body, const CollectiveOptions& options = {});
  // Several operands of one element type at once (StableHLO 1.9 and newer).
  Values all_reduce(const Values& xs, const BinaryRegion& body,
                    const CollectiveOptions& options = {});
  // Spec: all_gather. `shards` is the size of a group.
  Value all_gather(Value x, int64_t dimension, int64_t shards,
                   const CollectiveOptions& options = {});
  // Spec: reduce_scatter. `shards` is the size of a group.
  Value reduce_scatter(Value x, int64_t dimension, int64_t shards, const BinaryRegion& body,
                       const CollectiveOptions& options = {});
  // Spec: all_to_all.
  Value all_to_all(Value x, int64_t split_dimension, int64_t concat_dimension, int64_t split_count,
                   const CollectiveOptions& options = {});
  // Spec: collective_permute. Ranks that nobody sends to get zeros.
  Value collective_permute(Value x, const std::vector<std::pair<int64_t, int64_t>>& pairs,
                           std::optional<int64_t> channel = {});
  Value partition_id();  // Rank 0 kU32. Spec: partition_id.
  Value replica_id();    // Rank 0 kU32. Spec: replica_id.
  Value create_token();
  Value after_all(const Values& tokens);  // Spec: after_all.

  // --- Sharding --------------------------------------------------------------------------------

  // Shardy: `sharding` is MLIR text, "#sdy.sharding<@mesh, [{\"x\"}, {}]>".
  Value sharding_constraint(Value x, std::string_view sharding);
  // Runs `body` on the shards of `xs` as each device sees them; collectives inside work along the
  // axes. Shardings are MLIR text without the "#sdy.sharding", "<@mesh, [{\"x\"}, {}]>", one a
  // value; `manual_axes` are names of mesh axes; `locals` the types of the shards, `results` those
  // of the whole results. Needs a plugin with Shardy, and compile options that turn it on.
  Values manual_computation(const Values& xs, const std::vector<std::string>& in_shardings,
                            const std::vector<TensorType>& locals,
                            const std::vector<std::string>& out_shardings,
                            const std::vector<TensorType>& results,
                            const std::vector<std::string>& manual_axes, const ValuesRegion& body);

  // --- For operations that have no method ----------------------------------------------------

  // Writes `name` (with its dialect, "stablehlo.add") with `attributes`, the inside of an MLIR
  // dictionary, and results of the given types, unchecked.
  Values op(std::string_view name, const Values& operands, const std::vector<TensorType>& results,
            std::string_view attributes = {});
  Value op(std::string_view name, const Values& operands, const TensorType& result,
           std::string_view attributes = {});

  const TensorType& type_of(uint32_t index) const { return types_[index].type; }

 private:
  struct TypeEntry {
    TensorType type;
    std::string text;
  };
  struct Function {
    std::vector<uint32_t> arguments;
    std::vector<uint32_t> results;
  };
  struct Scope;
  class ScopeGuard;

  // Types are interned: equal indices are equal types.
  uint32_t intern(const TensorType& type);
  uint32_t intern(ElementType type, const Dims& dims) { return intern(TensorType{type, dims}); }
  Value new_value(uint32_t type);
  void append_value(Value v);
  void append_types(const Values& values);

  // Appends one operation; its results get consecutive ids.
  Values write(std::string_view name, std::span<const Value> operands,
               std::span<const uint32_t> result_types, std::string_view attributes = {},
               std::span<const std::string> regions = {});
  Value write(std::string_view name, std::initializer_list<Value> operands, uint32_t result_type,
              std::string_view attributes = {}, std::span<const std::string> regions = {});
  void check_operand(std::string_view name, Value v) const;

  // Runs `body` on fresh arguments and returns the text of its region; `results` gets what it gave.
  std::string region(std::span<const uint32_t> arguments, const ValuesRegion& body,
                     Values* results = nullptr, std::string_view terminator = "stablehlo.return");
  // The same where XLA allows no values from outside.
  std::string isolated_region(std::span<const uint32_t> arguments, const ValuesRegion& body);
  std::string finish_region(std::span<const uint32_t> arguments, const ValuesRegion& body,
                            Values* results, std::string_view terminator);
  // The region of a combiner on scalars of the element types of `xs`, checked to return them.
  std::string combiner(std::string_view op, const Values& xs, const ReduceRegion& body);

  Value unary(std::string_view name, Value x, unsigned kinds);
  Value binary(std::string_view name, Value a, Value b, unsigned kinds);
  Value cached_scalar(ElementType type, std::string_view literal);

  std::deque<TypeEntry> types_;
  std::unordered_multimap<size_t, uint32_t> type_index_;
  std::unordered_map<std::string, Function> function_table_;
  std::string body_;       // Operations of the region being written.
  std::string functions_;  // Finished private functions.
  std::string parameters_;
  std::string results_;
  std::string module_attributes_;
  std::string module_text_;
  std::string locations_;
  std::unordered_map<std::string, uint32_t> location_index_;
  std::string location_;  // " loc(#locN)" or empty.
  std::string op_attributes_;
  Scope* scope_ = nullptr;  // The innermost region; owned by the stack of ScopeGuards.
  std::unique_ptr<Scope> main_scope_;
  std::vector<uint32_t> value_scope_;  // Which scope made a value,
  std::vector<bool> scope_visible_;    // and whether values of that scope may be used now.
  uint32_t next_parameter_ = 0;
  size_t op_count_ = 0;
  bool returned_ = false;
};

// --- Operators -------------------------------------------------------------------------------
// A Number becomes a constant of the type and shape of the Value beside it.

Value operator+(Value a, Value b);
Value operator-(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value operator&(Value a, Value b);
Value operator|(Value a, Value b);
Value operator^(Value a, Value b);
Value operator-(Value x);
Value operator~(Value x);
Value operator+(Value a, Number b);
Value operator-(Value a, Number b);
Value operator*(Value a, Number b);
Value operator/(Value a, Number b);
Value operator+(Number a, Value b);
Value operator-(Number a, Value b);
Value operator*(Number a, Value b);
Value operator/(Number a, Value b);

}  // namespace torch_xla::stablehlo
