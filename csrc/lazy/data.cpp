#include "lazy/data.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <limits>
#include <sstream>
#include <vector>

#include "lazy/at_fork.h"
#include "lazy/dry_run.h"
#include "lazy/dtype.h"
#include "lazy/host_memory.h"
#include "lazy/interrupt.h"
#include "lazy/leftovers.h"
#include "lazy/shape_text.h"
#include "lazy/spin_lock.h"
#include "lazy/untold.h"
#include "lazy/value_checks.h"
#include "pjrt/error.h"
#include "pjrt/fork_guard.h"

namespace torch_xla::lazy {
namespace {

constexpr size_t kNamedInErrors = 5;

std::string human(int64_t bytes) {
  const char* unit = "B";
  auto size = static_cast<double>(bytes);
  for (const char* larger : {"KiB", "MiB", "GiB"}) {
    if (size < 1024) break;
    size /= 1024;
    unit = larger;
  }
  std::ostringstream text;
  text << std::fixed << std::setprecision(size < 10 ? 1 : 0) << size << ' ' << unit;
  return text.str();
}

// Of what brings data to the devices.
std::mutex& place_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// Of data that leave their checks behind; never held while anybody waits for these.
SpinLock& settling() {
  static auto* lock = new SpinLock;
  return *lock;
}

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::string shape_of(const pjrt::Buffer& buffer) {
  return shape_text(element_type(buffer.type()), buffer.dims());
}

}  // namespace

// Of one device: its data, and the bytes they hold.
struct Account {
  std::atomic<int64_t> now{0};
  std::atomic<int64_t> peak{0};
  SpinLock lock;  // of the list
  DeviceData* first = nullptr;

  using All = std::array<Account, std::numeric_limits<c10::DeviceIndex>::max() + 1>;
  static All& all() {
    static auto* accounts = new All;  // never destroyed: data may outlive static destructors
    return *accounts;
  }
  static Account& of(c10::DeviceIndex device) {
    return all()[static_cast<size_t>(device < 0 ? 0 : device)];
  }
  void enter(DeviceData* data) {
    std::lock_guard guard(lock);
    data->next_ = first;
    if (first) first->previous_ = data;
    first = data;
  }
  void leave(DeviceData* data) {
    std::lock_guard guard(lock);
    (data->previous_ ? data->previous_->next_ : first) = data->next_;
    if (data->next_) data->next_->previous_ = data->previous_;
  }

  void add(int64_t bytes) {
    const int64_t sum = now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (seen < sum && !peak.compare_exchange_weak(seen, sum, std::memory_order_relaxed)) {
    }
  }

