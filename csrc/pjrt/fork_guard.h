// A child of fork() has none of the plugin's threads: using a client there hangs or aborts. The
// guard turns that into an error.
#pragma once

namespace torch_xla::pjrt {

// To be called before the first client is made. Idempotent.
void arm_fork_guard();

// Whether this process was forked from one that had a client. It stays so in grandchildren.
bool forked_with_client() noexcept;

// Throws Error (FAILED_PRECONDITION) if so, saying what to do instead.
void check_not_forked();

}  // namespace torch_xla::pjrt
