#pragma once

// What the normalizations share: dtypes of statistics, and results laid out as the input is.

#include "aten/reduction.h"

namespace torch_xla::aten {

using OptionalTensor = std::optional<at::Tensor>;

inline at::Tensor or_undefined(const OptionalTensor& tensor) {
  return tensor.value_or(at::Tensor());
}

// The dtype of mean and deviation: the input's, but f32 for a 16-bit input beside f32 parameters.
// `name` is PyTorch's for the kernel. Throws c10::NotImplementedError unless the input is real
// floating point, c10::Error for any other mix of dtypes; undefined parameters do not count.
at::ScalarType statistics_type(
    const char* name, const at::Tensor& input,
    std::initializer_list<std::reference_wrapper<const at::Tensor>> parameters);

// A result with the input's sizes and dtype, in the memory format that the input suggests.
at::Tensor make_like(const at::Tensor& input, Value value);

// dx, dweight and dbias, as a backward asks for them.
using Mask = std::array<bool, 3>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Outputs of a backward node: those that the mask asks for, in order.
class MaskedOutputs {
 public:
  void add(bool wanted, ElementType type, at::IntArrayRef sizes) {
    positions_[next_++] = wanted ? static_cast<int>(shapes_.size()) : -1;
    if (wanted) shapes_.push_back({type, span_of(sizes)});
  }
  std::span<const ShapeRef> shapes() const { return shapes_; }
  // Output i of `node`; empty where it was not asked for.
  Value of(const ir::NodePtr& node, size_t i) const {
    return positions_[i] < 0 ? Value() : Value(node, static_cast<uint32_t>(positions_[i]));
  }

 private:
  std::vector<ShapeRef> shapes_;
  std::array<int, 3> positions_{};
  size_t next_ = 0;
};

// `value` on the device of `like`; an undefined tensor for an empty value.
inline at::Tensor make_if(const Value& value, const at::Tensor& like) {
  return value ? lazy::make(value, like.device()) : at::Tensor();
}

// Lowering: how `x` varies around its mean over `dims`, both of the dims that remain.
struct Moments {
  XlaValue mean;
  XlaValue squares;  // sum of (x - mean)^2
};
Moments moments(Builder& b, XlaValue x, const Dims& dims);

// Lowering: how many elements of `x` become one when `dims` are reduced.
int64_t count_over(XlaValue x, const Dims& dims);

// Lowering: `value`, one element a channel, against an x of [n, channels, places...] = `full`.
XlaValue by_channel(Builder& b, XlaValue value, const Dims& full);

// Lowering: 1 / sqrt(variance + epsilon); `epsilon` has rank 0.
XlaValue inverse_deviation(Builder& b, XlaValue variance, XlaValue epsilon);

}  // namespace torch_xla::aten
