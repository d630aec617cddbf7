// Reading and writing at positions that tensors name: x[i, j], index_select, index_add, take.

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/index_copy_meta.h>
#include <ATen/ops/index_meta.h>
#include <ATen/ops/to_native.h>

#include "aten/checks.h"
#include "aten/dynamic.h"
#include "aten/indices.h"
#include "aten/masked.h"
#include "aten/trimmed.h"

namespace torch_xla::aten {
namespace {

using IndexList = c10::List<std::optional<at::Tensor>>;

bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

// --- x[i, j, ...] ---

// What is known of an indexing before any value: which dimensions, and the sizes of the result.
struct Plan {
  std::vector<at::Tensor> tensors;  // xla, of integers, one for each of dims
  Dims dims;
  Dims index_sizes;   // of all of them, broadcast
  Dims sizes;         // of self[...]
  int64_t place = 0;  // where the dims of the index stand among those
};

// An index tensor that lies on the host can be checked before it travels.
void check_host_index(const at::Tensor& index, int64_t dim, int64_t size) {
  const at::Tensor flat = index.to(at::kLong).contiguous();
  const int64_t* values = flat.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    TORCH_CHECK_INDEX(values[i] >= -size && values[i] < size, "index ", values[i],
                      " is out of bounds for dimension ", dim, " with size ", size);
  }
}

// What a mask that begins at dimension `first` covers must be as large as the mask.
void check_mask_sizes(const at::Tensor& self, const at::Tensor& mask, int64_t first) {
  for (int64_t i = 0; i < mask.dim(); ++i) {
    TORCH_CHECK_INDEX(first + i < self.dim() && mask.size(i) == self.size(first + i),
                      "The shape of the mask ", mask.sizes(), " at index ", i,
                      " does not match the shape of the indexed tensor ", self.sizes(),
                      " at index ", first + i);
  }
}

void add_positions(std::vector<at::Tensor>& tensors, const at::Tensor& self,
                   const at::Tensor& mask) {
  if (mask.scalar_type() == at::kByte) {
    TORCH_WARN(
        "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
        "instead.");
  }
  check_mask_sizes(self, mask, static_cast<int64_t>(tensors.size()));
  if (lazy::is_xla(mask)) {
    for (at::Tensor& position : coordinates_of(mask, "index")) tensors.push_back(position);
    return;
  }
  const at::Tensor positions = mask.nonzero();
  for (int64_t i = 0; i < mask.dim(); ++i) tensors.push_back(positions.select(1, i));
}

// The index tensors by dimension: masks become the positions of what they keep.
std::vector<at::Tensor> index_tensors(const at::Tensor& self, const IndexList& indices) {
  at::native::checkIndexTensorTypes(indices, /*allow_int=*/true);
  TORCH_CHECK_INDEX(static_cast<int64_t>(indices.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ",
                    indices.size(), ")");
  std::vector<at::Tensor> tensors;
  for (const std::optional<at::Tensor>& index : indices) {
    if (index && index->defined() && is_mask(*index)) {
      add_positions(tensors, self, *index);
    } else {
      tensors.push_back(index.value_or(at::Tensor()));
    }
  }
  TORCH_CHECK_INDEX(static_cast<int64_t>(tensors.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ",
                    tensors.size(), ")");
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor& index = tensors[i];
    if (!index.defined() || lazy::is_xla(index)) continue;
    check_host_index(index, static_cast<int64_t>(i), self.size(static_cast<int64_t>(i)));
    index = index.to(self.device());
  }
  return tensors;
}

Dims broadcast_sizes(const std::vector<at::Tensor>& tensors) {
  Dims sizes;
  for (const at::Tensor& tensor : tensors) {
    const Dims own(tensor.sizes());
    if (&tensor == &tensors.front() || own == sizes) {
      sizes = own;
      continue;
    }
    try {
      sizes = Dims(at::infer_size_dimvector({sizes.data(), sizes.size()}, tensor.sizes()));
    } catch (const c10::Error&) {
      std::ostringstream shapes;
      for (const at::Tensor& each : tensors) shapes << each.sizes() << " ";
      TORCH_CHECK_INDEX(false,
                        "shape mismatch: indexing tensors could not be broadcast together with "
                        "shapes ",
                        shapes.str());
    }
  }
  return sizes;
}

Plan plan_of(const at::Tensor& self, const std::vector<at::Tensor>& tensors) {
  Plan plan;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    plan.tensors.push_back(tensors[i]);
    plan.dims.push_back(static_cast<int64_t>(i));
  }
  if (plan.tensors.empty()) {
    plan.sizes = Dims(self.sizes());
    return plan;
  }
  plan.index_sizes = broadcast_sizes(plan.tensors);
  const bool adjacent =
      plan.dims.back() - plan.dims.front() + 1 == static_cast<int64_t>(plan.dims.size());
  plan.place = adjacent ? plan.dims.front() : 0;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (!plan.dims.contains(i)) plan.sizes.push_back(self.size(i));
  }
  for (size_t i = 0; i < plan.index_sizes.size(); ++i) {
    plan.sizes.insert(static_cast<size_t>(plan.place) + i, plan.index_sizes[i]);
  }
  for (int64_t dim : plan.dims) {
    const bool reads = c10::multiply_integers(plan.index_sizes.begin(), plan.index_sizes.end()) > 0;
    TORCH_CHECK_INDEX(!reads || self.size(dim) > 0,
                      "index is out of bounds for dimension with size 0");
  }
  return plan;
}

