#include "ir/run.h"

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "ir/graph.h"
#include "pjrt/plugin.h"

namespace torch_xla::ir::testing {
namespace {

struct HostData final : Payload {
  explicit HostData(Array array) : array(std::move(array)) {}
  Array array;
};

pjrt::BufferType buffer_type(ElementType type) {
  switch (type) {
    case ElementType::kPred:
      return pjrt::BufferType::kPred;
    case ElementType::kS8:
      return pjrt::BufferType::kS8;
    case ElementType::kS16:
      return pjrt::BufferType::kS16;
    case ElementType::kS32:
      return pjrt::BufferType::kS32;
    case ElementType::kS64:
      return pjrt::BufferType::kS64;
    case ElementType::kU8:
      return pjrt::BufferType::kU8;
    case ElementType::kU16:
      return pjrt::BufferType::kU16;
    case ElementType::kU32:
      return pjrt::BufferType::kU32;
    case ElementType::kU64:
      return pjrt::BufferType::kU64;
    case ElementType::kF16:
      return pjrt::BufferType::kF16;
    case ElementType::kBF16:
      return pjrt::BufferType::kBF16;
    case ElementType::kF32:
      return pjrt::BufferType::kF32;
    case ElementType::kF64:
      return pjrt::BufferType::kF64;
    case ElementType::kC64:
      return pjrt::BufferType::kC64;
    case ElementType::kC128:
      return pjrt::BufferType::kC128;
    default:
      throw std::logic_error("no test arrays of type " + ShapeRef{type, {}}.to_string());
  }
}

std::unique_ptr<pjrt::Buffer> upload(pjrt::Client& client, const Array& array) {
  return client.buffer_from_host(array.bytes.data(), buffer_type(array.type), array.dims, {},
                                 client.addressable_devices().front(),
                                 pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
}

// The scalars of one class, in the order of the walk.
Array packed(const Graph& graph, ScalarClass kind) {
  std::vector<float> singles;
  std::vector<double> doubles;
  std::vector<int64_t> integers;
  for (const Node* leaf : graph.scalars) {
    const auto& scalar = *static_cast<ScalarPayload*>(leaf->payload());
    if (scalar.kind != kind) continue;
    singles.push_back(static_cast<float>(scalar.real));
    doubles.push_back(scalar.real);
    integers.push_back(scalar.integer);
  }
  const Dims dims{static_cast<int64_t>(integers.size())};
  switch (kind) {
    case ScalarClass::kF32:
      return array(ElementType::kF32, dims, singles);
    case ScalarClass::kF64:
      return array(ElementType::kF64, dims, doubles);
    default:
      return array(ElementType::kS64, dims, integers);
  }
}

}  // namespace

Array f32(const Dims& dims, const std::vector<float>& elements) {
  return array(ElementType::kF32, dims, elements);
}

Value input(Array array) {
  auto data = std::make_shared<HostData>(std::move(array));
  return Node::leaf(kDeviceData, {data->array.type, data->array.dims}, data);
}

const std::vector<std::shared_ptr<pjrt::Client>>& clients() {
  static const auto* all = [] {
    auto* made = new std::vector<std::shared_ptr<pjrt::Client>>;
    const char* variable = std::getenv("TORCH_XLA_TEST_PLUGINS");
    std::istringstream paths(variable ? variable : "");
    for (std::string path; std::getline(paths, path, ':');) {
      if (path.empty()) continue;
      made->push_back(
          pjrt::Client::create(pjrt::Plugin::load(path), {{"cpu_device_count", int64_t{1}}}));
    }
    return made;
  }();
  return *all;
}

std::vector<Array> evaluate(pjrt::Client& client, std::span<const Value> roots,
                            const LoweringOptions& options) {
  std::vector<std::unique_ptr<pjrt::Buffer>> arguments;
  LoweredProgram program;
  {
    const std::lock_guard lock(graph_mutex());
    const Graph graph = walk(roots);
    program = lower(graph, roots, options);
    for (const Node* leaf : graph.parameters) {
      arguments.push_back(upload(client, static_cast<HostData*>(leaf->payload())->array));
    }
    for (const ScalarClass kind : program.scalar_parameters) {
      arguments.push_back(upload(client, packed(graph, kind)));
    }
  }
  std::vector<pjrt::Buffer*> pointers;
  for (const auto& argument : arguments) pointers.push_back(argument.get());
  pjrt::CompileOptions cheap;
  cheap.env_overrides["xla_backend_optimization_level"] = int64_t{0};
  const auto results = client.compile(program.module, cheap)->execute(pointers);
  std::vector<Array> arrays;
  for (size_t i = 0; i < results.size(); ++i) {
    Array array{roots[i].type(), Dims(roots[i].dims()), {}};
    array.bytes.resize(results[i]->host_bytes());
    if (!array.bytes.empty()) {
      results[i]->copy_to_host(array.bytes.data(), array.bytes.size()).wait();
    }
    arrays.push_back(std::move(array));
  }
  return arrays;
}

Array evaluate(const Value& root) {
  return evaluate(*clients().front(), std::span(&root, 1)).front();
}

Hash128 key_of(std::span<const Value> roots) {
  const std::lock_guard lock(graph_mutex());
  return walk(roots).key;
}

Hash128 key_of(const Value& root) { return key_of(std::span(&root, 1)); }

LoweredProgram lower_roots(std::span<const Value> roots, const LoweringOptions& options) {
  const std::lock_guard lock(graph_mutex());
  return lower(walk(roots), roots, options);
}

}  // namespace torch_xla::ir::testing
