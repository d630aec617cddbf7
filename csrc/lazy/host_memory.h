#pragma once

#include <cstdint>

namespace torch_xla::lazy::host_memory {

// Where the C library is glibc, freed memory is kept by the process in the hope of more requests.
// Both functions give some of it back to the system; elsewhere they do nothing.

// After a compilation that took so many seconds: a compiler works in hundreds of megabytes, in many
// pieces. A tenth of a second returns them; programs that compile in less are not worth it.
void return_compilers(double seconds);

// Whether a device whose memory is the host's, with so many bytes in use, is to be careful with
// what comes on top: from a quarter of a gigabyte on.
bool is_scarce(int64_t live_bytes);

// For such devices: blocks of a megabyte and more are mapped one by one, and so return when freed.
// A step of GPT-2 small then peaks at 1.1 instead of 1.5 times CPU eager's memory, and takes 5 %
// more time to fault pages in; small models, where that share is larger, keep the heap. Limits that
// the user set (MALLOC_MMAP_THRESHOLD_, GLIBC_TUNABLES) stay.
void map_large_blocks();

}  // namespace torch_xla::lazy::host_memory
