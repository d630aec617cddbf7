#include "lazy/compile_behind.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "pjrt/fork_guard.h"

namespace torch_xla::lazy {
namespace {

// Never destroyed, nor is its thread ended: when the process ends it has nothing to do.
class Compiler {
 public:
  static Compiler& get() {
    static auto* compiler = new Compiler;
    return *compiler;
  }

  void add(const ir::Hash128& key, std::function<void()> compile) {
    std::lock_guard lock(mutex_);
    if (contains(key)) return;
    if (!std::exchange(started_, true)) std::thread([this] { run(); }).detach();
    waiting_.push_back({key, std::move(compile)});
    changed_.notify_all();
  }

  bool has(const ir::Hash128& key) {
    std::lock_guard lock(mutex_);
    return contains(key);
  }

  size_t size() {
    std::lock_guard lock(mutex_);
    return waiting_.size() + (current_ ? 1 : 0);
  }

  void await(const ir::Hash128& key) {
    std::unique_lock lock(mutex_);
    if (const auto job = find(key); job != waiting_.end()) waiting_.erase(job);
    changed_.wait(lock, [&] { return !(current_ == key); });
  }

  void finish() {
    std::unique_lock lock(mutex_);
    waiting_.clear();
    changed_.wait(lock, [&] { return !current_; });
  }

 private:
  struct Job {
    ir::Hash128 key;
    std::function<void()> compile;
  };

  bool contains(const ir::Hash128& key) { return current_ == key || find(key) != waiting_.end(); }

  std::deque<Job>::iterator find(const ir::Hash128& key) {
    return std::find_if(waiting_.begin(), waiting_.end(),
                        [&](const Job& job) { return job.key == key; });
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !waiting_.empty(); });
      Job job = std::move(waiting_.front());
      waiting_.pop_front();
      current_ = job.key;
      lock.unlock();
      try {
        job.compile();
      } catch (const std::exception&) {
        // Compiled again, and thrown, where the program is used.
      }
      job = {};
      lock.lock();
      current_.reset();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  std::optional<ir::Hash128> current_;  // being compiled
  bool started_ = false;
};

}  // namespace

void compile_behind(const ir::Hash128& key, std::function<void()> compile) {
  Compiler::get().add(key, std::move(compile));
}

bool is_compiling_behind(const ir::Hash128& key) { return Compiler::get().has(key); }

size_t num_compiling_behind() { return Compiler::get().size(); }

void await_compiled_behind(const ir::Hash128& key) {
  if (!pjrt::forked_with_client()) Compiler::get().await(key);
}

void finish_compiling_behind() {
  if (!pjrt::forked_with_client()) Compiler::get().finish();
}

}  // namespace torch_xla::lazy
