#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/hash.h"
#include "ir/lowering.h"
#include "lazy/data.h"
#include "pjrt/executable.h"
#include "pjrt/option.h"

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

// Makes sure `value` is on the device: syncs when it is not. Returns its device data; throws its
// error when it failed.
std::shared_ptr<DeviceData> materialize(const ir::Value& value, c10::Device device);

// Blocks until all launched programs of the device are over. Throws nothing of theirs.
void wait_device(c10::Device device);

// --- Settings and inspection ---

struct CompileReport {
  ir::Hash128 key;
  std::string name;
  size_t nodes = 0, parameters = 0, outputs = 0;
  double seconds = 0;
  std::optional<pjrt::CompiledMemoryStats> memory;  // where the plugin says
};
// Called after each compilation, in the syncing thread.
void set_compile_listener(std::function<void(const CompileReport&)> listener);

// XLA flags for later compilations (set_custom_compile_options).
void set_compile_overrides(std::map<std::string, pjrt::Option> overrides);

// "default", "high" or "highest"; part of the graph's key. Throws c10::Error for anything else.
void set_matmul_precision(const std::string& precision);
std::string matmul_precision();

// The name given to programs compiled from here on.
void set_graph_name(std::string name);
std::string graph_name();

// Programs in the cache, and their greatest number (least recently used go first).
size_t cached_program_count();
void set_cache_capacity(size_t programs);
void clear_cache();

// A folder for compiled programs that outlives the process; "" for none. Entries are keyed by
// program, options, plugin and its version. With `readonly`, nothing new is written.
void set_persistent_cache(const std::string& folder, bool readonly);

// When false, a sync throws instead of running (torch_xla._XLAC._set_allow_execution).
void set_allow_execution(bool allow);
bool allow_execution();

// The StableHLO text of the program that computes `roots`.
std::string stablehlo_text(std::span<const ir::Value> roots);
// The key that `roots` would be cached by.
ir::Hash128 graph_key(std::span<const ir::Value> roots);

}  // namespace torch_xla::lazy
