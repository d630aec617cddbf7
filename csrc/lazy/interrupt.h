#pragma once

#include "lazy/array.h"

namespace torch_xla::lazy {

// Waits of the host that a signal may end (Ctrl-C). What it waits for goes on. A program's results
// do not change by that, and whoever asks for them again waits again.

// What a thread that waits calls now and then; it may throw. `applies`: whether signals are the
// calling thread's at all. To be set once.
struct Interrupts {
  bool (*applies)();
  void (*check)();
};
void set_interrupts(Interrupts interrupts);

// Blocks until the contents are there, or throws what `check` does. Handlers of signals may run in
// it and use devices: call it without a lock. What the program throws is met by who reads.
void wait_or_interrupt(const Array& array);

}  // namespace torch_xla::lazy
