// Operations that move elements without computing: broadcast, reshape, slice, pad, ...

#include "stablehlo/builder.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {
namespace {

// ceil(length / stride), none for empty ranges.
int64_t strided_size(int64_t length, int64_t stride) {
  return length <= 0 ? 0 : (length + stride - 1) / stride;
}

bool is_iota(const Dims& values) { return values == iota_dims(values.size()); }

void check_starts(std::string_view op, Value x, const Values& starts) {
  if (static_cast<int64_t>(starts.size()) != x.rank()) {
    fail(op, starts.size(), " start indices for ", x.type());
  }
  for (Value start : starts) {
    if (start.rank() != 0 || !is_integer(start.element_type()) ||
        start.element_type() != starts[0].element_type()) {
      fail(op, "start indices must be scalars of one integer type, not ", start.type());
    }
  }
}

}  // namespace

Value Builder::broadcast_in_dim(Value x, const Dims& dims, const Dims& dimensions) {
  constexpr std::string_view kName = "stablehlo.broadcast_in_dim";
  check_operand(kName, x);
  const Dims& from = x.dims();
  if (dimensions.size() != from.size()) {
    fail(kName, "dimensions ", dimensions, " do not fit ", x.type());
  }
  check_axes(kName, "dimensions", dimensions, dims.size());
  for (size_t i = 0; i < from.size(); ++i) {
    int64_t to = dims[static_cast<size_t>(dimensions[i])];
    if (from[i] != 1 && from[i] != to) {
      fail(kName, x.type(), " does not fit ", dims, " along ", dimensions);
    }
  }
  return write(kName, {x}, intern(x.element_type(), dims),
               Attributes().array("broadcast_dimensions", dimensions));
}

Value Builder::broadcast_to(Value x, const Dims& dims) {
  constexpr std::string_view kName = "broadcast_to";
  check_operand(kName, x);
  if (x.dims() == dims) return x;
  size_t rank = x.dims().size();
  if (rank > dims.size()) fail(kName, x.type(), " has more dimensions than ", dims);
  Dims dimensions;
  for (size_t i = 0; i < rank; ++i) {
    dimensions.push_back(static_cast<int64_t>(dims.size() - rank + i));
  }
  return broadcast_in_dim(x, dims, dimensions);
}

Value Builder::reshape(Value x, const Dims& dims) {
  constexpr std::string_view kName = "stablehlo.reshape";
  check_operand(kName, x);
  if (x.dims() == dims) return x;
  uint32_t type = intern(x.element_type(), dims);
  if (types_[type].type.num_elements() != x.num_elements()) {
    fail(kName, x.type(), " does not have the elements of ", dims);
  }
  return write(kName, {x}, type);
}

Value Builder::transpose(Value x, const Dims& permutation) {
  constexpr std::string_view kName = "stablehlo.transpose";
  check_operand(kName, x);
  const Dims& from = x.dims();
  if (permutation.size() != from.size()) {
    fail(kName, "permutation ", permutation, " does not fit ", x.type());
  }
  check_axes(kName, "permutation", permutation, from.size());
  if (is_iota(permutation)) return x;
  Dims dims;
  for (int64_t axis : permutation) dims.push_back(from[static_cast<size_t>(axis)]);
  return write(kName, {x}, intern(x.element_type(), dims),
               Attributes().array("permutation", permutation));
}

Value Builder::reverse(Value x, const Dims& dimensions) {
  constexpr std::string_view kName = "stablehlo.reverse";
  check_operand(kName, x);
  check_axes(kName, "dimensions", dimensions, x.dims().size());
  if (dimensions.empty()) return x;
  return write(kName, {x}, x.type_, Attributes().array("dimensions", dimensions));
}

Value Builder::slice(Value x, const Dims& start, const Dims& limit, const Dims& strides) {
  constexpr std::string_view kName = "stablehlo.slice";
  check_operand(kName, x);
  const Dims& from = x.dims();
  size_t rank = from.size();
  Dims steps = strides.empty() ? Dims(rank, 1) : strides;
  if (start.size() != rank || limit.size() != rank || steps.size() != rank) {
    fail(kName, start, " to ", limit, " by ", steps, " does not fit ", x.type());
  }
  Dims dims(rank, 0);
  for (size_t i = 0; i < rank; ++i) {
    if (start[i] < 0 || start[i] > limit[i] || limit[i] > from[i] || steps[i] <= 0) {
      fail(kName, start, " to ", limit, " by ", steps, " is out of range for ", x.type());
    }
    dims[i] = strided_size(limit[i] - start[i], steps[i]);
  }
  if (dims == from) return x;
  return write(kName, {x}, intern(x.element_type(), dims),
               Attributes()
                   .array("start_indices", start)
                   .array("limit_indices", limit)
                   .array("strides", steps));
}

Value Builder::slice_in_dim(Value x, int64_t start, int64_t limit, int64_t stride,
                            int64_t dimension) {
  check_operand("stablehlo.slice", x);
  check_axes("stablehlo.slice", "dimension", {dimension}, x.dims().size());
  Dims starts(x.dims().size(), 0);
  Dims limits = x.dims();
  Dims strides(x.dims().size(), 1);
  auto at = static_cast<size_t>(dimension);
  starts[at] = start;
  limits[at] = limit;
  strides[at] = stride;
  return slice(x, starts, limits, strides);
}

