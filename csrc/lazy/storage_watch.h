#pragma once

#include "ir/node.h"

namespace torch_xla::lazy {

class LazyStorage;

// What the calling thread does to storages, for whoever must undo it (rehearsal.h).
class StorageWatch {
 public:
  virtual ~StorageWatch() = default;
  // A storage was made.
  virtual void note_new(LazyStorage& storage) = 0;
  // A storage is about to get other contents than `before` (empty: none yet). Called with the
  // storage locked.
  virtual void note_write(LazyStorage& storage, const ir::Value& before) = 0;
};

// Sets the calling thread's watch, null for none. The watch must outlive that.
void set_storage_watch(StorageWatch* watch);

}  // namespace torch_xla::lazy
