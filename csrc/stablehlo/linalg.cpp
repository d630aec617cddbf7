// Contractions, convolutions, batch norms, factorizations, transforms, random bits.

#include <charconv>
#include <cmath>

#include "stablehlo/builder.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {
namespace {

std::string precision_config(Precision precision) {
  static constexpr std::string_view kNames[] = {"DEFAULT", "HIGH", "HIGHEST"};
  std::string one = cat("#stablehlo<precision ", kNames[static_cast<int>(precision)], ">");
  return cat("[", one, ", ", one, "]");
}

bool is_number(ElementType type) {
  return is_pred(type) || is_integer(type) || is_float(type) || is_complex(type);
}

// "b, 0, 1, f": what every dimension of an operand is, in its order.
std::string dimension_roles(std::string_view op, int64_t first, char first_name, int64_t second,
                            char second_name, const Dims& spatial) {
  size_t rank = spatial.size() + 2;
  Dims all = spatial;
  all.push_back(first);
  all.push_back(second);
  check_axes(op, "dimension numbers", all, rank);
  std::string text;
  for (size_t i = 0; i < rank; ++i) {
    if (i) text += ", ";
    auto axis = static_cast<int64_t>(i);
    if (axis == first) {
      text += first_name;
    } else if (axis == second) {
      text += second_name;
    } else {
      append_to(text, static_cast<int64_t>(std::find(spatial.begin(), spatial.end(), axis) -
                                           spatial.begin()));
    }
  }
  return text;
}

// `value` as an f32 attribute.
std::string f32_attribute(std::string_view op, double value) {
  auto single = static_cast<float>(value);
  if (!std::isfinite(single)) fail(op, "an attribute that is not finite");
  char digits[32];
  auto end =
      std::to_chars(digits, digits + sizeof digits, single, std::chars_format::scientific).ptr;
  std::string text(digits, end);
  if (text.find('.') == std::string::npos) text.insert(text.find('e'), ".0");
  return text + " : f32";
}

void check_square(std::string_view op, Value a) {
  size_t rank = a.dims().size();
  if (rank < 2 || a.dims()[rank - 1] != a.dims()[rank - 2] ||
      !(is_float(a.element_type()) || is_complex(a.element_type()))) {
    fail(op, "takes square matrices of float or complex, not ", a.type());
  }
}

}  // namespace

// --- dot_general -------------------------------------------------------------------------------

Value Builder::dot_general(Value lhs, Value rhs, const DotDimensions& dimensions,
                           std::optional<ElementType> preferred_type, Precision precision) {
  constexpr std::string_view kName = "stablehlo.dot_general";
  check_operand(kName, lhs);
  check_operand(kName, rhs);
  const DotDimensions& d = dimensions;
  if (!is_number(lhs.element_type()) || !is_number(rhs.element_type()) ||
      (lhs.element_type() != rhs.element_type() && !preferred_type)) {
    fail(kName, "element types differ and no result type is given: ", lhs.type(), " and ",
         rhs.type());
  }
  auto check_side = [&](Value x, const Dims& batch, const Dims& contracting) {
    Dims all = batch;
    for (int64_t axis : contracting) all.push_back(axis);
    check_axes(kName, "batch and contracting dimensions", all, x.dims().size());
    return all;
  };
  Dims lhs_used = check_side(lhs, d.lhs_batch, d.lhs_contracting);
  Dims rhs_used = check_side(rhs, d.rhs_batch, d.rhs_contracting);
  bool fits = d.lhs_batch.size() == d.rhs_batch.size() && lhs_used.size() == rhs_used.size();
  for (size_t i = 0; fits && i < lhs_used.size(); ++i) {
    fits = lhs.dim(lhs_used[i]) == rhs.dim(rhs_used[i]);
  }
  if (!fits) {
    fail(kName, lhs.type(), " and ", rhs.type(), " do not fit with batch ", d.lhs_batch, " and ",
         d.rhs_batch, ", contracting ", d.lhs_contracting, " and ", d.rhs_contracting);
  }
  Dims dims;
  for (int64_t axis : d.lhs_batch) dims.push_back(lhs.dim(axis));
  for (int64_t i = 0; i < lhs.rank(); ++i) {
    if (!lhs_used.contains(i)) dims.push_back(lhs.dim(i));
  }
  for (int64_t i = 0; i < rhs.rank(); ++i) {
    if (!rhs_used.contains(i)) dims.push_back(rhs.dim(i));
  }
  std::string numbers = DimensionNumbers()
                            .list("lhs_batching_dimensions", d.lhs_batch)
                            .list("rhs_batching_dimensions", d.rhs_batch)
                            .list("lhs_contracting_dimensions", d.lhs_contracting)
                            .list("rhs_contracting_dimensions", d.rhs_contracting)
                            .wrap("dot");
  return write(kName, {lhs, rhs}, intern(preferred_type.value_or(lhs.element_type()), dims),
               Attributes()
                   .raw("dot_dimension_numbers", numbers)
                   .raw("precision_config", precision_config(precision)));
}

