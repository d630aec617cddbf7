#include "lazy/tensor.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <array>

#include "ir/lowering.h"
#include "lazy/complex_half.h"
#include "lazy/dtype.h"
#include "lazy/mark_sharding.h"
#include "lazy/runtime.h"
#include "lazy/storage.h"
#include "lazy/trimmed.h"

namespace torch_xla::lazy {
namespace {

using stablehlo::Dims;

// Applied when a tensor that carries the bit is read or written.
const ir::Op kConjugate{"aten::conj", [](ir::Lowering& l, const ir::Node&) -> ir::Results {
                          return l->conj(l.operand(0));
                        }};
const ir::Op kNegate{"aten::neg", [](ir::Lowering& l, const ir::Node&) -> ir::Results {
                       return l->negate(l.operand(0));
                     }};

ir::Value apply_bits(const at::TensorBase& tensor, ir::Value value) {
  const c10::DispatchKeySet keys = tensor.key_set();
  constexpr c10::DispatchKeySet bits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  if (!keys.has_any(bits)) [[likely]]
    return value;
  if (tensor.is_conj()) value = ir::Node::make(kConjugate, {value}, {}, value.shape());
  if (tensor.is_neg()) value = ir::Node::make(kNegate, {value}, {}, value.shape());
  return value;
}

at::Tensor wrap(c10::Storage storage, at::ScalarType dtype) {
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                  c10::DispatchKeySet(c10::DispatchKey::XLA),
                                                  c10::scalarTypeToTypeMeta(dtype));
}

int64_t numel(at::IntArrayRef sizes) { return c10::multiply_integers(sizes); }

bool is_row_major(at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != expected) return numel(sizes) == 0;
    expected *= sizes[i];
  }
  return true;
}

// Whether the tensor is its storage's base, so that their contents are the same value.
bool is_base(const at::TensorBase& tensor, const LazyStorage& storage) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (is_complex_half(tensor.scalar_type())) [[unlikely]]
    return false;
  const at::IntArrayRef sizes = impl->sizes();
  if (impl->storage_offset() != 0 || sizes.size() != storage.sizes().size() ||
      !std::equal(sizes.begin(), sizes.end(), storage.sizes().begin()) ||
      storage.type() != element_type(tensor.scalar_type())) {
    return false;
  }
  if (storage.strides().empty()) return impl->is_contiguous();
  const at::IntArrayRef strides = impl->strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && strides[i] != storage.strides()[i]) return false;
  }
  return true;
}

ir::Geometry geometry_of(const at::TensorBase& tensor) {
  const at::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  return {element_type(tensor.scalar_type()),
          {sizes.data(), sizes.size()},
          {strides.data(), strides.size()},
          tensor.storage_offset()};
}

// Fresh memory takes the shape of the first tensor that fills it whole.
void adopt_geometry(const at::TensorBase& tensor, LazyStorage& storage) {
  if (tensor.storage_offset() != 0 || tensor.nbytes() != tensor.storage().nbytes() ||
      !is_dense(tensor.sizes(), tensor.strides())) {
    return;
  }
  const bool row_major = tensor.is_contiguous();
  if (is_complex_half(tensor.scalar_type())) {
    const PairGeometry pairs(tensor.sizes(), tensor.strides(), 0);
    storage.rebase(ir::ElementType::kF16, pairs.sizes(), row_major ? Dims() : pairs.strides());
    return;
  }
  storage.rebase(element_type(tensor.scalar_type()), Dims(tensor.sizes()),
                 row_major ? Dims() : Dims(tensor.strides()));
}

// Takes the shape of the first complex32 tensor that fills it whole.
c10::Storage storage_of_pairs(c10::Device device, size_t bytes) {
  return LazyStorage::make(device, ir::ElementType::kF16, {static_cast<int64_t>(bytes / 2)}, {},
                           bytes);
}