// The index operands from `first` on, broadcast together, negative ones counted from the end.
std::vector<XlaValue> wrapped_indices(Lowering& l, const Node& n, size_t first, XlaValue self,
                                      const Dims& dims, const Dims& sizes) {
  std::vector<XlaValue> indices;
  for (size_t i = 0; i < dims.size(); ++i) {
    const XlaValue index = wrapped_index(l.builder(), l.operand(first + i), self.dim(dims[i]));
    indices.push_back(l->broadcast_to(index, sizes));
  }
  return indices;
}

// Operands: self, indices. Attributes: dims, sizes of the index.
const Op kIndex{"aten::index", [](Lowering& l, const Node& n) -> Results {
                  auto attributes = n.attributes();
                  const Dims dims(attributes.list()), sizes(attributes.list());
                  const XlaValue self = l.operand(0);
                  return gather_at(l.builder(), self, wrapped_indices(l, n, 1, self, dims, sizes),
                                   dims);
                }};

// An index along `dim`, checked: here where the host knows it, else in the program.
Value checked_along(const char* op, const at::Tensor& tensor, int64_t dim, int64_t size) {
  const Value index = value_of(tensor);
  const auto outside = known_outside(index, -size, size);
  TORCH_CHECK_INDEX(!outside, "index ", *outside, " is out of bounds for dimension ", dim,
                    " with size ", size);
  return checked_index(index, -size, size, op, CheckError::kIndex);
}

// Negative positions counted from the end of what counts. Operands: positions, size.
const Op kFromEnd{"aten::index", [](Lowering& l, const Node&) -> Results {
                    const XlaValue index = l->convert(l.operand(0), ElementType::kS64);
                    const XlaValue size = l->broadcast_to(l.operand(1), index.dims());
                    return l->select(l->lt(index, l->zeros_like(index)), l->add(index, size),
                                     index);
                  }};

// Positions along a trimmed dim as positions in the whole.
Value from_end(const Value& index, const Value& size) {
  const Value& all = lazy::computed(index);
  return lazy::with_computed(
      index, Node::make(kFromEnd, {all, size}, {}, ShapeRef{ElementType::kS64, all.dims()}));
}

void add_indices(c10::SmallVector<Value, 4>& operands, const char* op, const at::Tensor& self,
                 const Plan& plan) {
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const int64_t dim = plan.dims[i];
    operands.push_back(checked_along(op, plan.tensors[i], dim, self.size(dim)));
  }
}

// Where some of the indices are trimmed; empty when the others do not fit their wholes.
Value index_of_some(const at::Tensor& self, const Plan& plan, std::span<const Value> operands) {
  const auto wholes = wholes_of(operands.subspan(1), plan.index_sizes);
  if (!wholes) return {};
  Dims dims = plan.sizes;
  const int64_t dim = plan.place + wholes->dim;
  dims[static_cast<size_t>(dim)] = wholes->dims[static_cast<size_t>(wholes->dim)];
  std::vector<Value> all{operands[0]};
  all.insert(all.end(), wholes->operands.begin(), wholes->operands.end());
  const ShapeRef shape{element_type(self), dims};
  return lazy::trim(Node::make(kIndex, all,
                               Attributes::of(std::span<const int64_t>(plan.dims),
                                              std::span<const int64_t>(wholes->dims)),
                               std::span(&shape, 1)),
                    wholes->count, dim, wholes->size);
}