// --- convolution ---------------------------------------------------------------------------------

ConvolutionDimensions default_convolution_dimensions(int64_t spatial_rank) {
  ConvolutionDimensions d;
  for (int64_t i = 0; i < spatial_rank; ++i) d.input_spatial.push_back(i + 2);
  d.kernel_spatial = d.input_spatial;
  d.output_spatial = d.input_spatial;
  return d;
}

Value Builder::convolution(Value lhs, Value rhs, const ConvolutionDimensions& dimensions,
                           const ConvolutionOptions& options) {
  constexpr std::string_view kName = "stablehlo.convolution";
  check_operand(kName, lhs);
  check_operand(kName, rhs);
  const ConvolutionDimensions& d = dimensions;
  size_t spatial = d.input_spatial.size();
  if (lhs.dims().size() != spatial + 2 || rhs.dims().size() != spatial + 2 ||
      d.kernel_spatial.size() != spatial || d.output_spatial.size() != spatial) {
    fail(kName, lhs.type(), " and ", rhs.type(), " with ", spatial, " spatial dimensions");
  }
  if (!is_number(lhs.element_type()) || !is_number(rhs.element_type()) ||
      (lhs.element_type() != rhs.element_type() && !options.preferred_type)) {
    fail(kName, "element types differ and no result type is given: ", lhs.type(), " and ",
         rhs.type());
  }
  auto filled = [&](const Dims& given, int64_t value) {
    Dims full = given.empty() ? Dims(spatial, value) : given;
    if (full.size() != spatial) fail(kName, given, " for ", spatial, " spatial dimensions");
    return full;
  };
  Dims strides = filled(options.strides, 1);
  Dims low = filled(options.padding_low, 0);
  Dims high = filled(options.padding_high, 0);
  Dims lhs_dilation = filled(options.lhs_dilation, 1);
  Dims rhs_dilation = filled(options.rhs_dilation, 1);
  Dims reversal = filled(options.window_reversal, 0);

  int64_t batch = lhs.dim(d.input_batch);
  int64_t features = lhs.dim(d.input_feature);
  int64_t out_features = rhs.dim(d.kernel_output_feature);
  int64_t groups = options.feature_group_count;
  int64_t batch_groups = options.batch_group_count;
  bool fits = groups > 0 && batch_groups > 0 && (groups == 1 || batch_groups == 1) &&
              features == rhs.dim(d.kernel_input_feature) * groups && out_features % groups == 0 &&
              out_features % batch_groups == 0 && batch % batch_groups == 0;
  if (!fits) {
    fail(kName, "input ", lhs.type(), " with ", batch, " samples and ", features,
         " features does not fit kernel ", rhs.type(), " with ", out_features, " by ",
         rhs.dim(d.kernel_input_feature), " features in ", groups, " feature and ", batch_groups,
         " batch groups");
  }

  Dims dims(spatial + 2, 0);
  std::string input_roles =
      dimension_roles(kName, d.input_batch, 'b', d.input_feature, 'f', d.input_spatial);
  std::string kernel_roles = dimension_roles(kName, d.kernel_output_feature, 'o',
                                             d.kernel_input_feature, 'i', d.kernel_spatial);
  std::string output_roles =
      dimension_roles(kName, d.output_batch, 'b', d.output_feature, 'f', d.output_spatial);
  dims[static_cast<size_t>(d.output_batch)] = batch / batch_groups;
  dims[static_cast<size_t>(d.output_feature)] = out_features;
  for (size_t i = 0; i < spatial; ++i) {
    int64_t size = lhs.dim(d.input_spatial[i]);
    int64_t window = rhs.dim(d.kernel_spatial[i]);
    if (strides[i] <= 0 || lhs_dilation[i] <= 0 || rhs_dilation[i] <= 0) {
      fail(kName, "strides ", strides, ", dilations ", lhs_dilation, " and ", rhs_dilation,
           " must be positive");
    }
    int64_t base = (size == 0 ? 0 : (size - 1) * lhs_dilation[i] + 1) + low[i] + high[i];
    int64_t extent = window == 0 ? 0 : (window - 1) * rhs_dilation[i] + 1;
    dims[static_cast<size_t>(d.output_spatial[i])] =
        base < extent || base <= 0 ? 0 : (base - extent) / strides[i] + 1;
  }
  ElementType type = options.preferred_type.value_or(lhs.element_type());
  Attributes attributes;
  attributes.raw("dimension_numbers", cat("#stablehlo.conv<[", input_roles, "]x[", kernel_roles,
                                          "]->[", output_roles, "]>"));
  attributes.array("window_strides", strides)
      .pairs("padding", low, high)
      .array("lhs_dilation", lhs_dilation)
      .array("rhs_dilation", rhs_dilation)
      .bool_array("window_reversal", reversal)
      .integer("feature_group_count", groups)
      .integer("batch_group_count", batch_groups)
      .raw("precision_config", precision_config(options.precision));
  return write(kName, {lhs, rhs}, intern(type, dims), attributes);
}

