#pragma once

#include <cstdint>

namespace torch_xla::lazy::host_memory {

// How the C library keeps the memory of devices whose memory is the host's. Where it is not glibc,
// all but is_scarce do nothing. Where the user set one of its limits (MALLOC_ARENA_MAX, ...,
// GLIBC_TUNABLES), keep_blocks and map_large_blocks leave all of them alone.

// Before the client of such a device starts its threads: what a step frees the next one takes.
// glibc would map blocks of 32 MB and more, as the temporaries of a program are, one by one, and
// return them: each of their pages then faults in each step, 14 % of the CPU time of a GPT of 12 x
// 256.
void keep_blocks();

// A device gives up so many bytes. Where blocks are kept, returns what lies free in the process if
// that grew by more than a quarter of a gigabyte; but for the regions of other threads than the
// first, 64 MB for each.
void note_freed(int64_t bytes);

// After a compilation that took so many seconds: a compiler works in hundreds of megabytes, in many
// pieces. A tenth of a second returns them; programs that compile in less are not worth it.
void return_compilers(double seconds);

// Whether a device whose memory is the host's, with so many bytes in use, is to be careful with
// what comes on top: from a quarter of a gigabyte on.
bool is_scarce(int64_t live_bytes);

// For such devices, for good: blocks of a megabyte and more are mapped one by one, and so return
// when freed. A step of GPT-2 small then peaks at 1.1 instead of 1.5 times CPU eager's memory, and
// takes 5 % more time to fault pages in.
void map_large_blocks();

}  // namespace torch_xla::lazy::host_memory
