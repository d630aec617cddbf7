#include "ir/lowering.h"

#include <algorithm>
#include <array>

#include "ir/gspmd.h"
#include "sharding/dialect.h"

namespace torch_xla::ir {
namespace {

bool is_gspmd() { return sharding::dialect() == sharding::Dialect::kGspmd; }

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

// One piece for each device.
stablehlo::Dims stacked_dims(const stablehlo::Dims& piece, const sharding::Sharding& sharding) {
  stablehlo::Dims dims = piece;
  dims.insert(0, sharding.num_devices());
  return dims;
}

// As an attribute of a parameter or result.
void cut_by(stablehlo::ArgumentAttributes& attributes, std::string sharding) {
  (is_gspmd() ? attributes.sharding : attributes.sdy_sharding) = std::move(sharding);
}

// As one of several.
std::string without_prefix(const std::string& sharding) {
  if (is_gspmd()) return sharding;
  return sharding.substr(std::string_view("#sdy.sharding").size());
}

// Of all tiles together.
std::vector<int64_t> padded_dims(const sharding::Sharding& sharding,
                                 std::span<const int64_t> dims) {
  std::vector<int64_t> result = sharding.tile_dims(dims);
  for (size_t d = 0; d < result.size(); ++d) result[d] *= sharding.tiles()[d];
  return result;
}

}  // namespace

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

Lowering::Lowering(const Graph& graph, std::span<const Value> roots, const LoweringOptions& options)
    : options_(options),
      conditions_(graph.conditions),
      meshes_(graph, options.placement),
      parts_(graph, roots, options.placement) {
  if (!parts_.empty()) parts_mesh_ = parts_.mesh(meshes_.main());
}

stablehlo::Value& Lowering::slot(const Value& value) {
  return values_[value.node->visit.position][value.index];
}

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
  if (sharding->is_manual()) {
    return builder_.parameter({shape.type, stacked_dims(dims, *sharding)}, attributes);
  }
  const stablehlo::Dims padded(padded_dims(*sharding, shape.dims));
  const stablehlo::Value whole = builder_.parameter({shape.type, padded}, attributes);
  if (padded == dims) return whole;
  return builder_.slice(whole, stablehlo::Dims(std::vector<int64_t>(dims.size())), dims);
}

stablehlo::Value Lowering::result(const Value& root, const sharding::Sharding* sharding) {
  const stablehlo::Value value = slot(root);
  if (!sharding || parts_.has(root)) return value;
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
    if (const auto* sharding = placement_of(i)) {
      cut_by(attributes, sharding->is_manual() ? pieces_text(leaf.output().dims.size())
                                               : meshes_.text(sharding));
    }
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
      cut_by(attributes, meshes_.text(sharding::Sharding::replicated(mesh, 1)));
    }
    const stablehlo::Value packed = builder_.parameter({element_type(kind), {count}}, attributes);
    for (int64_t i = 0; i < count; ++i) {
      const Node& leaf = *classes[k][static_cast<size_t>(i)];
      const stablehlo::Value one = builder_.reshape(builder_.slice(packed, {i}, {i + 1}), {});
      values_[leaf.visit.position] = {narrow(builder_, one, leaf.output().type)};
    }
  }
}

void Lowering::set_location(const Node& node) {
  if (!options_.locations) return;
  std::string name = node.op().name;
  if (const std::string where = describe(node.location()); !where.empty()) name += ' ' + where;
  std::replace(name.begin(), name.end(), '@', ' ');  // XLA keeps what stands before an @
  builder_.set_location(name);
}

stablehlo::Value Lowering::made(const Value& value) {
  if (values_[value.node->visit.position].empty()) {
    for (const Value& operand : value.node->operands()) made(operand);
    lower_node(*value.node);
  }
  return slot(value);
}

std::optional<stablehlo::Value> Lowering::condition() {
  const auto entry = conditions_.find(node_);
  if (entry == conditions_.end()) return std::nullopt;
  const Node* update = node_;
  const auto waited = std::exchange(waited_, std::nullopt);
  const stablehlo::Value condition = made(entry->second);
  node_ = update;
  waited_ = waited;
  set_location(*update);
  return condition;
}

void Lowering::lower_node(const Node& node) {
  node_ = &node;
  set_location(node);
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
    return values_[value.node->visit.position][value.index];
  };
  stablehlo::Values operands = {lowered(node.operand(wait.operand))};
  for (const Value& value : wait.values) operands.push_back(lowered(value));
  const stablehlo::TensorType type = operands.front().type();
  waited_.emplace(wait.operand, builder_.custom_call(options_.wait_call, operands, {type}).front());
  lower_node(node);
  waited_.reset();
}

void Lowering::lower_in_order(const Graph& graph, std::span<const Value> roots) {
  const std::span<const int64_t> takers = options_.parameter_aliases;
  const OrderedGraph ordered =
      order_updates(graph, roots, options_.wait_call.empty() ? takers.first(0) : takers);
  for (const Node* node : ordered.order) {
    const bool bound = !values_[node->visit.position].empty();
    if (bound) continue;
    if (const auto wait = ordered.waits.find(node); wait != ordered.waits.end()) {
      lower_after(*node, wait->second);
    } else {
      lower_node(*node);
    }
  }
}