// --- Batch norm ----------------------------------------------------------------------------------

Value Builder::batch_norm_inference(Value x, Value scale, Value offset, Value mean, Value variance,
                                    double epsilon, int64_t feature) {
  constexpr std::string_view kName = "stablehlo.batch_norm_inference";
  check_operand(kName, x);
  check_axes(kName, "feature", {feature}, x.dims().size());
  for (Value v : {scale, offset, mean, variance}) {
    check_operand(kName, v);
    if (v.type() != TensorType{x.element_type(), {x.dim(feature)}}) {
      fail(kName, v.type(), " does not fit feature dimension ", feature, " of ", x.type());
    }
  }
  return write(
      kName, {x, scale, offset, mean, variance}, x.type_,
      Attributes().raw("epsilon", f32_attribute(kName, epsilon)).integer("feature_index", feature));
}

BatchNormTraining Builder::batch_norm_training(Value x, Value scale, Value offset, double epsilon,
                                               int64_t feature) {
  constexpr std::string_view kName = "stablehlo.batch_norm_training";
  check_operand(kName, x);
  check_axes(kName, "feature", {feature}, x.dims().size());
  for (Value v : {scale, offset}) {
    check_operand(kName, v);
    if (v.type() != TensorType{x.element_type(), {x.dim(feature)}}) {
      fail(kName, v.type(), " does not fit feature dimension ", feature, " of ", x.type());
    }
  }
  Value operands[] = {x, scale, offset};
  uint32_t types[] = {x.type_, scale.type_, scale.type_};
  Values r = write(
      kName, operands, types,
      Attributes().raw("epsilon", f32_attribute(kName, epsilon)).integer("feature_index", feature));
  return {r[0], r[1], r[2]};
}

BatchNormGrad Builder::batch_norm_grad(Value x, Value scale, Value mean, Value variance, Value grad,
                                       double epsilon, int64_t feature) {
  constexpr std::string_view kName = "stablehlo.batch_norm_grad";
  check_operand(kName, x);
  check_operand(kName, grad);
  check_axes(kName, "feature", {feature}, x.dims().size());
  if (grad.type_ != x.type_) fail(kName, "gradient ", grad.type(), " of ", x.type());
  for (Value v : {scale, mean, variance}) {
    check_operand(kName, v);
    if (v.type() != TensorType{x.element_type(), {x.dim(feature)}}) {
      fail(kName, v.type(), " does not fit feature dimension ", feature, " of ", x.type());
    }
  }
  Value operands[] = {x, scale, mean, variance, grad};
  uint32_t types[] = {x.type_, scale.type_, scale.type_};
  Values r = write(
      kName, operands, types,
      Attributes().raw("epsilon", f32_attribute(kName, epsilon)).integer("feature_index", feature));
  return {r[0], r[1], r[2]};
}

