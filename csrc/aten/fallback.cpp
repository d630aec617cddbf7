// What becomes of an operator without a kernel of its own on the XLA key: derived from its
// functional form, decomposed into other operators, called from within the program, or computed on
// the host. The last is counted under the operator's name and warned of once.

#include "aten/fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
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

// What an operator is made of may come back to the operator itself, and would never end.
class Unfolding {
 public:
  explicit Unfolding(const c10::OperatorName& name) : name_(name) {
    first_ = active().insert(name).second;
  }
  ~Unfolding() {
    if (first_) active().erase(name_);
  }
  bool is_first() const { return first_; }

 private:
  static std::unordered_set<c10::OperatorName>& active() {
    thread_local std::unordered_set<c10::OperatorName> names;
    return names;
  }
  const c10::OperatorName name_;
  bool first_;
};

bool run_decomposed(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Decomposer decomposer = g_decomposer.load();
  return decomposer && decomposer(op, stack);
}

bool unfold(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Unfolding here(op.operator_name());
  if (!here.is_first()) return false;
  return run_derived(op, stack) || (!prefers_host_call(op) && run_decomposed(op, stack));
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (unfold(op, stack) || run_host_call(op, stack)) return;
  note_host_trip(op);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

// Their registered composite kernels do not do on xla: one knows its devices by name, the other
// makes the results' memory before their shapes are known.
constexpr std::array<const char*, 2> kNotAsRegistered = {"mode.values", "linalg_lstsq"};

bool is_as_registered(const c10::OperatorName& name) {
  const std::string text = c10::toString(name).substr(sizeof("aten::") - 1);
  return std::find(kNotAsRegistered.begin(), kNotAsRegistered.end(), text) ==
         kNotAsRegistered.end();
}

}  // namespace

Route route_of(const c10::OperatorHandle& op, bool decomposes) {
  using c10::DispatchKey;
  if (is_as_registered(op.operator_name())) {
    if (op.hasKernelForDispatchKey(DispatchKey::XLA)) return Route::kKernel;
    if (op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
        op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
      return Route::kComposite;
    }
  }
  if (is_derived(op)) return Route::kDerived;
  if (decomposes && !prefers_host_call(op)) return Route::kDecomposition;
  if (is_host_callable(op)) return Route::kHostCall;
  return op.hasComputedKernelForDispatchKey(DispatchKey::CPU) ? Route::kHost : Route::kNone;
}

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

TORCH_LIBRARY_IMPL(aten, XLA, m) {
  for (const char* name : kNotAsRegistered) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

}  // namespace torch_xla::aten
