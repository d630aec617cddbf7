// gather and scatter. Names and rules follow the sections of the same names in the specification.

#include "stablehlo/builder.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {
namespace {

// Sizes of the index array without its index vector: one entry a slice to gather or scatter.
Dims batch_sizes(std::string_view op, Value indices, int64_t index_vector_dim) {
  if (!is_integer(indices.element_type())) fail(op, "indices of type ", indices.type());
  if (index_vector_dim < 0 || index_vector_dim > indices.rank()) {
    fail(op, "index_vector_dim ", index_vector_dim, " of ", indices.type());
  }
  Dims sizes = indices.dims();
  if (index_vector_dim < indices.rank()) sizes.erase(static_cast<size_t>(index_vector_dim));
  return sizes;
}

int64_t index_length(Value indices, int64_t index_vector_dim) {
  return index_vector_dim < indices.rank() ? indices.dim(index_vector_dim) : 1;
}

// Dimensions of the operand that are whole slices: neither collapsed nor batched.
Dims window_axes(size_t rank, const Dims& collapsed, const Dims& batching) {
  Dims axes;
  for (size_t i = 0; i < rank; ++i) {
    auto axis = static_cast<int64_t>(i);
    if (!collapsed.contains(axis) && !batching.contains(axis)) axes.push_back(axis);
  }
  return axes;
}

void check_batching(std::string_view op, Value operand, Value indices, const Dims& operand_dims,
                    const Dims& indices_dims) {
  check_axes(op, "operand batching dimensions", operand_dims, operand.dims().size());
  check_axes(op, "indices batching dimensions", indices_dims, indices.dims().size());
  if (operand_dims.size() != indices_dims.size()) {
    fail(op, "batching dimensions ", operand_dims, " of ", operand.type(), " and ", indices_dims,
         " of ", indices.type());
  }
  for (size_t i = 0; i < operand_dims.size(); ++i) {
    if (operand.dim(operand_dims[i]) != indices.dim(indices_dims[i])) {
      fail(op, "batching dimensions differ in size: ", operand_dims, " of ", operand.type(),
           " and ", indices_dims, " of ", indices.type());
    }
  }
}

}  // namespace

Value Builder::gather(Value operand, Value start_indices, const GatherDimensions& dimensions,
                      const Dims& slice_sizes, bool indices_are_sorted) {
  constexpr std::string_view kName = "stablehlo.gather";
  check_operand(kName, operand);
  check_operand(kName, start_indices);
  const GatherDimensions& d = dimensions;
  size_t rank = operand.dims().size();
  Dims batches = batch_sizes(kName, start_indices, d.index_vector_dim);
  check_axes(kName, "collapsed_slice_dims", d.collapsed_slice_dims, rank);
  check_axes(kName, "start_index_map", d.start_index_map, rank);
  check_batching(kName, operand, start_indices, d.operand_batching_dims,
                 d.start_indices_batching_dims);
  if (static_cast<int64_t>(d.start_index_map.size()) !=
      index_length(start_indices, d.index_vector_dim)) {
    fail(kName, "start_index_map ", d.start_index_map, " does not fit ", start_indices.type());
  }
  if (slice_sizes.size() != rank) {
    fail(kName, "slice_sizes ", slice_sizes, " do not fit ", operand.type());
  }
  for (size_t i = 0; i < rank; ++i) {
    auto axis = static_cast<int64_t>(i);
    bool single = d.collapsed_slice_dims.contains(axis) || d.operand_batching_dims.contains(axis);
    if (slice_sizes[i] < 0 || slice_sizes[i] > operand.dims()[i] ||
        (single && slice_sizes[i] > 1)) {
      fail(kName, "slice_sizes ", slice_sizes, " of ", operand.type());
    }
  }
  Dims windows = window_axes(rank, d.collapsed_slice_dims, d.operand_batching_dims);
  size_t result_rank = batches.size() + windows.size();
  check_axes(kName, "offset_dims", d.offset_dims, result_rank);
  if (windows.size() != d.offset_dims.size()) {
    fail(kName, "offset_dims ", d.offset_dims, " for slices of ", slice_sizes);
  }
  Dims dims;
  size_t next_batch = 0;
  size_t next_window = 0;
  for (size_t i = 0; i < result_rank; ++i) {
    dims.push_back(d.offset_dims.contains(static_cast<int64_t>(i))
                       ? slice_sizes[static_cast<size_t>(windows[next_window++])]
                       : batches[next_batch++]);
  }
  std::string numbers = DimensionNumbers()
                            .list("offset_dims", d.offset_dims)
                            .list("collapsed_slice_dims", d.collapsed_slice_dims)
                            .list("operand_batching_dims", d.operand_batching_dims)
                            .list("start_indices_batching_dims", d.start_indices_batching_dims)
                            .list("start_index_map", d.start_index_map)
                            .integer("index_vector_dim", d.index_vector_dim)
                            .wrap("gather");
  return write(kName, {operand, start_indices}, intern(operand.element_type(), dims),
               Attributes()
                   .raw("dimension_numbers", numbers)
                   .array("slice_sizes", slice_sizes)
                   .boolean("indices_are_sorted", indices_are_sorted));
}

