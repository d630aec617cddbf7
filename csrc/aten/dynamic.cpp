// Operators whose result has as many elements as the values say. Each waits for that one number;
// everything else stays on the device, in programs that are the same whatever the number is.

#include "aten/dynamic.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/tensor_split_native.h>

#include <mutex>
#include <unordered_map>

#include "aten/checks.h"
#include "aten/indices.h"
#include "aten/trimmed.h"
#include "lazy/data.h"
#include "lazy/executor.h"
#include "lazy/launch.h"
#include "lazy/metrics.h"
#include "lazy/recording.h"
#include "lazy/runtime.h"
#include "lazy/transfer.h"
#include "lazy/unknown.h"

namespace torch_xla::aten {
namespace {

constexpr int64_t kUnbounded = int64_t{1} << 62;

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

// The first positions, as many as the output has room for.
const Op kFirst{"aten::nonzero", [](Lowering& l, const Node& n) -> Results {
                  return l->slice(l.operand(0), {0}, Dims(n.output().dims));
                }};

ir::NodePtr positions_node(const Value& value) {
  const int64_t size = value.shape().num_elements();
  TORCH_CHECK(size <= std::numeric_limits<int32_t>::max(),
              "nonzero: tensors of more than 2^31 - 1 elements are not supported on XLA");
  const std::array<ShapeRef, 2> shapes{ShapeRef{ElementType::kS32, {&size, 1}},
                                       ShapeRef{ElementType::kS32, {}}};
  return Node::make(kPositions, std::span(&value, 1), {}, shapes);
}

void count_wait(const char* op) {
  static lazy::metrics::Counter waits("SizeRead");
  waits.add();
  const std::string line = ir::describe(ir::current_location());
  lazy::metrics::count(std::string("SizeRead ") + op + (line.empty() ? "" : " at ") + line, 1);
}

// No step can be launched again whose Python went by a size that depends on data.
void note_decision() {
  lazy::check_may_run();  // before the lock, which a rehearsal holds
  std::lock_guard lock(lazy::launch_mutex());
  if (auto* recording = lazy::current_recording()) recording->emplace_back();
}

// Computes it, and gives it as a leaf. In a part of a program that is written for one device
// (ir/manual.h) each would find another size, and all run one program.
Value computed_alike(Value value, c10::Device device, const char* op) {
  const Dims dims(value.dims());
  const ElementType type = value.type();
  auto data = lazy::materialize(std::move(value), device);
  const auto* cut = data->array().sharding();
  TORCH_CHECK(!cut || !cut->is_manual(), op,
              ": the size of its result depends on data, which is one device's piece here: "
              "disable_manual_sharding() it first");
  return lazy::DeviceData::leaf({type, dims}, std::move(data));
}

// A few whole numbers that the shape depends on.
std::vector<int64_t> wait_for_numbers(Value value, c10::Device device, const char* op) {
  count_wait(op);
  if (lazy::is_partitioned()) value = computed_alike(std::move(value), device, op);
  const at::Tensor host = lazy::download(std::move(value), device).to(at::kLong);
  note_decision();
  const int64_t* data = host.const_data_ptr<int64_t>();
  return {data, data + host.numel()};
}

Value count_value(int64_t count) { return ir::scalar(count, ElementType::kS64); }

// What was waited for, by the data that it was found in: a mask is used several times in a step,
// and again for gradients.
class Remembered {
 public:
  static std::optional<Kept> find(const Value& value) {
    const lazy::DeviceData* data = lazy::DeviceData::of(value);
    if (!data) return std::nullopt;
    std::lock_guard lock(mutex());
    const auto entry = entries().find(data);
    if (entry == entries().end() || entry->second.data.expired()) return std::nullopt;
    Kept kept = entry->second.kept;
    if (!kept.flat) kept.flat = Value(positions_node(value));
    return kept;
  }

  static void keep(const Value& value, const Kept& kept) {
    if (!lazy::DeviceData::of(value)) return;
    auto data = std::static_pointer_cast<lazy::DeviceData>(value.node->shared_payload());
    std::lock_guard lock(mutex());
    std::erase_if(entries(), [](const auto& entry) { return entry.second.data.expired(); });
    Entry& entry = entries()[data.get()] = {data, kept};
    // Positions that are not computed yet would keep the data alive that they are found in.
    if (!lazy::DeviceData::of(kept.flat)) entry.kept.flat = {};
  }

