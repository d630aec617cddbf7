#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <span>

#include "ir/node.h"
#include "lazy/storage.h"

namespace torch_xla::lazy {

// Tracing from tensors whose contents are not there: nothing that depends on them can run.

// While one lives, whatever the calling thread tries to run throws c10::Error with `why`, which
// must outlive it. One at a time a thread.
class TracingOnly {
 public:
  explicit TracingOnly(const char* why);
  ~TracingOnly();
  TracingOnly(const TracingOnly&) = delete;
};

bool is_tracing_only();

// Throws if the calling thread is TracingOnly. To be called before a launch takes its lock.
void check_may_run();

// A leaf of this shape whose contents cannot be had: reading it throws the refusal of the thread
// that made it.
ir::Value unknown(ir::ShapeRef shape, c10::Device device);

// Gives unknown contents to those of the pending storages that are computed from a node for which
// `is_unknown` holds. For tensors that outlive their trace, in the frames of a traceback say: they
// must not come into anybody's sync.
void fail_dependents(std::span<const c10::intrusive_ptr<LazyStorage>> storages, c10::Device device,
                     const std::function<bool(const ir::Node*)>& is_unknown);

}  // namespace torch_xla::lazy
