// What becomes of an operator without a kernel of its own on the XLA key: derived from its
// functional form, decomposed into other operators, called from within the program, or computed on
// the host. The last is counted under the operator's name and warned of once.

#include "aten/fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <string>
#include <unordered_set>

#include "aten/derived.h"
#include "aten/host_call.h"
#include "lazy/metrics.h"

namespace torch_xla::aten {
namespace {

std::atomic<Decomposer> g_decomposer{nullptr};

// A decomposition that comes back to its own operator would never end.
class Decomposing {
 public:
  explicit Decomposing(const c10::OperatorName& name) : name_(name) {
    entered_ = active().insert(name).second;
  }
  ~Decomposing() {
    if (entered_) active().erase(name_);
  }
  bool entered() const { return entered_; }

 private:
  static std::unordered_set<c10::OperatorName>& active() {
    thread_local std::unordered_set<c10::OperatorName> names;
    return names;
  }
  const c10::OperatorName name_;
  bool entered_;
};

bool run_decomposed(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Decomposer decomposer = g_decomposer.load();
  if (!decomposer) return false;
  const Decomposing guard(op.operator_name());
  return guard.entered() && decomposer(op, stack);
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (run_derived(op, stack)) return;
  if (!prefers_host_call(op) && run_decomposed(op, stack)) return;
  if (run_host_call(op, stack)) return;
  note_host_trip(op);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

}  // namespace

void note_host_trip(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  lazy::metrics::count(name);
  static std::mutex mutex;
  static auto* warned = new std::unordered_set<std::string>;
  std::lock_guard lock(mutex);
  if (!warned->insert(name).second) return;
  TORCH_WARN("torch_xla: ", name, " has no XLA kernel and runs on the host, with a copy there and ",
             "back; torch_xla.debug.metrics counts it as ", name);
}

void set_decomposer(Decomposer decomposer) { g_decomposer = decomposer; }

TORCH_LIBRARY_IMPL(_, XLA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// Here instead of torch's own composite kernels: one knows its devices by name, the other makes the
// results' memory before their shapes are known.
TORCH_LIBRARY_IMPL(aten, XLA, m) {
  for (const char* name : {"mode.values", "linalg_lstsq"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

}  // namespace torch_xla::aten
