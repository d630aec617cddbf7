#include "lazy/program.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <cstring>
#include <list>
#include <mutex>
#include <unordered_map>

#include "ir/donation.h"
#include "ir/lowering.h"
#include "ir/signature.h"
#include "lazy/data.h"
#include "lazy/host_function.h"
#include "lazy/host_memory.h"
#include "lazy/metrics.h"
#include "lazy/persistent_cache.h"
#include "lazy/recompiles.h"
#include "lazy/runtime.h"
#include "lazy/settings.h"
#include "pjrt/compile_options.h"

namespace torch_xla::lazy {
namespace {

struct Listener {
  std::mutex mutex;
  std::function<void(const CompileReport&)> call;
};
Listener& listener() {
  static auto* listener = new Listener;
  return *listener;
}

std::string gigabytes(int64_t bytes) {
  return std::to_string(bytes / (1 << 30)) + '.' +
         std::to_string((bytes % (1 << 30)) * 10 / (1 << 30)) + " GiB";
}

// A plugin may not look before it leaps: on CPU a program that needs more memory than there is
// could end with the system killing the process.
std::string refusal_of(const pjrt::Executable& executable, c10::Device device) {
  const auto stats = executable.memory_stats();
  if (!stats) return "";
  const int64_t results = stats->output_size - stats->alias_size;
  const int64_t needed = stats->argument_size + results + stats->temp_size;
  const int64_t limit = memory_limit(device.index());
  if (needed <= limit) return "";
  return "XLA: tried to allocate " + gigabytes(needed) + " for a program (arguments " +
         gigabytes(stats->argument_size) + ", results " + gigabytes(results) + ", temporaries " +
         gigabytes(stats->temp_size) + "), but " + device.str() + " has " + gigabytes(limit);
}

// Least recently used programs leave first.
class ProgramCache {
 public:
  std::shared_ptr<Program> find(const ir::Hash128& key) {
    std::lock_guard lock(mutex_);
    const auto entry = index_.find(key);
    if (entry == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, entry->second);
    return entry->second->second;
  }
  void insert(const ir::Hash128& key, std::shared_ptr<Program> program) {
    std::lock_guard lock(mutex_);
    if (index_.contains(key)) return;
    entries_.emplace_front(key, std::move(program));
    index_[key] = entries_.begin();
    trim();
  }
  size_t size() {
    std::lock_guard lock(mutex_);
    return entries_.size();
  }
  void set_capacity(size_t capacity) {
    std::lock_guard lock(mutex_);
    capacity_ = capacity;
    trim();
  }
  void clear() {
    std::lock_guard lock(mutex_);
    index_.clear();
    entries_.clear();
  }

 private:
  void trim() {
    while (entries_.size() > capacity_) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
  }

  using Entry = std::pair<ir::Hash128, std::shared_ptr<Program>>;
  std::mutex mutex_;
  size_t capacity_ = 2048;
  std::list<Entry> entries_;
  std::unordered_map<ir::Hash128, std::list<Entry>::iterator> index_;
};

ProgramCache& program_cache() {
  static auto* cache = new ProgramCache;
  return *cache;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

pjrt::CompileOptions compile_options() {
  pjrt::CompileOptions options;
  options.portable = true;
  // Without this XLA:CPU drops NaN in max, min and their reductions.
  if (Runtime::get().is_cpu()) {
    options.env_overrides["xla_cpu_enable_fast_min_max"] = false;
  }
  for (const auto& [name, value] : compile_overrides()) options.env_overrides[name] = value;
  return options;
}

void add_settings(ir::Hash128& key) {
  if (const std::string precision = matmul_precision(); precision != "default") {
    key.add(ir::hash_text(precision));
  }
  for (const auto& [name, value] : compile_overrides()) {
    key.add(ir::hash_text(name + '=' + pjrt::to_string(value)));
  }
}

void tell(const CompileReport& report) {
  std::function<void(const CompileReport&)> call;
  {
    std::lock_guard lock(listener().mutex);
    call = listener().call;
  }
  if (call) call(report);
}

constexpr const char* kWaitCall = "torch_xla.wait";

void give_first(const pjrt::FfiCall& call) {
  const pjrt::FfiBuffer number = call.arg(0);
  std::memcpy(call.result(0).data, number.data, pjrt::host_element_size(number.type));
}

// XLA's CPU compiler decides on copies before it schedules, and would copy each weight that a
// gradient reads too: half a gigabyte a step of GPT-2 small. Empty where it cannot be helped.
const std::string& wait_call() {
  static const std::string name =
      register_host_function(kWaitCall, pjrt::ffi_entry<give_first>) ? kWaitCall : "";
  return name;
}

// Only what is compiled in earnest is timed, counted and reported; a program from disk is not.
std::shared_ptr<Program> compile(const ir::Graph& graph, std::span<const ir::Value> roots,
                                 const std::vector<bool>& donated, c10::Device device) {
  static metrics::Metric time("CompileTime", metrics::Unit::kNanoseconds);
  static metrics::Counter cached("CachedCompile"), uncached("UncachedCompile");
  const auto start = std::chrono::steady_clock::now();
  ir::LoweringOptions lowering;
  lowering.name = graph_name();
  lowering.matmul_precision = upper(matmul_precision());
  lowering.parameter_aliases = ir::pair_donations(graph, roots, donated);
  lowering.wait_call = wait_call();
  lowering.locations = true;
  const ir::LoweredProgram lowered = ir::lower(graph, roots, lowering);
  auto program = std::make_shared<Program>();
  CompiledOrLoaded made =
      load_or_compile(Runtime::get().client(), lowered.module, compile_options());
  program->executable = std::move(made.executable);
  program->refusal = refusal_of(*program->executable, device);
  (made.loaded ? cached : uncached).add();
  if (made.loaded) return program;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  host_memory::return_compilers(seconds.count());
  time.add(seconds.count() * 1e9);
  tell({graph.key, lowering.name, graph.order.size(), graph.parameters.size(), roots.size(),
        seconds.count(), program->executable->memory_stats(),
        note_compilation(ir::Signature(graph, roots, donated))});
  return program;
}

}  // namespace

std::shared_ptr<Program> program_for(ir::Graph& graph, std::span<const ir::Value> roots,
                                     const std::vector<bool>& donated, c10::Device device) {
  static metrics::Counter cached("CachedCompile");
  for (size_t i = 0; i < donated.size(); ++i) {
    if (donated[i]) graph.key.add(i + 1);
  }
  add_settings(graph.key);
  std::shared_ptr<Program> program = program_cache().find(graph.key);
  if (program) {
    cached.add();
  } else {
    program = compile(graph, roots, donated, device);
    program_cache().insert(graph.key, program);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, program->refusal.empty(),
                   memory_error(program->refusal, device));
  return program;
}

std::string lower_to_text(const ir::Graph& graph, std::span<const ir::Value> roots,
                          const std::string& name) {
  ir::LoweringOptions options;
  options.name = name;
  options.matmul_precision = upper(matmul_precision());
  return ir::lower(graph, roots, options).module;
}

void set_compile_listener(std::function<void(const CompileReport&)> call) {
  std::lock_guard lock(listener().mutex);
  listener().call = std::move(call);
}

size_t cached_program_count() { return program_cache().size(); }
void set_cache_capacity(size_t programs) { program_cache().set_capacity(programs); }
void clear_cache() { program_cache().clear(); }

}  // namespace torch_xla::lazy
