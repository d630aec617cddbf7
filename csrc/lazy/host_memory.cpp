#include "lazy/host_memory.h"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace torch_xla::lazy::host_memory {

#ifdef __GLIBC__
namespace {

bool user_set_threshold() {
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  return std::getenv("MALLOC_MMAP_THRESHOLD_") != nullptr ||
         (tunables != nullptr &&
          std::string_view(tunables).find("mmap_threshold") != std::string_view::npos);
}

}  // namespace

void return_compilers(double seconds) {
  if (seconds > 1) malloc_trim(0);
}

void map_large_blocks() {
  static std::atomic<bool> done{false};
  if (done.exchange(true)) return;
  if (user_set_threshold()) return;
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  malloc_trim(0);
}
#else
void return_compilers(double) {}
void map_large_blocks() {}
#endif

bool is_scarce(int64_t live_bytes) { return live_bytes >= int64_t{1} << 28; }

}  // namespace torch_xla::lazy::host_memory
