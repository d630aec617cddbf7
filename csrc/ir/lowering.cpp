#include "ir/lowering.h"

#include <algorithm>
#include <array>

namespace torch_xla::ir {
namespace {

ElementType element_type(ScalarClass kind) {
  switch (kind) {
    case ScalarClass::kF32:
      return ElementType::kF32;
    case ScalarClass::kF64:
      return ElementType::kF64;
    default:
      return ElementType::kS64;
  }
}

// Numbers narrow as a cast would: integers wrap, and "not zero" is true.
stablehlo::Value narrow(stablehlo::Builder& builder, stablehlo::Value number, ElementType type) {
  if (type == ElementType::kU64 && number.element_type() == ElementType::kS64) {
    return builder.bitcast_convert(number, type);
  }
  return builder.convert(number, type);
}

// Of all tiles together.
std::vector<int64_t> padded_dims(const sharding::Sharding& sharding,
                                 std::span<const int64_t> dims) {
  std::vector<int64_t> result = sharding.tile_dims(dims);
  for (size_t d = 0; d < result.size(); ++d) result[d] *= sharding.tiles()[d];
  return result;
}

std::string describe_node(const Node& node) {
  std::string text = std::string(node.op().name) + '(';
  for (size_t i = 0; i < node.operands().size(); ++i) {
    if (i) text += ", ";
    text += node.operand(i).shape().to_string();
  }
  text += ')';
  if (const std::string where = describe(node.location()); !where.empty()) text += " at " + where;
  return text;
}

}  // namespace

stablehlo::Value Lowering::operand(size_t i) const {
  if (waited_ && waited_->first == i) return waited_->second;
  const Value& value = node_->operand(i);
  return values_[value.node->visit.position][value.index];
}

stablehlo::Value Lowering::operand(size_t i, ElementType type) const {
  const stablehlo::Value value = operand(i);
  return value.builder().convert(value, type);
}

std::vector<stablehlo::Value> Lowering::operands() const {
  std::vector<stablehlo::Value> values;
  for (size_t i = 0; i < num_operands(); ++i) values.push_back(operand(i));
  return values;
}

stablehlo::Value Lowering::leaf(const Node& node) const {
  return values_[node.visit.position].front();
}

const sharding::Sharding* Lowering::placement_of(size_t parameter) const {
  const auto& shardings = options_.placement.parameters;
  return parameter < shardings.size() ? shardings[parameter] : nullptr;
}

stablehlo::Value Lowering::parameter(ShapeRef shape,
                                     const stablehlo::ArgumentAttributes& attributes,
                                     const sharding::Sharding* sharding) {
  const stablehlo::Dims dims(shape.dims);
  if (!sharding) return builder_.parameter({shape.type, dims}, attributes);
  const stablehlo::Dims padded(padded_dims(*sharding, shape.dims));
  const stablehlo::Value whole = builder_.parameter({shape.type, padded}, attributes);
  if (padded == dims) return whole;
  return builder_.slice(whole, stablehlo::Dims(std::vector<int64_t>(dims.size())), dims);
}

stablehlo::Value Lowering::result(const Value& root, const sharding::Sharding* sharding) {
  const stablehlo::Value value = values_[root.node->visit.position][root.index];
  if (!sharding) return value;
  const std::vector<int64_t> padded = padded_dims(*sharding, root.dims());
  std::vector<int64_t> low(padded.size()), behind;
  for (size_t d = 0; d < padded.size(); ++d) behind.push_back(padded[d] - root.dims()[d]);
  if (behind == low) return value;
  return builder_.pad(value, number(0, root.type()), stablehlo::Dims(low), stablehlo::Dims(behind),
                      stablehlo::Dims(low));
}

void Lowering::bind_leaves(const Graph& graph, LoweredProgram& program) {
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    const Node& leaf = *graph.parameters[i];
    stablehlo::ArgumentAttributes attributes;
    if (i < options_.parameter_aliases.size()) {
      const int64_t alias = options_.parameter_aliases[i];
      if (alias >= 0) attributes.aliased_output = static_cast<int>(alias);
      attributes.donated = alias == kAnyDonation;
    }
    if (const auto* sharding = placement_of(i)) attributes.sdy_sharding = meshes_.text(sharding);
    values_[leaf.visit.position] = {parameter(leaf.output(), attributes, placement_of(i))};
  }

