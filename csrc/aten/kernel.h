#pragma once

// What every family file uses to write a kernel: read operands, make nodes, wrap the result, and
// register an operator with its in-place and out variants.

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <torch/library.h>

#include <array>
#include <initializer_list>
#include <tuple>
#include <vector>

#include "ir/lowering.h"
#include "ir/node.h"
#include "lazy/dtype.h"
#include "lazy/full.h"
#include "lazy/tensor.h"

namespace torch_xla::aten {

using ir::Attributes;
using ir::ElementType;
using ir::Lowering;
using ir::Node;
using ir::Op;
using ir::Results;
using ir::ShapeRef;
using ir::Value;
using stablehlo::Builder;
using stablehlo::Dims;
using XlaValue = stablehlo::Value;

inline std::span<const int64_t> span_of(at::IntArrayRef list) { return {list.data(), list.size()}; }
inline ElementType element_type(const at::Tensor& tensor) {
  return lazy::element_type(tensor.scalar_type());
}

// The contents of an operand: an xla tensor, or a 0-d CPU tensor (its number becomes data of the
// program). Throws c10::Error for any other CPU tensor.
Value value_of(const at::Tensor& tensor);
// The number in a 0-d CPU tensor.
at::Scalar number_in(const at::Tensor& tensor);
// The same, converted to `type` by a node where it differs.
Value value_of(const at::Tensor& tensor, at::ScalarType type);

// Node-level conversions, for kernels whose lowering does not convert itself.
Value convert(Value value, ElementType type);
Value broadcast_to(const Value& value, at::IntArrayRef sizes);
Value reshape(const Value& value, at::IntArrayRef sizes);

// The device of the first xla tensor among the operands.
c10::Device device_of(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors);

// ---------------------------------------------------------------------------------------------
// Structured operators: torch's own meta function checks the arguments and decides sizes, dtype and
// strides; the kernel only makes the value. `Meta` is at::meta::structured_<op>.

// What a structured operator writes to.
enum class Variant { kFunctional, kInplace, kOut };

// Checks of torchgen's generated wrappers for a given output.
at::Tensor allocate_output(at::IntArrayRef sizes, at::IntArrayRef strides,
                           const at::TensorOptions& options);
void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options);
void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options);

// Runs Meta::meta and collects the outputs: fresh xla tensors, or the given ones after the checks
// of their variant.
template <class Meta, size_t kOutputs>
class Infer final : public Meta {
 public:
  explicit Infer(Variant variant = Variant::kFunctional) : variant_(variant) {}
  Infer(Variant variant, std::array<at::Tensor, kOutputs> given)
      : variant_(variant), outputs_(std::move(given)) {}

  const std::array<at::Tensor, kOutputs>& outputs() const { return outputs_; }
  std::array<at::Tensor, kOutputs> take_outputs() { return std::move(outputs_); }
  const at::Tensor& output(size_t i = 0) const { return outputs_[i]; }
  ElementType output_type(size_t i = 0) const { return element_type(outputs_[i]); }
  Dims output_dims(size_t i = 0) const { return Dims(outputs_[i].sizes()); }
  ShapeRef output_shape(size_t i = 0) const {
    return {output_type(i), span_of(outputs_[i].sizes())};
  }

  const at::Tensor& maybe_get_output(int64_t i) override {
    return outputs_[static_cast<size_t>(i)];
  }
  void set_output_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    set_output_raw_strided(i, sizes, strides, options);
  }
  void set_output_raw_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    at::Tensor& output = outputs_[static_cast<size_t>(i)];
    if (variant_ == Variant::kFunctional) {
      output = allocate_output(sizes, strides, options);
    } else if (variant_ == Variant::kInplace) {
      check_inplace(output, sizes, options);
    } else {
      resize_out(output, sizes, strides, options);
    }
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      Meta::set_output_raw_strided(i, sizes, strides, options);
    }
  }

 private:
  Variant variant_;
  std::array<at::Tensor, kOutputs> outputs_;
};

// What a kernel gives back: one value for each output.
template <size_t kOutputs>
using Values = std::array<Value, kOutputs>;

