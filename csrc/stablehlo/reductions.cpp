// Reductions over dimensions and windows, and sorting.

#include "stablehlo/builder.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {
namespace {

// A window with every default filled in.
Window complete(std::string_view op, const Window& window, size_t rank) {
  Window full = window;
  auto fill = [&](Dims& dims, int64_t value) {
    if (dims.empty()) dims = Dims(rank, value);
    if (dims.size() != rank) fail(op, "a window of ", dims, " for rank ", rank);
  };
  fill(full.size, 1);
  fill(full.strides, 1);
  fill(full.base_dilations, 1);
  fill(full.window_dilations, 1);
  fill(full.padding_low, 0);
  fill(full.padding_high, 0);
  for (size_t i = 0; i < rank; ++i) {
    if (full.size[i] <= 0 || full.strides[i] <= 0 || full.base_dilations[i] <= 0 ||
        full.window_dilations[i] <= 0) {
      fail(op, "window ", full.size, ", strides ", full.strides, ", base dilations ",
           full.base_dilations, ", window dilations ", full.window_dilations, " must be positive");
    }
  }
  return full;
}

// How many windows fit along each dimension (spec: reduce_window, constraint on the result).
Dims window_counts(const Dims& dims, const Window& window) {
  Dims counts;
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t base = dims[i] == 0 ? 0 : (dims[i] - 1) * window.base_dilations[i] + 1;
    base += window.padding_low[i] + window.padding_high[i];
    int64_t extent = (window.size[i] - 1) * window.window_dilations[i] + 1;
    counts.push_back(base < extent ? 0 : (base - extent) / window.strides[i] + 1);
  }
  return counts;
}

ReduceRegion single(const BinaryRegion& body) {
  return [&body](const Values& a, const Values& b) { return Values{body(a[0], b[0])}; };
}

void check_inputs(std::string_view op, const Values& xs, const Values& inits) {
  if (xs.empty() || xs.size() != inits.size()) {
    fail(op, xs.size(), " inputs and ", inits.size(), " initial values");
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    if (xs[i].dims() != xs[0].dims()) {
      fail(op, "input shapes differ: ", xs[0].type(), " and ", xs[i].type());
    }
    if (inits[i].rank() != 0 || inits[i].element_type() != xs[i].element_type()) {
      fail(op, "the initial value ", inits[i].type(), " does not fit ", xs[i].type());
    }
  }
}

}  // namespace

// --- reduce ------------------------------------------------------------------------------------

Values Builder::reduce(const Values& xs, const Values& inits, const Dims& dimensions,
                       const ReduceRegion& body) {
  constexpr std::string_view kName = "stablehlo.reduce";
  for (Value v : xs) check_operand(kName, v);
  for (Value v : inits) check_operand(kName, v);
  check_inputs(kName, xs, inits);
  const Dims& from = xs[0].dims();
  check_axes(kName, "dimensions", dimensions, from.size());
  Dims dims;
  for (size_t i = 0; i < from.size(); ++i) {
    if (!dimensions.contains(static_cast<int64_t>(i))) dims.push_back(from[i]);
  }
  std::vector<uint32_t> types;
  for (Value x : xs) types.push_back(intern(x.element_type(), dims));
  std::string text = combiner(kName, xs, body);
  Values operands = xs;
  operands.insert(operands.end(), inits.begin(), inits.end());
  return write(kName, operands, types, Attributes().array("dimensions", dimensions),
               std::span<const std::string>(&text, 1));
}

Value Builder::reduce(Value x, Value init, const Dims& dimensions, const BinaryRegion& body) {
  return reduce(Values{x}, Values{init}, dimensions, single(body))[0];
}

Value Builder::reduce_sum(Value x, const Dims& dimensions) {
  // A sum begins with zero, so that of one -0 is 0; compilers drop a sum over one element.
  bool of_one = is_float(x.element_type());
  for (int64_t dim : dimensions) of_one = of_one && x.dim(dim) == 1;
  if (of_one) {
    const Value zero = zeros_like(x);
    x = select(eq(x, zero), zero, x);
  }
  return reduce(x, scalar(0, x.element_type()), dimensions,
                [this](Value a, Value b) { return add(a, b); });
}
Value Builder::reduce_product(Value x, const Dims& dimensions) {
  return reduce(x, scalar(1, x.element_type()), dimensions,
                [this](Value a, Value b) { return multiply(a, b); });
}
Value Builder::reduce_max(Value x, const Dims& dimensions) {
  return reduce(x, min_value(x.element_type()), dimensions,
                [this](Value a, Value b) { return maximum(a, b); });
}
Value Builder::reduce_min(Value x, const Dims& dimensions) {
  return reduce(x, max_value(x.element_type()), dimensions,
                [this](Value a, Value b) { return minimum(a, b); });
}
Value Builder::reduce_and(Value x, const Dims& dimensions) {
  ElementType type = x.element_type();
  Value ones = is_pred(type) ? scalar(true, type) : scalar(-1, type);
  return reduce(x, ones, dimensions, [this](Value a, Value b) { return and_(a, b); });
}
Value Builder::reduce_or(Value x, const Dims& dimensions) {
  return reduce(x, scalar(0, x.element_type()), dimensions,
                [this](Value a, Value b) { return or_(a, b); });
}