 private:
  struct Entry {
    std::weak_ptr<lazy::DeviceData> data;  // an address may be used again
    Kept kept;
  };
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::unordered_map<const lazy::DeviceData*, Entry>& entries() {
    static auto* entries = new std::unordered_map<const lazy::DeviceData*, Entry>;
    return *entries;
  }
};

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
                        return coordinates(l.builder(), l.operand(0), n.attributes().list());
                      }};

// One column of them. Attributes: the elements that one step along it spans, its size.
const Op kCoordinate{"aten::nonzero", [](Lowering& l, const Node& n) -> Results {
                       auto attributes = n.attributes();
                       const XlaValue flat = l.operand(0);
                       const XlaValue span = l->full_like(flat, attributes.integer());
                       const XlaValue size = l->full_like(flat, attributes.integer());
                       return l->convert(l->remainder(l->divide(flat, span), size),
                                         ElementType::kS64);
                     }};

// The first size of what positions are found in: that of the whole where rows are cut off, so that
// there is no program for each number of them.
int64_t rows_of(const at::Tensor& tensor) {
  const auto rows = lazy::trimmed(value_of(tensor));
  return rows && rows->dim == 0 ? rows->bound() : tensor.size(0);
}

}  // namespace

Kept kept_by(const at::Tensor& tensor, const char* op) {
  Kept kept;
  if (auto known = Remembered::find(value_of(tensor))) {
    kept = *std::move(known);
    note_decision();
  } else {
    // Rows that are cut off keep nothing; the positions before are the same in the whole.
    Value value = value_of(tensor);
    if (const auto rows = lazy::trimmed(value); rows && rows->dim == 0) {
      value = lazy::filled(*rows, Neutral::kZero);
    }
    ir::NodePtr node = positions_node(value);
    // A tensor, so that the positions are a result of the program that is waited for.
    const at::Tensor all = lazy::make(Value(node, 0), tensor.device());
    kept.size = wait_for_numbers(Value(std::move(node), 1), tensor.device(), op)[0];
    kept.flat = lazy::read(all);
    kept.count = count_value(kept.size);
    Remembered::keep(value_of(tensor), kept);
  }
  const int64_t positions = kept.flat.dims()[0];
  const int64_t bound = lazy::bound_for(kept.size, positions);
  if (bound < positions) {
    kept.flat = Node::make(kFirst, {kept.flat}, {}, ShapeRef{ElementType::kS32, {&bound, 1}});
  }
  return kept;
}

std::vector<at::Tensor> coordinates_of(const at::Tensor& tensor, const char* op) {
  std::vector<at::Tensor> result;
  if (tensor.numel() == 0) {
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      result.push_back(lazy::allocate({0}, at::kLong, tensor.device()));
    }
    return result;
  }
  const Kept kept = kept_by(tensor, op);
  int64_t span = tensor.numel();
  for (int64_t size : tensor.sizes()) {
    span /= size;
    const Value whole = Node::make(kCoordinate, {kept.flat},
                                   Attributes::of(span, result.empty() ? rows_of(tensor) : size),
                                   ShapeRef{ElementType::kS64, kept.flat.dims()});
    result.push_back(lazy::make(kept.trimmed(whole), at::kLong, tensor.device()));
  }
  return result;
}

at::Tensor positions_of(const at::Tensor& vector, const char* op) {
  return coordinates_of(vector, op)[0];
}