Value index_node(const at::Tensor& self, const Plan& plan) {
  const ShapeRef shape{element_type(self), plan.sizes};
  if (self.numel() == 0) return lazy::full(0, shape.type, shape.dims);
  if (plan.dims.empty()) return value_of(self);
  c10::SmallVector<Value, 4> operands{value_of(self)};
  add_indices(operands, kIndex.name, self, plan);
  if (const auto rows = lazy::trimmed(operands[0])) [[unlikely]] {
    const auto indexed = std::find(plan.dims.begin(), plan.dims.end(), rows->dim);
    if (indexed != plan.dims.end()) {
      Value& index = operands[1 + static_cast<size_t>(indexed - plan.dims.begin())];
      index = from_end(index, rows->count);
      operands[0] = rows->whole;
    }
  }
  if (any_trimmed(operands)) [[unlikely]] {
    if (Value value = index_of_some(self, plan, operands)) return value;
  }
  if (shape.num_elements() == 0) return lazy::full(0, shape.type, shape.dims);
  return Node::make(kIndex, std::span<const Value>(operands.data(), operands.size()),
                    Attributes::of(std::span<const int64_t>(plan.dims),
                                   std::span<const int64_t>(plan.index_sizes)),
                    std::span(&shape, 1));
}

using IndexMeta = at::meta::structured_index_Tensor;

Value index_compute(Infer<IndexMeta, 1>&, const at::Tensor& self,
                    const std::vector<at::Tensor>& tensors) {
  return index_node(self, plan_of(self, tensors));
}

// Row-major operands give a row-major result: nothing for TensorIterator to decide.
bool is_plain_index(const at::Tensor& self, const std::vector<at::Tensor>& tensors) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor& index : tensors) {
    if (!index.defined()) continue;
    if (!index.is_contiguous() || (first && index.sizes() != first->sizes())) return false;
    first = &index;
  }
  return first && self.is_contiguous();
}

IndexList list_of(const std::vector<at::Tensor>& tensors) {
  return at::native::toListOfOptionalTensors(at::ArrayRef<at::Tensor>(tensors));
}

void run_index_meta(Infer<IndexMeta, 1>& it, const at::Tensor& self,
                    const std::vector<at::Tensor>& tensors) {
  it.meta(self, list_of(tensors));
  lazy::write(it.output(), index_compute(it, self, tensors));
}

at::Tensor index(const at::Tensor& self, const IndexList& indices) {
  const std::vector<at::Tensor> tensors = index_tensors(self, indices);
  if (is_plain_index(self, tensors)) {
    return lazy::make(index_node(self, plan_of(self, tensors)), self.scalar_type(), self.device());
  }
  Infer<IndexMeta, 1> it;
  run_index_meta(it, self, tensors);
  return it.output();
}

at::Tensor& index_out(const at::Tensor& self, const IndexList& indices, at::Tensor& out) {
  const std::vector<at::Tensor> tensors = index_tensors(self, indices);
  Infer<IndexMeta, 1> it(Variant::kOut, {out});
  run_index_meta(it, self, tensors);
  return out;
}

// --- x[i, j, ...] = values ---

// Operands: self, values, indices. Attributes: combine, dims, sizes of the index, sizes of x[...].
const Op kIndexPut{"aten::index_put",
                   [](Lowering& l, const Node& n) -> Results {
                     auto attributes = n.attributes();
                     const auto combine = attributes.enumeration<Combine>();
                     const Dims dims(attributes.list()), sizes(attributes.list());
                     const XlaValue self = l.operand(0);
                     const XlaValue values = l->broadcast_to(l.operand(1), Dims(attributes.list()));
                     auto indices = wrapped_indices(l, n, 2, self, dims, sizes);
                     indices[0] = only_if_right(l, indices[0], self.dim(dims[0]));
                     return scatter_at(l.builder(), self, indices, dims, values, combine);
                   },
                   /*updates=*/true};

// x[mask] = number needs no positions. Undefined when it is anything else.
at::Tensor lone_mask(const at::Tensor& self, const IndexList& indices, const at::Tensor& values) {
  at::Tensor mask;
  int64_t covered = 0;
  for (const std::optional<at::Tensor>& index : indices) {
    if (!index || !index->defined()) {
      if (!mask.defined()) ++covered;
      continue;
    }
    if (mask.defined() || !is_mask(*index) || index->device() != self.device()) return {};
    mask = *index;
    check_mask_sizes(self, mask, covered);
    covered += mask.dim();
  }
  if (!mask.defined() || values.numel() != 1) return {};
  for (int64_t i = covered; i < self.dim(); ++i) mask = mask.unsqueeze(-1);
  return mask;
}

