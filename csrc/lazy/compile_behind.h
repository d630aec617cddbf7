#pragma once

#include <cstddef>
#include <functional>

#include "ir/hash.h"

namespace torch_xla::lazy {

// Compiling programs before anybody runs them: one after another, on a thread of their own.

// Has `compile` called there; it puts the program where it is found. What it throws is forgotten:
// whoever needs the program compiles it again, and meets the error. Does nothing for a key that
// waits or is being compiled.
void compile_behind(const ir::Hash128& key, std::function<void()> compile);

// Whether the program waits, or is being compiled.
bool is_compiling_behind(const ir::Hash128& key);

// Programs that wait or are being compiled.
size_t num_compiling_behind();

// Blocks while the program is being compiled behind; one that has not begun is left to the caller.
// The calling thread must not hold the GIL.
void await_compiled_behind(const ir::Hash128& key);

// Drops what has not begun and blocks until the rest is over.
void finish_compiling_behind();

}  // namespace torch_xla::lazy
