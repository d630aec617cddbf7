// Masks: masked_fill, masked_scatter.

#include "aten/masked.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/sum.h>

#include "aten/checks.h"
#include "aten/indices.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

const Op kMaskedFill{"aten::masked_fill", [](Lowering& l, const Node& n) -> Results {
                       const ShapeRef out = n.output();
                       const Dims dims(out.dims);
                       const XlaValue value = l.operand(2, out.type);
                       return l->select(l->broadcast_to(l.operand(1, ElementType::kPred), dims),
                                        l->broadcast_to(value, dims),
                                        l->broadcast_to(l.operand(0), dims));
                     }};

}  // namespace

Value masked_fill_node(const Value& self, const Value& mask, const Value& number,
                       at::IntArrayRef sizes) {
  const std::array<Value, 2> operands{self, mask};
  if (any_trimmed(operands)) [[unlikely]] {
    if (const auto wholes = wholes_of(operands, span_of(sizes))) {
      return wholes->trimmed(Node::make(kMaskedFill,
                                        {wholes->operands[0], wholes->operands[1], number}, {},
                                        ShapeRef{self.type(), wholes->dims}));
    }
  }
  return Node::make(kMaskedFill, {self, mask, number}, {}, ShapeRef{self.type(), span_of(sizes)});
}

void check_number(const at::Scalar& number, at::ScalarType type) {
  switch (type) {
#define CASE(cpp, name)     \
  case at::k##name:         \
    (void)number.to<cpp>(); \
    return;
    AT_FORALL_SCALAR_TYPES_AND3(Half, BFloat16, ComplexFloat, CASE)
#undef CASE
    default:
      return;
  }
}

std::string expanded_warning(const char* op) {
  return c10::str("Use of ", op,
                  " on expanded tensors is deprecated. Please clone() the tensor before performing "
                  "this operation. This also applies to advanced indexing e.g. tensor",
                  op == std::string_view("index_put_") ? "[indices]" : "[mask]", " = ",
                  op == std::string_view("index_put_") ? "tensor" : "scalar");
}

void check_filling(const at::Scalar& number, at::ScalarType type, int64_t elements) {
  check_number(number, elements == 1 && at::isReducedFloatingType(type) ? at::kDouble : type);
}

namespace {

// --- masked_fill ---

void check_mask(const at::Tensor& mask, const char* name) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, name,
              " only supports boolean masks, but got mask with dtype ", mask.scalar_type());
}

// masked_fill too says masked_fill_ on CPU, and calls the dtype by its C++ name.
void check_fill_mask(const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_fill_ only supports boolean masks, but got mask with dtype ", mask.dtype());
}

Value number_for(const at::Tensor& self, const at::Scalar& value) {
  check_number(value, self.scalar_type());
  return lazy::scalar(value, element_type(self));
}

Value number_for(const at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  TORCH_CHECK(self.is_complex() || !value.is_complex(), "value cannot be converted to type ",
              c10::toString(self.scalar_type()), " without overflow");
  if (!lazy::is_xla(value)) return number_for(self, number_in(value));
  return value_of(value);
}

template <class Number>
at::Tensor masked_fill(const at::Tensor& self, const at::Tensor& mask, const Number& value) {
  check_fill_mask(mask);
  const Value number = number_for(self, value);
  const at::IntArrayRef own = self.sizes();
  const at::DimVector sizes =
      own == mask.sizes() ? at::DimVector(own) : at::infer_size_dimvector(own, mask.sizes());
  return lazy::make(masked_fill_node(value_of(self), value_of(mask), number, sizes),
                    self.scalar_type(), self.device());
}

// Throws unless the mask broadcasts to self, in the words of a TensorIterator.
void check_broadcasts(const at::Tensor& self, const at::Tensor& mask) {
  if (self.sizes() == mask.sizes()) return;
  const at::DimVector both = at::infer_size_dimvector(self.sizes(), mask.sizes());
  TORCH_CHECK(self.sizes() == at::IntArrayRef(both), "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", at::IntArrayRef(both));
}

// The same, in those of Tensor::expand.
void check_expands(const at::Tensor& self, const at::Tensor& mask) {
  if (self.sizes() == mask.sizes()) return;
  TORCH_CHECK(mask.dim() <= self.dim(), "expand(", mask.toString(), "{", mask.sizes(),
              "}, size=", self.sizes(), "): the number of sizes provided (", self.dim(),
              ") must be greater or equal to the number of dimensions in the tensor (", mask.dim(),
              ")");
  at::inferExpandGeometry_dimvector(mask.sizes(), mask.strides(), self.sizes());
}

// Of elements that share their memory, all are filled when the mask keeps any.
at::Tensor mask_of_memory(const at::Tensor& self, const at::Tensor& mask) {
  if (at::has_internal_overlap(self) != at::MemOverlap::Yes) return mask;
  TORCH_WARN(expanded_warning("masked_fill_"));
  at::DimVector repeated;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (self.stride(i) == 0 && self.size(i) > 1) repeated.push_back(i);
  }
  return mask.expand(self.sizes()).any(repeated, /*keepdim=*/true).expand(self.sizes());
}

