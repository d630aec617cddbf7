// Devices in a grid whose axes have names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch_xla::sharding {

using Dims = std::vector<int64_t>;

// A factor of a mesh axis: the axis is seen as a mixed-radix number of three digits, and this is
// the middle one, with `before` values of the first. The whole axis has before 1 and its own size.
// Shardy's sub-axes (OpenXLA Shardy, "Sharding Representation").
struct AxisPart {
  size_t axis;
  int64_t before;
  int64_t size;
  bool operator==(const AxisPart&) const = default;
};

// Immutable and unique: equal meshes are one object, which lives as long as the process.
class Mesh {
 public:
  // `devices[i]` is the partition (0 to their number, each once) at place i, in row-major order of
  // `sizes`. Throws std::invalid_argument where they do not fit, or a name is empty or stands
  // twice.
  static const Mesh* get(std::vector<std::string> axes, Dims sizes, std::vector<int64_t> devices);

  const std::vector<std::string>& axes() const { return axes_; }
  const Dims& sizes() const { return sizes_; }
  const std::vector<int64_t>& devices() const { return devices_; }
  int64_t num_devices() const { return static_cast<int64_t>(devices_.size()); }
  // The same grid of devices that go by other numbers: device d by `numbers[d]`. Throws
  // std::invalid_argument unless these are 0 to their number, each once.
  const Mesh* renumbered(const std::vector<int64_t>& numbers) const;
  // The value of a part of an axis at a place.
  int64_t coordinate(const AxisPart& part, int64_t place) const;

  // Shardy's text of it: <["x"=2, "y"=4]>, with device_ids where these are not 0, 1, 2, ...
  const std::string& text() const { return text_; }

 private:
  Mesh(std::vector<std::string> axes, Dims sizes, std::vector<int64_t> devices);

  std::vector<std::string> axes_;
  Dims sizes_;
  std::vector<int64_t> devices_;
  std::string text_;
};

}  // namespace torch_xla::sharding
