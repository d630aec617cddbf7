#include "lazy/untold.h"

#include <mutex>
#include <utility>
#include <vector>

#include "lazy/value_checks.h"

namespace torch_xla::lazy {
namespace {

struct Entry {
  c10::DeviceIndex device;
  std::exception_ptr error;             // of a launch, or
  std::shared_ptr<CheckReport> report;  // what its checks find
};

struct Entries {
  std::mutex mutex;
  std::vector<Entry> list;  // the oldest first
};

// Never destroyed: threads that run programs may outlive static destructors.
Entries& entries() {
  static auto* entries = new Entries;
  return *entries;
}

void add(Entry entry) {
  std::lock_guard lock(entries().mutex);
  entries().list.push_back(std::move(entry));
}

}  // namespace

void note_untold(c10::Device device, std::exception_ptr error) {
  add({device.index(), std::move(error), nullptr});
}

void watch(c10::Device device, std::shared_ptr<CheckReport> report) {
  add({device.index(), nullptr, std::move(report)});
}

void note_told(const std::exception_ptr& error) {
  std::lock_guard lock(entries().mutex);
  std::erase_if(entries().list, [&](const Entry& entry) { return entry.error == error; });
}

std::exception_ptr take_untold(c10::Device device, bool wait) {
  std::vector<Entry> mine, waiting;
  {
    std::lock_guard lock(entries().mutex);
    if (entries().list.empty()) return nullptr;
    for (Entry& entry : entries().list) {
      (entry.device == device.index() ? mine : waiting).push_back(std::move(entry));
    }
    entries().list.swap(waiting);
  }
  std::vector<Entry> later;
  std::exception_ptr first;
  for (Entry& entry : mine) {
    if (first || (entry.report && !wait && !entry.report->is_there())) {
      later.push_back(std::move(entry));
    } else if (entry.error) {
      first = entry.error;
    } else if (const std::exception_ptr error = entry.report->error(~uint64_t{0})) {
      if (!entry.report->told.exchange(true)) first = error;
    }
  }
  if (later.empty()) return first;
  std::lock_guard lock(entries().mutex);
  auto& list = entries().list;
  list.insert(list.begin(), std::make_move_iterator(later.begin()),
              std::make_move_iterator(later.end()));
  return first;
}

}  // namespace torch_xla::lazy
