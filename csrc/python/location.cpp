#include "python/location.h"

#include <Python.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/location.h"
#include "python/frames.h"

namespace torch_xla::python {
namespace {

using ir::Location;

// A frame of torch or of this package, which says nothing about the user's program.
constexpr Location kInternal = ~Location{0};
constexpr Location kMissing = kInternal - 1;
// A program that makes code objects without end stops getting locations here.
constexpr size_t kMostSites = size_t{1} << 20;
constexpr int kMostFrames = 200;

struct Entry {
  std::atomic<uintptr_t> site{0};
  std::atomic<Location> location{0};
};

// Call sites and their locations: open addressing, read without a lock, grown by replacement. A
// reader of an old array merely misses what was added since, and then looks under the lock.
struct Array {
  explicit Array(int bits) : shift(64 - bits), mask((size_t{1} << bits) - 1), entries(mask + 1) {}

  size_t start(uintptr_t site) const {
    return static_cast<size_t>((static_cast<uint64_t>(site) * 0x9e3779b97f4a7c15u) >> shift);
  }
  Location find(uintptr_t site) const {
    for (size_t i = start(site);; i = (i + 1) & mask) {
      const uintptr_t found = entries[i].site.load(std::memory_order_acquire);
      if (found == site) return entries[i].location.load(std::memory_order_relaxed);
      if (found == 0) return kMissing;
    }
  }
  void insert(uintptr_t site, Location location) {
    size_t i = start(site);
    while (entries[i].site.load(std::memory_order_relaxed) != 0) i = (i + 1) & mask;
    entries[i].location.store(location, std::memory_order_relaxed);
    entries[i].site.store(site, std::memory_order_release);
  }

  const int shift;
  const size_t mask;
  std::vector<Entry> entries;
};

// Everything but `array` and the flags is guarded by `mutex`, which is taken after the GIL.
struct Table {
  std::atomic<Array*> array{new Array(12)};
  std::mutex mutex;
  int bits = 12;
  size_t size = 0;
  std::deque<std::string> texts{std::string()};  // by location; the first is "unknown"
  std::vector<std::string> internal_folders;
  std::unordered_map<std::string, Location> named;  // by set_location
};

// Never destroyed: nodes are still made while the process ends.
Table& table() {
  static auto* table = new Table;
  return *table;
}

std::atomic<bool> g_record{true};
// The last place seen, which stands for threads that run no Python: a backward pass then points at
// the call that started it, or at the last op before.
std::atomic<Location> g_last{0};

// What set_location set.
thread_local Location t_set = 0;

bool finalizing() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

std::string text_of(PyObject* string) {
  const char* text = string ? PyUnicode_AsUTF8(string) : nullptr;
  if (!text) PyErr_Clear();
  return text ? text : "?";
}

bool is_internal(const Table& table, std::string_view file) {
  for (const std::string& folder : table.internal_folders) {
    if (file.starts_with(folder)) return true;
  }
  return false;
}

// Needs the GIL and the table's lock.
Location add(Table& table, const txla_frame& frame) {
  const std::string file = text_of(frame.code->co_filename);
  Location location = kInternal;
  if (!is_internal(table, file)) {
    location = static_cast<Location>(table.texts.size());
    table.texts.push_back(text_of(frame.code->co_name) + "@" +
                          file.substr(file.find_last_of('/') + 1) + ":" +
                          std::to_string(PyCode_Addr2Line(frame.code, frame.offset)));
  }
  // A site is only unique while its code object lives.
  Py_INCREF(frame.code);
  if (++table.size * 2 > size_t{1} << table.bits) {
    auto* old = table.array.load();
    auto* grown = new Array(++table.bits);
    for (const Entry& entry : old->entries) {
      if (entry.site.load() != 0) grown->insert(entry.site.load(), entry.location.load());
    }
    table.array.store(grown, std::memory_order_release);  // the old one may still be read: kept
  }
  table.array.load()->insert(frame.site, location);
  return location;
}

Location look_up(const txla_frame& frame) {
  Table& all = table();
  const Location location = all.array.load(std::memory_order_acquire)->find(frame.site);
  if (location != kMissing) [[likely]]
    return location;
  if (finalizing()) return kInternal;
  const PyGILState_STATE gil = PyGILState_Ensure();
  Location result = kInternal;
  {
    std::lock_guard lock(all.mutex);
    result = all.array.load()->find(frame.site);
    if (result == kMissing) result = all.size < kMostSites ? add(all, frame) : kInternal;
  }
  PyGILState_Release(gil);
  return result;
}

Location current() {
  if (!g_record.load(std::memory_order_relaxed)) return 0;
  if (t_set != 0) return t_set;
  PyThreadState* state = PyGILState_GetThisThreadState();
  if (state) {
    txla_frame frame;
    txla_frames_begin(&frame, state);
    for (int i = 0; i < kMostFrames && txla_frames_next(&frame); ++i) {
      const Location location = look_up(frame);
      if (location == kInternal) continue;
      g_last.store(location, std::memory_order_relaxed);
      return location;
    }
  }
  return g_last.load(std::memory_order_relaxed);
}

std::string describe(Location location) {
  Table& all = table();
  std::lock_guard lock(all.mutex);
  return location < all.texts.size() ? all.texts[location] : std::string();
}

}  // namespace

void install_locations(std::vector<std::string> folders) {
  for (std::string& folder : folders) {
    if (!folder.ends_with('/')) folder += '/';
  }
  {
    std::lock_guard lock(table().mutex);
    table().internal_folders = std::move(folders);
  }
  ir::set_location_provider({current, describe});
}

void set_record_locations(bool record) { g_record = record; }

bool record_locations() { return g_record; }

void set_location(const std::string& place) {
  t_set = 0;
  if (place.empty()) return;
  Table& all = table();
  std::lock_guard lock(all.mutex);
  const auto known = all.named.find(place);
  if (known != all.named.end()) {
    t_set = known->second;
  } else if (all.named.size() < kMostSites) {
    t_set = static_cast<Location>(all.texts.size());
    all.texts.push_back(place);
    all.named.emplace(place, t_set);
  }
}

size_t location_count() {
  std::lock_guard lock(table().mutex);
  return table().texts.size() - 1;
}

}  // namespace torch_xla::python