namespace internal {

template <size_t N>
auto as_values(Values<N> values) {
  return values;
}
inline auto as_values(Value value) { return Values<1>{std::move(value)}; }

template <size_t N>
void write_outputs(const std::array<at::Tensor, N>& outputs, Values<N> values) {
  for (size_t i = 0; i < N; ++i) {
    if (!values[i]) continue;
    lazy::write(outputs[i], convert(std::move(values[i]), element_type(outputs[i])));
  }
}

template <size_t N, size_t... I>
auto tuple_of(std::array<at::Tensor, N> tensors, std::index_sequence<I...>) {
  return std::make_tuple(std::move(tensors[I])...);
}

template <class Meta, auto compute, size_t N, class Member>
struct StructuredKernels;

template <class Meta, auto compute, size_t N, class Return, class... Args>
struct StructuredKernels<Meta, compute, N, Return (Meta::*)(Args...)> {
  using Op = Infer<Meta, N>;

  static void run(Op& op, Args... args) {
    op.meta(args...);
    write_outputs<N>(op.outputs(), as_values(compute(op, args...)));
  }

  static auto functional(Args... args) {
    Op op;
    run(op, args...);
    auto outputs = op.take_outputs();
    if constexpr (N == 1) {
      return std::move(outputs[0]);
    } else {
      return tuple_of(std::move(outputs), std::make_index_sequence<N>());
    }
  }

  template <class First, class... Rest>
  struct Inplace {
    static constexpr bool kPossible = std::is_same_v<std::remove_cvref_t<First>, at::Tensor>;
    static at::Tensor& call(at::Tensor& self, Rest... rest) {
      Op op(Variant::kInplace, {self});
      run(op, self, rest...);
      return self;
    }
  };
  static constexpr bool kHasInplace = Inplace<Args...>::kPossible;
  static constexpr auto inplace() { return &Inplace<Args...>::call; }

  static at::Tensor& out1(Args... args, at::Tensor& out) {
    Op op(Variant::kOut, {out});
    run(op, args...);
    return out;
  }
  static std::tuple<at::Tensor&, at::Tensor&> out2(Args... args, at::Tensor& a, at::Tensor& b) {
    Op op(Variant::kOut, {a, b});
    run(op, args...);
    return {a, b};
  }
};

}  // namespace internal

// The functional form, for kernels that put a fast path before it.
template <class Meta, auto compute, size_t N = 1, class... Args>
auto structured_functional(const Args&... args) {
  return internal::StructuredKernels<Meta, compute, N, decltype(&Meta::meta)>::functional(args...);
}

template <class Meta, auto compute, class... Args>
at::Tensor& structured_inplace(at::Tensor& self, const Args&... rest) {
  return internal::StructuredKernels<Meta, compute, 1, decltype(&Meta::meta)>::inplace()(self,
                                                                                         rest...);
}

struct Names {
  const char* functional = nullptr;
  const char* inplace = nullptr;
  const char* out = nullptr;
};

// Registers a structured operator. `compute(Infer<Meta, N>&, meta's arguments...)` returns a Value,
// or Values<N>: each of its output's sizes, and converted to its dtype when it differs; an empty
// Value leaves an output alone. A missing name registers nothing.
template <class Meta, auto compute, size_t N = 1>
void structured(torch::Library& m, Names names) {
  using Kernels = internal::StructuredKernels<Meta, compute, N, decltype(&Meta::meta)>;
  if (names.functional) m.impl(names.functional, &Kernels::functional);
  if constexpr (N == 1) {
    if constexpr (Kernels::kHasInplace) {
      if (names.inplace) m.impl(names.inplace, Kernels::inplace());
    }
    if (names.out) m.impl(names.out, &Kernels::out1);
  } else if constexpr (N == 2) {
    if (names.out) m.impl(names.out, &Kernels::out2);
  }
}

// Registers kernels of the aten namespace on the XLA key; one block for each family file.
#define XLA_KERNELS(library) TORCH_LIBRARY_IMPL(aten, XLA, library)

}  // namespace torch_xla::aten