// Where some of the indices are trimmed; empty when the others, or the values, do not fit their
// wholes. Operands: self, values, indices.
Value put_at_some(const at::Tensor& self, const Plan& plan, Combine combine,
                  std::span<const Value> operands) {
  const auto wholes = wholes_of(operands.subspan(2), plan.index_sizes);
  if (!wholes) return {};
  const int64_t dim = plan.place + wholes->dim;
  const int64_t bound = wholes->dims[static_cast<size_t>(wholes->dim)];
  const auto rank = static_cast<int64_t>(plan.sizes.size());
  const Value values = whole_operand(operands[1], rank, dim, wholes->size, bound);
  if (!values) return {};
  std::vector<Value> all{operands[0], values};
  all.insert(all.end(), wholes->operands.begin(), wholes->operands.end());
  const Value first = broadcast_to(all[2], {wholes->dims.data(), wholes->dims.size()});
  all[2] =
      lazy::filled_with({first, wholes->count, wholes->dim, wholes->size}, self.size(plan.dims[0]));
  Dims dims = plan.sizes;
  dims[static_cast<size_t>(dim)] = bound;
  const ShapeRef shape{element_type(self), span_of(self.sizes())};
  return Node::make(
      kIndexPut, all,
      Attributes::of(combine, std::span<const int64_t>(plan.dims),
                     std::span<const int64_t>(wholes->dims), std::span<const int64_t>(dims)),
      std::span(&shape, 1));
}

bool is_expanded(const at::Tensor& self, int64_t dim) {
  return self.size(dim) > 1 && self.stride(dim) == 0;
}

// Of values that meet in one element the last counts, or their sum. Positions along expanded dims
// are all the same one.
void put_into_expanded(const at::Tensor& self, const Plan& plan, at::Tensor values,
                       bool accumulate) {
  const int64_t rank = static_cast<int64_t>(plan.index_sizes.size());
  values = values.to(self.device()).expand({plan.sizes.data(), plan.sizes.size()});
  at::Tensor once = self;
  IndexList indices;
  indices.resize(static_cast<size_t>(self.dim()));
  int64_t windows = 0;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    const auto indexed = std::find(plan.dims.begin(), plan.dims.end(), dim);
    if (indexed != plan.dims.end()) {
      at::Tensor index = plan.tensors[static_cast<size_t>(indexed - plan.dims.begin())];
      const int64_t size = self.size(dim);
      if (is_expanded(self, dim)) {
        index = lazy::make(checked_along(kIndexPut.name, index, dim, size), index.device()).mul(0);
        once = once.narrow(dim, 0, 1);
      }
      indices.set(static_cast<size_t>(dim), index);
      continue;
    }
    const int64_t place = windows < plan.place ? windows : windows + rank;
    ++windows;
    if (!is_expanded(self, dim)) continue;
    once = once.narrow(dim, 0, 1);
    values = accumulate ? values.sum(place, /*keepdim=*/true, values.scalar_type())
                        : values.narrow(place, values.size(place) - 1, 1);
  }
  once.index_put_(indices, values, accumulate);
}

at::Tensor& index_put_impl_(at::Tensor& self, const IndexList& indices, const at::Tensor& values,
                            bool accumulate, bool) {
  TORCH_CHECK_INDEX(static_cast<int64_t>(indices.size()) <= self.dim(),
                    "too many indices for tensor of dimension ", self.dim(), " (got ",
                    indices.size(), ")");
  const bool expanded = at::has_internal_overlap(self) == at::MemOverlap::Yes;
  if (expanded) TORCH_WARN(expanded_warning("index_put_"));
  if (!accumulate) {
    if (const at::Tensor mask = lone_mask(self, indices, values); mask.defined()) {
      TORCH_CHECK(self.is_complex() || !values.is_complex(), "value cannot be converted to type ",
                  self.scalar_type(), " without overflow");
      TORCH_CHECK(mask.scalar_type() == at::kBool,
                  "masked_fill_ only supports boolean masks, but got mask with dtype ",
                  mask.dtype());
      const at::Tensor one = values.dim() == 0 ? values : values.reshape({});
      if (expanded) return self.masked_fill_(mask, one);
      const Value value = value_of(one);
      const Value number = reshape(convert(value, element_type(self)), {});
      lazy::write(self, masked_fill_node(value_of(self), value_of(mask), number, self.sizes()));
      return self;
    }
  }
  at::assert_no_overlap(self, values);
  for (const std::optional<at::Tensor>& index : indices) {
    if (index && index->defined()) at::assert_no_overlap(self, *index);
  }
  const Plan plan = plan_of(self, index_tensors(self, indices));
  const at::IntArrayRef sizes(plan.sizes.data(), plan.sizes.size());
  TORCH_CHECK(at::is_expandable_to(values.sizes(), sizes), "shape mismatch: value tensor of shape ",
              values.sizes(), " cannot be broadcast to indexing result of shape ", sizes);
  TORCH_CHECK(self.scalar_type() == values.scalar_type(),
              "Index put requires the source and destination dtypes match, got ",
              self.scalar_type(), " for the destination and ", values.scalar_type(),
              " for the source.");
  if (self.numel() == 0) return self;
  if (expanded) {
    put_into_expanded(self, plan, values, accumulate);
    return self;
  }
  const Combine combine = accumulate ? Combine::kAdd : Combine::kSet;
  c10::SmallVector<Value, 4> operands{value_of(self), value_of(values)};
  add_indices(operands, kIndexPut.name, self, plan);
  if (any_trimmed(operands)) [[unlikely]] {
    if (const Value value = put_at_some(self, plan, combine, operands)) {
      lazy::write(self, value);
      return self;
    }
  }
  if (c10::multiply_integers(sizes) == 0) return self;
  const ShapeRef shape{element_type(self), span_of(self.sizes())};
  if (plan.dims.empty()) {  // self[:, ...] = values
    const at::Tensor expanded = values.to(self.device()).expand(self.sizes());
    accumulate ? self.add_(expanded) : self.copy_(expanded);
    return self;
  }
  lazy::write(self,
              Value(Node::make(kIndexPut, std::span<const Value>(operands.data(), operands.size()),
                               Attributes::of(combine, std::span<const int64_t>(plan.dims),
                                              std::span<const int64_t>(plan.index_sizes),
                                              std::span<const int64_t>(plan.sizes)),
                               std::span(&shape, 1))));
  return self;
}

