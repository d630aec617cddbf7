#include "lazy/dry_run.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "lazy/data.h"
#include "lazy/program.h"
#include "lazy/runtime.h"
#include "lazy/settings.h"
#include "lazy/shape_text.h"
#include "lazy/storage.h"
#include "stablehlo/types.h"

namespace torch_xla::lazy {
namespace {

std::atomic<bool> g_is_dry_run{false};
thread_local bool t_in_earnest = false;
// Set once, before the flag, and never destroyed.
std::function<void(const DryProgram&)>* g_listener = nullptr;

DryArray describe(ir::ShapeRef shape, const sharding::Sharding* sharding) {
  DryArray array;
  array.shape = shape_text(shape.type, shape.dims);
  array.bytes_on_device = stablehlo::byte_size(shape.type);
  const auto dims = sharding ? sharding->tile_dims(shape.dims)
                             : std::vector(shape.dims.begin(), shape.dims.end());
  for (const int64_t dim : dims) array.bytes_on_device *= dim;
  array.sharding = sharding ? sharding->hlo() : "";
  return array;
}

const sharding::Sharding* at(const std::vector<const sharding::Sharding*>& shardings, size_t i) {
  return shardings.empty() ? nullptr : shardings[i];
}

// The numbers of a step travel in one array a class.
std::vector<DryArray> describe_numbers(const ir::Graph& graph) {
  std::map<ir::ElementType, int64_t> counts;
  for (const ir::Node* leaf : graph.scalars) {
    switch (static_cast<const ir::ScalarPayload*>(leaf->payload())->kind) {
      case ir::ScalarClass::kF32:
        ++counts[ir::ElementType::kF32];
        break;
      case ir::ScalarClass::kF64:
        ++counts[ir::ElementType::kF64];
        break;
      default:
        ++counts[ir::ElementType::kS64];
    }
  }
  std::vector<DryArray> arrays;
  for (const auto& [type, count] : counts) {
    arrays.push_back(describe({type, std::span(&count, 1)}, nullptr));
    arrays.back().where = "the step's numbers";
  }
  return arrays;
}

}  // namespace

void start_dry_run(std::function<void(const DryProgram&)> listener) {
  TORCH_CHECK(!Runtime::is_initialized(),
              "a dry run has to begin before the first use of an xla device");
  TORCH_CHECK(!is_dry_run(), "a dry run is on already");
  g_listener = new std::function<void(const DryProgram&)>(std::move(listener));
  g_is_dry_run.store(true);
}

bool is_dry_run() { return g_is_dry_run.load(std::memory_order_relaxed) && !t_in_earnest; }

InEarnest::InEarnest() : before_(std::exchange(t_in_earnest, true)) {}
InEarnest::~InEarnest() { t_in_earnest = before_; }

DryProgram describe(const ir::Graph& graph, std::span<const ir::Value> roots,
                    const std::vector<bool>& donated, const ir::Placement& placement,
                    const Program& made) {
  DryProgram program;
  program.name = graph_name();
  program.stablehlo = made.stablehlo;
  program.overrides = compile_overrides();
  if (made.mesh) {
    program.axes = made.mesh->axes();
    program.mesh_shape = made.mesh->sizes();
    program.devices = made.mesh->devices();
  }
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    const ir::Node& leaf = *graph.parameters[i];
    program.arguments.push_back(describe(leaf.output(), at(placement.parameters, i)));
    program.arguments.back().where = ir::describe(leaf.location());
    program.arguments.back().donated = donated[i];
  }
  for (DryArray& numbers : describe_numbers(graph)) program.arguments.push_back(std::move(numbers));
  for (size_t i = 0; i < roots.size(); ++i) {
    program.results.push_back(describe(roots[i].shape(), at(placement.outputs, i)));
    program.results.back().where = ir::describe(roots[i].node->location());
  }
  return program;
}

void tell_of_program(const DryProgram& program) { (*g_listener)(program); }

std::exception_ptr not_computed() {
  try {
    TORCH_CHECK(false,
                "this is a dry run: programs are traced and never run, so that this value is not "
                "known");
  } catch (...) {
    return std::current_exception();
  }
}

ir::Value described(ir::ShapeRef shape, c10::Device device) {
  auto data = std::make_shared<DeviceData>(device, ir::current_location());
  data->fail(not_computed());
  return DeviceData::leaf(shape, std::move(data));
}

void settle(c10::Device device) {
  for (const auto& storage : LazyStorage::all_pending(device.index())) {
    const ir::ShapeRef shape{storage->type(), storage->sizes()};
    auto data = std::make_shared<DeviceData>(device, storage->value().node->location());
    data->expect(storage->sharding());
    data->fail(not_computed());
    storage->set_value(DeviceData::leaf(shape, std::move(data)));
  }
}

}  // namespace torch_xla::lazy
