#include "lazy/metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>

namespace torch_xla::lazy::metrics {
namespace {

constexpr size_t kKeptSamples = 1024;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

struct Metric::Data {
  explicit Data(Unit unit) : unit(unit) {}

  MetricData snapshot() {
    std::lock_guard lock(mutex);
    MetricData result{count, total, {}};
    result.samples.reserve(ring.size());
    // The oldest sample is where the next one goes, once the ring is full.
    const size_t oldest =
        ring.size() < kKeptSamples ? 0 : static_cast<size_t>(count) % kKeptSamples;
    for (size_t i = 0; i < ring.size(); ++i) {
      result.samples.push_back(ring[(oldest + i) % ring.size()]);
    }
    return result;
  }

  void clear() {
    std::lock_guard lock(mutex);
    count = 0;
    total = 0;
    ring.clear();
  }

  const Unit unit;
  std::mutex mutex;
  int64_t count = 0;
  double total = 0;
  std::vector<Sample> ring;
};

namespace {

// Entries are never removed, so that a Counter or Metric with static storage may keep a pointer.
template <class Entry>
class Registry {
 public:
  template <class... Arguments>
  Entry& get(std::string_view name, Arguments&&... arguments) {
    std::lock_guard lock(mutex_);
    auto found = entries_.find(name);
    if (found == entries_.end()) {
      found = entries_
                  .emplace(std::string(name),
                           std::make_unique<Entry>(std::forward<Arguments>(arguments)...))
                  .first;
    }
    return *found->second;
  }

  Entry* find(std::string_view name) {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : found->second.get();
  }