// --- Whole rows: index_select, index_add, index_copy, index_fill ---

int64_t wrap(int64_t dim, const at::Tensor& self) {
  return c10::maybe_wrap_dim(dim, std::max<int64_t>(self.dim(), 1));
}

// The index operand of `op`. `wraps`: negative indices count from the end.
Value rows_of(const char* op, const at::Tensor& self, int64_t dim, const at::Tensor& index,
              bool wraps = false, CheckError error = CheckError::kIndex) {
  const int64_t size = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK(size > 0 || index.numel() == 0 || self.dim() == 1,
              "index_select(): self indexing axis dim should be positive");
  TORCH_CHECK_INDEX(size > 0 || index.numel() == 0, "index out of range in self");
  const Value rows = value_of(index);
  const int64_t low = wraps ? -size : 0;
  TORCH_CHECK_INDEX(!known_outside(rows, low, size), "index out of range in self");
  return checked_index(rows, low, size, op, error);
}

// CPU writes to one row of an empty tensor at a time, which no index names: where the storage holds
// such a row the index is out of range, else the row is out of the storage.
void check_empty_row(const at::Tensor& self, int64_t dim) {
  if (self.size(dim) > 0) return;
  int64_t last = self.storage_offset();
  at::DimVector sizes(self.sizes()), strides(self.strides());
  sizes[static_cast<size_t>(dim)] = 1;
  strides[static_cast<size_t>(dim)] = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return;  // no elements in a row either
    last += (sizes[i] - 1) * strides[i];
  }
  const auto needed = static_cast<size_t>(last + 1) * self.element_size();
  TORCH_CHECK(needed <= self.storage().nbytes(), "setStorage: sizes ", at::IntArrayRef(sizes),
              ", strides ", at::IntArrayRef(strides), ", storage offset ", self.storage_offset(),
              ", and itemsize ", self.element_size(), " requiring a storage size of ", needed,
              " are out of bounds for storage of size ", self.storage().nbytes());
  TORCH_CHECK_INDEX(false, "index out of range in self");
}

// Sizes of self with `rows` along dim.
Dims with_rows(XlaValue self, int64_t dim, int64_t rows) {
  Dims dims = self.dims();
  if (dims.empty()) dims = {1};
  dims[static_cast<size_t>(dim)] = rows;
  return dims;
}

XlaValue at_least_1d(Builder& b, XlaValue x) { return x.rank() == 0 ? b.reshape(x, {1}) : x; }

const Op kIndexSelect{"aten::index_select", [](Lowering& l, const Node& n) -> Results {
                        Builder& b = l.builder();
                        const int64_t dim = n.attributes().integer();
                        const XlaValue result = gather_at(b, at_least_1d(b, l.operand(0)),
                                                          {at_least_1d(b, l.operand(1))}, {dim});
                        return b.reshape(result, Dims(n.output().dims));
                      }};

