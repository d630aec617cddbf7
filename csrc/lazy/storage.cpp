#include "lazy/storage.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>

#include "lazy/at_fork.h"
#include "lazy/dtype.h"
#include "lazy/full.h"
#include "lazy/runtime.h"
#include "lazy/spmd.h"
#include "lazy/storage_watch.h"
#include "lazy/trimmed.h"

namespace torch_xla::lazy {
namespace {

// Nearly always there is no watch in any thread, and one load says so.
std::atomic<int> watches{0};
thread_local StorageWatch* t_watch = nullptr;

StorageWatch* watch() { return watches.load(std::memory_order_relaxed) == 0 ? nullptr : t_watch; }

// The device data that `contents` are, or were cut from; null for all others. Nearly always a look
// at the op is enough.
DeviceData* data_of(const ir::Value& contents) {
  if (!contents) return nullptr;
  const ir::Op* op = &contents.node->op();
  if (op == &ir::kDeviceData) return static_cast<DeviceData*>(contents.node->payload());
  return op == &kTrim ? DeviceData::of(computed(contents)) : nullptr;
}

// The deleter's address also marks a data pointer as ours.
void delete_lazy(void* context) {
  auto storage = c10::intrusive_ptr<LazyStorage>::reclaim(static_cast<LazyStorage*>(context));
  // Nobody else can come to hold it.
  storage->retire(/*alone=*/storage.use_count() == 1 && storage.weak_use_count() == 1);
}

// The address is no address of the contents: it only tells storages apart, as data_ptr() does on
// other devices, and is not null, which to torch means a storage whose memory was taken away.
c10::DataPtr data_ptr(c10::intrusive_ptr<LazyStorage> storage) {
  if (StorageWatch* watching = watch()) [[unlikely]]
    watching->note_new(*storage);
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

// The pending storages of one device, in the order in which they were last written. The list refers
// to none: a storage is in it only while a c10 storage owns it, and leaves it (retire) before that
// one lets go.
struct PendingList {
  SpinLock lock;
  LazyStorage* first = nullptr;
  LazyStorage* last = nullptr;
  size_t size = 0;

  using All = std::array<PendingList, std::numeric_limits<c10::DeviceIndex>::max() + 1>;
  static All& all() {
    static auto* lists = new All;  // never destroyed: storages may outlive static destructors
    return *lists;
  }
  static PendingList& of(c10::DeviceIndex device) { return all()[static_cast<size_t>(device)]; }
  void add(LazyStorage* storage) {
    storage->previous_ = last;
    storage->next_ = nullptr;
    (last ? last->next_ : first) = storage;
    last = storage;
    ++size;
  }
  void remove(LazyStorage* storage) {
    (storage->previous_ ? storage->previous_->next_ : first) = storage->next_;
    (storage->next_ ? storage->next_->previous_ : last) = storage->previous_;
    --size;
  }
};

namespace {

const ForkLock g_fork_lock(
    ForkLock::Order::kStorages,
    [] {
      for (PendingList& list : PendingList::all()) list.lock.lock();
    },
    [] {
      for (PendingList& list : PendingList::all()) list.lock.unlock();
    });

}  // namespace

LazyStorage::~LazyStorage() { release_resources(); }

// Nobody else sees it any more: no lock.
void LazyStorage::release_resources() {
  if (DeviceData* data = data_of(value_)) --data->storages;
  value_ = {};
  past_ = {};
}

// With its c10 storage go all tensors that could ask for the contents.
void LazyStorage::retire(bool alone) {
  std::atomic_thread_fence(std::memory_order_acquire);  // after what others did who held it
  if (alone && !pending()) return;
  PendingList& list = PendingList::of(device_.index());
  std::lock_guard guard(list.lock);
  if (pending()) list.remove(this);
  pending_.store(false, std::memory_order_relaxed);
  retired_ = true;
}

// What `value` holds then, and `dropped`, is the caller's to drop once the lock is released: each
// may be the last reference to a whole graph, or to an array.
void LazyStorage::exchange(ir::Value& value, Past& dropped) {
  if (StorageWatch* watching = watch()) [[unlikely]]
    watching->note_write(*this, value_);
  DeviceData* data = data_of(value);
  if (data) ++data->storages;
  DeviceData* old = data_of(value_);
  if (old) --old->storages;
  if (is_partitioned() && !sharding_ && value && !data) [[unlikely]]
    keep_sharding();
  const bool pending = value && !data;
  std::swap(value_, value);
  if (!pending) {
    std::swap(past_, dropped);
  } else {
    if (old) past_.data = computed(value);
    if (is_full(value)) past_.fill = value;
  }
  list_pending(pending);
}

void LazyStorage::keep_sharding() {
  const DeviceData* old = DeviceData::of(computed(value_));
  if (!old) return;
  const sharding::Sharding* lies = old->sharding();
  if (lies && lies->is_manual()) return;  // what is written over a device's piece need be none
  sharding_ = old->on_host() && !lies ? replicated(sizes_.size()) : lies;
}

const sharding::Sharding* LazyStorage::sharding() {
  std::lock_guard guard(lock_);
  return sharding_;
}

void LazyStorage::set_sharding(const sharding::Sharding* sharding) {
  std::lock_guard guard(lock_);
  sharding_ = sharding;
}

void LazyStorage::mark(const sharding::Sharding* sharding) {
  std::lock_guard guard(lock_);
  sharding_ = sharding;
  marked_ = true;
}

void LazyStorage::unmark() {
  std::lock_guard guard(lock_);
  marked_ = false;
}

bool LazyStorage::marked() {
  std::lock_guard guard(lock_);
  return marked_;
}

void LazyStorage::drop_value() {
  ir::Value old;
  Past dropped;
  std::lock_guard guard(lock_);
  exchange(old, dropped);
}

// A write moves the storage to the end of the list, so that a step which also creates what it
// updates has its outputs in the order of the steps that follow.
void LazyStorage::list_pending(bool is_pending) {
  if (!is_pending && !pending()) return;
  PendingList& list = PendingList::of(device_.index());
  std::lock_guard guard(list.lock);
  if (pending()) list.remove(this);
  pending_.store(is_pending && !retired_, std::memory_order_relaxed);
  if (pending()) list.add(this);
}

std::vector<c10::intrusive_ptr<LazyStorage>> LazyStorage::all_pending(c10::DeviceIndex device) {
  PendingList& list = PendingList::of(device);
  std::vector<c10::intrusive_ptr<LazyStorage>> storages;
  std::lock_guard guard(list.lock);
  storages.reserve(list.size);
  for (LazyStorage* storage = list.first; storage; storage = storage->next_) {
    storages.push_back(c10::intrusive_ptr<LazyStorage>::reclaim_copy(storage));
  }
  return storages;
}

bool LazyStorage::any_pending(c10::DeviceIndex device) {
  PendingList& list = PendingList::of(device);
  std::lock_guard guard(list.lock);
  return list.size != 0;
}

c10::Storage LazyStorage::make(c10::Device device, ir::ElementType type,
                               const stablehlo::Dims& sizes, const stablehlo::Dims& strides,
                               size_t bytes, ir::Value value) {
  auto lazy = c10::make_intrusive<LazyStorage>(device, type, sizes, strides);
  LazyStorage& storage = *lazy;
  c10::DataPtr pointer = data_ptr(std::move(lazy));
  Past none;
  if (value) storage.exchange(value, none);  // nobody else sees it yet: no lock
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)),
      std::move(pointer), allocator(), /*resizable=*/true));
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
  Past dropped;
  std::lock_guard guard(lock_);
  if (!value_) exchange(zeros, dropped);
  return value_;
}

