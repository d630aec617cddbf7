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

// Nodes that the calling thread makes from here on are said to come from `place`
// ("forward@a.py:3"), until it is set to "" again.
void set_location(const std::string& place);

// The number of different places seen so far.
size_t location_count();

}  // namespace torch_xla::python
