// Operators whose result has as many elements as the values say. Each waits for that one number
// (and counts it, as "aten::nonzero" and so on); everything else stays on the device.

#include "aten/dynamic.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/tensor_split_native.h>

#include "aten/indices.h"
#include "lazy/metrics.h"
#include "lazy/transfer.h"

namespace torch_xla::aten {
namespace {

// --- nonzero, masked_select: the positions of what counts ---

// Outputs: the flat positions of the nonzero elements, in order, followed by zeros; their number.
const Op kPositions{"aten::nonzero", [](Lowering& l, const Node&) -> Results {
                      Builder& b = l.builder();
                      const Dims flat{l.operand(0).num_elements()};
                      const XlaValue x = b.reshape(l.operand(0), flat);
                      const XlaValue kept = b.ne(x, b.zeros_like(x));
                      const XlaValue rank = running_sum(b, b.convert(kept, ElementType::kS32));
                      const XlaValue count = b.slice(rank, {flat[0] - 1}, flat);
                      // The others are sent past the end, where they are dropped.
                      const XlaValue place = b.select(kept, b.subtract(rank, b.ones_like(rank)),
                                                      b.full_like(rank, flat[0]));
                      const XlaValue positions =
                          scatter_at(b, b.zeros_like(rank), {place}, {0},
                                     b.iota(ElementType::kS32, flat, 0), Combine::kSet);
                      return {positions, b.reshape(count, {})};
                    }};

struct Positions {
  Value flat;
  int64_t count = 0;
};

ir::NodePtr positions_node(const Value& value) {
  const int64_t size = value.shape().num_elements();
  TORCH_CHECK(size <= std::numeric_limits<int32_t>::max(),
              "nonzero: tensors of more than 2^31 - 1 elements are not supported on XLA");
  const std::array<ShapeRef, 2> shapes{ShapeRef{ElementType::kS32, {&size, 1}},
                                       ShapeRef{ElementType::kS32, {}}};
  return Node::make(kPositions, std::span(&value, 1), {}, shapes);
}

int64_t wait_for_number(const Value& value, c10::Device device) {
  const at::Tensor host = lazy::download(value, device);
  return host.scalar_type() == at::kInt ? *host.const_data_ptr<int32_t>()
                                        : *host.const_data_ptr<int64_t>();
}

Positions positions_of(const Value& value, c10::Device device) {
  const ir::NodePtr node = positions_node(value);
  // Tensors, so that both are results of the program that is waited for.
  const at::Tensor flat = lazy::make(Value(node, 0), device);
  const at::Tensor count = lazy::make(Value(node, 1), device);
  const int64_t number = wait_for_number(lazy::read(count), device);
  return {lazy::read(flat), number};
}

// Rows of coordinates from the first flat positions. Attribute: the sizes.
XlaValue coordinates(Builder& b, XlaValue flat, std::span<const int64_t> sizes) {
  std::vector<XlaValue> columns(sizes.size());
  for (size_t i = sizes.size(); i-- > 0;) {
    const XlaValue size = b.full_like(flat, sizes[i]);
    columns[i] = b.reshape(b.remainder(flat, size), {flat.dim(0), 1});
    flat = b.divide(flat, size);
  }
  return b.convert(b.concatenate(columns, 1), ElementType::kS64);
}

const Op kCoordinates{"aten::nonzero", [](Lowering& l, const Node& n) -> Results {
                        const XlaValue flat = l->slice(l.operand(0), {0}, {n.output().dims[0]});
                        return coordinates(l.builder(), flat, n.attributes().list());
                      }};

}  // namespace

at::Tensor wait_for_nonzero(const at::Tensor& self) {
  Positions positions;
  if (self.numel() > 0) positions = positions_of(value_of(self), self.device());
  const std::array<int64_t, 2> sizes{positions.count, self.dim()};
  const ShapeRef shape{ElementType::kS64, sizes};
  // Column by column, as on CPU.
  const std::array<int64_t, 2> strides{1, positions.count};
  const at::Tensor result = lazy::allocate_strided(sizes, strides, at::kLong, self.device());
  if (shape.num_elements() == 0) return result;
  lazy::write(result, Value(Node::make(kCoordinates, {positions.flat},
                                       Attributes::of(span_of(self.sizes())), shape)));
  return result;
}

namespace {

at::Tensor nonzero(const at::Tensor& self) {
  static lazy::metrics::Counter counter("aten::nonzero");
  if (self.numel() > 0) counter.add();
  return wait_for_nonzero(self);
}

const Op kSelected{"aten::masked_select", [](Lowering& l, const Node& n) -> Results {
                     const XlaValue positions = l->slice(l.operand(1), {0}, {n.output().dims[0]});
                     const XlaValue x = l.operand(0);
                     return gather_at(l.builder(), l->reshape(x, {x.num_elements()}), {positions},
                                      {0});
                   }};

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  static lazy::metrics::Counter counter("aten::masked_select");
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(self.device() == mask.device(),
              "masked_select(): self and mask expected to be on the same device, but got self on ",
              self.device(), " and mask on ", mask.device());
  const at::DimVector sizes = at::infer_size_dimvector(self.sizes(), mask.sizes());
  Positions positions;
  if (c10::multiply_integers(sizes) > 0) {
    counter.add();
    positions = positions_of(broadcast_to(value_of(mask), sizes), self.device());
  }
  const ShapeRef shape{element_type(self), {&positions.count, 1}};
  const Value result =
      positions.count == 0
          ? lazy::full(0, shape.type, shape.dims)
          : Value(Node::make(kSelected, {broadcast_to(value_of(self), sizes), positions.flat}, {},
                             shape));
  return lazy::make(result, self.scalar_type(), self.device());
}

// nonzero of a size given beforehand, so that nothing is waited for. Operands: positions, their
// number, what fills the rest. Attribute: sizes.
const Op kStaticCoordinates{"aten::nonzero_static", [](Lowering& l, const Node& n) -> Results {
                              Builder& b = l.builder();
                              const Dims dims(n.output().dims);
                              XlaValue flat = l.operand(0);
                              const int64_t known = std::min(dims[0], flat.dim(0));
                              flat = b.slice(flat, {0}, {known});
                              flat = b.pad(flat, b.scalar(0, flat.element_type()), {0},
                                           {dims[0] - known});
                              const XlaValue rows = coordinates(b, flat, n.attributes().list());
                              const XlaValue row = b.iota(ElementType::kS32, dims, 0);
                              return b.select(b.lt(row, b.broadcast_to(l.operand(1), dims)), rows,
                                              b.broadcast_to(l.operand(2), dims));
                            }};

at::Tensor nonzero_static(const at::Tensor& self, int64_t size, int64_t fill_value) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  const std::array<int64_t, 2> sizes{size, self.dim()};
  const ShapeRef shape{ElementType::kS64, sizes};
  Value result;
  if (self.numel() == 0 || shape.num_elements() == 0) {
    result = lazy::full(fill_value, shape.type, shape.dims);
  } else {
    const ir::NodePtr positions = positions_node(value_of(self));
    result = Node::make(
        kStaticCoordinates,
        {Value(positions, 0), Value(positions, 1), lazy::scalar(fill_value, ElementType::kS64)},
        Attributes::of(span_of(self.sizes())), shape);
  }
  return lazy::make(result, at::kLong, self.device());
}