Value index_select_value(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  dim = wrap(dim, self);
  TORCH_CHECK_INDEX(index.dim() <= 1,
                    "index_select(): Index is supposed to be a vector, but got dim: ", index.dim());
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK(lazy::is_xla(index) && lazy::is_xla(self),
              "Expected all tensors to be on the same device, but got index is on ", index.device(),
              ", different from other tensors on ", self.device());
  TORCH_CHECK(self.dim() > 0 || index.numel() == 1,
              "index_select(): Index to scalar can have only 1 value, got ", index.numel(),
              " value(s)");
  c10::SmallVector<int64_t, 6> sizes(self.sizes().begin(), self.sizes().end());
  if (self.dim() > 0) sizes[static_cast<size_t>(dim)] = index.numel();
  const ShapeRef shape{element_type(self), {sizes.data(), sizes.size()}};
  // CPU has another kernel, and other words, for dim 1.
  const bool other_kernel = self.dim() > 1 && self.size(dim) > 0 && (dim == 1 || self.numel() == 0);
  if (other_kernel) {
    const auto outside = known_outside(lazy::read(index), 0, self.size(dim));
    TORCH_CHECK(!outside, "INDICES element is out of DATA bounds, id=", *outside,
                " axis_dim=", self.size(dim));
  }
  const Value x = lazy::read(self),
              rows = rows_of(kIndexSelect.name, self, dim, index, false,
                             other_kernel ? CheckError::kRuntime : CheckError::kIndex);
  const auto some = lazy::trimmed(rows);
  if (self.numel() == 0 || (index.numel() == 0 && !some)) {
    return lazy::full(0, shape.type, shape.dims);
  }
  if (some && self.dim() > 0) {
    sizes[static_cast<size_t>(dim)] = some->bound();
    return lazy::trim(Node::make(kIndexSelect, {x, some->whole}, Attributes::of(dim), shape),
                      some->count, dim, some->size);
  }
  return Node::make(kIndexSelect, {x, rows}, Attributes::of(dim), shape);
}

at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  return lazy::make(index_select_value(self, dim, index), self.scalar_type(), self.device());
}

at::Tensor& index_select_out(const at::Tensor& self, int64_t dim, const at::Tensor& index,
                             at::Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, index);
  const Value value = index_select_value(self, dim, index);
  const ir::ShapeRef shape = value.shape();
  at::native::resize_output(out, {shape.dims.data(), shape.dims.size()});
  lazy::write(out, value);
  return out;
}

// Operands: self, index, source, and for sums a factor. Attributes: dim, combine.
const Op kIndexRows{
    "aten::index_add",
    [](Lowering& l, const Node& n) -> Results {
      Builder& b = l.builder();
      auto attributes = n.attributes();
      const int64_t dim = attributes.integer();
      const auto combine = attributes.enumeration<Combine>();
      const XlaValue self = at_least_1d(b, l.operand(0));
      const XlaValue index = only_if_right(l, at_least_1d(b, l.operand(1)), self.dim(dim));
      XlaValue source =
          b.reshape(l.operand(2, self.element_type()), with_rows(self, dim, index.dim(0)));
      if (l.num_operands() == 4) {
        const XlaValue factor = l.operand(3);
        source = b.convert(source, factor.element_type());
        source = b.multiply(source, b.broadcast_to(factor, source.dims()));
        const XlaValue sum =
            scatter_at(b, b.convert(self, factor.element_type()), {index}, {dim}, source, combine);
        return b.reshape(b.convert(sum, self.element_type()), Dims(n.output().dims));
      }
      return b.reshape(scatter_at(b, self, {index}, {dim}, source, combine), Dims(n.output().dims));
    },
    /*updates=*/true};

Value index_rows(ShapeRef output, const at::Tensor& self, int64_t dim, Value rows,
                 const at::Tensor& source, Combine combine, Value factor = {}) {
  Value values = value_of(source);
  if (source.dim() > 0 && self.dim() > 0) {
    if (auto wholes = whole_positions(rows, self.size(dim), values, dim)) {
      rows = std::move(wholes->positions);
      values = std::move(wholes->source);
    }
  }
  c10::SmallVector<Value, 4> operands{value_of(self), std::move(rows), std::move(values)};
  if (factor) operands.push_back(std::move(factor));
  return Node::make(kIndexRows, std::span<const Value>(operands.data(), operands.size()),
                    Attributes::of(dim, combine), std::span(&output, 1));
}

