#include "lazy/launch.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "lazy/at_fork.h"
#include "lazy/dry_run.h"
#include "lazy/host_memory.h"
#include "lazy/leftovers.h"
#include "lazy/metrics.h"
#include "lazy/runtime.h"
#include "lazy/spmd.h"
#include "lazy/untold.h"
#include "pjrt/error.h"
#include "pjrt/fork_guard.h"

namespace torch_xla::lazy {
namespace {

Arrays upload(std::span<const ScalarValue> numbers, c10::Device device) {
  std::vector<float> singles;
  std::vector<double> doubles;
  std::vector<int64_t> integers;
  for (const ScalarValue& number : numbers) {
    switch (number.kind) {
      case ir::ScalarClass::kF32:
        singles.push_back(static_cast<float>(number.real));
        break;
      case ir::ScalarClass::kF64:
        doubles.push_back(number.real);
        break;
      default:
        integers.push_back(number.integer);
    }
  }
  Arrays arrays;
  const auto put = [&](const auto& list, pjrt::BufferType type) {
    if (list.empty()) return;
    const auto count = static_cast<int64_t>(list.size());
    const auto on = [&](pjrt::Device* target) {
      return Runtime::get().client().buffer_from_host(
          list.data(), type, std::span(&count, 1), {}, target,
          pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
    };
    if (!is_partitioned()) {
      arrays.push_back(on(Runtime::get().device(device)));
      return;
    }
    std::vector<std::unique_ptr<pjrt::Buffer>> shards;
    for (pjrt::Device* each : Runtime::get().client().addressable_devices()) {
      shards.push_back(on(each));
    }
    arrays.push_back(Array(replicated(1), std::move(shards)));
  };
  put(singles, pjrt::BufferType::kF32);
  put(doubles, pjrt::BufferType::kF64);
  put(integers, pjrt::BufferType::kS64);
  return arrays;
}

// One call for all devices: a list of arguments and a list of results for each.
Arrays execute_partitioned(const Program& program, std::span<const Array* const> arguments,
                           const pjrt::ExecuteOptions& options) {
  std::vector<std::vector<pjrt::Buffer*>> lists(program.shards.size());
  for (size_t d = 0; d < lists.size(); ++d) {
    lists[d].reserve(arguments.size());
    for (const Array* array : arguments) lists[d].push_back(&array->shard(program.shards[d]));
  }
  auto results = program.executable->execute_sharded(lists, options);
  Arrays arrays;
  arrays.reserve(program.output_shardings.size());
  for (size_t i = 0; i < program.output_shardings.size(); ++i) {
    std::vector<std::unique_ptr<pjrt::Buffer>> shards(results.size());
    for (size_t d = 0; d < shards.size(); ++d) {
      shards[program.shards[d]] = std::move(results[d][i]);
    }
    arrays.emplace_back(program.output_shardings[i], std::move(shards));
  }
  return arrays;
}

Arrays execute_on(const Program& program, std::span<const Array* const> arguments,
                  c10::Device device, pjrt::ExecuteOptions options) {
  std::vector<pjrt::Buffer*> buffers;
  buffers.reserve(arguments.size());
  for (const Array* array : arguments) buffers.push_back(&array->buffer());
  options.execute_device = Runtime::get().device(device);
  auto results = program.executable->execute(buffers, options);
  return {std::make_move_iterator(results.begin()), std::make_move_iterator(results.end())};
}

// For reports on a step.
struct LastExecuted {
  std::mutex mutex;
  std::weak_ptr<pjrt::Executable> executable;
};
LastExecuted& last() {
  static auto* last = new LastExecuted;
  return *last;
}

// Launched work whose end nobody has waited for; bounded by dropping what is over.
struct InFlight {
  std::mutex mutex;
  std::vector<std::pair<c10::DeviceIndex, std::weak_ptr<DeviceData>>> last;
};
InFlight& in_flight() {
  static auto* work = new InFlight;
  return *work;
}

// Blocks until all programs of the device that are under way are over. Returns the error of the
// first one that failed, if any. `may_end` as for DeviceData::wait().
std::exception_ptr wait_launched(c10::Device device, bool may_end) {
  std::exception_ptr first;
  std::vector<std::shared_ptr<DeviceData>> outputs;
  {
    std::lock_guard lock(in_flight().mutex);
    for (const auto& [index, weak] : in_flight().last) {
      if (index != device.index()) continue;
      if (auto output = weak.lock()) outputs.push_back(std::move(output));
    }
  }
  for (const auto& output : outputs) {
    try {
      output->wait(may_end);
    } catch (const pjrt::Error&) {
      if (!first) first = std::current_exception();
    }
  }
  return first;
}

// After that: the same errors are no more met.
void forget_launched(c10::Device device) {
  std::lock_guard lock(in_flight().mutex);
  std::erase_if(in_flight().last, [&](const auto& entry) { return entry.first == device.index(); });
}

// A second step in flight would hold results and temporaries beside those of the first. Where
// memory is the host's and much of it is taken, a launch waits for the one before; its own tracing
// is over by then.
void keep_memory_small(c10::Device device) {
  if (!Runtime::get().is_cpu()) return;
  // In SPMD mode the account is that of one device, and all of them are the host's.
  const int64_t live = live_bytes(device.index()).now * static_cast<int64_t>(num_partitions());
  if (!host_memory::is_scarce(live)) return;
  host_memory::map_large_blocks();
  wait_launched(device, /*may_end=*/false);
}

// The thread behind, and what it is to do. Never destroyed, nor is the thread ended: when the
// process ends it has nothing to do.
class Behind {
 public:
  static Behind& get() {
    static auto* behind = new Behind;
    return *behind;
  }

  void start(std::function<void()> launch) {
    launch_ = std::move(launch);
    state_.store(State::kQueued, std::memory_order_release);
    state_.notify_all();
  }

  // Launches here if the thread is not awake yet.
  void help() {
    if (!pjrt::forked_with_client() && take()) run();
  }

  void finish() {
    if (launches_here() || pjrt::forked_with_client()) return;
    help();
    for (State now = state_.load(std::memory_order_acquire); now != State::kIdle;
         now = state_.load(std::memory_order_acquire)) {
      state_.wait(now, std::memory_order_acquire);
    }
  }

  // For who is about to fork. A launch takes no time; one that fails compiles other programs, may
  // call into Python for that, and is left alone: the caller holds the GIL.
  void finish_soon() {
    if (launches_here() || pjrt::forked_with_client()) return;
    help();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (state_.load(std::memory_order_acquire) != State::kIdle &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  enum class State : int { kIdle, kQueued, kRunning };

  Behind() {
    std::thread([this] { work(); }).detach();
    // The plugin must not be at work while its static objects are destroyed.
    std::atexit([] { get().finish(); });
  }

  // Whether the launch runs on this thread.
  static bool& launches_here() {
    thread_local bool here = false;
    return here;
  }

  // Whether this thread is to run what was queued.
  bool take() {
    State expected = State::kQueued;
    return state_.compare_exchange_strong(expected, State::kRunning, std::memory_order_acq_rel);
  }

  void run() {
    launches_here() = true;
    std::exchange(launch_, nullptr)();
    launches_here() = false;
    state_.store(State::kIdle, std::memory_order_release);
    state_.notify_all();
  }

  void work() {
    while (true) {
      const State now = state_.load(std::memory_order_acquire);
      if (now == State::kQueued && take()) {
        run();
        destroy_leftovers();
      } else if (now != State::kQueued) {
        state_.wait(now, std::memory_order_acquire);
      }
    }
  }

  std::function<void()> launch_;
  std::atomic<State> state_{State::kIdle};
};

std::atomic<bool> any_behind{false};

// A plugin's locks, and malloc's arenas, are better not forked in the middle of a launch.
const ForkLock g_fork_lock(
    ForkLock::Order::kLaunch,
    [] {
      if (any_behind.load()) Behind::get().finish_soon();
    },
    nullptr);

}  // namespace

std::mutex& launch_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

Arrays execute(const Program& program, std::span<const Array* const> arguments,
               std::span<const ScalarValue> numbers, c10::Device device,
               std::vector<int64_t> kept) {
  static metrics::Metric time("ExecuteTime", metrics::Unit::kNanoseconds);
  finish_launch();
  if (is_dry_run()) std::rethrow_exception(not_computed());
  TORCH_CHECK(program.output_shardings.empty() != is_partitioned(),
              "a program that was made before torch_xla.runtime.use_spmd() cannot run after it");
  metrics::Timer timer(time);
  const Arrays uploaded = upload(numbers, device);
  std::vector<const Array*> all(arguments.begin(), arguments.end());
  for (const Array& array : uploaded) all.push_back(&array);
  keep_memory_small(device);
  {
    std::lock_guard lock(last().mutex);
    last().executable = program.executable;
  }
  try {
    pjrt::ExecuteOptions options;
    options.non_donatable_input_indices = std::move(kept);
    return program.output_shardings.empty() ? execute_on(program, all, device, std::move(options))
                                            : execute_partitioned(program, all, options);
  } catch (const pjrt::Error& error) {
    if (error.code() != pjrt::ErrorCode::kResourceExhausted) throw;
    TORCH_CHECK_WITH(OutOfMemoryError, false, memory_error(error.what(), device));
  }
}

void remember_launch(c10::Device device, const std::shared_ptr<DeviceData>& output) {
  std::lock_guard lock(in_flight().mutex);
  auto& last = in_flight().last;
  std::erase_if(last, [](const auto& entry) { return entry.second.expired(); });
  if (last.size() > 64) last.erase(last.begin());
  last.emplace_back(device.index(), output);
}

std::shared_ptr<pjrt::Executable> last_executed() {
  finish_launch();
  std::lock_guard lock(last().mutex);
  return last().executable.lock();
}

void launch_behind(std::function<void()> launch) {
  try {
    Behind::get();
  } catch (const std::system_error&) {
    return launch();  // no more threads to be had
  }
  any_behind.store(true);
  Behind::get().start(std::move(launch));
}

void finish_launch() {
  if (any_behind.load()) Behind::get().finish();
}

void help_launch() {
  if (any_behind.load()) Behind::get().help();
}

void wait_device(c10::Device device) {
  pjrt::check_not_forked();
  finish_launch();
  const std::exception_ptr error = wait_launched(device, /*may_end=*/true);
  if (error) forget_launched(device);
  if (const auto untold = take_untold(device, /*wait=*/true)) {
    if (error) note_untold(device, error);
    std::rethrow_exception(untold);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace torch_xla::lazy