template <class Number>
at::Tensor& masked_fill_(at::Tensor& self, const at::Tensor& mask, const Number& value) {
  check_fill_mask(mask);
  check_broadcasts(self, mask);
  const Value number = number_for(self, value);
  at::assert_no_partial_overlap(self, mask);
  lazy::write(self, masked_fill_node(value_of(self), value_of(mask_of_memory(self, mask)), number,
                                     self.sizes()));
  return self;
}

// The i-th element that the mask keeps comes from source[i].
const Op kMaskedScatter{
    "aten::masked_scatter", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const XlaValue self = l.operand(0), source = l.operand(2);
      const XlaValue mask = b.broadcast_to(l.operand(1), self.dims());
      const Dims flat{self.num_elements()};
      const XlaValue rank = running_sum(b, b.convert(b.reshape(mask, flat), ElementType::kS32));
      const XlaValue taken = gather_at(b, b.reshape(source, {source.num_elements()}),
                                       {b.subtract(rank, b.ones_like(rank))}, {0});
      return b.select(mask, b.reshape(taken, self.dims()), self);
    }};

at::Tensor& masked_scatter_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter_: expected self and source to have same dtypes but got ",
              self.scalar_type(), " and ", source.scalar_type());
  check_mask(mask, "masked_scatter_");
  TORCH_CHECK(self.device() == mask.device() && self.device() == source.device(),
              "masked_scatter_: self, mask and source expected to be on the same device");
  at::assert_no_internal_overlap(self);
  check_expands(self, mask);
  Value elements = value_of(source);
  bool may_lack = source.numel() < self.numel() && checks_values();
  if (self.numel() == 0) return self;
  const auto with_check = [&](Value value) {
    if (!may_lack) return value;
    const at::Tensor wanted = at::sum(mask.expand(self.sizes()));
    return checked(std::move(value), lazy::read(wanted), {0, static_cast<double>(source.numel())},
                   kMaskedScatter.name, "Number of elements of source < number of ones in mask");
  };
  if (source.numel() == 0 && !lazy::is_trimmed(elements)) {
    lazy::write(self, with_check(value_of(self)));
    return self;
  }
  // Of trimmed rows, the whole: its first elements are theirs.
  if (const auto rows = lazy::trimmed(elements); rows && rows->dim == 0) {
    elements = rows->whole;
    may_lack = false;
  } else if (source.dim() == 1) {  // the gradient of a sum: one number for each
    const int64_t bound = lazy::bound_for(source.numel(), self.numel());
    if (Value all = whole_operand(elements, 1, 0, source.numel(), bound)) {
      may_lack = may_lack && all.node.get() == elements.node.get();
      elements = all;
    }
  }
  Value result = Node::make(kMaskedScatter, {value_of(self), value_of(mask), elements}, {},
                            ShapeRef{element_type(self), span_of(self.sizes())});
  lazy::write(self, with_check(std::move(result)));
  return self;
}

// The gradient of source: the gradients of what the mask keeps, in order, then zeros.
const Op kMaskedScatterBackward{
    "aten::masked_scatter_backward", [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      const ShapeRef out = n.output();
      const XlaValue grad = l.operand(0);
      const Dims flat{grad.num_elements()}, result{out.num_elements()};
      const XlaValue mask = b.reshape(b.broadcast_to(l.operand(1), grad.dims()), flat);
      const XlaValue rank = running_sum(b, b.convert(mask, ElementType::kS32));
      // What is not kept goes where it is dropped.
      const XlaValue place = b.select(mask, b.subtract(rank, b.ones_like(rank)),
                                      b.full_like(rank, out.num_elements()));
      const XlaValue taken = scatter_at(b, b.constant(out.type, result, 0), {place}, {0},
                                        b.reshape(grad, flat), Combine::kSet);
      return b.reshape(taken, Dims(out.dims));
    }};

at::Tensor masked_scatter_backward(const at::Tensor& grad, const at::Tensor& mask,
                                   at::IntArrayRef sizes) {
  const ShapeRef shape{element_type(grad), span_of(sizes)};
  const Value result =
      grad.numel() == 0 || shape.num_elements() == 0
          ? lazy::full(0, shape.type, shape.dims)
          : Value(Node::make(kMaskedScatterBackward, {value_of(grad), value_of(mask)}, {}, shape));
  return lazy::make(result, grad.scalar_type(), grad.device());
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("masked_fill.Scalar", masked_fill<at::Scalar>);
  m.impl("masked_fill.Tensor", masked_fill<at::Tensor>);
  m.impl("masked_fill_.Scalar", masked_fill_<at::Scalar>);
  m.impl("masked_fill_.Tensor", masked_fill_<at::Tensor>);
  m.impl("masked_scatter_", masked_scatter_);
  m.impl("masked_scatter_backward", masked_scatter_backward);
}

}  // namespace torch_xla::aten