ir::Value read_complex_half(const at::TensorBase& tensor, LazyStorage& storage) {
  const PairGeometry pairs(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return complex_of_pairs(ir::read_view({storage.value(), storage.strides()}, pairs.geometry()));
}

void write_complex_half(const at::TensorBase& tensor, LazyStorage& storage,
                        const ir::Value& complex) {
  const PairGeometry pairs(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  storage.set_value(ir::write_view({storage.value(), storage.strides()}, pairs.geometry(),
                                   pairs_of_complex(complex)));
}

// torch grows a storage in place (resize_): the base follows, old elements first.
void follow_growth(const at::TensorBase& tensor, LazyStorage& storage) {
  const int64_t bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const int64_t held = c10::multiply_integers(storage.sizes().begin(), storage.sizes().end()) *
                       stablehlo::byte_size(storage.type());
  if (held >= bytes) return;
  const int64_t element = stablehlo::byte_size(storage.type());
  const Dims flat{(bytes + element - 1) / element};
  if (!storage.has_value()) {
    storage.rebase(storage.type(), flat, {});
    return;
  }
  const ir::Value old = storage.value();
  const std::vector<int64_t> one{1};
  const Dims old_count{held / element};
  const ir::Value old_flat =
      ir::read_view({old, storage.strides()}, {storage.type(), old_count, one, 0});
  storage.rebase(storage.type(), flat, {});
  const ir::Value fresh = storage.value();
  storage.set_value(
      ir::write_view({fresh, storage.strides()}, {storage.type(), old_count, one, 0}, old_flat));
}

// An i64 number * attribute 0 / attribute 1, which leaves no rest, - attribute 2.
const ir::Op kTimes{
    "xla::times", [](ir::Lowering& l, const ir::Node& n) -> ir::Results {
      auto attributes = n.attributes();
      const stablehlo::Value x = l.operand(0);
      const stablehlo::Value product = l->multiply(x, l->full_like(x, attributes.integer()));
      const stablehlo::Value quotient = l->divide(product, l->full_like(x, attributes.integer()));
      return l->subtract(quotient, l->full_like(x, attributes.integer()));
    }};
ir::Value times(const ir::Value& number, int64_t by, int64_t over, int64_t less) {
  if (by == over && less == 0) return number;
  return ir::Node::make(kTimes, {number}, ir::Attributes::of(by, over, less), number.shape());
}

// Of one element any step counts: not one of as many as there are rows, which would make a program
// for each number.
void settle_single_steps(const Dims& sizes, Dims& steps) {
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) steps[i] = i + 1 < sizes.size() ? sizes[i + 1] * steps[i + 1] : 1;
  }
}

// A view of trimmed rows that lie one behind the other: see read_rows.
ir::Value read_row_major(const at::TensorBase& tensor, const Trimmed& rows) {
  const std::span<const int64_t> row_sizes =
      rows.whole.dims().subspan(static_cast<size_t>(rows.dim) + 1);
  const int64_t row = numel({row_sizes.data(), row_sizes.size()});
  if (row == 0) return {};
  const at::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  // The dim that runs over the rows: theirs, or else one over all of them, whatever part of a row
  // its step is, or how many rows. Of [1, n, ...] the first one runs over all of them too, and over
  // a single row any dim of one element.
  const auto find = [&](const auto& runs_over_rows) {
    size_t dim = 0;
    while (dim < sizes.size() && !runs_over_rows(sizes[dim], strides[dim])) ++dim;
    return dim;
  };
  size_t dim =
      find([&](int64_t size, int64_t stride) { return size == rows.size && stride == row; });
  if (dim == sizes.size()) {
    dim = find([&](int64_t size, int64_t stride) {
      return stride > 0 && size * stride == rows.size * row;
    });
  }
  const int64_t offset = tensor.storage_offset();
  int64_t step = 0, skipped = 0;
  if (dim < sizes.size()) {
    step = strides[dim];
  } else if (rows.size == 1) {
    dim = find([&](int64_t size, int64_t) { return size == 1; });
    step = row;
  } else {  // all rows but the first ones
    skipped = offset / row;
    dim = find(
        [&](int64_t size, int64_t stride) { return size == rows.size - skipped && stride == row; });
    step = row;
  }
  Dims all(sizes), steps(strides);
  int64_t reach = offset - skipped * row;  // within one step
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i != dim) reach += std::max<int64_t>(0, sizes[i] - 1) * strides[i];
  }
  if (dim == sizes.size() || reach >= step || (step % row != 0 && row % step != 0) ||
      rows.bound() * row % step != 0) {
    settle_single_steps(all, steps);
    return ir::read_view({rows.whole, {}}, {rows.whole.type(), all, steps, offset});
  }
  all[dim] = rows.bound() * row / step - skipped;
  steps[dim] = step;
  settle_single_steps(all, steps);
  const ir::Geometry geometry{rows.whole.type(), all, steps, offset};
  return trim(ir::read_view({rows.whole, {}}, geometry), times(rows.count, row, step, skipped),
              static_cast<int64_t>(dim), sizes[dim]);
}

