#pragma once

#include <string>
#include <vector>

namespace torch_xla::python {

// Gives ir::current_location() the innermost Python frame whose file lies outside `folders`
// (those of torch and torch_xla). Needs the GIL.
void install_locations(std::vector<std::string> folders);

// With false, nodes made from here on have no location.
void set_record_locations(bool record);
bool record_locations();

// The number of different places seen so far.
size_t location_count();

}  // namespace torch_xla::python
