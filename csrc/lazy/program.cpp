#include "lazy/program.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <mutex>
#include <unordered_map>

#include "ir/donation.h"
#include "ir/lowering.h"
#include "ir/manual.h"
#include "ir/signature.h"
#include "lazy/compile_behind.h"
#include "lazy/data.h"
#include "lazy/dry_run.h"
#include "lazy/host_function.h"
#include "lazy/host_memory.h"
#include "lazy/metrics.h"
#include "lazy/persistent_cache.h"
#include "lazy/recompiles.h"
#include "lazy/replication.h"
#include "lazy/runtime.h"
#include "lazy/settings.h"
#include "lazy/spmd.h"
#include "pjrt/compile_options.h"
#include "sharding/dialect.h"
#include "sharding/op_sharding.h"

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
  // Devices made of the CPU have one memory, the host's, and each needs as much of it.
  const auto sharing = static_cast<int64_t>(Runtime::get().is_cpu() ? num_partitions() : 1);
  const int64_t needed = (stats->argument_size + results + stats->temp_size) * sharing;
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

// `mesh`: null for a program of one device.
pjrt::CompileOptions compile_options(const sharding::Mesh* mesh) {
  pjrt::CompileOptions options;
  options.portable = !mesh;
  if (mesh) {
    options.num_partitions = static_cast<int>(num_partitions());
    options.use_spmd_partitioning = true;
    options.use_shardy = sharding::dialect() == sharding::Dialect::kShardy;
    const auto& devices = Runtime::get().client().addressable_devices();
    for (const int64_t device : mesh->devices()) {
      options.device_assignment.push_back(devices.at(static_cast<size_t>(device))->id());
    }
  }
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

// A parameter gives its memory to an output only if both are cut alike.
std::vector<int64_t> aliases(const ir::Graph& graph, std::span<const ir::Value> roots,
                             const std::vector<bool>& donated, const ir::Placement& placement) {
  std::vector<int64_t> takers = ir::pair_donations(graph, roots, donated);
  for (size_t i = 0; i < takers.size() && placement.is_partitioned(); ++i) {
    if (takers[i] < 0) continue;
    const sharding::Sharding* output = placement.outputs[static_cast<size_t>(takers[i])];
    const bool alike = output && output->layout() == placement.parameters[i]->layout();
    if (!alike) takers[i] = ir::kAnyDonation;
  }
  return takers;
}

// What nobody cut, XLA may cut as it sees fit, if the plugin tells how it did. What is a device's
// piece is one, and nothing else is, whatever lay there before.
ir::Placement with_known_outputs(ir::Placement placement, const ir::Graph& graph,
                                 std::span<const ir::Value> roots) {
  if (!placement.is_partitioned()) return placement;
  const bool tells = tells_shardings(*Runtime::get().client().plugin());
  const ir::ManualParts parts(graph, roots, placement);
  for (size_t i = 0; i < placement.outputs.size(); ++i) {
    const sharding::Sharding*& cut = placement.outputs[i];
    const size_t rank = roots[i].dims().size();
    if (parts.has(roots[i])) {
      cut = sharding::Sharding::manual(replicated(0)->mesh(), rank);
    } else if ((!cut && !tells) || (cut && cut->is_manual())) {
      cut = replicated(rank);
    }
  }
  return placement;
}

// How XLA cut the outputs that nobody cut.
std::vector<const sharding::Sharding*> output_shardings(const pjrt::Executable& executable,
                                                        const ir::Placement& wanted,
                                                        const ir::MeshNames& meshes,
                                                        const std::vector<size_t>& ranks) {
  std::vector<const sharding::Sharding*> result = wanted.outputs;
  const auto told = executable.output_shardings();
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i]) continue;
    if (!told || !meshes.main()) {
      result[i] = replicated(ranks[i]);
      continue;
    }
    result[i] = meshes.of_devices(
        sharding::parse_op_sharding(told->at(i), meshes.mesh_of_partitions(), ranks[i]));
  }
  return result;
}

std::vector<size_t> shards_of(const pjrt::Executable& executable) {
  const auto& all = Runtime::get().client().addressable_devices();
  std::vector<size_t> shards;
  for (const pjrt::Device* device : executable.addressable_devices()) {
    shards.push_back(static_cast<size_t>(std::ranges::find(all, device) - all.begin()));
  }
  return shards;
}