// A view of a trimmed matrix that lies column by column, as that of nonzero: see read_rows.
ir::Value read_columns(const at::TensorBase& tensor, const Trimmed& rows) {
  const at::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  const int64_t size = rows.size, bound = rows.bound();
  Dims all(sizes), steps(strides);
  size_t dim = sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (dim == sizes.size() && sizes[i] == size && strides[i] == 1) {
      dim = i;
      all[i] = bound;
    } else if (sizes[i] == 1 || strides[i] % size == 0) {
      steps[i] = strides[i] / size * bound;
    } else {
      return {};
    }
  }
  if (dim == sizes.size() || tensor.storage_offset() % size != 0) return {};
  settle_single_steps(all, steps);
  const std::array<int64_t, 2> by_column{1, bound};
  const ir::Geometry geometry{rows.whole.type(), all, steps,
                              tensor.storage_offset() / size * bound};
  return trim(ir::read_view({rows.whole, by_column}, geometry), rows.count,
              static_cast<int64_t>(dim), size);
}

// A view of trimmed rows that keeps them: the same view of all rows, trimmed. Memory of the whole
// is that of the rows with more of them, so only what counts in rows changes. Views of some rows
// are the same in the whole. Empty where the rows do not lie in one piece.
ir::Value read_rows(const at::TensorBase& tensor, const LazyStorage& storage,
                    const ir::Value& contents) {
  const auto rows = trimmed(contents);
  if (!rows || storage.type() != element_type(tensor.scalar_type())) return {};
  if (storage.strides().empty()) {
    const auto before = contents.dims().first(static_cast<size_t>(rows->dim));
    const bool lead = std::ranges::all_of(before, [](int64_t size) { return size == 1; });
    return lead ? read_row_major(tensor, *rows) : ir::Value();
  }
  const bool is_by_column = contents.dims().size() == 2 && rows->dim == 0 && rows->size > 0 &&
                            storage.strides()[0] == 1 && storage.strides()[1] == rows->size;
  return is_by_column ? read_columns(tensor, *rows) : ir::Value();
}

// A new tensor that holds `value`, if that is not empty.
at::Tensor row_major(ir::Value value, at::IntArrayRef sizes, at::ScalarType dtype,
                     c10::Device device) {
  const ir::ElementType type = element_type(dtype);
  const size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(dtype));
  check_fits(bytes, device);
  at::Tensor tensor = wrap(is_complex_half(dtype) ? storage_of_pairs(device, bytes)
                                                  : LazyStorage::make(device, type, Dims(sizes), {},
                                                                      bytes, std::move(value)),
                           dtype);
  if (sizes.size() != 1 || sizes[0] != 0) tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

}  // namespace

void check_fits(size_t bytes, c10::Device device) {
  constexpr size_t kAlwaysTried = size_t{1} << 40;
  if (bytes < kAlwaysTried) [[likely]]
    return;
  const auto limit = static_cast<double>(memory_limit(device.index()));
  const auto devices = static_cast<double>(Runtime::get().client().devices().size());
  TORCH_CHECK_WITH(OutOfMemoryError, static_cast<double>(bytes) <= limit * devices,
                   "XLA: tried to allocate ", bytes, " bytes, but ", device, " has ",
                   static_cast<size_t>(limit));
}

