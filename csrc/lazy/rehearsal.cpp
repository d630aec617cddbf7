#include "lazy/rehearsal.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "lazy/base.h"
#include "lazy/compile_behind.h"
#include "lazy/executor.h"
#include "lazy/host_range.h"
#include "lazy/launch.h"
#include "lazy/random.h"
#include "lazy/recording.h"
#include "lazy/spmd.h"
#include "lazy/storage_watch.h"
#include "lazy/tensor.h"
#include "pjrt/fork_guard.h"

namespace torch_xla::lazy {
namespace {

constexpr char kRefusal[] =
    "it reads a value, or syncs: a step can be prepared only if it is one program";

}  // namespace

// What the thread's storages held before it wrote to them.
class Rehearsal::Journal final : public StorageWatch {
 public:
  Journal() { set_storage_watch(this); }
  ~Journal() override { set_storage_watch(nullptr); }

  void note_new(LazyStorage& storage) override { note(storage, /*is_new=*/true, {}); }
  void note_write(LazyStorage& storage, const ir::Value& before) override {
    if (!entries_.contains(&storage)) note(storage, /*is_new=*/false, before);
  }

  // Those of the pending storages that this thread wrote.
  std::vector<c10::intrusive_ptr<LazyStorage>> written(c10::Device device) const {
    auto storages = LazyStorage::all_pending(device.index());
    std::erase_if(storages, [&](const auto& storage) { return !entries_.contains(storage.get()); });
    return storages;
  }

  // What the journal itself refers to.
  std::vector<const ir::Node*> held() const {
    std::vector<const ir::Node*> nodes;
    for (const auto& [storage, entry] : entries_) {
      if (entry.contents) nodes.push_back(entry.contents.node.get());
    }
    return nodes;
  }

  // Storages that were there before hold again what they held. Returns the pending ones of all
  // others that are still alive.
  std::vector<c10::intrusive_ptr<LazyStorage>> undo(c10::Device device) {
    set_storage_watch(nullptr);
    std::vector<c10::intrusive_ptr<LazyStorage>> left = written(device);
    std::erase_if(left, [&](const auto& storage) { return !entries_.at(storage.get()).is_new; });
    for (auto& [address, entry] : entries_) {
      if (entry.is_new) continue;
      const auto storage = entry.storage.lock();
      if (!storage) continue;
      if (!entry.base.fits(*storage)) {
        storage->rebase(entry.base.type, entry.base.sizes, entry.base.strides);
      }
      storage->set_value(std::move(entry.contents));
    }
    entries_.clear();
    return left;
  }

 private:
  struct Entry {
    WeakStorage storage;  // keeps the address from being used again
    bool is_new;
    Base base;
    ir::Value contents;
  };

  void note(LazyStorage& storage, bool is_new, const ir::Value& before) {
    if (c10::raw::intrusive_ptr::use_count(&storage) == 0) return;  // it is being destroyed
    c10::raw::weak_intrusive_ptr::incref(&storage);
    entries_.emplace(&storage,
                     Entry{WeakStorage::reclaim(&storage), is_new, Base(storage), before});
  }

  std::unordered_map<const LazyStorage*, Entry> entries_;
};

Rehearsal::Rehearsal(c10::Device device) : device_(device) {
  pjrt::check_not_forked();
  check_may_run();
  TORCH_CHECK(!is_partitioned(), "how arguments will be cut in SPMD mode is not known before");
  lock_ = std::unique_lock(launch_mutex());
  finish_launch();
  XlaGenerator& generator = generator_for(std::nullopt, device);
  {
    std::lock_guard stream(generator.mutex_);
    seed_ = generator.current_seed();
    offset_ = generator.get_offset();
  }
  tracing_only_.emplace(kRefusal);
  journal_ = std::make_unique<Journal>();
}

Rehearsal::~Rehearsal() { cancel(); }

at::Tensor Rehearsal::stand_in(at::ScalarType dtype, at::IntArrayRef sizes,
                               at::IntArrayRef strides) {
  TORCH_CHECK(journal_, "this rehearsal is over");
  at::Tensor tensor = allocate_strided(sizes, strides, dtype, device_);
  LazyStorage& storage = storage_of(tensor);
  ir::Value leaf = unknown({storage.type(), storage.sizes()}, device_);
  if (dtype == at::kInt || dtype == at::kLong) {
    // A batch comes from the host, which knows its indices and labels: they need no checks.
    remember_range(at::zeros({1}, dtype),
                   std::static_pointer_cast<DeviceData>(leaf.node->shared_payload()));
  }
  stand_ins_.insert(leaf.node.get());
  storage.set_value(leaf);
  kept_.push_back(std::move(leaf));
  return tensor;
}

void Rehearsal::forget(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(journal_, "this rehearsal is over");
  // Each is held by its Python object and by `tensors`.
  const bool elsewhere = std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.use_count() > 2 || tensor.storage().use_count() > tensors.size();
  });
  if (!elsewhere) storage_of(tensors.front()).set_value({});
}

void Rehearsal::finish() {
  TORCH_CHECK(journal_, "this rehearsal is over");
  std::vector<const ir::Node*> held = journal_->held();
  for (const ir::Value& leaf : kept_) held.push_back(leaf.node.get());
  prepare(device_, journal_->written(device_), held);
  cancel();
}

void Rehearsal::cancel() {
  if (!journal_) return;
  const auto left = journal_->undo(device_);
  journal_.reset();
  fail_dependents(left, device_,
                  [this](const ir::Node* node) { return stand_ins_.contains(node); });
  XlaGenerator& generator = generator_for(std::nullopt, device_);
  {
    // Draws in this thread did not move it. Where the step seeded it, that is undone; draws of
    // other threads stay.
    std::lock_guard stream(generator.mutex_);
    if (generator.current_seed() != seed_ || generator.get_offset() < offset_) {
      generator.set_current_seed(seed_);
      generator.set_offset(offset_);
    }
  }
  tracing_only_.reset();
  lock_.unlock();
}

}  // namespace torch_xla::lazy
