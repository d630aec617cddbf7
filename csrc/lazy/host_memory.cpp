#include "lazy/host_memory.h"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace torch_xla::lazy::host_memory {

#ifdef __GLIBC__
namespace {

std::atomic<bool> g_keeps{false};

bool user_set_limits() {
  for (const char* name : {"MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_",
                           "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"}) {
    if (std::getenv(name)) return true;
  }
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  return tunables && std::string_view(tunables).find("glibc.malloc") != std::string_view::npos;
}

}  // namespace

void return_compilers(double seconds) {
  if (seconds > 1) malloc_trim(0);
}

void map_large_blocks() {
  static std::atomic<bool> done{false};
  if (done.exchange(true)) return;
  if (user_set_limits()) return;
  constexpr int kMostMapped = 65536, kPad = 1 << 17;  // glibc's own limits
  mallopt(M_TOP_PAD, kPad);
  mallopt(M_MMAP_MAX, kMostMapped);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  malloc_trim(0);
}
#else
void return_compilers(double) {}
void map_large_blocks() {}
#endif

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
namespace {

// Bytes of memory of the process's own that are there and that malloc has given to nobody: what
// lies free in it, Python's heap, code. What malloc itself calls free need not be there.
int64_t resident_beside_malloc() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0, shared = 0;
  if (!(statm >> all >> resident >> shared)) return 0;
  const auto given = static_cast<int64_t>(mallinfo2().uordblks);
  return std::max<int64_t>(0, (resident - shared) * sysconf(_SC_PAGESIZE) - given);
}

}  // namespace

void keep_blocks() {
  if (user_set_limits()) return;
  // Threads other than the first allocate in regions of 64 MB, which are unmapped as soon as
  // nothing is in them, unless that leaves less room than this. One arena for all threads would not
  // need it, and would make launches, which allocate as much as what traces meanwhile, twice as
  // long.
  mallopt(M_TOP_PAD, 1 << 27);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 28);
  g_keeps = true;
}

void note_freed(int64_t bytes) {
  constexpr int64_t kBetweenLooks = 1 << 27, kExcess = 1 << 28;
  static std::atomic<int64_t> freed{0}, floor{0};
  if (freed.fetch_add(bytes, std::memory_order_relaxed) + bytes < kBetweenLooks) return;
  freed.store(0, std::memory_order_relaxed);
  if (!g_keeps || resident_beside_malloc() < floor + kExcess) return;
  malloc_trim(0);
  floor = resident_beside_malloc();
}
#else
void keep_blocks() {}
void note_freed(int64_t) {}
#endif

bool is_scarce(int64_t live_bytes) { return live_bytes >= int64_t{1} << 28; }

}  // namespace torch_xla::lazy::host_memory