Value Builder::dynamic_slice(Value x, const Values& starts, const Dims& sizes) {
  constexpr std::string_view kName = "stablehlo.dynamic_slice";
  check_operand(kName, x);
  for (Value start : starts) check_operand(kName, start);
  check_starts(kName, x, starts);
  if (sizes.size() != x.dims().size()) fail(kName, "sizes ", sizes, " do not fit ", x.type());
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || sizes[i] > x.dims()[i]) fail(kName, "sizes ", sizes, " of ", x.type());
  }
  Values operands = {x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  uint32_t type = intern(x.element_type(), sizes);
  return write(kName, operands, std::span<const uint32_t>(&type, 1),
               Attributes().array("slice_sizes", sizes))[0];
}

Value Builder::dynamic_update_slice(Value x, Value update, const Values& starts) {
  constexpr std::string_view kName = "stablehlo.dynamic_update_slice";
  check_operand(kName, x);
  check_operand(kName, update);
  for (Value start : starts) check_operand(kName, start);
  check_starts(kName, x, starts);
  bool fits = update.element_type() == x.element_type() && update.rank() == x.rank();
  for (size_t i = 0; fits && i < x.dims().size(); ++i) fits = update.dims()[i] <= x.dims()[i];
  if (!fits) fail(kName, "the update ", update.type(), " does not fit ", x.type());
  Values operands = {x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return write(kName, operands, std::span<const uint32_t>(&x.type_, 1))[0];
}

Value Builder::concatenate(const Values& xs, int64_t dimension) {
  constexpr std::string_view kName = "stablehlo.concatenate";
  if (xs.empty()) fail(kName, "no operands");
  for (Value x : xs) check_operand(kName, x);
  check_axes(kName, "dimension", {dimension}, xs[0].dims().size());
  auto at = static_cast<size_t>(dimension);
  Dims dims = xs[0].dims();
  dims[at] = 0;
  for (Value x : xs) {
    Dims others = x.dims();
    bool fits = others.size() == dims.size() && x.element_type() == xs[0].element_type();
    if (fits) {
      dims[at] += others[at];
      others[at] = dims[at];
    }
    if (!fits || others != dims) {
      fail(kName, x.type(), " does not fit ", xs[0].type(), " along dimension ", dimension);
    }
  }
  if (xs.size() == 1) return xs[0];
  uint32_t type = intern(xs[0].element_type(), dims);
  return write(kName, xs, std::span<const uint32_t>(&type, 1),
               Attributes().integer("dimension", dimension))[0];
}

Value Builder::pad(Value x, Value padding_value, const Dims& low, const Dims& high,
                   const Dims& interior) {
  constexpr std::string_view kName = "stablehlo.pad";
  check_operand(kName, x);
  check_operand(kName, padding_value);
  const Dims& from = x.dims();
  size_t rank = from.size();
  if (padding_value.rank() != 0 || padding_value.element_type() != x.element_type()) {
    fail(kName, "the padding value ", padding_value.type(), " does not fit ", x.type());
  }
  Dims between = interior.empty() ? Dims(rank, 0) : interior;
  if (low.size() != rank || high.size() != rank || between.size() != rank) {
    fail(kName, "low ", low, ", high ", high, ", interior ", between, " do not fit ", x.type());
  }
  Dims dims(rank, 0);
  bool nothing = true;
  for (size_t i = 0; i < rank; ++i) {
    int64_t inner = from[i] + (from[i] > 0 ? from[i] - 1 : 0) * between[i];
    dims[i] = low[i] + inner + high[i];
    if (between[i] < 0 || dims[i] < 0) {
      fail(kName, "low ", low, ", high ", high, ", interior ", between, " leave no valid shape of ",
           x.type());
    }
    nothing = nothing && low[i] == 0 && high[i] == 0 && between[i] == 0;
  }
  if (nothing) return x;
  return write(kName, {x, padding_value}, intern(x.element_type(), dims),
               Attributes()
                   .array("edge_padding_low", low)
                   .array("edge_padding_high", high)
                   .array("interior_padding", between));
}

Value Builder::get_dimension_size(Value x, int64_t dimension) {
  constexpr std::string_view kName = "stablehlo.get_dimension_size";
  check_operand(kName, x);
  check_axes(kName, "dimension", {dimension}, x.dims().size());
  return write(kName, {x}, intern(ElementType::kS32, {}),
               Attributes().integer("dimension", dimension));
}

Value Builder::set_dimension_size(Value x, Value size, int64_t dimension) {
  constexpr std::string_view kName = "stablehlo.set_dimension_size";
  check_operand(kName, x);
  check_operand(kName, size);
  check_axes(kName, "dimension", {dimension}, x.dims().size());
  if (size.rank() != 0 || size.element_type() != ElementType::kS32) {
    fail(kName, "the size must be a scalar s32, not ", size.type());
  }
  TensorType type = x.type();
  type.bounded |= uint64_t{1} << dimension;
  return write(kName, {x, size}, intern(type), Attributes().integer("dimension", dimension));
}

}  // namespace torch_xla::stablehlo
