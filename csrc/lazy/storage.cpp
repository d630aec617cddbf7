#include "lazy/storage.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>

#include "lazy/dtype.h"
#include "lazy/full.h"
#include "lazy/runtime.h"
#include "lazy/trimmed.h"

namespace torch_xla::lazy {
namespace {

// The deleter's address also marks a data pointer as ours.
void delete_lazy(void* context) {
  c10::intrusive_ptr<LazyStorage>::reclaim(static_cast<LazyStorage*>(context));
}

// The address is no address of the contents: it only tells storages apart, as data_ptr() does on
// other devices, and is not null, which to torch means a storage whose memory was taken away.
c10::DataPtr data_ptr(c10::intrusive_ptr<LazyStorage> storage) {
  const c10::Device device = storage->device();
  void* address = storage.release();
  return c10::DataPtr(address, address, delete_lazy, device);
}

c10::DataPtr raw_bytes(int64_t count, c10::Device device) {
  return data_ptr(c10::make_intrusive<LazyStorage>(device, ir::ElementType::kU8,
                                                   stablehlo::Dims{count}, stablehlo::Dims()));
}

class XlaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    return raw_bytes(static_cast<int64_t>(bytes), c10::Device(c10::kXLA, current_device()));
  }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "xla memory has no addresses to copy between");
  }
};

}  // namespace

// The pending storages of one device, in the order in which they were last written. The list holds
// a weak reference to each: one that dies leaves the list (release_resources) before it is freed.
struct PendingList {
  SpinLock lock;
  LazyStorage* first = nullptr;
  LazyStorage* last = nullptr;

  static PendingList& of(c10::DeviceIndex device) {
    // Never destroyed: storages may outlive static destructors.
    static auto* lists =
        new std::array<PendingList, std::numeric_limits<c10::DeviceIndex>::max() + 1>;
    return (*lists)[static_cast<size_t>(device)];
  }
  void move(LazyStorage* storage, bool out, bool in) {
    std::lock_guard guard(lock);
    if (out) remove(storage);
    if (in) add(storage);
  }

 private:
  void add(LazyStorage* storage) {
    storage->previous_ = last;
    storage->next_ = nullptr;
    (last ? last->next_ : first) = storage;
    last = storage;
    c10::raw::weak_intrusive_ptr::incref(storage);
  }
  void remove(LazyStorage* storage) {
    (storage->previous_ ? storage->previous_->next_ : first) = storage->next_;
    (storage->next_ ? storage->next_->previous_ : last) = storage->previous_;
    c10::raw::weak_intrusive_ptr::decref(storage);
  }
};

LazyStorage::~LazyStorage() { drop_value(); }

void LazyStorage::release_resources() { drop_value(); }

// What `value` held before is the caller's to drop, once the lock is released: it may be the last
// reference to a whole graph.
void LazyStorage::exchange(ir::Value& value) {
  DeviceData* data = DeviceData::of(computed(value));
  if (data) ++data->storages;
  if (DeviceData* old = DeviceData::of(computed(value_))) --old->storages;
  std::swap(value_, value);
  const bool pending = value_ && !data;
  if (!pending) {
    initial_fill_ = {};
  } else if (is_full(value)) {
    initial_fill_ = value;
  }
  list_pending(pending);
}

void LazyStorage::drop_value() {
  ir::Value old;
  std::lock_guard guard(lock_);
  exchange(old);
}

// A write moves the storage to the end of the list, so that a step which also creates what it
// updates has its outputs in the order of the steps that follow.
void LazyStorage::list_pending(bool pending) {
  if (!pending && !pending_) return;
  PendingList::of(device_.index()).move(this, pending_, pending);
  pending_ = pending;
}

std::vector<c10::intrusive_ptr<LazyStorage>> LazyStorage::all_pending(c10::DeviceIndex device) {
  PendingList& list = PendingList::of(device);
  std::vector<c10::intrusive_ptr<LazyStorage>> storages;
  std::lock_guard guard(list.lock);
  for (LazyStorage* storage = list.first; storage; storage = storage->next_) {
    // One whose last reference is going away in another thread is about to leave the list.
    auto weak = c10::weak_intrusive_ptr<LazyStorage>::reclaim(storage);
    if (auto strong = weak.lock()) storages.push_back(std::move(strong));
    weak.release();  // the list's own
  }
  return storages;
}

c10::Storage LazyStorage::make(c10::Device device, ir::ElementType type, stablehlo::Dims sizes,
                               stablehlo::Dims strides, size_t bytes) {
  auto lazy = c10::make_intrusive<LazyStorage>(device, type, std::move(sizes), std::move(strides));
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)),
      data_ptr(std::move(lazy)), allocator(), /*resizable=*/true));
}

LazyStorage& LazyStorage::of(const c10::Storage& storage) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  const c10::DataPtr& pointer = impl->_mutable_data_ptr_no_checks();
  if (pointer.get_deleter() == &delete_lazy) [[likely]] {
    return *static_cast<LazyStorage*>(pointer.get_context());
  }
  TORCH_CHECK(impl->device().is_xla(), "expected an xla storage, got one of ", impl->device());
  TORCH_CHECK(!pointer.get(), "xla memory has no addresses: this storage was made over one");
  impl->set_data_ptr_noswap(raw_bytes(static_cast<int64_t>(impl->nbytes()), impl->device()));
  return *static_cast<LazyStorage*>(impl->_mutable_data_ptr_no_checks().get_context());
}

ir::Value LazyStorage::value() {
  {
    std::lock_guard guard(lock_);
    if (value_) [[likely]]
      return value_;
  }
  ir::Value zeros = full(0, type_, sizes_);
  std::lock_guard guard(lock_);
  if (!value_) exchange(zeros);
  return value_;
}

ir::Value LazyStorage::initial_fill() {
  std::lock_guard guard(lock_);
  return initial_fill_;
}

bool LazyStorage::has_value() {
  std::lock_guard guard(lock_);
  return static_cast<bool>(value_);
}

void LazyStorage::set_value(ir::Value value) {
  std::lock_guard guard(lock_);
  exchange(value);
}

bool LazyStorage::replace_value(const ir::Value& expected, ir::Value value) {
  std::lock_guard guard(lock_);
  if (!(value_ == expected)) return false;
  exchange(value);
  return true;
}

void LazyStorage::rebase(ir::ElementType type, stablehlo::Dims sizes, stablehlo::Dims strides) {
  drop_value();
  type_ = type;
  sizes_ = std::move(sizes);
  strides_ = std::move(strides);
}

c10::Allocator* allocator() {
  static XlaAllocator allocator;
  return &allocator;
}

}  // namespace torch_xla::lazy