// --- repeat_interleave: i as often as repeats[i] says ---

const Op kSumAndMin{
    "aten::repeat_interleave", [](Lowering& l, const Node&) -> Results {
      const XlaValue x = l.operand(0, ElementType::kS64);
      return l->concatenate(
          {l->reshape(l->reduce_sum(x, {0}), {1}), l->reshape(l->reduce_min(x, {0}), {1})}, 0);
    }};
const Op kRepeatInterleave{"aten::repeat_interleave", [](Lowering& l, const Node& n) -> Results {
                             Builder& b = l.builder();
                             const XlaValue ends = running_sum(b, l.operand(0, ElementType::kS64));
                             const XlaValue i = b.iota(ElementType::kS64, Dims(n.output().dims), 0);
                             return b.convert(search_sorted(b, ends, i, true), n.output().type);
                           }};

// A few numbers that the shape depends on.
std::vector<int64_t> wait_for_numbers(const Value& value, c10::Device device) {
  const at::Tensor host = lazy::download(value, device);
  const int64_t* data = host.const_data_ptr<int64_t>();
  return {data, data + host.numel()};
}

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  static lazy::metrics::Counter counter("aten::repeat_interleave");
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  if (repeats.numel() == 0) return repeats.clone();
  int64_t total = output_size.value_or(0);
  if (!output_size) {
    counter.add();
    const int64_t two = 2;
    const auto numbers = wait_for_numbers(
        Node::make(kSumAndMin, {value_of(repeats)}, {}, ShapeRef{ElementType::kS64, {&two, 1}}),
        repeats.device());
    total = numbers[0];
    TORCH_CHECK(numbers[1] >= 0, "repeats can not be negative");
  }
  const ShapeRef shape{element_type(repeats), {&total, 1}};
  const Value result = total == 0
                           ? lazy::full(0, shape.type, shape.dims)
                           : Value(Node::make(kRepeatInterleave, {value_of(repeats)}, {}, shape));
  return lazy::make(result, repeats.scalar_type(), repeats.device());
}