LazyStorage::Contents LazyStorage::contents() {
  {
    std::lock_guard guard(lock_);
    if (value_) [[likely]]
      return {value_, past_, sharding_};
  }
  value();
  std::lock_guard guard(lock_);
  return {value_, past_, sharding_};
}

bool LazyStorage::has_value() {
  std::lock_guard guard(lock_);
  return static_cast<bool>(value_);
}

ir::Value LazyStorage::value_or_empty() {
  std::lock_guard guard(lock_);
  return value_;
}

void LazyStorage::set_value(ir::Value value) {
  Past dropped;
  std::lock_guard guard(lock_);
  exchange(value, dropped);
}

ir::Value LazyStorage::swap_value(ir::Value value) {
  Past dropped;
  std::lock_guard guard(lock_);
  exchange(value, dropped);
  return value;
}

bool LazyStorage::replace_value(const ir::Value& expected, ir::Value value) {
  Past dropped;
  std::lock_guard guard(lock_);
  if (!(value_ == expected)) return false;
  exchange(value, dropped);
  return true;
}

bool LazyStorage::restore(const ir::Value& expected, ir::Value value, Past past) {
  Past dropped;
  std::lock_guard guard(lock_);
  if (!(value_ == expected)) return false;
  exchange(value, dropped);
  if (pending()) std::swap(past_, past);
  return true;
}

void LazyStorage::rebase(ir::ElementType type, stablehlo::Dims sizes, stablehlo::Dims strides) {
  drop_value();
  sharding_ = nullptr;
  marked_ = false;
  type_ = type;
  sizes_ = std::move(sizes);
  strides_ = std::move(strides);
}

void set_storage_watch(StorageWatch* watch) {
  watches += (watch != nullptr) - (t_watch != nullptr);
  t_watch = watch;
}

c10::Allocator* allocator() {
  static XlaAllocator allocator;
  return &allocator;
}

}  // namespace torch_xla::lazy