Values Builder::scatter(const Values& inputs, Value indices, const Values& updates,
                        const ScatterDimensions& dimensions, const ReduceRegion& combiner_body,
                        bool indices_are_sorted, bool unique_indices) {
  constexpr std::string_view kName = "stablehlo.scatter";
  const ScatterDimensions& d = dimensions;
  if (inputs.empty() || inputs.size() != updates.size()) {
    fail(kName, inputs.size(), " inputs and ", updates.size(), " updates");
  }
  check_operand(kName, indices);
  Dims batches = batch_sizes(kName, indices, d.index_vector_dim);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_operand(kName, inputs[i]);
    check_operand(kName, updates[i]);
    if (inputs[i].dims() != inputs[0].dims() || updates[i].dims() != updates[0].dims() ||
        updates[i].element_type() != inputs[i].element_type()) {
      fail(kName, "input ", inputs[i].type(), " with updates ", updates[i].type());
    }
  }
  Value input = inputs[0];
  Value update = updates[0];
  size_t rank = input.dims().size();
  check_axes(kName, "inserted_window_dims", d.inserted_window_dims, rank);
  check_axes(kName, "scatter_dims_to_operand_dims", d.scatter_dims_to_operand_dims, rank);
  check_axes(kName, "update_window_dims", d.update_window_dims, update.dims().size());
  check_batching(kName, input, indices, d.input_batching_dims, d.scatter_indices_batching_dims);
  if (static_cast<int64_t>(d.scatter_dims_to_operand_dims.size()) !=
      index_length(indices, d.index_vector_dim)) {
    fail(kName, "scatter_dims_to_operand_dims ", d.scatter_dims_to_operand_dims, " do not fit ",
         indices.type());
  }
  Dims windows = window_axes(rank, d.inserted_window_dims, d.input_batching_dims);
  bool fits = windows.size() == d.update_window_dims.size() &&
              update.dims().size() == batches.size() + windows.size();
  size_t next_batch = 0;
  size_t next_window = 0;
  for (size_t i = 0; fits && i < update.dims().size(); ++i) {
    if (d.update_window_dims.contains(static_cast<int64_t>(i))) {
      fits = update.dims()[i] <= input.dim(windows[next_window++]);
    } else {
      fits = update.dims()[i] == batches[next_batch++];
    }
  }
  if (!fits) {
    fail(kName, "updates ", update.type(), " at ", indices.type(), " do not fit ", input.type(),
         " with update_window_dims ", d.update_window_dims);
  }
  std::string numbers = DimensionNumbers()
                            .list("update_window_dims", d.update_window_dims)
                            .list("inserted_window_dims", d.inserted_window_dims)
                            .list("input_batching_dims", d.input_batching_dims)
                            .list("scatter_indices_batching_dims", d.scatter_indices_batching_dims)
                            .list("scatter_dims_to_operand_dims", d.scatter_dims_to_operand_dims)
                            .integer("index_vector_dim", d.index_vector_dim)
                            .wrap("scatter");
  std::string body = combiner(kName, inputs, combiner_body);
  Values operands = inputs;
  operands.push_back(indices);
  operands.insert(operands.end(), updates.begin(), updates.end());
  std::vector<uint32_t> types;
  for (Value v : inputs) types.push_back(v.type_);
  return write(kName, operands, types,
               Attributes()
                   .raw("scatter_dimension_numbers", numbers)
                   .boolean("indices_are_sorted", indices_are_sorted)
                   .boolean("unique_indices", unique_indices),
               std::span<const std::string>(&body, 1));
}

Value Builder::scatter(Value input, Value indices, Value updates,
                       const ScatterDimensions& dimensions, const BinaryRegion& combiner_body,
                       bool indices_are_sorted, bool unique_indices) {
  auto body = [&](const Values& old, const Values& update) {
    return Values{combiner_body(old[0], update[0])};
  };
  return scatter(Values{input}, indices, Values{updates}, dimensions, body, indices_are_sorted,
                 unique_indices)[0];
}

}  // namespace torch_xla::stablehlo