// --- bincount ---

const Op kRange{
    "aten::bincount", [](Lowering& l, const Node&) -> Results {
      const XlaValue x = l.operand(0, ElementType::kS64);
      return l->concatenate(
          {l->reshape(l->reduce_min(x, {0}), {1}), l->reshape(l->reduce_max(x, {0}), {1})}, 0);
    }};
const Op kBincount{"aten::bincount", [](Lowering& l, const Node& n) -> Results {
                     Builder& b = l.builder();
                     const ElementType type = n.output().type;
                     const XlaValue x = l.operand(0);
                     const XlaValue weights =
                         l.num_operands() == 2 ? l.operand(1, type) : b.constant(type, x.dims(), 1);
                     return scatter_at(b, b.constant(type, Dims(n.output().dims), 0), {x}, {0},
                                       weights, Combine::kAdd);
                   }};

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights,
                    int64_t minlength) {
  static lazy::metrics::Counter counter("aten::bincount");
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(self.scalar_type(), false),
                              "\"bincount_cpu\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  if (self.dim() == 1 && self.numel() == 0) {
    return lazy::make(lazy::full(0, ElementType::kS64, {&minlength, 1}), at::kLong, self.device());
  }
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  const bool weighted = weights && weights->defined();
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  counter.add();
  const int64_t two = 2;
  const auto range = wait_for_numbers(
      Node::make(kRange, {value_of(self)}, {}, ShapeRef{ElementType::kS64, {&two, 1}}),
      self.device());
  TORCH_CHECK(range[0] >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const int64_t bins = std::max(range[1] + 1, minlength);
  const at::ScalarType type = !weighted                              ? at::kLong
                              : weights->scalar_type() == at::kFloat ? at::kFloat
                                                                     : at::kDouble;
  c10::SmallVector<Value, 2> operands{value_of(self)};
  if (weighted) operands.push_back(value_of(*weights));
  const ShapeRef shape{lazy::element_type(type), {&bins, 1}};
  return lazy::make(
      Value(Node::make(kBincount, std::span<const Value>(operands.data(), operands.size()), {},
                       std::span(&shape, 1))),
      type, self.device());
}

// --- tensor_split where a tensor says where ---

// torch wants such a tensor on the host; a tensor that is not there is fetched.
std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& indices_or_sections,
                                     int64_t dim) {
  static lazy::metrics::Counter counter("aten::tensor_split");
  if (!lazy::is_xla(self) || !lazy::is_xla(indices_or_sections)) {
    return at::native::tensor_split(self, indices_or_sections, dim);
  }
  counter.add();
  return at::native::tensor_split(self, lazy::download(indices_or_sections.detach()), dim);
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("nonzero", nonzero);
  m.impl("nonzero_static", nonzero_static);
  m.impl("masked_select", masked_select);
  m.impl("repeat_interleave.Tensor", repeat_interleave);
  m.impl("bincount", bincount);
  m.impl("tensor_split.tensor_indices_or_sections", tensor_split);
}

// A composition for autograd, as torch's own.
TORCH_LIBRARY_IMPL(aten, AutogradXLA, m) {
  m.impl("tensor_split.tensor_indices_or_sections", tensor_split);
}

}  // namespace torch_xla::aten
