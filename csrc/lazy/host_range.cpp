#include "lazy/host_range.h"

#include <algorithm>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "lazy/capture.h"
#include "lazy/replay.h"
#include "lazy/transfer.h"

namespace torch_xla::lazy {
namespace {

struct Known {
  std::weak_ptr<DeviceData> data;  // an address may be used again
  Range range;
};

struct Table {
  std::mutex mutex;
  std::unordered_map<const DeviceData*, Known> entries;
  size_t sweep_at = 64;

  // Entries of data that is gone leave whenever the table has doubled.
  void sweep() {
    if (entries.size() < sweep_at) return;
    std::erase_if(entries, [](const auto& entry) { return entry.second.data.expired(); });
    sweep_at = std::max<size_t>(64, 2 * entries.size());
  }
};

Table& table() {
  static auto* table = new Table;
  return *table;
}

template <class T>
Range range_of(const at::Tensor& cpu) {
  const T* data = cpu.const_data_ptr<T>();
  T least = data[0], greatest = data[0];
  for (int64_t i = 1; i < cpu.numel(); ++i) {
    least = std::min(least, data[i]);
    greatest = std::max(greatest, data[i]);
  }
  return {least, greatest};
}

// Of an int64 tensor or another of integers, not empty.
Range range_of(const at::Tensor& cpu) {
  return cpu.scalar_type() == at::kInt ? range_of<int32_t>(cpu)
                                       : range_of<int64_t>(cpu.to(at::kLong));
}

// Ops whose result has no element that their one operand has not.
bool selects(const ir::Node& node) {
  const std::string_view name = node.op().name;
  if (node.operands().size() != 1) return false;
  if (name == "xla::cast") return stablehlo::is_integer(node.operand(0).type());
  return node.output().type == node.operand(0).type() &&
         (name == "aten::view" || name == "aten::expand" || name == "aten::slice" ||
          name == "aten::permute" || name == "aten::as_strided");
}

// The data that `value` is a view, copy or cast of, if any. `reached` becomes false where a view
// may leave elements out.
const DeviceData* origin(const ir::Value& value, bool* reached = nullptr) {
  const ir::Node* node = value.node.get();
  while (node && selects(*node)) {
    if (reached && (node->output().num_elements() < node->operand(0).shape().num_elements() ||
                    node->op().name == std::string_view("aten::as_strided"))) {
      *reached = false;
    }
    node = node->operand(0).node.get();
  }
  if (!node || !node->payload()) return nullptr;
  return DeviceData::of(ir::Value(ir::NodePtr(const_cast<ir::Node*>(node))));
}

}  // namespace

void remember_range(const at::Tensor& cpu, const std::shared_ptr<DeviceData>& data) {
  if (cpu.numel() == 0 || (cpu.scalar_type() != at::kLong && cpu.scalar_type() != at::kInt)) return;
  const Range range = range_of(cpu);
  std::lock_guard lock(table().mutex);
  table().sweep();
  table().entries[data.get()] = {data, range};
}

const DeviceData* selected_from(const ir::Value& value) { return origin(value); }

std::optional<Range> known_range(const ir::Value& value) {
  bool reached = true;
  const DeviceData* data = origin(value, &reached);
  if (!data) return std::nullopt;
  std::lock_guard lock(table().mutex);
  const auto entry = table().entries.find(data);
  if (entry == table().entries.end() || entry->second.data.expired()) return std::nullopt;
  Range range = entry->second.range;
  range.reached = reached;
  return range;
}

bool IndexBounds::hold(const Range& range) const {
  const auto is_right = [&](int64_t index) {
    return (low <= index && index < size) || index == exception;
  };
  return is_right(range.least) && is_right(range.greatest);
}

void note_bounds(const ir::Value& index, const IndexBounds& bounds) {
  if (auto* capture = Capture::current()) capture->note_bounds(index, bounds);
  if (auto* recording = RecordedCall::current()) recording->note_bounds(index, bounds);
}

std::optional<Range> exact_range(const ir::Value& value) {
  const std::optional<Range> range = known_range(value);
  if (!range || range->reached) return range;
  const at::Tensor cpu = download(value, origin(value)->device());
  return cpu.numel() == 0 ? std::nullopt : std::optional(range_of(cpu));
}

}  // namespace torch_xla::lazy
