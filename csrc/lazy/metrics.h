#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torch_xla::lazy::metrics {

// A named count ("CachedCompile", "aten::nonzero"). Make one per site with static storage, or look
// one up by name; adding is one relaxed atomic. Counters with value 0 are not listed.
class Counter {
 public:
  explicit Counter(std::string_view name);
  void add(int64_t amount = 1);

 private:
  std::atomic<int64_t>* value_;
};

enum class Unit : uint8_t { kNanoseconds, kBytes, kCount };

// A named series of samples ("CompileTime"): total count and sum, and the last 1024 samples with
// their time stamps.
class Metric {
 public:
  Metric(std::string_view name, Unit unit);
  void add(double sample);
  struct Data;

 private:
  Data* data_;
};

// Adds the nanoseconds between construction and destruction to a metric.
class Timer {
 public:
  explicit Timer(Metric& metric);
  ~Timer();

 private:
  Metric& metric_;
  int64_t start_ns_;
};

struct Sample {
  double timestamp;  // seconds since the epoch
  double value;      // in the metric's unit
};
struct MetricData {
  int64_t count = 0;
  double total = 0;
  std::vector<Sample> samples;
};

// Adds to the counter of that name, made when missing.
void count(std::string_view name, int64_t amount = 1);
std::vector<std::string> counter_names();
std::optional<int64_t> counter_value(const std::string& name);
void clear_counters();
std::vector<std::string> metric_names();
std::optional<MetricData> metric_data(const std::string& name);
void clear_metrics();
// The printed report of everything, and of chosen names only.
std::string report();
std::string report(const std::vector<std::string>& counters,
                   const std::vector<std::string>& metrics);

}  // namespace torch_xla::lazy::metrics
