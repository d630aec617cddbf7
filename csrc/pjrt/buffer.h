// An array on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pjrt/abi.h"
#include "pjrt/buffer_type.h"
#include "pjrt/device.h"
#include "pjrt/event.h"

namespace torch_xla::pjrt {

class Client;

// What the plugin may do with host memory that a buffer is made from.
enum class HostBufferSemantics : uint32_t {
  kImmutableOnlyDuringCall = 0,          // copied before the call returns
  kImmutableUntilTransferCompletes = 1,  // read until on_done
  kImmutableZeroCopy = 2,                // may be the buffer, read until on_done
  kMutableZeroCopy = 3,                  // may be the buffer and may be written when donated
};

// Owns a PJRT_Buffer and keeps its client alive. Contents are computed asynchronously; a failed
// computation shows in ready() and copy_to_host(). Safe to use from several threads at a time.
class Buffer {
 public:
  // Takes ownership.
  Buffer(std::shared_ptr<Client> client, abi::Buffer* buffer);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  BufferType type() const { return type_; }
  // Of the allocation. Valid as long as this object.
  std::span<const int64_t> dims() const { return dims_; }
  // Of the contents: smaller than dims() where a program's result has bounded dynamic dimensions.
  // Blocks until known. Throws Error, also for a deleted buffer.
  std::vector<int64_t> unpadded_dims() const;

  Device* device() const { return device_; }
  // Null where the plugin has no memory spaces.
  Memory* memory() const;
  size_t host_bytes() const { return pjrt::host_bytes(type_, dims_); }
  // As laid out on the device. Throws Error for a deleted buffer.
  size_t on_device_bytes() const;

  // True once donated to an execution or deleted.
  bool is_deleted() const;
  // Gives up the contents now; work that already uses them finishes. Idempotent.
  void delete_now();

  // Ready when the contents are, or when they cannot be made.
  Event ready() const;

  // Starts to copy into `dst`, dense and row major whatever the device's layout. `dst` must stay
  // valid until the event is ready. Throws Error if `bytes` is less than host_bytes() or the buffer
  // is deleted; failures of the copy or of the computation come through the event.
  Event copy_to_host(void* dst, size_t bytes) const;

  // Copies within the client. Throw Error.
  std::unique_ptr<Buffer> copy_to_device(Device* device) const;
  std::unique_ptr<Buffer> copy_to_memory(Memory* memory) const;

  // The device address. Contents may not be ready, and die with this buffer. Throws Error where the
  // plugin has no such address or the buffer is deleted.
  uintptr_t unsafe_pointer() const;

  const std::shared_ptr<Client>& client() const { return client_; }
  abi::Buffer* handle() const { return buffer_; }

 private:
  std::shared_ptr<Client> client_;
  const abi::Api* api_;
  abi::Buffer* buffer_;
  BufferType type_;
  std::span<const int64_t> dims_;
  Device* device_;
};

}  // namespace torch_xla::pjrt
