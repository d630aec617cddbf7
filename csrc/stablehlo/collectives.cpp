// Operations between devices, and shardings.

#include "stablehlo/builder.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {
namespace {

// Groups of ranks as the rows of a matrix; shorter ones end in -1.
std::string replica_groups(std::string_view op, const std::vector<Dims>& groups) {
  size_t longest = 0;
  for (const Dims& group : groups) {
    if (group.empty()) fail(op, "an empty group");
    longest = std::max(longest, group.size());
  }
  std::string text = "dense<";
  for (size_t i = 0; i < groups.size(); ++i) {
    Dims row = groups[i];
    row.resize(longest, -1);
    text += i ? ", " : "[";
    append_to(text, row);
  }
  if (!groups.empty()) text += ']';
  return text += cat("> : tensor<", groups.size(), "x", longest, "xi64>");
}

void append_options(std::string_view op, Attributes& attributes, const CollectiveOptions& options,
                    bool global_ids_allowed = true) {
  attributes.raw("replica_groups", replica_groups(op, options.groups));
  if (options.channel) {
    attributes.raw("channel_handle", cat("#stablehlo.channel_handle<handle = ", *options.channel,
                                         ", type = ", options.channel_type, ">"));
  }
  if (options.use_global_device_ids) {
    if (!global_ids_allowed) fail(op, "takes no global device ids");
    if (!options.channel) fail(op, "global device ids need a channel");
    attributes.unit("use_global_device_ids");
  }
}

void check_group_size(std::string_view op, int64_t shards, const std::vector<Dims>& groups) {
  if (shards <= 0) fail(op, "a group of ", shards);
  for (const Dims& group : groups) {
    if (static_cast<int64_t>(group.size()) != shards) {
      fail(op, "group ", group, " does not have ", shards, " members");
    }
  }
}

ReduceRegion single(const BinaryRegion& body) {
  return [&body](const Values& a, const Values& b) { return Values{body(a[0], b[0])}; };
}

}  // namespace

Value Builder::all_reduce(Value x, const BinaryRegion& body, const CollectiveOptions& options) {
  return all_reduce(Values{x}, body, options)[0];
}

Values Builder::all_reduce(const Values& xs, const BinaryRegion& body,
                           const CollectiveOptions& options) {
  constexpr std::string_view kName = "stablehlo.all_reduce";
  if (xs.empty()) fail(kName, "no operands");
  std::vector<uint32_t> types;
  for (Value x : xs) {
    check_operand(kName, x);
    if (x.element_type() != xs[0].element_type()) {
      fail(kName, "element types differ: ", xs[0].type(), " and ", x.type());
    }
    types.push_back(x.type_);
  }
  std::string text = combiner(kName, {xs[0]}, single(body));
  Attributes attributes;
  append_options(kName, attributes, options);
  return write(kName, xs, types, attributes, std::span<const std::string>(&text, 1));
}

Value Builder::all_gather(Value x, int64_t dimension, int64_t shards,
                          const CollectiveOptions& options) {
  constexpr std::string_view kName = "stablehlo.all_gather";
  check_operand(kName, x);
  check_axes(kName, "dimension", {dimension}, x.dims().size());
  check_group_size(kName, shards, options.groups);
  Dims dims = x.dims();
  dims[static_cast<size_t>(dimension)] *= shards;
  Attributes attributes;
  attributes.integer("all_gather_dim", dimension);
  append_options(kName, attributes, options);
  return write(kName, {x}, intern(x.element_type(), dims), attributes);
}

Value Builder::reduce_scatter(Value x, int64_t dimension, int64_t shards, const BinaryRegion& body,
                              const CollectiveOptions& options) {
  constexpr std::string_view kName = "stablehlo.reduce_scatter";
  check_operand(kName, x);
  check_axes(kName, "dimension", {dimension}, x.dims().size());
  check_group_size(kName, shards, options.groups);
  Dims dims = x.dims();
  int64_t& size = dims[static_cast<size_t>(dimension)];
  if (size % shards != 0) {
    fail(kName, "dimension ", dimension, " of ", x.type(), " does not split into ", shards);
  }
  size /= shards;
  std::string text = combiner(kName, {x}, single(body));
  Attributes attributes;
  attributes.integer("scatter_dimension", dimension);
  append_options(kName, attributes, options);
  return write(kName, {x}, intern(x.element_type(), dims), attributes,
               std::span<const std::string>(&text, 1));
}