  // In the order of the names.
  template <class Visitor>
  void visit(Visitor visitor) {
    std::lock_guard lock(mutex_);
    for (auto& [name, entry] : entries_) visitor(name, *entry);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Entry>, std::less<>> entries_;
};

using CounterValue = std::atomic<int64_t>;

// Neither is destroyed: static objects and other threads count until the very end.
Registry<CounterValue>& counters() {
  static auto* registry = new Registry<CounterValue>;
  return *registry;
}

Registry<Metric::Data>& all_metrics() {
  static auto* registry = new Registry<Metric::Data>;
  return *registry;
}

// "1h02m03s004ms005.678us", from the first unit that is not zero; "005.678us" at least.
std::string format_duration(double nanoseconds) {
  constexpr struct {
    const char* format;
    double ns;
  } kUnits[] = {{"%02" PRId64 "d", 86400e9},
                {"%02" PRId64 "h", 3600e9},
                {"%02" PRId64 "m", 60e9},
                {"%02" PRId64 "s", 1e9},
                {"%03" PRId64 "ms", 1e6}};
  std::string text;
  char part[48];
  for (const auto& unit : kUnits) {
    const auto whole = static_cast<int64_t>(nanoseconds / unit.ns);
    if (whole == 0 && text.empty()) continue;
    std::snprintf(part, sizeof part, unit.format, whole);
    text += part;
    nanoseconds -= static_cast<double>(whole) * unit.ns;
  }
  std::snprintf(part, sizeof part, "%07.3fus", nanoseconds / 1e3);
  return text + part;
}

std::string format_bytes(double bytes) {
  constexpr const char* kSuffixes[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  size_t i = 0;
  for (; bytes >= 1024 && i + 1 < std::size(kSuffixes); ++i) bytes /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, "%.2f%s", bytes, kSuffixes[i]);
  return text;
}

std::string format(double value, Unit unit) {
  if (unit == Unit::kNanoseconds) return format_duration(value);
  if (unit == Unit::kBytes) return format_bytes(value);
  char text[48];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

void report_metric(std::ostream& out, const std::string& name, Metric::Data& metric) {
  const MetricData data = metric.snapshot();
  if (data.count == 0) return;
  out << "Metric: " << name << "\n  TotalSamples: " << data.count
      << "\n  Accumulator: " << format(data.total, metric.unit) << "\n";
  const double span = data.samples.back().timestamp - data.samples.front().timestamp;
  std::vector<double> values;
  double sum = 0;
  for (const Sample& sample : data.samples) {
    values.push_back(sample.value);
    sum += sample.value;
  }
  if (span > 0) {
    out << "  ValueRate: " << format(sum / span, metric.unit) << " / second\n"
        << "  Rate: " << static_cast<double>(values.size()) / span << " / second\n";
  }
  std::sort(values.begin(), values.end());
  out << "  Percentiles: ";
  const char* separator = "";
  for (size_t percent : {1, 5, 10, 20, 50, 80, 90, 95, 99}) {
    out << separator << percent
        << "%=" << format(values[values.size() * percent / 100], metric.unit);
    separator = "; ";
  }
  out << "\n";
}

void report_counter(std::ostream& out, const std::string& name, int64_t value) {
  if (value != 0) out << "Counter: " << name << "\n  Value: " << value << "\n";
}

}  // namespace

Counter::Counter(std::string_view name) : value_(&counters().get(name)) {}

void Counter::add(int64_t amount) { value_->fetch_add(amount, std::memory_order_relaxed); }

Metric::Metric(std::string_view name, Unit unit) : data_(&all_metrics().get(name, unit)) {}

void Metric::add(double sample) {
  const Sample entry{seconds_since_epoch(), sample};
  std::lock_guard lock(data_->mutex);
  if (data_->ring.size() < kKeptSamples) {
    data_->ring.push_back(entry);
  } else {
    data_->ring[static_cast<size_t>(data_->count) % kKeptSamples] = entry;
  }
  ++data_->count;
  data_->total += sample;
}

Timer::Timer(Metric& metric) : metric_(metric), start_ns_(now_ns()) {}

Timer::~Timer() { metric_.add(static_cast<double>(now_ns() - start_ns_)); }

void count(std::string_view name, int64_t amount) {
  counters().get(name).fetch_add(amount, std::memory_order_relaxed);
}

std::vector<std::string> counter_names() {
  std::vector<std::string> names;
  counters().visit([&](const std::string& name, const CounterValue& value) {
    if (value.load() != 0) names.push_back(name);
  });
  return names;
}

std::optional<int64_t> counter_value(const std::string& name) {
  const CounterValue* value = counters().find(name);
  if (!value || value->load() == 0) return std::nullopt;
  return value->load();
}

void clear_counters() {
  counters().visit([](const std::string&, CounterValue& value) { value.store(0); });
}

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  all_metrics().visit([&](const std::string& name, Metric::Data& metric) {
    if (metric.snapshot().count != 0) names.push_back(name);
  });
  return names;
}

std::optional<MetricData> metric_data(const std::string& name) {
  Metric::Data* metric = all_metrics().find(name);
  if (!metric) return std::nullopt;
  MetricData data = metric->snapshot();
  if (data.count == 0) return std::nullopt;
  return data;
}

void clear_metrics() {
  all_metrics().visit([](const std::string&, Metric::Data& metric) { metric.clear(); });
}

std::string report() {
  std::ostringstream out;
  all_metrics().visit(
      [&](const std::string& name, Metric::Data& metric) { report_metric(out, name, metric); });
  counters().visit([&](const std::string& name, const CounterValue& value) {
    report_counter(out, name, value.load());
  });
  return out.str();
}

std::string report(const std::vector<std::string>& counter_list,
                   const std::vector<std::string>& metric_list) {
  std::ostringstream out;
  for (const std::string& name : metric_list) {
    if (Metric::Data* metric = all_metrics().find(name)) report_metric(out, name, *metric);
  }
  for (const std::string& name : counter_list) {
    if (const auto value = counter_value(name)) report_counter(out, name, *value);
  }
  return out.str();
}

}  // namespace torch_xla::lazy::metrics