// --- Matrices and transforms -------------------------------------------------------------------

Value Builder::cholesky(Value a, bool lower) {
  check_operand("stablehlo.cholesky", a);
  check_square("stablehlo.cholesky", a);
  return write("stablehlo.cholesky", {a}, a.type_, Attributes().boolean("lower", lower));
}

Value Builder::triangular_solve(Value a, Value b, bool left_side, bool lower, bool unit_diagonal,
                                Transpose transpose_a) {
  constexpr std::string_view kName = "stablehlo.triangular_solve";
  static constexpr std::string_view kTransposes[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  check_operand(kName, a);
  check_operand(kName, b);
  check_square(kName, a);
  size_t rank = a.dims().size();
  bool fits = b.dims().size() == rank && b.element_type() == a.element_type() &&
              b.dims()[rank - (left_side ? 2 : 1)] == a.dims()[rank - 1];
  for (size_t i = 0; fits && i + 2 < rank; ++i) fits = a.dims()[i] == b.dims()[i];
  if (!fits) {
    fail(kName, a.type(), left_side ? " x = " : " from the right of x = ", b.type());
  }
  return write(kName, {a, b}, b.type_,
               Attributes()
                   .boolean("left_side", left_side)
                   .boolean("lower", lower)
                   .boolean("unit_diagonal", unit_diagonal)
                   .raw("transpose_a", cat("#stablehlo<transpose ",
                                           kTransposes[static_cast<int>(transpose_a)], ">")));
}

Value Builder::fft(Value x, FftKind kind, const Dims& length) {
  constexpr std::string_view kName = "stablehlo.fft";
  static constexpr std::string_view kNames[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  check_operand(kName, x);
  Dims dims = x.dims();
  size_t rank = dims.size();
  if (length.empty() || length.size() > 3 || length.size() > rank) {
    fail(kName, "lengths ", length, " for ", x.type());
  }
  ElementType type = x.element_type();
  bool real_input = kind == FftKind::kRfft;
  if (real_input ? type != ElementType::kF32 && type != ElementType::kF64 : !is_complex(type)) {
    fail(kName, kNames[static_cast<int>(kind)], " of ", x.type());
  }
  for (size_t i = 0; i < length.size(); ++i) {
    int64_t size = dims[rank - length.size() + i];
    int64_t expected = length[i];
    if (kind == FftKind::kIrfft && i + 1 == length.size()) expected = expected / 2 + 1;
    if (size != expected) {
      fail(kName, kNames[static_cast<int>(kind)], " of lengths ", length, " does not fit ",
           x.type());
    }
  }
  if (kind == FftKind::kRfft) {
    type = complex_type(type);
    dims.back() = dims.back() / 2 + 1;
  } else if (kind == FftKind::kIrfft) {
    type = real_type(type);
    dims.back() = length.back();
  }
  return write(
      kName, {x}, intern(type, dims),
      Attributes()
          .raw("fft_type", cat("#stablehlo<fft_type ", kNames[static_cast<int>(kind)], ">"))
          .array("fft_length", length));
}

Builder::RandomBits Builder::rng_bit_generator(RngAlgorithm algorithm, Value state,
                                               const TensorType& type) {
  constexpr std::string_view kName = "stablehlo.rng_bit_generator";
  static constexpr std::string_view kNames[] = {"DEFAULT", "THREE_FRY", "PHILOX"};
  check_operand(kName, state);
  int64_t words = state.rank() == 1 ? state.dim(0) : 0;
  bool fits = state.element_type() == ElementType::kU64 &&
              (words == 2 || (words == 3 && algorithm != RngAlgorithm::kThreeFry));
  if (!fits) {
    fail(kName, kNames[static_cast<int>(algorithm)], " takes no state of type ", state.type());
  }
  if (!(is_integer(type.type) && bit_width(type.type) >= 8)) {
    fail(kName, "bits come as integers, not ", type);
  }
  uint32_t types[] = {state.type_, intern(type)};
  Values r = write(
      kName, std::span<const Value>(&state, 1), types,
      Attributes().raw("rng_algorithm",
                       cat("#stablehlo<rng_algorithm ", kNames[static_cast<int>(algorithm)], ">")));
  return {r[0], r[1]};
}

}  // namespace torch_xla::stablehlo
