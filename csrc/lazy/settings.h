#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "pjrt/option.h"

namespace torch_xla::lazy {

// What a user sets for programs to come. Each is part of what a program is cached by.

// XLA flags for later compilations (set_custom_compile_options).
void set_compile_overrides(std::map<std::string, pjrt::Option> overrides);
std::map<std::string, pjrt::Option> compile_overrides();

// "default", "high" or "highest". Throws c10::Error for anything else.
void set_matmul_precision(const std::string& precision);
std::string matmul_precision();

// Changes whenever one of the above is set, so that a program kept elsewhere is known to be old.
uint64_t settings_version();

// The name given to programs compiled from here on; no part of their identity.
void set_graph_name(std::string name);
std::string graph_name();

// When false, a sync throws instead of running (torch_xla._XLAC._set_allow_execution).
void set_allow_execution(bool allow);
bool allow_execution();

}  // namespace torch_xla::lazy