  // The largest arrays: bytes, and what to say of each.
  std::vector<std::pair<int64_t, std::string>> largest(size_t count) {
    std::vector<DeviceData*> holding;
    std::lock_guard guard(lock);
    for (DeviceData* data = first; data; data = data->next_) {
      if (data->bytes_.load() > 0) holding.push_back(data);
    }
    count = std::min(count, holding.size());
    std::partial_sort(holding.begin(), holding.begin() + static_cast<std::ptrdiff_t>(count),
                      holding.end(),
                      [](auto* a, auto* b) { return a->bytes_.load() > b->bytes_.load(); });
    std::vector<std::pair<int64_t, std::string>> result;
    for (size_t i = 0; i < count; ++i) {
      const std::string where = ir::describe(holding[i]->location_);
      result.emplace_back(holding[i]->bytes_.load(), shape_of(holding[i]->array_.buffer()) +
                                                         (where.empty() ? "" : " from " + where));
    }
    return result;
  }
};

namespace {

const ForkLock g_fork_lock(
    ForkLock::Order::kData,
    [] {
      for (Account& account : Account::all()) account.lock.lock();
      settling().lock();
    },
    [] {
      settling().unlock();
      for (Account& account : Account::all()) account.lock.unlock();
    });

}  // namespace

DeviceData::DeviceData(c10::Device device, ir::Location location)
    : id_(next_id()), device_(device), location_(location) {
  Account::of(device.index()).enter(this);
}

DeviceData::DeviceData(c10::Device device, ir::Location location, Place place)
    : DeviceData(device, location) {
  place_ = std::move(place);
  state_.store(State::kOnHost, std::memory_order_release);
}

DeviceData::~DeviceData() {
  host_memory::note_freed(bytes_.load());
  give_up();
  leave(std::move(array_));
  Account::of(device_.index()).leave(this);
}

void DeviceData::give_up() { Account::of(device_.index()).add(-bytes_.exchange(0)); }

void DeviceData::fulfil(Array array, std::shared_ptr<CheckReport> report, uint64_t mask,
                        bool is_right) {
  array_ = std::move(array);
  expect(array_.sharding());
  const auto bytes = static_cast<int64_t>(array_.bytes());
  Account::of(device_.index()).add(bytes - bytes_.exchange(bytes));
  report_ = std::move(report);
  mask_ = mask;
  state_.store(report_ && !is_right ? State::kUnchecked : State::kReady, std::memory_order_release);
  state_.notify_all();
}

void DeviceData::fail(std::exception_ptr error, ir::Value instead) {
  error_ = std::move(error);
  instead_ = std::move(instead);
  state_.store(State::kFailed, std::memory_order_release);
  state_.notify_all();
  note_failure();
}

ir::Value DeviceData::standing(const ir::Value& leaf) {
  ir::Value value = leaf;
  while (const DeviceData* data = of(value)) {
    if (!data->failed()) return data->is_gone() ? ir::Value() : value;
    value = ir::Value(data->instead_);
  }
  return value;
}

bool DeviceData::is_gone() const {
  const State state = state_.load(std::memory_order_acquire);
  return (state == State::kReady || state == State::kUnchecked) && (!array_ || array_.is_deleted());
}

void DeviceData::wait(bool may_end) const {
  const State state = state_.load(std::memory_order_acquire);
  if ((state != State::kReady && state != State::kUnchecked) || is_gone()) return;
  if (may_end) wait_or_interrupt(array_);
  try {
    array_.wait();
  } catch (const pjrt::Error&) {
    if (!is_gone()) throw;  // another thread's step has taken it since
  }
}

void DeviceData::settle() {
  std::shared_ptr<CheckReport> report;
  {
    std::lock_guard lock(settling());
    if (!is_unsettled()) return;
    report = report_;
  }
  const std::exception_ptr error = report->error(mask_);
  std::lock_guard lock(settling());
  if (!is_unsettled()) return;
  if (error) {
    fail(error);
  } else {
    report_ = nullptr;
    state_.store(State::kReady, std::memory_order_release);
  }
}

std::exception_ptr DeviceData::error() const { return failed() ? error_ : nullptr; }

void DeviceData::about_to_be_read() {
  pjrt::check_not_forked();
  state_.wait(State::kPromised, std::memory_order_acquire);
  const State state = state_.load(std::memory_order_acquire);
  if ((state != State::kReady && state != State::kUnchecked) || is_gone()) return;
  wait_or_interrupt(array_);
  if (state != State::kReady || !report_) return;
  if (const std::exception_ptr error = report_->take_untold(mask_)) std::rethrow_exception(error);
}

LiveBytes live_bytes(c10::DeviceIndex device) {
  const Account& account = Account::of(device);
  return {account.now.load(), account.peak.load()};
}

std::string memory_error(const std::string& what, c10::Device device) {
  std::string text = what;
  const char* separator = "\n  largest live tensors: ";
  for (const auto& [bytes, description] : Account::of(device.index()).largest(kNamedInErrors)) {
    text += separator + human(bytes) + ' ' + description;
    separator = ", ";
  }
  return text +
         "\n  Sync after optimizer.step(), so that the step may overwrite its parameters; use a "
         "smaller batch; or let go of tensors that are not needed.";
}

ir::Value DeviceData::leaf(ir::ShapeRef shape, std::shared_ptr<DeviceData> data) {
  const ir::Location location = data->location_;
  return ir::Node::leaf(ir::kDeviceData, shape, std::move(data), location);
}

DeviceData* DeviceData::of(const ir::Value& value) {
  if (!value || &value.node->op() != &ir::kDeviceData) return nullptr;
  return static_cast<DeviceData*>(value.node->payload());
}

void DeviceData::each(c10::DeviceIndex device, const std::function<void(DeviceData&)>& change) {
  Account& account = Account::of(device);
  std::lock_guard guard(account.lock);
  for (DeviceData* data = account.first; data; data = data->next_) {
    if (data->has_array() && data->array_ && !data->array_.is_deleted()) change(*data);
  }
}

DeviceData::Place DeviceData::place_of_host() {
  std::lock_guard lock(place_mutex());
  return on_host() ? place_ : Place();
}

bool DeviceData::place(const sharding::Sharding* sharding) {
  std::lock_guard lock(place_mutex());
  if (is_dry_run() && sharding && (on_host() || failed())) {
    expect(sharding);  // it stays where it is until it is read, if it ever is
    return true;
  }
  if (!on_host()) return false;
  fulfil(place_(sharding));
  place_ = nullptr;
  return true;
}

const Array& DeviceData::array() const {
  pjrt::check_not_forked();  // here nobody would ever keep the promise
  state_.wait(State::kPromised, std::memory_order_acquire);
  if (on_host()) [[unlikely]] {
    const InEarnest in_earnest;  // what a dry run keeps on the host may be read
    const_cast<DeviceData*>(this)->place(sharding());
  }
  if (state_.load(std::memory_order_acquire) == State::kUnchecked) [[unlikely]]
    const_cast<DeviceData*>(this)->settle();
  if (failed()) {
    if (report_) report_->tell(mask_);
    note_told(error_);
    std::rethrow_exception(error_);
  }
  return array_;
}

}  // namespace torch_xla::lazy
