#pragma once

#include <cstdint>
#include <string>

#include "ir/location.h"
#include "ir/signature.h"

namespace torch_xla::lazy {

// Why programs are compiled again. Each compilation belongs to the Python line whose sync or read
// asked for it; from the second on it is held against the most similar program of that line.

// The line that asks for a compilation now, and the graph there that the program is of.
struct CompilationSite {
  ir::Location line;
  uint64_t owner;
  auto operator<=>(const CompilationSite&) const = default;
};
CompilationSite current_site();

// Notes a compilation. Returns what sets the program apart from the nearest
// earlier one of the same line, with the remedy; "" for a line's first. Warns, once a line, when it
// has compiled as many programs as the threshold says.
std::string note_compilation(const CompilationSite& site, ir::Signature signature);

// While it lives, compilations of the calling thread belong to `owner` and its line: one line may
// call many graphs that torch.compile made. 0: to the line alone.
class CompilationOwner {
 public:
  explicit CompilationOwner(uint64_t owner);
  ~CompilationOwner();
  CompilationOwner(const CompilationOwner&) = delete;

 private:
  uint64_t before_;
};

// Programs of one line at which it is warned of; 0: never. 8 by default.
void set_recompile_warning(size_t programs);

// A paragraph for each line that compiled more than one program, or "".
std::string recompile_report();
void clear_recompiles();

}  // namespace torch_xla::lazy