void Lowering::lower_by_levels() {
  for (const ManualParts::Level& level : parts_.levels()) {
    for (const Node* node : level.whole) {
      const bool bound = !values_[node->visit.position].empty();
      if (!bound) lower_node(*node);
    }
    if (!level.part.nodes.empty() || !level.part.leaving.empty()) lower_part(level.part);
  }
}

// Outside of its part a piece is one of a stack, [devices, ...]; inside it is itself.
void Lowering::lower_part(const ManualParts::Part& part) {
  stablehlo::Values operands;
  std::vector<std::string> in, out;
  std::vector<stablehlo::TensorType> locals, results;
  const auto one_of_stack = [](ShapeRef shape) {
    stablehlo::Dims dims(shape.dims);
    dims.insert(0, 1);
    return dims;
  };
  const auto cut = [this](const sharding::Sharding* sharding) {
    return without_prefix(meshes_.text_in_own_mesh(in_whole_axes(parts_mesh_, sharding)));
  };
  for (const Node* node : part.nodes) {
    const sharding::Sharding* sharding = entered_by(*node);
    if (!sharding) continue;
    operands.push_back(slot(node->operand(0)));
    in.push_back(cut(sharding));
    locals.push_back({node->output().type, stablehlo::Dims(node->output().dims)});
  }
  for (const Value& input : part.inputs) {
    const ShapeRef shape = input.shape();
    operands.push_back(slot(input));
    const bool is_piece = parts_.has(input);
    const size_t rank = shape.dims.size();
    in.push_back(is_piece ? without_prefix(pieces_text(rank))
                          : cut(sharding::Sharding::replicated(parts_mesh_, rank)));
    locals.push_back({shape.type, is_piece ? one_of_stack(shape) : stablehlo::Dims(shape.dims)});
  }
  for (const Node* node : part.leaving) {
    out.push_back(cut(left_by(*node)));
    results.push_back({node->output().type, stablehlo::Dims(node->output().dims)});
  }
  for (const Value& value : part.kept) {
    out.push_back(without_prefix(pieces_text(value.dims().size())));
    stablehlo::Dims dims = one_of_stack(value.shape());
    dims[0] = parts_mesh_->num_devices();
    results.push_back({value.type(), dims});
  }
  const auto body = [&](const stablehlo::Values& arguments) {
    size_t next = 0;
    for (const Node* node : part.nodes) {
      if (entered_by(*node)) values_[node->visit.position] = {arguments[next++]};
    }
    for (const Value& input : part.inputs) {
      const stablehlo::Value argument = arguments[next++];
      slot(input) =
          parts_.has(input) ? builder_.reshape(argument, stablehlo::Dims(input.dims())) : argument;
    }
    for (const Node* node : part.nodes) {
      if (!entered_by(*node)) lower_node(*node);
    }
    stablehlo::Values given;
    for (const Node* node : part.leaving) given.push_back(slot(node->operand(0)));
    for (const Value& value : part.kept) {
      given.push_back(builder_.reshape(slot(value), one_of_stack(value.shape())));
    }
    return given;
  };
  stablehlo::Values outside;
  for (const Value& input : part.inputs) outside.push_back(slot(input));
  is_in_part_ = true;
  const stablehlo::Values made =
      is_gspmd() ? gspmd_manual_computation(builder_, operands, in, locals, out, results, body)
                 : builder_.manual_computation(operands, in, locals, out, results,
                                               parts_mesh_->axes(), body);
  is_in_part_ = false;
  for (size_t i = 0; i < part.inputs.size(); ++i) slot(part.inputs[i]) = outside[i];
  size_t next = 0;
  for (const Node* node : part.leaving) values_[node->visit.position] = {made[next++]};
  for (const Value& value : part.kept) slot(value) = made[next++];
}

std::string Lowering::pieces_text(size_t rank) {
  return meshes_.text_in_own_mesh(stacked(parts_mesh_, rank));
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
  Lowering lowering(graph, roots, options);
  lowering.values_.resize(graph.order.size());
  lowering.bind_leaves(graph, program);
  if (lowering.parts_.empty()) {
    lowering.lower_in_order(graph, roots);
  } else {
    lowering.lower_by_levels();
  }
  stablehlo::Values results;
  std::vector<stablehlo::ArgumentAttributes> attributes(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    const auto& cut = options.placement.outputs;
    const sharding::Sharding* sharding = i < cut.size() ? cut[i] : nullptr;
    if (lowering.parts_.has(roots[i])) {
      cut_by(attributes[i], lowering.pieces_text(roots[i].dims().size()));
    } else if (sharding) {
      cut_by(attributes[i], lowering.meshes_.text(sharding));
    }
    results.push_back(lowering.result(roots[i], sharding));
  }
  lowering.builder_.ret(results, attributes);
  lowering.add_meshes();
  program.module = lowering.builder_.module(options.name);
  return program;
}

}  // namespace torch_xla::ir
