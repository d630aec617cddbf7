#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/hash.h"
#include "ir/node.h"
#include "lazy/data.h"
#include "lazy/storage.h"

namespace torch_xla::lazy {

// Computes everything pending on a device as one program: the contents of every live xla storage
// that was written since the last sync. The program is looked up by the graph's key, compiled when
// it is new, and launched; the storages then hold device data whose contents follow.
//
// Device data that the step overwrites is donated. If the program cannot be made or launched, the
// pending contents that are to blame fail (each read of them throws the error, with op and Python
// line), all others keep theirs, and this throws. With `wait`, blocks until the results are there
// and throws if computing them failed.
void sync(c10::Device device, bool wait = false);

// Has the program compiled behind (compile_behind.h) that a sync would run if `storages`, in this
// order, were all that is pending; nothing else happens. `held_by_caller`: nodes that the caller
// refers to, once for each reference; a call would not, and could donate what they stand for.
// Throws LoweringError.
void prepare(c10::Device device, std::vector<c10::intrusive_ptr<LazyStorage>> storages,
             std::span<const ir::Node* const> held_by_caller);

// Makes sure `value` is on the device: when it is not, syncs, or computes it alone if it is but a
// look (look.h). Returns its device data; throws its error when it failed. Hand the value over:
// whatever else refers to it keeps what it is computed from from being donated.
std::shared_ptr<DeviceData> materialize(ir::Value value, c10::Device device);

// The StableHLO text of the program that computes `roots`.
std::string stablehlo_text(std::span<const ir::Value> roots);
// The key that `roots` would be cached by.
ir::Hash128 graph_key(std::span<const ir::Value> roots);

}  // namespace torch_xla::lazy
