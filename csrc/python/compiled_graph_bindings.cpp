// Graphs that are traced once and launched from then on (torch.compile), and steps that are traced
// before they are called.

#include "lazy/capture.h"
#include "lazy/compile_behind.h"
#include "lazy/compiled_graph.h"
#include "lazy/rehearsal.h"
#include "python/bindings.h"
#include "python/syncing.h"

namespace torch_xla::python {
namespace {

using Tensors = std::vector<at::Tensor>;

std::unique_ptr<lazy::Capture> begin_capture(const std::string& device, const Tensors& inputs,
                                             uint64_t owner) {
  std::unique_ptr<lazy::Capture> capture;
  syncing([&] { capture = std::make_unique<lazy::Capture>(parse_device(device), inputs, owner); });
  return capture;
}

std::optional<Tensors> run(lazy::CompiledGraph& graph, const Tensors& inputs) {
  std::optional<Tensors> results;
  syncing([&] { results = graph.run(inputs); });
  return results;
}

std::unique_ptr<lazy::Rehearsal> begin_rehearsal(const std::string& device) {
  std::unique_ptr<lazy::Rehearsal> rehearsal;
  syncing([&] { rehearsal = std::make_unique<lazy::Rehearsal>(parse_device(device)); });
  return rehearsal;
}

}  // namespace

void bind_compiled_graphs(py::module_& m) {
  py::class_<lazy::Capture>(m, "_Capture",
                            "The calling thread traces a graph from stand-ins of its inputs, from "
                            "here to `finish` or `cancel`.")
      .def(py::init(&begin_capture), py::arg("device"), py::arg("inputs"),
           py::arg("owner") = uint64_t{0})
      .def_property_readonly("stand_ins", &lazy::Capture::stand_ins)
      .def("finish", &lazy::Capture::finish, py::arg("results"), WithoutGil())
      .def("cancel", &lazy::Capture::cancel, WithoutGil());
  py::class_<lazy::CompiledGraph, std::shared_ptr<lazy::CompiledGraph>>(m, "_CompiledGraph")
      .def("run", run, py::arg("inputs"),
           "Launches the graph; None when an input is not like the one captured, or may hold wrong "
           "indices.")
      .def("may_be_out_of_bounds", &lazy::CompiledGraph::may_be_out_of_bounds, py::arg("inputs"),
           WithoutGil())
      .def_property_readonly("written_inputs", &lazy::CompiledGraph::written_inputs);
  py::class_<lazy::Rehearsal>(m, "_Rehearsal",
                              "The calling thread traces a step that does not run, from here to "
                              "`finish` or `cancel`; then all tensors are what they were.")
      .def(py::init(&begin_rehearsal), py::arg("device"))
      .def(
          "stand_in",
          [](lazy::Rehearsal& rehearsal, const at::Tensor& like) {
            return rehearsal.stand_in(like.scalar_type(), like.sizes(), like.strides());
          },
          py::arg("like"), "A tensor that looks like `like` and has no contents.", WithoutGil())
      .def("forget", &lazy::Rehearsal::forget, py::arg("tensors"),
           "A call would have dropped these tensors of one storage.", WithoutGil())
      .def(
          "finish", [](lazy::Rehearsal& rehearsal) { syncing([&] { rehearsal.finish(); }); },
          "Compiles the step's program behind. Its results must be alive.")
      .def("cancel", &lazy::Rehearsal::cancel, WithoutGil());
  m.def("_num_compiling_behind", &lazy::num_compiling_behind, WithoutGil(),
        "Programs of prepared steps that wait or are being compiled.");
  m.def("_finish_compiling_behind", &lazy::finish_compiling_behind, WithoutGil());
}

}  // namespace torch_xla::python