  std::array<std::vector<const Node*>, static_cast<size_t>(ScalarClass::kCount)> classes;
  for (const Node* leaf : graph.scalars) {
    const auto kind = static_cast<ScalarPayload*>(leaf->payload())->kind;
    classes[static_cast<size_t>(kind)].push_back(leaf);
  }
  for (size_t k = 0; k < classes.size(); ++k) {
    if (classes[k].empty()) continue;
    const auto kind = static_cast<ScalarClass>(k);
    program.scalar_parameters.push_back(kind);
    const auto count = static_cast<int64_t>(classes[k].size());
    stablehlo::ArgumentAttributes attributes;
    if (const auto* mesh = meshes_.main(); mesh && options_.placement.is_partitioned()) {
      attributes.sdy_sharding = meshes_.text(sharding::Sharding::replicated(mesh, 1));
    }
    const stablehlo::Value packed = builder_.parameter({element_type(kind), {count}}, attributes);
    for (int64_t i = 0; i < count; ++i) {
      const Node& leaf = *classes[k][static_cast<size_t>(i)];
      const stablehlo::Value one = builder_.reshape(builder_.slice(packed, {i}, {i + 1}), {});
      values_[leaf.visit.position] = {narrow(builder_, one, leaf.output().type)};
    }
  }
}

void Lowering::lower_node(const Node& node) {
  node_ = &node;
  if (options_.locations) {
    std::string name = node.op().name;
    if (const std::string where = describe(node.location()); !where.empty()) name += ' ' + where;
    builder_.set_location(name);
  }
  Results results = [&] {
    try {
      return node.op().lower(*this, node);
    } catch (const std::exception& error) {
      throw LoweringError("cannot lower " + describe_node(node) + ": " + error.what());
    }
  }();
  if (results.values.size() != node.num_outputs()) {
    throw LoweringError("lowering of " + describe_node(node) + " gave " +
                        std::to_string(results.values.size()) + " values instead of " +
                        std::to_string(node.num_outputs()));
  }
  for (size_t i = 0; i < node.num_outputs(); ++i) {
    const ShapeRef wanted = node.output(i);
    const stablehlo::TensorType& got = results.values[i].type();
    if (got.type != wanted.type || !(stablehlo::Dims(wanted.dims) == got.dims)) {
      throw LoweringError("lowering of " + describe_node(node) + " gave " +
                          stablehlo::to_string(got) + " where " + wanted.to_string() +
                          " was declared");
    }
  }
  values_[node.visit.position] = std::move(results.values);
}

void Lowering::lower_after(const Node& node, const Wait& wait) {
  const auto lowered = [this](const Value& value) {
    std::replace(name.begin(), name.end(), '@', ' ');  // XLA keeps what stands before an @
    return values_[value.node->visit.position][value.index];
  };
  stablehlo::Values operands = {lowered(node.operand(wait.operand))};
  for (const Value& value : wait.values) operands.push_back(lowered(value));
  const stablehlo::TensorType type = operands.front().type();
  waited_.emplace(wait.operand, builder_.custom_call(options_.wait_call, operands, {type}).front());
  lower_node(node);
  waited_.reset();
}

void Lowering::add_meshes() {
  for (const std::string& line : meshes_.declarations()) builder_.add_module_text(line);
  if (!meshes_.main()) return;
  builder_.set_module_attribute("mhlo.num_partitions",
                                std::to_string(meshes_.main()->num_devices()) + " : i32");
}

LoweredProgram lower(const Graph& graph, std::span<const Value> roots,
                     const LoweringOptions& options) {
  LoweredProgram program;
  Lowering lowering(graph, options);
  lowering.values_.resize(graph.order.size());
  lowering.bind_leaves(graph, program);
  const std::span<const int64_t> takers = options.parameter_aliases;
  const OrderedGraph ordered =
      order_updates(graph, roots, options.wait_call.empty() ? takers.first(0) : takers);
  for (const Node* node : ordered.order) {
    const bool bound = !lowering.values_[node->visit.position].empty();
    if (bound) continue;
    if (const auto wait = ordered.waits.find(node); wait != ordered.waits.end()) {
      lowering.lower_after(*node, wait->second);
    } else {
      lowering.lower_node(*node);
    }
  }
  stablehlo::Values results;
  std::vector<stablehlo::ArgumentAttributes> attributes(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    const auto& cut = options.placement.outputs;
    const sharding::Sharding* sharding = i < cut.size() ? cut[i] : nullptr;
    if (sharding) attributes[i].sdy_sharding = lowering.meshes_.text(sharding);
    results.push_back(lowering.result(roots[i], sharding));
  }
  lowering.builder_.ret(results, attributes);
  lowering.add_meshes();
  program.module = lowering.builder_.module(options.name);
  return program;
}

}  // namespace torch_xla::ir
