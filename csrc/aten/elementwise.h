#pragma once

// Registers elementwise operators from their formula alone: operands and attributes follow from
// the operator's signature, and plain float tensors skip type inference.

#include "aten/pointwise.h"

namespace torch_xla::aten {

// Which dtypes an operator is defined for, beyond what its meta function refuses.
enum class Domain { kAny, kNotComplex, kFloat, kFloatOrComplex, kInteger };

// Throws c10::NotImplementedError, as PyTorch's CPU kernels do, for a dtype outside `domain`.
void check_domain(const char* name, Domain domain, at::ScalarType dtype);

// A row-major xla tensor of real floats: an elementwise result is like it, with nothing to infer.
inline bool plain_float(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return impl->is_xla() && impl->is_contiguous() && at::isFloatingType(tensor.scalar_type());
}
inline ShapeRef shape_of(const at::Tensor& tensor) {
  return {element_type(tensor), span_of(tensor.sizes())};
}
// A row-major tensor holding `value`, which has the shape and dtype of `like`.
inline at::Tensor make_like(Value value, const at::Tensor& like) {
  return lazy::make(std::move(value), like.scalar_type(), like.device());
}

namespace internal {

// What an argument of an operator is to its node: tensors and numbers are operands, in the order of
// the signature; flags and integers are attributes.
template <class T>
constexpr bool is_tensor = std::is_same_v<std::remove_cvref_t<T>, at::Tensor>;
template <class T>
constexpr bool is_number = std::is_same_v<std::remove_cvref_t<T>, at::Scalar> ||
                           std::is_same_v<std::remove_cvref_t<T>, double>;

template <class... Args>
constexpr size_t operand_count = ((is_tensor<Args> || is_number<Args>)+...);

template <class T>
void append(const T& argument, ElementType common, Value*& operand, Attributes& attributes) {
  if constexpr (is_tensor<T>) {
    *operand++ = value_of(argument);
  } else if constexpr (is_number<T>) {
    *operand++ = scalar_operand(argument, common);
  } else {
    attributes.add(argument);
  }
}

template <class... Args>
Value numeric_node(const PointwiseOp& op, ElementType common, ShapeRef output,
                   const Args&... args) {
  std::array<Value, operand_count<Args...>> operands;
  Attributes attributes;
  Value* next = operands.data();
  (append(args, common, next, attributes), ...);
  return pointwise_taking(op, operands, common, output, attributes);
}

template <class First, class... Rest>
const at::Tensor& first_tensor(const First& first, const Rest&... rest) {
  if constexpr (is_tensor<First>) {
    return first;
  } else {
    return first_tensor(rest...);
  }
}

template <class T>
bool is_plain(const at::Tensor& self, const T& argument) {
  if constexpr (is_tensor<T>) {
    return &argument == &self || plain_pair(self, argument);
  } else if constexpr (std::is_same_v<T, at::Scalar>) {
    return !argument.isComplex();
  } else {
    return true;
  }
}

// Writing to `self` must not change what is read of `argument` at another place of its storage.
template <class T>
bool is_apart(const at::Tensor& self, const T& argument) {
  if constexpr (is_tensor<T>) {
    const at::TensorImpl *written = self.unsafeGetTensorImpl(),
                         *read = argument.unsafeGetTensorImpl();
    // Strides count in dimensions of one element too, as they do for PyTorch's own check.
    return read == written ||
           read->unsafe_storage().unsafeGetStorageImpl() !=
               written->unsafe_storage().unsafeGetStorageImpl() ||
           (read->storage_offset() == written->storage_offset() &&
            read->strides() == written->strides());
  } else {
    return true;
  }
}

}  // namespace internal

// compute() of an operator that is `op` over its arguments.
template <const PointwiseOp& op, Domain domain = Domain::kAny>
struct Numeric {
  template <class Meta, class... Args>
  Value operator()(Meta& it, const Args&... args) const {
    const ElementType common = common_type(it);
    check_domain(op.name, domain, lazy::scalar_type(common));
    return internal::numeric_node(op, common, it.output_shape(), args...);
  }
};

namespace internal {

template <class Meta, const PointwiseOp& op, auto compute, class Member>
struct NumericKernels;

template <class Meta, const PointwiseOp& op, auto compute, class Return, class Class, class... Args>
struct NumericKernels<Meta, op, compute, Return (Class::*)(Args...)> {
  static at::Tensor functional(Args... args) {
    const at::Tensor& self = first_tensor(args...);
    if (plain_float(self) && (is_plain(self, args) && ...)) {
      return make_like(numeric_node(op, element_type(self), shape_of(self), args...), self);
    }
    return structured_functional<Meta, compute>(args...);
  }

  template <class First, class... Rest>
  struct Inplace {
    static constexpr bool kPossible = is_tensor<First>;
    static at::Tensor& call(at::Tensor& self, Rest... rest) {
      if (plain_float(self) && ((is_plain(self, rest) && is_apart(self, rest)) && ...)) {
        lazy::write(self, numeric_node(op, element_type(self), shape_of(self), self, rest...));
        return self;
      }
      return structured_inplace<Meta, compute>(self, rest...);
    }
  };
  static constexpr bool kHasInplace = Inplace<Args...>::kPossible;
  static constexpr auto inplace() { return &Inplace<Args...>::call; }
};

}  // namespace internal

// Registers an operator whose result, for plain float tensors of one shape, is of that dtype and
// shape.
template <class Meta, const PointwiseOp& op, Domain domain = Domain::kAny>
void numeric(torch::Library& m, Names names) {
  constexpr auto compute = Numeric<op, domain>{};
  using Kernels = internal::NumericKernels<Meta, op, compute, decltype(&Meta::meta)>;
  if (names.functional) m.impl(names.functional, &Kernels::functional);
  if constexpr (Kernels::kHasInplace) {
    if (names.inplace) m.impl(names.inplace, Kernels::inplace());
  }
  structured<Meta, compute>(m, {nullptr, nullptr, names.out});
}

// Meta functions for operators that PyTorch implements without one. `Rest` are the arguments after
// the tensors.

// Output like the operand.
template <class... Rest>
struct UnaryMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self, Rest...) {
    build_borrowing_unary_op(maybe_get_output(0), self);
  }
};
// Gives bool.
struct PredicateMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self) {
    build_borrowing_unary_force_boolean_op(maybe_get_output(0), self);
  }
};
// Two tensors that broadcast and promote.
template <class... Rest>
struct BinaryMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self, const at::Tensor& other, Rest...) {
    build_borrowing_binary_op(maybe_get_output(0), self, other);
  }
};
// The same, giving bool.
struct ComparisonMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self, const at::Tensor& other) {
    build_borrowing_comparison_op(maybe_get_output(0), self, other);
  }
};
// Three tensors that broadcast and promote.
template <class... Rest>
struct TernaryMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, Rest...) {
    build(at::TensorIteratorConfig()
              .set_check_mem_overlap(true)
              .add_output(maybe_get_output(0))
              .add_const_input(a)
              .add_const_input(b)
              .add_const_input(c)
              .allow_cpu_scalars(true)
              .promote_inputs_to_common_dtype(true)
              .cast_common_dtype_to_outputs(true)
              .enforce_safe_casting_to_output(true));
  }
};

}  // namespace torch_xla::aten