Value Builder::all_to_all(Value x, int64_t split_dimension, int64_t concat_dimension,
                          int64_t split_count, const CollectiveOptions& options) {
  constexpr std::string_view kName = "stablehlo.all_to_all";
  check_operand(kName, x);
  check_axes(kName, "split dimension", {split_dimension}, x.dims().size());
  check_axes(kName, "concat dimension", {concat_dimension}, x.dims().size());
  check_group_size(kName, split_count, options.groups);
  Dims dims = x.dims();
  if (x.dim(split_dimension) % split_count != 0) {
    fail(kName, "dimension ", split_dimension, " of ", x.type(), " does not split into ",
         split_count);
  }
  dims[static_cast<size_t>(split_dimension)] /= split_count;
  dims[static_cast<size_t>(concat_dimension)] *= split_count;
  Attributes attributes;
  attributes.integer("split_dimension", split_dimension)
      .integer("concat_dimension", concat_dimension)
      .integer("split_count", split_count);
  append_options(kName, attributes, options, /*global_ids_allowed=*/false);
  return write(kName, {x}, intern(x.element_type(), dims), attributes);
}

Value Builder::collective_permute(Value x, const std::vector<std::pair<int64_t, int64_t>>& pairs,
                                  std::optional<int64_t> channel) {
  constexpr std::string_view kName = "stablehlo.collective_permute";
  check_operand(kName, x);
  Dims sources, targets;
  for (auto [source, target] : pairs) {
    if (source < 0 || target < 0 || sources.contains(source) || targets.contains(target)) {
      fail(kName, "the pair ", source, " to ", target, " is negative or repeats a rank");
    }
    sources.push_back(source);
    targets.push_back(target);
  }
  Attributes attributes;
  attributes.pairs("source_target_pairs", sources, targets);
  if (channel) {
    attributes.raw("channel_handle",
                   cat("#stablehlo.channel_handle<handle = ", *channel, ", type = 1>"));
  }
  return write(kName, {x}, x.type_, attributes);
}

Value Builder::partition_id() {
  return write("stablehlo.partition_id", {}, intern(ElementType::kU32, {}));
}

Value Builder::replica_id() {
  return write("stablehlo.replica_id", {}, intern(ElementType::kU32, {}));
}

Value Builder::sharding_constraint(Value x, std::string_view sharding) {
  check_operand("sdy.sharding_constraint", x);
  return write("sdy.sharding_constraint", {x}, x.type_, Attributes().raw("sharding", sharding));
}

Values Builder::manual_computation(const Values& xs, const std::vector<std::string>& in_shardings,
                                   const std::vector<TensorType>& locals,
                                   const std::vector<std::string>& out_shardings,
                                   const std::vector<TensorType>& results,
                                   const std::vector<std::string>& manual_axes,
                                   const ValuesRegion& body) {
  constexpr std::string_view kName = "sdy.manual_computation";
  if (in_shardings.size() != xs.size() || locals.size() != xs.size() ||
      out_shardings.size() != results.size()) {
    fail(kName, xs.size(), " operands with ", in_shardings.size(), " shardings and ", locals.size(),
         " shards, ", results.size(), " results with ", out_shardings.size(), " shardings");
  }
  for (Value x : xs) check_operand(kName, x);
  auto join = [](const std::vector<std::string>& parts, bool quoted) {
    std::string text;
    for (const std::string& part : parts) {
      if (!text.empty()) text += ", ";
      text += quoted ? quote(part) : part;
    }
    return text;
  };
  std::vector<uint32_t> arguments, types;
  for (const TensorType& type : locals) arguments.push_back(intern(type));
  for (const TensorType& type : results) types.push_back(intern(type));
  Values given;
  std::string text = region(arguments, body, &given, "sdy.return");
  if (given.size() != results.size()) {
    fail(kName, "the body gives ", given.size(), " values for ", results.size());
  }
  Attributes attributes;
  attributes.raw("in_shardings", cat("#sdy.sharding_per_value<[", join(in_shardings, false), "]>"))
      .raw("out_shardings", cat("#sdy.sharding_per_value<[", join(out_shardings, false), "]>"))
      .raw("manual_axes", cat("#sdy<manual_axes{", join(manual_axes, true), "}>"));
  return write(kName, xs, types, attributes, std::span<const std::string>(&text, 1));
}

}  // namespace torch_xla::stablehlo
