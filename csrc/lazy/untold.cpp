#include "lazy/untold.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "lazy/at_fork.h"
#include "lazy/value_checks.h"

namespace torch_xla::lazy {
namespace {

struct Entry {
  c10::DeviceIndex device;
  std::exception_ptr error;             // of a launch, or
  std::shared_ptr<CheckReport> report;  // what its checks find
  uint64_t number = 0;                  // of this entry alone
};

struct Entries {
  std::mutex mutex;         // not held while anybody waits
  std::vector<Entry> list;  // the oldest first
  uint64_t last = 0;
};

std::atomic<uint64_t>& failures() {
  static std::atomic<uint64_t> failures{0};
  return failures;
}

// Never destroyed: threads that run programs may outlive static destructors.
Entries& entries() {
  static auto* entries = new Entries;
  return *entries;
}

const ForkLock g_fork_lock(
    ForkLock::Order::kUntold, [] { entries().mutex.lock(); }, [] { entries().mutex.unlock(); });

void add(Entry entry) {
  std::lock_guard lock(entries().mutex);
  entry.number = ++entries().last;
  entries().list.push_back(std::move(entry));
}

std::vector<Entry> entries_of(c10::DeviceIndex device) {
  std::lock_guard lock(entries().mutex);
  std::vector<Entry> mine;
  for (const Entry& entry : entries().list) {
    if (entry.device == device) mine.push_back(entry);
  }
  return mine;
}

// Whether it was there yet: no other thread, and no read, has told of it meanwhile.
bool remove(const Entry& entry) {
  std::lock_guard lock(entries().mutex);
  return std::erase_if(entries().list,
                       [&](const Entry& each) { return each.number == entry.number; }) != 0;
}

}  // namespace

void note_untold(c10::Device device, std::exception_ptr error) {
  add({device.index(), std::move(error), nullptr});
}

void watch(c10::Device device, std::shared_ptr<CheckReport> report) {
  add({device.index(), nullptr, std::move(report)});
}

void note_failure() { failures().fetch_add(1, std::memory_order_relaxed); }
uint64_t num_failures() { return failures().load(std::memory_order_relaxed); }

void note_told(const std::exception_ptr& error) {
  std::lock_guard lock(entries().mutex);
  std::erase_if(entries().list, [&](const Entry& entry) { return entry.error == error; });
  for (const Entry& entry : entries().list) {
    if (entry.report) entry.report->tell(error);
  }
}

std::exception_ptr take_untold(c10::Device device, bool wait) {
  for (const Entry& entry : entries_of(device.index())) {
    if (entry.error) {
      if (remove(entry)) return entry.error;
    } else if (wait || entry.report->is_there()) {
      const std::exception_ptr error = entry.report->take_untold(~uint64_t{0});
      remove(entry);
      if (error) return error;
    }
  }
  return nullptr;
}

}  // namespace torch_xla::lazy
