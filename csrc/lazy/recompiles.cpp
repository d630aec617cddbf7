#include "lazy/recompiles.h"

#include <c10/util/Exception.h>

#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "lazy/runtime.h"

namespace torch_xla::lazy {
namespace {

thread_local uint64_t t_owner = 0;

constexpr size_t kKeptSignatures = 8;
constexpr size_t kKeptLines = 256;

struct Line {
  size_t programs = 0;
  std::deque<ir::Signature> recent;
  std::string last_difference;
};

struct History {
  std::mutex mutex;
  size_t warn_at = 8;
  std::map<CompilationSite, Line> lines;
};

History& history() {
  static auto* history = new History;
  return *history;
}

const ir::Signature* nearest(const Line& line, const ir::Signature& signature) {
  const ir::Signature* best = nullptr;
  double best_similarity = -1;
  for (const ir::Signature& candidate : line.recent) {
    const double similarity = signature.similarity(candidate);
    if (similarity >= best_similarity) {
      best = &candidate;
      best_similarity = similarity;
    }
  }
  return best;
}

std::string name_of(ir::Location location) {
  const std::string text = ir::describe(location);
  return text.empty() ? "an unknown line" : text;
}

}  // namespace

CompilationSite current_site() { return {ir::current_location(), t_owner}; }

std::string note_compilation(const CompilationSite& site, ir::Signature signature) {
  std::string difference, warning;
  {
    std::lock_guard lock(history().mutex);
    auto& lines = history().lines;
    if (lines.size() >= kKeptLines && !lines.contains(site)) lines.erase(lines.begin());
    Line& line = lines[site];
    ++line.programs;
    if (const ir::Signature* before = nearest(line, signature)) {
      difference = signature.difference(*before);
      if (difference.empty()) {
        difference = is_partitioned()
                         ? "its inputs lie otherwise on the devices, or compile options "
                           "are others."
                         : "other compile options.";
      }
      line.last_difference = difference;
    }
    line.recent.push_back(std::move(signature));
    if (line.recent.size() > kKeptSignatures) line.recent.pop_front();
    if (line.programs == history().warn_at) {
      warning = name_of(site.line) + " compiled its program number " +
                std::to_string(line.programs) +
                ". What sets the last apart from the nearest before: " + difference +
                " torch_xla.debug.metrics.metrics_report() lists all such lines.";
    }
  }
  if (!warning.empty()) TORCH_WARN("torch_xla: ", warning);
  return difference;
}

CompilationOwner::CompilationOwner(uint64_t owner) : before_(t_owner) { t_owner = owner; }
CompilationOwner::~CompilationOwner() { t_owner = before_; }

void set_recompile_warning(size_t programs) {
  std::lock_guard lock(history().mutex);
  history().warn_at = programs;
}

std::string recompile_report() {
  std::lock_guard lock(history().mutex);
  std::string text;
  for (const auto& [site, line] : history().lines) {
    if (line.programs < 2) continue;
    text += "Recompiled: " + name_of(site.line) + "\n  Programs: " + std::to_string(line.programs) +
            "\n  LastDifference: " + line.last_difference + "\n";
  }
  return text;
}

void clear_recompiles() {
  std::lock_guard lock(history().mutex);
  history().lines.clear();
}

}  // namespace torch_xla::lazy
