#include "lazy/unknown.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "lazy/data.h"

namespace torch_xla::lazy {
namespace {

thread_local const char* t_refusal = nullptr;

}  // namespace

TracingOnly::TracingOnly(const char* why) { t_refusal = why; }
TracingOnly::~TracingOnly() { t_refusal = nullptr; }

bool is_tracing_only() { return t_refusal != nullptr; }

void check_may_run() { TORCH_CHECK(t_refusal == nullptr, t_refusal); }

ir::Value unknown(ir::ShapeRef shape, c10::Device device) {
  auto data = std::make_shared<DeviceData>(device, ir::Location());
  data->fail(std::make_exception_ptr(
      c10::Error(c10::SourceLocation{__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                 t_refusal ? t_refusal : "this tensor's contents were never there")));
  return DeviceData::leaf(shape, std::move(data));
}

void fail_dependents(std::span<const c10::intrusive_ptr<LazyStorage>> storages, c10::Device device,
                     const std::function<bool(const ir::Node*)>& is_unknown) {
  std::vector<ir::Value> values;
  for (const auto& storage : storages) values.push_back(storage->value());
  std::vector<bool> hopeless(values.size(), false);
  {
    std::lock_guard lock(ir::graph_mutex());
    const ir::Graph graph = ir::walk(values);
    std::vector<bool> tainted(graph.order.size(), false);
    for (size_t i = 0; i < graph.order.size(); ++i) {
      const ir::Node* node = graph.order[i];
      tainted[i] = is_unknown(node) || std::any_of(node->operands().begin(), node->operands().end(),
                                                   [&](const ir::Value& operand) {
                                                     return tainted[operand.node->visit.position];
                                                   });
    }
    for (size_t v = 0; v < values.size(); ++v) {
      hopeless[v] = tainted[values[v].node->visit.position];
    }
  }
  for (size_t v = 0; v < values.size(); ++v) {
    if (hopeless[v]) storages[v]->replace_value(values[v], unknown(values[v].shape(), device));
  }
}

}  // namespace torch_xla::lazy
