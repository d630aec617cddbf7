#include "lazy/look.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lazy/data.h"

namespace torch_xla::lazy {
namespace {

constexpr size_t kMostNodes = 32;
constexpr int64_t kMostElements = 1 << 16;  // of any one array on the way
constexpr size_t kMostSizes = 2;            // of the computations that one Python line asks for

bool is_whole(ir::ElementType type) {
  return stablehlo::is_integer(type) || stablehlo::is_pred(type);
}

bool is_ready(const ir::Value& leaf) {
  const DeviceData* data = DeviceData::of(leaf);
  return data && data->has_array();
}

// The number of nodes that compute `root`, if all of them are whole numbers, small and few.
std::optional<size_t> small_size(const ir::Node* root) {
  std::vector<const ir::Node*> nodes = {root};
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ir::Node& node = *nodes[i];
    for (size_t j = 0; j < node.num_outputs(); ++j) {
      const ir::ShapeRef shape = node.output(j);
      if (!is_whole(shape.type) || shape.num_elements() > kMostElements) return std::nullopt;
    }
    for (const ir::Value& operand : node.operands()) {
      const ir::Node* next = operand.node.get();
      if (&next->op() == &ir::kDeviceData && !is_ready(operand)) return std::nullopt;
      if (std::find(nodes.begin(), nodes.end(), next) != nodes.end()) continue;
      if (nodes.size() == kMostNodes) return std::nullopt;
      nodes.push_back(next);
    }
  }
  return nodes.size();
}

// Whether the Python line that runs now asked for few sizes of computations so far.
bool is_steady(size_t size) {
  static std::mutex mutex;
  static auto* sizes_of = new std::unordered_map<ir::Location, std::vector<size_t>>;
  std::lock_guard lock(mutex);
  std::vector<size_t>& sizes = (*sizes_of)[ir::current_location()];
  if (std::find(sizes.begin(), sizes.end(), size) != sizes.end()) return true;
  if (sizes.size() == kMostSizes) return false;
  sizes.push_back(size);
  return true;
}

}  // namespace

bool is_look(const ir::Value& value) {
  if (value.shape().num_elements() != 1) return false;
  const std::optional<size_t> size = small_size(value.node.get());
  return size && is_steady(*size);
}

}  // namespace torch_xla::lazy
