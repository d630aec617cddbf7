#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/hash.h"
#include "ir/sharding.h"
#include "pjrt/executable.h"

namespace torch_xla::lazy {

// A compiled program.
struct Program {
  std::shared_ptr<pjrt::Executable> executable;
  std::string refusal;  // why it is never run; empty for nearly all
  // How each output is cut; empty for a program of one device.
  std::vector<const sharding::Sharding*> output_shardings = {};
  // Whose device at place p is its partition p (ir::MeshNames); null for a program of one device.
  const sharding::Mesh* mesh = nullptr;
  // Which shard of an array each of the executable's devices holds, in its order of them.
  std::vector<size_t> shards = {};
  std::string stablehlo = {};  // of a dry run (dry_run.h), which compiles nothing
};

// The program that computes `roots`, from the cache, from disk or compiled; which of the graph's
// parameters it may overwrite is part of it, and in SPMD mode `placement`. The graph's key gets the
// user's settings added.
// Requires the marks of the walk. Throws LoweringError, pjrt::Error, and c10::OutOfMemoryError for
// a program that needs more memory than the device has.
std::shared_ptr<Program> program_for(ir::Graph& graph, std::span<const ir::Value> roots,
                                     const std::vector<bool>& donated, c10::Device device,
                                     const ir::Placement& placement = {});

// The same without the result: the program is loaded or compiled behind (compile_behind.h), unless
// it is there. Only lowering happens here.
void compile_program_behind(ir::Graph& graph, std::span<const ir::Value> roots,
                            const std::vector<bool>& donated, c10::Device device);

// The StableHLO of a graph, as text.
std::string lower_to_text(const ir::Graph& graph, std::span<const ir::Value> roots,
                          const std::string& name, const ir::Placement& placement = {});

struct CompileReport {
  ir::Hash128 key;
  std::string name;
  size_t nodes = 0, parameters = 0, outputs = 0;
  double seconds = 0;
  std::optional<pjrt::CompiledMemoryStats> memory;  // where the plugin says
  std::string difference;  // from the nearest earlier program of the same Python line, if any
};
// Called after each compilation, in the thread that compiled.
void set_compile_listener(std::function<void(const CompileReport&)> listener);

// Programs in the cache, and their greatest number (least recently used go first).
size_t cached_program_count();
void set_cache_capacity(size_t programs);
void clear_cache();

}  // namespace torch_xla::lazy
