#include "pjrt/buffer.h"

#include <numeric>

#include "pjrt/call.h"
#include "pjrt/client.h"

namespace torch_xla::pjrt {
namespace {

void destroy_buffer(const abi::Api* api, abi::Buffer* buffer) noexcept {
  auto args = make<abi::Buffer_Destroy_Args>();
  args.buffer = buffer;
  destroy(api, &abi::Api::Buffer_Destroy, args);
}

}  // namespace

Buffer::Buffer(std::shared_ptr<Client> client, abi::Buffer* buffer)
    : client_(std::move(client)), api_(client_->api()), buffer_(buffer) {
  try {
    auto type = make<abi::Buffer_ElementType_Args>();
    type.buffer = buffer;
    TORCH_XLA_PJRT_CALL(api_, Buffer_ElementType, type);
    type_ = static_cast<BufferType>(type.type);
    auto dims = make<abi::Buffer_Dimensions_Args>();
    dims.buffer = buffer;
    TORCH_XLA_PJRT_CALL(api_, Buffer_Dimensions, dims);
    dims_ = {dims.dims, dims.num_dims};
    auto device = make<abi::Buffer_Device_Args>();
    device.buffer = buffer;
    TORCH_XLA_PJRT_CALL(api_, Buffer_Device, device);
    device_ = client_->find(device.device);
  } catch (...) {
    destroy_buffer(api_, buffer_);
    throw;
  }
}

Buffer::~Buffer() { destroy_buffer(api_, buffer_); }

std::vector<int64_t> Buffer::unpadded_dims() const {
  auto args = make<abi::Buffer_UnpaddedDimensions_Args>();
  args.buffer = buffer_;
  if (!call_if_supported(api_, &abi::Api::Buffer_UnpaddedDimensions, args)) {
    return {dims_.begin(), dims_.end()};
  }
  return {args.unpadded_dims, args.unpadded_dims + args.num_dims};
}

Memory* Buffer::memory() const {
  auto args = make<abi::Buffer_Memory_Args>();
  args.buffer = buffer_;
  if (!call_if_supported(api_, &abi::Api::Buffer_Memory, args)) return nullptr;
  return client_->find(args.memory);
}

size_t Buffer::on_device_bytes() const {
  auto args = make<abi::Buffer_OnDeviceSizeInBytes_Args>();
  args.buffer = buffer_;
  TORCH_XLA_PJRT_CALL(api_, Buffer_OnDeviceSizeInBytes, args);
  return args.on_device_size_in_bytes;
}

bool Buffer::is_deleted() const {
  auto args = make<abi::Buffer_IsDeleted_Args>();
  args.buffer = buffer_;
  TORCH_XLA_PJRT_CALL(api_, Buffer_IsDeleted, args);
  return args.is_deleted;
}

void Buffer::delete_now() {
  auto args = make<abi::Buffer_Delete_Args>();
  args.buffer = buffer_;
  TORCH_XLA_PJRT_CALL(api_, Buffer_Delete, args);
}

Event Buffer::ready() const {
  auto args = make<abi::Buffer_ReadyEvent_Args>();
  args.buffer = buffer_;
  TORCH_XLA_PJRT_CALL(api_, Buffer_ReadyEvent, args);
  return Event(api_, args.event);
}

Event Buffer::copy_to_host(void* dst, size_t bytes) const {
  const size_t needed = host_bytes();
  if (bytes < needed) {
    throw Error(ErrorCode::kInvalidArgument, "copy to host: the array has " +
                                                 std::to_string(needed) + " bytes, the target " +
                                                 std::to_string(bytes));
  }
  std::vector<int64_t> minor_to_major(dims_.size());
  std::iota(minor_to_major.rbegin(), minor_to_major.rend(), 0);
  auto layout = make<abi::Buffer_MemoryLayout>();
  layout.type = abi::kTiled;
  layout.tiled = make<abi::Buffer_MemoryLayout_Tiled>();
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  // A null target would be taken for a question about the size.
  char nothing = 0;
  auto args = make<abi::Buffer_ToHostBuffer_Args>();
  args.src = buffer_;
  args.host_layout = &layout;
  args.dst = needed == 0 ? &nothing : dst;
  args.dst_size = bytes;
  TORCH_XLA_PJRT_CALL(api_, Buffer_ToHostBuffer, args);
  return Event(api_, args.event);
}

std::unique_ptr<Buffer> Buffer::copy_to_device(Device* device) const {
  auto args = make<abi::Buffer_CopyToDevice_Args>();
  args.buffer = buffer_;
  args.dst_device = device->handle();
  TORCH_XLA_PJRT_CALL(api_, Buffer_CopyToDevice, args);
  return std::make_unique<Buffer>(client_, args.dst_buffer);
}

std::unique_ptr<Buffer> Buffer::copy_to_memory(Memory* memory) const {
  auto args = make<abi::Buffer_CopyToMemory_Args>();
  args.buffer = buffer_;
  args.dst_memory = memory->handle();
  TORCH_XLA_PJRT_CALL(api_, Buffer_CopyToMemory, args);
  return std::make_unique<Buffer>(client_, args.dst_buffer);
}

uintptr_t Buffer::unsafe_pointer() const {
  auto args = make<abi::Buffer_UnsafePointer_Args>();
  args.buffer = buffer_;
  TORCH_XLA_PJRT_CALL(api_, Buffer_UnsafePointer, args);
  return args.buffer_pointer;
}

}  // namespace torch_xla::pjrt
