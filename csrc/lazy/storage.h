#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <memory>
#include <vector>

#include "ir/blocks.h"
#include "ir/view.h"
#include "lazy/data.h"
#include "lazy/spin_lock.h"
#include "sharding/sharding.h"

namespace torch_xla::lazy {

// What is behind the data pointer of an xla tensor's c10::StorageImpl: the current contents of the
// storage as a value of the IR. A tensor is a plain c10::TensorImpl over such a storage; a view is
// nothing but its sizes, strides and offset (see ir/view.h for how it reads and writes).
//
// The contents are seen as one dense array, the base: its element type, sizes and strides are
// those of the tensor that the storage was made for.
//
// Threads may read and replace the contents at once: each sees one whole value or another. Changing
// the base (rebase) takes the same care as resizing a tensor: no other thread may use it meanwhile.
class LazyStorage final : public c10::intrusive_ptr_target {
 public:
  LazyStorage(c10::Device device, ir::ElementType type, const stablehlo::Dims& sizes,
              const stablehlo::Dims& strides)
      : device_(device), type_(type), sizes_(sizes), strides_(strides) {}
  ~LazyStorage() override;
  void release_resources() override;
  static void* operator new(size_t bytes) { return ir::take_block(bytes); }
  static void operator delete(void* memory, size_t bytes) { ir::give_block(memory, bytes); }

  // A new storage of `bytes` with the given base, and contents if `value` is not empty. `strides`
  // empty: row-major.
  static c10::Storage make(c10::Device device, ir::ElementType type, const stablehlo::Dims& sizes,
                           const stablehlo::Dims& strides, size_t bytes, ir::Value value = {});
  // The lazy storage behind a c10 one, given one of bytes when it has none yet.
  static LazyStorage& of(const c10::Storage& storage);

  c10::Device device() const { return device_; }
  ir::ElementType type() const { return type_; }
  const stablehlo::Dims& sizes() const { return sizes_; }
  const stablehlo::Dims& strides() const { return strides_; }  // empty: row-major

  // The contents. Zeros when nothing was written yet (memory of torch.empty).
  ir::Value value();
  bool has_value();
  ir::Value value_or_empty();
  void set_value(ir::Value value);
  // The same, and gives back what was there, or an empty value.
  ir::Value swap_value(ir::Value value);
  // The same unless the contents are not `expected` any more, because another thread wrote
  // meanwhile. Returns whether they were.
  bool replace_value(const ir::Value& expected, ir::Value value);
  // What pending contents were written over, empty where there was none.
  struct Past {
    ir::Value fill;  // the constant that they began as: what an optimizer's state begins with
    ir::Value data;  // a leaf
  };
  struct Contents {
    ir::Value value;  // as value()
    Past past;
    const sharding::Sharding* sharding = nullptr;  // as sharding()
  };
  Contents contents();
  // As replace_value(); what `value`, pending, was written over is `past` again.
  bool restore(const ir::Value& expected, ir::Value value, Past past);
  // Makes the base one of other sizes (same number of bytes or not); the contents are dropped.
  void rebase(ir::ElementType type, stablehlo::Dims sizes, stablehlo::Dims strides);

  // In SPMD mode, how the contents are to lie on the devices: what a user said, else how those lay
  // that were written over first, so that a tensor which is updated stays where it is. Null: as XLA
  // sees fit. Of the base's rank; a new base has none.
  const sharding::Sharding* sharding();
  void set_sharding(const sharding::Sharding* sharding);
  // The same as a user's word, which counts more (mark_sharding.h).
  void mark(const sharding::Sharding* sharding);
  void unmark();
  bool marked();

  // True when the contents are not on the device yet.
  bool pending() const { return pending_.load(std::memory_order_relaxed); }

  // All storages of the device with pending contents, in the order of their last writes. Each is
  // kept alive.
  static std::vector<c10::intrusive_ptr<LazyStorage>> all_pending(c10::DeviceIndex device);
  static bool any_pending(c10::DeviceIndex device);

  // The c10 storage that owned it is gone: what nobody can read is not pending. `alone`: nothing
  // else refers to it, weakly either.
  void retire(bool alone);

 private:
  friend struct PendingList;
  void drop_value();
  void exchange(ir::Value& value, Past& dropped);  // requires the lock
  void keep_sharding();                            // of the contents; requires the lock
  void list_pending(bool is_pending);

  c10::Device device_;
  ir::ElementType type_;
  stablehlo::Dims sizes_;
  stablehlo::Dims strides_;
  SpinLock lock_;  // of what follows
  ir::Value value_;
  Past past_;
  const sharding::Sharding* sharding_ = nullptr;
  bool marked_ = false;
  // Written with the list of pending storages locked.
  std::atomic<bool> pending_{false};
  bool retired_ = false;
  LazyStorage* previous_ = nullptr;  // in the list
  LazyStorage* next_ = nullptr;
};

// The allocator torch asks for xla memory: lazy storages of bytes.
c10::Allocator* allocator();

}  // namespace torch_xla::lazy
