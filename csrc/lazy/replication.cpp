#include "lazy/replication.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <iomanip>
#include <sstream>
#include <stdexcept>

#include "lazy/runtime.h"
#include "pjrt/error.h"
#include "sharding/replication.h"

namespace torch_xla::lazy {
namespace {

constexpr size_t kNamed = 5;

std::atomic<int64_t>& large() {
  static std::atomic<int64_t> bytes{int64_t{64} << 20};
  return bytes;
}

std::string text_of(const std::vector<sharding::Replication>& found) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1);
  for (size_t i = 0; i < found.size() && i < kNamed; ++i) {
    const auto& [operation, bytes] = found[i];
    text << "\n  " << static_cast<double>(bytes) / (1 << 20) << " MiB for "
         << (operation.empty() ? "an operation of XLA's" : operation);
  }
  if (found.size() > kNamed) text << "\n  and for " << found.size() - kNamed << " more";
  return text.str();
}

}  // namespace

void set_replication_warning(int64_t bytes) { large().store(bytes); }

void warn_of_replication(const pjrt::Executable& executable) {
  const int64_t least = large().load();
  if (least <= 0) return;
  std::vector<sharding::Replication> found;
  try {
    const pjrt::OptimizedProgram program = executable.optimized_program();
    if (program.format != "hlo_with_config") return;
    found = sharding::replications(program.code, static_cast<int64_t>(num_partitions()), least);
  } catch (const pjrt::Error&) {
    return;  // the plugin keeps its programs to itself
  } catch (const std::invalid_argument& error) {
    TORCH_WARN("torch_xla: the plugin's optimized program cannot be read: ", error.what());
    return;
  }
  if (found.empty()) return;
  TORCH_WARN(
      "torch_xla: a program makes tensors whole on each device that were cut:", text_of(found),
      "\n  Cut what the operation computes as its inputs are, along a dimension that it does "
      "not work along (mark_sharding), or mark it whole if that is meant: "
      "docs/guide/spmd.md. TORCH_XLA_WARN_REPLICATED_MIB sets from which size on this is "
      "said; 0: never.");
}

}  // namespace torch_xla::lazy
