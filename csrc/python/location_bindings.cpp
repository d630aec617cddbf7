#include "python/bindings.h"
#include "python/location.h"

namespace torch_xla::python {

void bind_locations(py::module_& m) {
  m.def("_install_locations", install_locations, py::arg("folders"),
        "Marks every node with the innermost Python frame outside these folders.");
  m.def("_set_record_locations", set_record_locations);
  m.def("_record_locations", record_locations);
  m.def("_set_location", set_location, py::arg("place"),
        "Says where nodes come from that this thread makes from here on; \"\" ends that.");
  m.def("_location_count", location_count);
}

}  // namespace torch_xla::python