// --- Windows -----------------------------------------------------------------------------------

Values Builder::reduce_window(const Values& xs, const Values& inits, const Window& window,
                              const ReduceRegion& body) {
  constexpr std::string_view kName = "stablehlo.reduce_window";
  for (Value v : xs) check_operand(kName, v);
  for (Value v : inits) check_operand(kName, v);
  check_inputs(kName, xs, inits);
  Window w = complete(kName, window, xs[0].dims().size());
  Dims dims = window_counts(xs[0].dims(), w);
  std::vector<uint32_t> types;
  for (Value x : xs) types.push_back(intern(x.element_type(), dims));
  std::string text = combiner(kName, xs, body);
  Values operands = xs;
  operands.insert(operands.end(), inits.begin(), inits.end());
  return write(kName, operands, types,
               Attributes()
                   .array("window_dimensions", w.size)
                   .array("window_strides", w.strides)
                   .array("base_dilations", w.base_dilations)
                   .array("window_dilations", w.window_dilations)
                   .pairs("padding", w.padding_low, w.padding_high),
               std::span<const std::string>(&text, 1));
}

Value Builder::reduce_window(Value x, Value init, const Window& window, const BinaryRegion& body) {
  return reduce_window(Values{x}, Values{init}, window, single(body))[0];
}

Value Builder::select_and_scatter(Value operand, Value source, Value init, const Window& window,
                                  const BinaryRegion& select, const BinaryRegion& scatter) {
  constexpr std::string_view kName = "stablehlo.select_and_scatter";
  for (Value v : {operand, source, init}) check_operand(kName, v);
  Window w = complete(kName, window, operand.dims().size());
  Dims ones(operand.dims().size(), 1);
  if (w.base_dilations != ones || w.window_dilations != ones) fail(kName, "dilated window");
  ElementType type = operand.element_type();
  if (source.element_type() != type || source.dims() != window_counts(operand.dims(), w)) {
    fail(kName, "the source ", source.type(), " does not fit windows ", w.size, " by ", w.strides,
         " of ", operand.type());
  }
  if (init.rank() != 0 || init.element_type() != type) {
    fail(kName, "the initial value ", init.type(), " does not fit ", operand.type());
  }
  uint32_t scalar_type = intern(type, {});
  uint32_t scalars[] = {scalar_type, scalar_type};
  std::string regions[2];
  regions[0] = isolated_region(scalars, [&](const Values& args) {
    Value chosen = select(args[0], args[1]);
    check_operand(kName, chosen);
    if (chosen.type() != TensorType{ElementType::kPred, {}}) {
      fail(kName, "the select region gives ", chosen.type(), ", not a scalar pred");
    }
    return Values{chosen};
  });
  regions[1] = combiner(kName, {operand}, single(scatter));
  return write(kName, {operand, source, init}, operand.type_,
               Attributes()
                   .array("window_dimensions", w.size)
                   .array("window_strides", w.strides)
                   .pairs("padding", w.padding_low, w.padding_high),
               regions);
}

// --- Sorting -------------------------------------------------------------------------------------

Values Builder::sort(const Values& xs, int64_t dimension, bool stable, const ReduceRegion& less) {
  constexpr std::string_view kName = "stablehlo.sort";
  if (xs.empty()) fail(kName, "no operands");
  std::vector<uint32_t> types;
  std::vector<uint32_t> scalars;
  for (Value x : xs) {
    check_operand(kName, x);
    if (x.dims() != xs[0].dims()) {
      fail(kName, "operand shapes differ: ", xs[0].type(), " and ", x.type());
    }
    types.push_back(x.type_);
    uint32_t scalar_type = intern(x.element_type(), {});
    scalars.insert(scalars.end(), {scalar_type, scalar_type});
  }
  check_axes(kName, "dimension", {dimension}, xs[0].dims().size());
  std::string text = isolated_region(scalars, [&](const Values& args) {
    // The arguments come as left and right of each operand in turn.
    Values left, right;
    for (size_t i = 0; i < args.size(); i += 2) {
      left.push_back(args[i]);
      right.push_back(args[i + 1]);
    }
    Values results = less(left, right);
    if (results.size() != 1 || results[0].type() != TensorType{ElementType::kPred, {}}) {
      fail(kName, "the comparator must give one scalar pred");
    }
    return results;
  });
  return write(kName, xs, types,
               Attributes().integer("dimension", dimension).boolean("is_stable", stable),
               std::span<const std::string>(&text, 1));
}

std::pair<Value, Value> Builder::top_k(Value x, int64_t k) {
  constexpr std::string_view kName = "chlo.top_k";
  check_operand(kName, x);
  if (x.rank() < 1 || k < 0 || k > x.dims().back() || is_complex(x.element_type())) {
    fail(kName, "no ", k, " largest of ", x.type());
  }
  Dims dims = x.dims();
  dims.back() = k;
  uint32_t types[] = {intern(x.element_type(), dims), intern(ElementType::kS32, dims)};
  Values results = write(kName, std::span<const Value>(&x, 1), types, Attributes().integer("k", k));
  return {results[0], results[1]};
}

}  // namespace torch_xla::stablehlo
