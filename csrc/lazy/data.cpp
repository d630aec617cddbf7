#include "lazy/data.h"

#include <c10/util/Exception.h>

namespace torch_xla::lazy {

ir::Value DeviceData::leaf(ir::ShapeRef shape, std::shared_ptr<DeviceData> data) {
  return ir::Node::leaf(ir::kDeviceData, shape, std::move(data));
}

DeviceData* DeviceData::of(const ir::Value& value) {
  if (!value || &value.node->op() != &ir::kDeviceData) return nullptr;
  return static_cast<DeviceData*>(value.node->payload());
}

pjrt::Buffer& DeviceData::buffer() const {
  if (error_) std::rethrow_exception(error_);
  TORCH_CHECK(buffer_, "the contents of this xla tensor were never computed");
  return *buffer_;
}

}  // namespace torch_xla::lazy
