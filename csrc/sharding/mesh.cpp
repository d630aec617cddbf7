#include "sharding/mesh.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <tuple>

#include "sharding/product.h"

namespace torch_xla::sharding {
namespace {

std::string join(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) text += (i ? "," : "") + std::to_string(numbers[i]);
  return text;
}

std::string mesh_text(const std::vector<std::string>& axes, const Dims& sizes,
                      const std::vector<int64_t>& devices) {
  std::string text = "<[";
  for (size_t i = 0; i < axes.size(); ++i) {
    text += (i ? ", \"" : "\"") + axes[i] + "\"=" + std::to_string(sizes[i]);
  }
  text += ']';
  // Shardy wants the order of the devices left out where it is that of their numbers.
  if (!std::is_sorted(devices.begin(), devices.end())) {
    text += ", device_ids=[" + join(devices) + ']';
  }
  return text + '>';
}

void check(const std::vector<std::string>& axes, const Dims& sizes,
           const std::vector<int64_t>& devices) {
  if (axes.size() != sizes.size()) {
    throw std::invalid_argument("a mesh of shape (" + join(sizes) + ") has " +
                                std::to_string(axes.size()) + " axis names");
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const bool printable = std::all_of(axes[i].begin(), axes[i].end(), [](char c) {
      return c >= ' ' && c <= '~' && c != '"' && c != '\\';
    });
    if (axes[i].empty() || !printable) {
      throw std::invalid_argument("'" + axes[i] + "' is no name for an axis of a mesh");
    }
    if (std::find(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(i), axes[i]) !=
        axes.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw std::invalid_argument("two axes of a mesh are called '" + axes[i] + "'");
    }
    if (sizes[i] < 1) {
      throw std::invalid_argument("axis '" + axes[i] + "' of a mesh has size " +
                                  std::to_string(sizes[i]));
    }
  }
  const int64_t places = product(sizes);
  if (places != static_cast<int64_t>(devices.size())) {
    throw std::invalid_argument("a mesh of shape (" + join(sizes) + ") has " +
                                std::to_string(places) + " places for " +
                                std::to_string(devices.size()) + " devices");
  }
  std::vector<int64_t> sorted = devices;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int64_t>(i)) {
      throw std::invalid_argument("the devices of a mesh are 0 to " +
                                  std::to_string(devices.size() - 1) + ", each once; got " +
                                  join(devices));
    }
  }
}

}  // namespace

Mesh::Mesh(std::vector<std::string> axes, Dims sizes, std::vector<int64_t> devices)
    : axes_(std::move(axes)),
      sizes_(std::move(sizes)),
      devices_(std::move(devices)),
      text_(mesh_text(axes_, sizes_, devices_)) {}

const Mesh* Mesh::get(std::vector<std::string> axes, Dims sizes, std::vector<int64_t> devices) {
  check(axes, sizes, devices);
  using Key = std::tuple<std::vector<std::string>, Dims, std::vector<int64_t>>;
  static std::mutex mutex;
  static auto* meshes = new std::map<Key, std::unique_ptr<const Mesh>>;
  std::lock_guard lock(mutex);
  auto& mesh = (*meshes)[Key(axes, sizes, devices)];
  if (!mesh) mesh.reset(new Mesh(std::move(axes), std::move(sizes), std::move(devices)));
  return mesh.get();
}

const Mesh* Mesh::renumbered(const std::vector<int64_t>& numbers) const {
  std::vector<int64_t> devices;
  for (const int64_t device : devices_) {
    devices.push_back(numbers.at(static_cast<size_t>(device)));
  }
  return get(axes_, sizes_, std::move(devices));
}

int64_t Mesh::coordinate(const AxisPart& part, int64_t place) const {
  int64_t inner = 1;
  for (size_t k = part.axis + 1; k < sizes_.size(); ++k) inner *= sizes_[k];
  const int64_t along = place / inner % sizes_[part.axis];
  const int64_t after = sizes_[part.axis] / (part.before * part.size);
  return along / after % part.size;
}

}  // namespace torch_xla::sharding