Value index_add(Infer<at::meta::structured_index_add, 1>& it, const at::Tensor& self, int64_t dim,
                const at::Tensor& index, const at::Tensor& source, const at::Scalar& alpha) {
  dim = wrap(dim, self);
  if (index.numel() == 0 || (self.numel() == 0 && self.dim() > 1)) return value_of(self);
  if (self.dim() > 1) {  // CPU adds rows by gather's rules, and elements by index_select's
    const auto outside = known_outside(value_of(index), 0, self.size(dim));
    TORCH_CHECK(!outside, "index ", *outside, " is out of bounds for dimension ", dim,
                " with size ", self.size(dim));
  }
  const Value rows = rows_of(kIndexRows.name, self, dim, index, false,
                             self.dim() > 1 ? CheckError::kRuntime : CheckError::kIndex);
  check_number(alpha, self.scalar_type());
  if (alpha.equal(1)) return index_rows(it.output_shape(), self, dim, rows, source, Combine::kAdd);
  return index_rows(it.output_shape(), self, dim, rows, source, Combine::kAdd,
                    lazy::scalar(alpha, stablehlo::opmath_type(element_type(self))));
}

Value index_copy(Infer<at::meta::structured_index_copy, 1>& it, const at::Tensor& self, int64_t dim,
                 const at::Tensor& index, const at::Tensor& source) {
  dim = wrap(dim, self);
  if (index.numel() == 0) return value_of(self);
  if (self.numel() == 0) {
    check_empty_row(it.output(), dim);
    return value_of(self);
  }
  const Value rows = rows_of("aten::index_copy", self, dim, index);
  return index_rows(it.output_shape(), self, dim, rows, source, Combine::kSet);
}

// The rows to fill as a mask, so that the fill itself is elementwise.
const Op kIndexFill{"aten::index_fill", [](Lowering& l, const Node& n) -> Results {
                      Builder& b = l.builder();
                      const int64_t dim = n.attributes().integer();
                      const XlaValue self = at_least_1d(b, l.operand(0));
                      const int64_t rows = self.dim(dim);
                      const XlaValue index = wrapped_index(b, at_least_1d(b, l.operand(1)), rows);
                      const XlaValue mask = scatter_at(
                          b, b.constant(ElementType::kPred, {rows}, 0), {index}, {0},
                          b.constant(ElementType::kPred, index.dims(), 1), Combine::kSet);
                      const XlaValue value = l.operand(2, self.element_type());
                      const XlaValue result = b.select(b.broadcast_in_dim(mask, self.dims(), {dim}),
                                                       b.broadcast_to(value, self.dims()), self);
                      return b.reshape(result, Dims(n.output().dims));
                    }};

at::Tensor& index_fill(at::Tensor& self, int64_t dim, const at::Tensor& index,
                       const Value& number) {
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
                    "index_fill_(): Expected dtype int32 or int64 for index.");
  const bool overlaps = at::has_internal_overlap(self) == at::MemOverlap::Yes;
  if (overlaps) TORCH_WARN(expanded_warning("index_fill_"));
  dim = wrap(dim, self);
  TORCH_CHECK(index.dim() <= 1, "Index has to be a vector/scalar");
  TORCH_CHECK(index.device() == self.device(),
              "index_fill_(): self and index should be on the same device");
  if (index.numel() == 0) return self;
  if (self.numel() == 0) {
    check_empty_row(self, dim);
    return self;
  }
  Value rows = rows_of(kIndexFill.name, self, dim, index, true);
  if (const auto some = lazy::trimmed(rows); some && self.dim() > 0) {
    rows = lazy::filled_with(*some, self.size(dim));
  }
  if (overlaps && self.dim() > 0 && self.stride(dim) == 0) {  // all rows are one
    lazy::write(self, broadcast_to(convert(number, element_type(self)), self.sizes()));
    return self;
  }
  lazy::write(self,
              Value(Node::make(kIndexFill, {value_of(self), rows, number}, Attributes::of(dim),
                               ShapeRef{element_type(self), span_of(self.sizes())})));
  return self;
}