bool is_dense(at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (numel(sizes) == 0) return true;
  c10::SmallVector<size_t, 6> order;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t expected = 1;
  for (size_t i : order) {
    if (strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

void adopt_bytes(const at::TensorBase& tensor) {
  LazyStorage& storage = storage_of(tensor);
  const ir::ElementType type = element_type(tensor.scalar_type());
  const int64_t width = stablehlo::byte_size(type);
  if (!storage.has_value() || storage.type() != ir::ElementType::kU8 || type == storage.type() ||
      is_complex_half(tensor.scalar_type()) || storage.sizes().size() != 1 ||
      storage.sizes()[0] % width != 0 || storage.sizes()[0] == 0) {
    return;
  }
  const ir::Value bytes = storage.value();
  const Dims count{storage.sizes()[0] / width}, one{1};
  const ir::Value flat = ir::read_view({bytes, storage.strides()}, {type, count, one, 0});
  storage.rebase(type, count, {});
  storage.set_value(flat);
  adopt_geometry(tensor, storage);
  if (is_base(tensor, storage) && tensor.dim() != 1) {
    storage.set_value(ir::read_view({flat, one}, geometry_of(tensor)));
  } else if (!storage.has_value()) {
    storage.set_value(flat);
  }
}

LazyStorage& storage_of(const at::TensorBase& tensor) {
  TORCH_CHECK(is_xla(tensor), "expected an xla tensor, got one on ",
              tensor.defined() ? tensor.device().str() : "no device");
  return LazyStorage::of(tensor.storage());
}

ir::Value read(const at::TensorBase& tensor) {
  LazyStorage& storage = storage_of(tensor);
  if (is_base(tensor, storage)) [[likely]]
    return apply_bits(tensor, storage.value());
  if (!storage.has_value()) adopt_geometry(tensor, storage);
  follow_growth(tensor, storage);
  if (is_base(tensor, storage)) return apply_bits(tensor, storage.value());
  if (is_complex_half(tensor.scalar_type())) {
    return apply_bits(tensor, read_complex_half(tensor, storage));
  }
  const ir::Value contents = storage.value();
  if (is_trimmed(contents)) [[unlikely]] {
    if (ir::Value rows = read_rows(tensor, storage, contents)) return apply_bits(tensor, rows);
  }
  return apply_bits(tensor, ir::read_view({contents, storage.strides()}, geometry_of(tensor)));
}

void write(const at::TensorBase& tensor, ir::Value value) {
  LazyStorage& storage = storage_of(tensor);
  value = apply_bits(tensor, std::move(value));
  if (is_base(tensor, storage)) [[likely]] {
    storage.set_value(fitting(std::move(value), storage));
    return;
  }
  if (!storage.has_value()) adopt_geometry(tensor, storage);
  follow_growth(tensor, storage);
  if (is_base(tensor, storage)) {
    storage.set_value(fitting(std::move(value), storage));
  } else if (is_complex_half(tensor.scalar_type())) {
    if (tensor.numel() != 0) write_complex_half(tensor, storage, value);
  } else if (tensor.numel() != 0) {
    storage.set_value(
        ir::write_view({storage.value(), storage.strides()}, geometry_of(tensor), value));
  }
}

at::Tensor allocate(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device) {
  return row_major({}, sizes, dtype, device);
}

at::Tensor allocate_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                            c10::Device device) {
  const ir::ElementType type = element_type(dtype);
  const size_t element_size = c10::elementSize(dtype);
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, element_size);
  check_fits(bytes, device);
  Dims base_sizes(sizes), base_strides;
  if (!is_dense(sizes, strides)) {
    base_sizes = {static_cast<int64_t>(bytes / element_size)};
  } else if (!is_row_major(sizes, strides)) {
    base_strides = Dims(strides);
  }
  at::Tensor tensor = wrap(
      is_complex_half(dtype)
          ? storage_of_pairs(device, bytes)
          : LazyStorage::make(device, type, std::move(base_sizes), std::move(base_strides), bytes),
      dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor make(ir::Value value, c10::Device device) {
  const at::ScalarType dtype = scalar_type(value.type());
  return make(std::move(value), dtype, device);
}

at::Tensor make(ir::Value value, at::ScalarType dtype, c10::Device device) {
  const std::span<const int64_t> dims = value.dims();
  const at::IntArrayRef sizes(dims.data(), dims.size());  // the node's own
  if (is_complex_half(dtype)) [[unlikely]] {
    at::Tensor tensor = allocate(sizes, dtype, device);
    write(tensor, std::move(value));
    return tensor;
  }
  return row_major(std::move(value), sizes, dtype, device);
}

at::Tensor make_strided(ir::Value value, at::IntArrayRef strides, c10::Device device) {
  const std::span<const int64_t> dims = value.dims();
  at::Tensor tensor =
      allocate_strided({dims.data(), dims.size()}, strides, scalar_type(value.type()), device);
  write(tensor, std::move(value));
  return tensor;
}

at::Tensor alias(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                 int64_t offset, std::optional<at::ScalarType> dtype) {
  c10::DispatchKeySet keys = tensor.key_set();
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), keys,
      dtype ? c10::scalarTypeToTypeMeta(*dtype) : tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return result;
}

}  // namespace torch_xla::lazy
