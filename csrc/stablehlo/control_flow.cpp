// Loops, branches, calls out of the program, barriers and tokens.

#include "stablehlo/builder.h"
#include "stablehlo/text.h"

namespace torch_xla::stablehlo {
namespace {

// dense<[1, 0]> : tensor<2xindex>
std::string layout(const Dims& minor_to_major) {
  return minor_to_major.empty()
             ? std::string("dense<> : tensor<0xindex>")
             : cat("dense<", minor_to_major, "> : tensor<", minor_to_major.size(), "xindex>");
}

std::string layouts(const std::vector<Dims>& all) {
  std::string text = "[";
  for (size_t i = 0; i < all.size(); ++i) {
    if (i) text += ", ";
    text += layout(all[i]);
  }
  return text += ']';
}

}  // namespace

Values Builder::while_(const Values& init, const PredicateRegion& condition,
                       const ValuesRegion& body) {
  constexpr std::string_view kName = "stablehlo.while";
  std::vector<uint32_t> types;
  for (Value v : init) {
    check_operand(kName, v);
    types.push_back(v.type_);
  }
  std::string regions[2];
  regions[0] = region(types, [&](const Values& values) {
    Value more = condition(values);
    check_operand(kName, more);
    if (more.type() != TensorType{ElementType::kPred, {}}) {
      fail(kName, "the condition gives ", more.type(), ", not a scalar pred");
    }
    return Values{more};
  });
  regions[1] = region(types, [&](const Values& values) {
    Values next = body(values);
    if (next.size() != types.size()) {
      fail(kName, "the body gives ", next.size(), " values for ", types.size());
    }
    for (size_t i = 0; i < next.size(); ++i) {
      check_operand(kName, next[i]);
      if (next[i].type_ != types[i]) {
        fail(kName, "the body gives ", next[i].type(), " for value ", i, ", which is ",
             types_[types[i]].text);
      }
    }
    return next;
  });
  return write(kName, init, types, {}, regions);
}

Values Builder::case_(Value index, const std::vector<BranchRegion>& branches) {
  bool is_if = is_pred(index.element_type());
  std::string_view name = is_if ? "stablehlo.if" : "stablehlo.case";
  check_operand(name, index);
  if (branches.empty()) fail(name, "no branches");
  if (index.rank() != 0 || (!is_if && index.element_type() != ElementType::kS32)) {
    fail(name, "the index must be a scalar s32, not ", index.type());
  }
  std::vector<std::string> regions;
  std::vector<uint32_t> types;
  for (const BranchRegion& branch : branches) {
    Values results;
    regions.push_back(region({}, [&](const Values&) { return branch(); }, &results));
    std::vector<uint32_t> given;
    for (Value v : results) given.push_back(v.type_);
    if (regions.size() == 1) {
      types = given;
    } else if (given != types) {
      fail(name, "branch ", regions.size() - 1, " gives other types than branch 0");
    }
  }
  return write(name, std::span<const Value>(&index, 1), types, {}, regions);
}

Values Builder::if_(Value pred, const BranchRegion& on_true, const BranchRegion& on_false) {
  check_operand("stablehlo.if", pred);
  if (pred.type() != TensorType{ElementType::kPred, {}}) {
    fail("stablehlo.if", "the condition must be a scalar pred, not ", pred.type());
  }
  return case_(pred, {on_true, on_false});
}

Values Builder::composite(std::string_view name, std::string_view function, const Values& operands,
                          std::string_view attributes, int version) {
  constexpr std::string_view kName = "stablehlo.composite";
  auto it = function_table_.find(std::string(function));
  if (it == function_table_.end()) fail(kName, "no function named ", function);
  std::vector<uint32_t> given;
  for (Value v : operands) {
    check_operand(kName, v);
    given.push_back(v.type_);
  }
  if (given != it->second.arguments) fail(kName, "operands do not fit function ", function);
  return write(kName, operands, it->second.results,
               Attributes()
                   .raw("name", quote(name))
                   .raw("composite_attributes", cat("{", attributes, "}"))
                   .raw("decomposition", cat("@", function))
                   .integer("version", version, "i32"));
}

Values Builder::custom_call(std::string_view target, const Values& operands,
                            const std::vector<TensorType>& results,
                            const CustomCallOptions& options) {
  constexpr std::string_view kName = "stablehlo.custom_call";
  std::vector<uint32_t> types;
  for (const TensorType& type : results) types.push_back(intern(type));
  if (options.operand_layouts.empty() != options.result_layouts.empty() ||
      (!options.operand_layouts.empty() && (options.operand_layouts.size() != operands.size() ||
                                            options.result_layouts.size() != results.size()))) {
    fail(kName, target, ": give a layout for every operand and result, or none");
  }
  Attributes attributes;
  attributes.raw("call_target_name", quote(target))
      .boolean("has_side_effect", options.has_side_effect)
      .integer("api_version", options.api_version, "i32");
  if (options.api_version == 4) {
    attributes.raw("backend_config", cat("{", options.backend_config, "}"));
  } else {
    attributes.raw("backend_config", quote(options.backend_config));
  }
  if (!options.called_computations.empty()) {
    std::string names;
    for (const std::string& name : options.called_computations) {
      if (!function_table_.contains(name)) fail(kName, target, ": no function named ", name);
      names += cat(names.empty() ? "@" : ", @", name);
    }
    attributes.raw("called_computations", cat("[", names, "]"));
  }
  if (!options.operand_layouts.empty()) {
    attributes.raw("operand_layouts", layouts(options.operand_layouts));
    attributes.raw("result_layouts", layouts(options.result_layouts));
  }
  if (!options.output_operand_aliases.empty()) {
    std::string aliases;
    for (const OutputAlias& alias : options.output_operand_aliases) {
      auto output = static_cast<size_t>(alias.output);
      auto operand = static_cast<size_t>(alias.operand);
      if (output >= results.size() || operand >= operands.size()) {
        fail(kName, target, ": aliases result ", alias.output, " with operand ", alias.operand);
      }
      if (!aliases.empty()) aliases += ", ";
      aliases += "#stablehlo.output_operand_alias<output_tuple_indices = [";
      // One result is no tuple.
      if (results.size() > 1) append_to(aliases, alias.output);
      aliases += cat("], operand_index = ", alias.operand, ", operand_tuple_indices = []>");
    }
    attributes.raw("output_operand_aliases", cat("[", aliases, "]"));
  }
  attributes.append(options.extra);
  return write(kName, operands, types, attributes);
}

Values Builder::optimization_barrier(const Values& xs) {
  std::vector<uint32_t> types;
  for (Value v : xs) types.push_back(v.type_);
  return write("stablehlo.optimization_barrier", xs, types);
}

Value Builder::create_token() { return after_all({}); }

Value Builder::after_all(const Values& tokens) {
  constexpr std::string_view kName = "stablehlo.after_all";
  for (Value v : tokens) {
    check_operand(kName, v);
    if (v.element_type() != ElementType::kToken) fail(kName, "takes tokens, not ", v.type());
  }
  uint32_t type = intern(token_type());
  return write(kName, tokens, std::span<const uint32_t>(&type, 1))[0];
}

}  // namespace torch_xla::stablehlo