at::Tensor& index_fill_scalar_(at::Tensor& self, int64_t dim, const at::Tensor& index,
                               const at::Scalar& value) {
  TORCH_CHECK(self.is_complex() || !value.isComplex(),
              "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  check_number(value, self.scalar_type());
  return index_fill(self, dim, index, lazy::scalar(value, element_type(self)));
}

at::Tensor& index_fill_tensor_(at::Tensor& self, int64_t dim, const at::Tensor& index,
                               const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  TORCH_CHECK(self.is_complex() || !value.is_complex(),
              "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  return index_fill(self, dim, index, value_of(value));
}

// --- Flat positions: take, put_ ---

const Op kTake{"aten::take", [](Lowering& l, const Node&) -> Results {
                 Builder& b = l.builder();
                 const XlaValue self = b.reshape(l.operand(0), {l.operand(0).num_elements()});
                 return gather_at(b, self, {wrapped_index(b, l.operand(1), self.dim(0))}, {0});
               }};

// The index operand of `op`.
Value flat_positions(const char* op, const at::Tensor& self, const at::Tensor& index) {
  const Value positions = value_of(index);
  const auto outside = known_outside(positions, -self.numel(), self.numel());
  TORCH_CHECK_INDEX(!outside, "out of range: tried to access index ", *outside, " on a tensor of ",
                    self.numel(), " elements.");
  return checked_index(positions, -self.numel(), self.numel(), op, CheckError::kIndex);
}

at::Tensor take(const at::Tensor& self, const at::Tensor& index) {
  TORCH_CHECK(index.scalar_type() == at::kLong,
              "take(): Expected a long tensor for index, but got ", index.scalar_type());
  TORCH_CHECK_INDEX(self.numel() != 0 || index.numel() == 0,
                    "take(): tried to take from an empty tensor");
  const Value positions = flat_positions(kTake.name, self, index);
  const auto taken = [&](const Value& at) -> Value {
    return Node::make(kTake, {value_of(self), at}, {}, ShapeRef{element_type(self), at.dims()});
  };
  Value result;
  if (const auto some = lazy::trimmed(positions); some && self.numel() > 0) {
    result = lazy::with_computed(positions, taken(some->whole));
  } else if (index.numel() == 0) {
    result = lazy::full(0, element_type(self), span_of(index.sizes()));
  } else {
    result = taken(positions);
  }
  return lazy::make(result, self.scalar_type(), self.device());
}

const Op kPut{"aten::put", [](Lowering& l, const Node& n) -> Results {
                Builder& b = l.builder();
                const auto combine = n.attributes().enumeration<Combine>();
                const XlaValue self = b.reshape(l.operand(0), {l.operand(0).num_elements()});
                const Dims flat{l.operand(1).num_elements()};
                const XlaValue index = wrapped_index(b, b.reshape(l.operand(1), flat), self.dim(0));
                const XlaValue result =
                    scatter_at(b, self, {index}, {0}, b.reshape(l.operand(2), flat), combine);
                return b.reshape(result, Dims(n.output().dims));
              }};

at::Tensor& put_(at::Tensor& self, const at::Tensor& index, const at::Tensor& source,
                 bool accumulate) {
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong,
                    "put_(): Expected a long tensor for index, but got ", index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "put_(): self and source expected to have the same dtype, but got self.dtype = ",
              self.scalar_type(), " and source.dtype = ", source.scalar_type());
  TORCH_CHECK(self.device() == source.device() && self.device() == index.device(),
              "put_(): self, index and source expected to be in the same device, but got "
              "self.device = ",
              self.device(), ", index.device = ", index.device(),
              ", and source.device = ", source.device());
  TORCH_CHECK_INDEX(source.numel() == index.numel(),
                    "put_(): Expected source and index to have the same number of elements, but "
                    "got source.numel() = ",
                    source.numel(), ", index.numel() = ", index.numel());
  TORCH_CHECK_INDEX(self.numel() != 0 || index.numel() == 0,
                    "put_(): Tried to put elements into an empty tensor");
  at::assert_no_internal_overlap(self);
  if (index.numel() == 0) return self;
  Value positions = flat_positions(kPut.name, self, index), values = value_of(source);
  if (index.dim() == 1 && source.dim() == 1) {
    if (auto wholes = whole_positions(positions, self.numel(), values, 0)) {
      positions = std::move(wholes->positions);
      values = std::move(wholes->source);
    }
  }
  lazy::write(self, Value(Node::make(kPut, {value_of(self), positions, values},
                                     Attributes::of(accumulate ? Combine::kAdd : Combine::kSet),
                                     ShapeRef{element_type(self), span_of(self.sizes())})));
  return self;
}

}  // namespace

XLA_KERNELS(m) {
  m.impl("index.Tensor", index);
  m.impl("index.Tensor_out", index_out);
  m.impl("_index_put_impl_", index_put_impl_);
  m.impl("index_select", index_select);
  m.impl("index_select.out", index_select_out);
  structured<at::meta::structured_index_add, index_add>(
      m, {"index_add", "index_add_", "index_add.out"});
  structured<at::meta::structured_index_copy, index_copy>(
      m, {"index_copy", "index_copy_", "index_copy.out"});
  m.impl("index_fill_.int_Scalar", index_fill_scalar_);
  m.impl("index_fill_.int_Tensor", index_fill_tensor_);
  m.impl("take", take);
  m.impl("put_", put_);
}

}  // namespace torch_xla::aten
