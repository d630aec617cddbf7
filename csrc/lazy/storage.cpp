#include "lazy/storage.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <limits>
#include <mutex>

#include "lazy/dtype.h"
#include "lazy/full.h"
#include "lazy/runtime.h"

namespace torch_xla::lazy {
namespace {

// The deleter's address also marks a data pointer as ours.
void delete_lazy(void* context) {
  c10::intrusive_ptr<LazyStorage>::reclaim(static_cast<LazyStorage*>(context));
}

c10::DataPtr data_ptr(c10::intrusive_ptr<LazyStorage> storage) {
  const c10::Device device = storage->device();
  return c10::DataPtr(nullptr, storage.release(), delete_lazy, device);
}

void nothing(void*) {}

class XlaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t) override {
    return c10::DataPtr(nullptr, nullptr, nothing, c10::Device(c10::kXLA, current_device()));
  }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "xla memory has no addresses to copy between");
  }

};

class SpinLock {
 public:
  void lock() {
    while (flag_.test_and_set(std::memory_order_acquire)) flag_.wait(true);
  }
  void unlock() {
    flag_.clear(std::memory_order_release);
    flag_.notify_one();
  }

 private:
  std::atomic_flag flag_;
};

}  // namespace

// The pending storages of one device, in the order in which they became pending.
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
  void add(LazyStorage* storage) {
    std::lock_guard guard(lock);
    storage->previous_ = last;
    storage->next_ = nullptr;
    (last ? last->next_ : first) = storage;
    last = storage;
  }
  void remove(LazyStorage* storage) {
    std::lock_guard guard(lock);
    (storage->previous_ ? storage->previous_->next_ : first) = storage->next_;
    (storage->next_ ? storage->next_->previous_ : last) = storage->previous_;
  }
};

LazyStorage::~LazyStorage() { drop_value(); }

void LazyStorage::release_resources() { drop_value(); }

void LazyStorage::drop_value() {
  update_pending(false);
  if (DeviceData* data = DeviceData::of(value_)) --data->storages;
  value_ = {};
}

void LazyStorage::update_pending(bool pending) {
  if (pending == pending_) return;
  PendingList& list = PendingList::of(device_.index());
  if (pending) {
    list.add(this);
  } else {
    list.remove(this);
  }
  pending_ = pending;
}

std::vector<c10::intrusive_ptr<LazyStorage>> LazyStorage::all_pending(c10::DeviceIndex device) {
  PendingList& list = PendingList::of(device);
  std::vector<c10::intrusive_ptr<LazyStorage>> storages;
  std::lock_guard guard(list.lock);
  for (LazyStorage* storage = list.first; storage; storage = storage->next_) {
    // One whose last reference is going away in another thread is about to leave the list.
    auto weak = c10::weak_intrusive_ptr<LazyStorage>::reclaim_copy(storage);
    if (auto strong = weak.lock()) storages.push_back(std::move(strong));
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
  const auto bytes = static_cast<int64_t>(impl->nbytes());
  auto lazy = c10::make_intrusive<LazyStorage>(impl->device(), ir::ElementType::kU8,
                                               stablehlo::Dims{bytes}, stablehlo::Dims());
  LazyStorage& result = *lazy;
  impl->set_data_ptr_noswap(data_ptr(std::move(lazy)));
  return result;
}

const ir::Value& LazyStorage::value() {
  if (!value_) set_value(full(0, type_, sizes_));
  return value_;
}

void LazyStorage::set_value(ir::Value value) {
  DeviceData* data = DeviceData::of(value);
  if (data) ++data->storages;
  if (DeviceData* old = DeviceData::of(value_)) --old->storages;
  value_ = std::move(value);
  update_pending(data == nullptr);
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
