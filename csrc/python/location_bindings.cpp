#include "python/bindings.h"
#include "python/location.h"

namespace torch_xla::python {

void bind_locations(py::module_& m) {
  m.def("_install_locations", install_locations, py::arg("folders"),
        "Marks every node with the innermost Python frame outside these folders.");
  m.def("_set_record_locations", set_record_locations);
  m.def("_record_locations", record_locations);
  m.def("_location_count", location_count);
}

}  // namespace torch_xla::python
