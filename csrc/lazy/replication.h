#pragma once

#include <cstdint>

#include "pjrt/executable.h"

namespace torch_xla::lazy {

// Warns where a partitioned program makes a large array whole on each device though nobody asked
// for it (sharding/replication.h): once for a program.
void warn_of_replication(const pjrt::Executable& executable);

// From how many bytes an array is large; 0: none is.
void set_replication_warning(int64_t bytes);

}  // namespace torch_xla::lazy