namespace {

at::Tensor nonzero(const at::Tensor& self) {
  const int64_t rank = self.dim();
  const Kept kept = self.numel() == 0 ? Kept() : kept_by(self, "nonzero");
  // Column by column, as on CPU.
  const std::array<int64_t, 2> sizes{kept.size, rank}, strides{1, kept.size};
  const at::Tensor result = lazy::allocate_strided(sizes, strides, at::kLong, self.device());
  if (result.numel() == 0) return result;
  const std::array<int64_t, 2> all{kept.flat.dims()[0], rank};
  at::DimVector within(self.sizes());
  if (rank > 0) within[0] = rows_of(self);
  const Value rows = Node::make(kCoordinates, {kept.flat}, Attributes::of(span_of(within)),
                                ShapeRef{ElementType::kS64, all});
  lazy::write(result, kept.trimmed(rows));
  return result;
}

const Op kSelected{"aten::masked_select", [](Lowering& l, const Node&) -> Results {
                     const XlaValue x = l.operand(0);
                     return gather_at(l.builder(), l->reshape(x, {x.num_elements()}),
                                      {l.operand(1)}, {0});
                   }};

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(self.device() == mask.device(),
              "masked_select(): self and mask expected to be on the same device, but got self on ",
              self.device(), " and mask on ", mask.device());
  const at::DimVector sizes = at::infer_size_dimvector(mask.sizes(), self.sizes());
  if (c10::multiply_integers(sizes) == 0) {
    return lazy::allocate({0}, self.scalar_type(), self.device());
  }
  const Kept kept = kept_by(mask.sizes() == sizes ? mask : mask.expand(sizes), "masked_select");
  Value elements = value_of(self);
  const auto rows = lazy::trimmed(elements);
  elements =
      rows && rows->dim == 0 && self.sizes() == sizes ? rows->whole : broadcast_to(elements, sizes);
  const Value selected = Node::make(kSelected, {elements, kept.flat}, {},
                                    ShapeRef{element_type(self), kept.flat.dims()});
  return lazy::make(kept.trimmed(selected), self.scalar_type(), self.device());
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

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK_NOT_IMPLEMENTED(
      repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
      "\"repeat_interleave_cpu\" not implemented for '", repeats.scalar_type(), "'");
  if (repeats.numel() == 0) return repeats.clone();
  int64_t total = output_size.value_or(0);
  if (!output_size) {
    const int64_t two = 2;
    const auto numbers = wait_for_numbers(
        Node::make(kSumAndMin, {value_of(repeats)}, {}, ShapeRef{ElementType::kS64, {&two, 1}}),
        repeats.device(), "repeat_interleave");
    total = numbers[0];
    TORCH_CHECK(numbers[1] >= 0, "repeats can not be negative");
  }
  const int64_t bound = output_size ? total : lazy::bound_for(total, kUnbounded);
  const ShapeRef shape{element_type(repeats), {&bound, 1}};
  if (bound == 0) return lazy::allocate({0}, repeats.scalar_type(), repeats.device());
  Value times = value_of(repeats);
  if (output_size && checks_values()) {
    const auto size = static_cast<double>(total);
    times = checked(times, value_of(repeats.sum().to(at::kDouble)), {size, size},
                    kRepeatInterleave.name, "allocated size does not match required size");
  }
  Value result = Node::make(kRepeatInterleave, {times}, {}, shape);
  if (!output_size) result = lazy::trim(std::move(result), count_value(total), 0, total);
  return lazy::make(std::move(result), repeats.scalar_type(), repeats.device());
}

// --- bincount ---

// Operands: the elements twice, with others behind them that change the least, or the greatest, to
// nothing.
const Op kRange{"aten::bincount", [](Lowering& l, const Node&) -> Results {
                  const XlaValue least = l->reduce_min(l.operand(0, ElementType::kS64), {0});
                  const XlaValue greatest = l->reduce_max(l.operand(1, ElementType::kS64), {0});
                  return l->concatenate({l->reshape(least, {1}), l->reshape(greatest, {1})}, 0);
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
  const int64_t two = 2;
  const Value elements = value_of(self);
  const auto some = lazy::trimmed(elements);
  const auto range =
      wait_for_numbers(Node::make(kRange,
                                  {some ? lazy::filled(*some, lazy::Neutral::kHighest) : elements,
                                   some ? lazy::filled(*some, lazy::Neutral::kLowest) : elements},
                                  {}, ShapeRef{ElementType::kS64, {&two, 1}}),
                       self.device(), "bincount");
  TORCH_CHECK(range[0] >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const int64_t bins = std::max(range[1] + 1, minlength);
  const at::ScalarType type = !weighted                              ? at::kLong
                              : weights->scalar_type() == at::kFloat ? at::kFloat
                                                                     : at::kDouble;
  c10::SmallVector<Value, 2> operands{elements};
  if (weighted) operands.push_back(value_of(*weights));
  const int64_t bound = lazy::bound_for(bins, kUnbounded);
  if (some) {
    const Value heavy = weighted ? operands[1] : lazy::full(1, ElementType::kS64, elements.dims());
    if (const auto wholes =
            whole_positions(convert(elements, ElementType::kS64), bound, heavy, 0)) {
      operands[0] = wholes->positions;
      if (weighted) operands[1] = wholes->source;
    }
  }
  const ShapeRef shape{lazy::element_type(type), {&bound, 1}};
  Value counts = Node::make(kBincount, std::span<const Value>(operands.data(), operands.size()), {},
                            std::span(&shape, 1));
  return lazy::make(lazy::trim(std::move(counts), count_value(bins), 0, bins), type, self.device());
}

// --- tensor_split where a tensor says where ---

// torch wants such a tensor on the host; a tensor that is not there is fetched.
std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& indices_or_sections,
                                     int64_t dim) {
  if (!lazy::is_xla(self) || !lazy::is_xla(indices_or_sections)) {
    return at::native::tensor_split(self, indices_or_sections, dim);
  }
  count_wait("tensor_split");
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