// A program to be made, once its graph is lowered: the graph itself is no more needed.
class Compilation {
 public:
  // Requires the marks of the walk.
  Compilation(const ir::Graph& graph, std::span<const ir::Value> roots,
              const std::vector<bool>& donated, c10::Device device, const ir::Placement& placement)
      : device_(device),
        placement_(with_known_outputs(placement, graph, roots)),
        meshes_(graph, placement_),
        options_(compile_options(mesh())),
        site_(current_site()),
        report_{graph.key,          graph_name(),
                graph.order.size(), graph.parameters.size(),
                roots.size(),       0,
                std::nullopt,       ""} {
    const auto start = std::chrono::steady_clock::now();
    ir::LoweringOptions lowering;
    lowering.name = report_.name;
    lowering.matmul_precision = upper(matmul_precision());
    lowering.parameter_aliases = aliases(graph, roots, donated, placement_);
    lowering.placement = placement_;
    // A call that XLA cannot cut would have each weight gathered first.
    if (!placement.is_partitioned()) lowering.wait_call = wait_call();
    lowering.locations = true;
    module_ = ir::lower(graph, roots, lowering).module;
    for (const ir::Value& root : roots) ranks_.push_back(root.dims().size());
    signature_ = ir::Signature(graph, roots, donated);
    report_.seconds = seconds_since(start);
  }

  // Loads or compiles it, and puts it into the cache. Only what is compiled in earnest is timed,
  // counted and reported; a program from disk is not. To be called once.
  std::shared_ptr<Program> run() {
    static metrics::Metric time("CompileTime", metrics::Unit::kNanoseconds);
    static metrics::Counter cached("CachedCompile"), uncached("UncachedCompile");
    const auto start = std::chrono::steady_clock::now();
    auto program = std::make_shared<Program>();
    program->mesh = mesh();
    if (is_dry_run()) {
      program->output_shardings = placement_.outputs;
      program->stablehlo = std::move(module_);
      program_cache().insert(report_.key, program);
      return program;
    }
    CompiledOrLoaded made = load_or_compile(Runtime::get().client(), module_, options_);
    program->executable = std::move(made.executable);
    program->refusal = refusal_of(*program->executable, device_);
    if (placement_.is_partitioned()) {
      program->shards = shards_of(*program->executable);
      program->output_shardings =
          output_shardings(*program->executable, placement_, meshes_, ranks_);
      warn_of_replication(*program->executable);
    }
    (made.loaded ? cached : uncached).add();
    program_cache().insert(report_.key, program);
    if (made.loaded) return program;
    report_.seconds += seconds_since(start);
    host_memory::return_compilers(report_.seconds);
    time.add(report_.seconds * 1e9);
    report_.memory = program->executable->memory_stats();
    report_.difference = note_compilation(site_, std::move(signature_));
    tell(report_);
    return program;
  }

 private:
  static double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // What most of it is cut by, if anything; null for a program of one device.
  const sharding::Mesh* mesh() const {
    if (!placement_.is_partitioned()) return nullptr;
    return meshes_.main() ? meshes_.main() : replicated(0)->mesh();
  }

  const c10::Device device_;
  const ir::Placement placement_;
  const ir::MeshNames meshes_;
  const pjrt::CompileOptions options_;
  const CompilationSite site_;
  CompileReport report_;
  std::string module_;
  ir::Signature signature_;
  std::vector<size_t> ranks_;  // of the outputs
};

// What a program is found by: everything that decides what is compiled.
void complete_key(ir::Graph& graph, const std::vector<bool>& donated,
                  const ir::Placement& placement) {
  for (const auto* shardings : {&placement.parameters, &placement.outputs}) {
    for (const sharding::Sharding* sharding : *shardings) {
      graph.key.add(sharding ? sharding->layout() : 0);
    }
  }
  for (size_t i = 0; i < donated.size(); ++i) {
    if (donated[i]) graph.key.add(i + 1);
  }
  add_settings(graph.key);
  if (is_dry_run()) graph.key.add(ir::hash_text("dry run"));
}

std::shared_ptr<Program> find_program(const ir::Hash128& key) {
  static metrics::Counter cached("CachedCompile");
  std::shared_ptr<Program> program = program_cache().find(key);
  if (!program) {
    await_compiled_behind(key);
    program = program_cache().find(key);
  }
  if (program) cached.add();
  return program;
}

}  // namespace

std::shared_ptr<Program> program_for(ir::Graph& graph, std::span<const ir::Value> roots,
                                     const std::vector<bool>& donated, c10::Device device,
                                     const ir::Placement& placement) {
  complete_key(graph, donated, placement);
  std::shared_ptr<Program> program = find_program(graph.key);
  if (!program) program = Compilation(graph, roots, donated, device, placement).run();
  TORCH_CHECK_WITH(OutOfMemoryError, program->refusal.empty(),
                   memory_error(program->refusal, device));
  return program;
}

void compile_program_behind(ir::Graph& graph, std::span<const ir::Value> roots,
                            const std::vector<bool>& donated, c10::Device device) {
  static metrics::Counter started("CompileBehind");
  complete_key(graph, donated, {});
  if (program_cache().find(graph.key) || is_compiling_behind(graph.key)) return;
  started.add();
  auto compilation = std::make_shared<Compilation>(graph, roots, donated, device, ir::Placement());
  compile_behind(graph.key, [compilation = std::move(compilation)] { compilation->run(); });
}

std::string lower_to_text(const ir::Graph& graph, std::span<const ir::Value> roots,
                          const std::string& name, const ir::Placement& placement) {
  ir::LoweringOptions options;
  options.name = name;
  options.placement = placement;
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
