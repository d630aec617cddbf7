// SPMD mode: shardings, and the tensors that have them.

#include <ATen/ops/mul.h>
#include <torch/csrc/utils/pybind.h>

#include <numeric>
#include <stdexcept>

#include "lazy/executor.h"
#include "lazy/launch.h"
#include "lazy/manual.h"
#include "lazy/mark_sharding.h"
#include "lazy/replication.h"
#include "lazy/runtime.h"
#include "lazy/spmd.h"
#include "lazy/storage.h"
#include "lazy/tensor.h"
#include "python/bindings.h"
#include "sharding/dialect.h"
#include "sharding/sharding.h"

namespace torch_xla::python {
namespace {

using sharding::AxisPart;
using sharding::Mesh;

// Shardings live as long as the process: Python has a reference and no more.
struct Sharding {
  const sharding::Sharding* value;
};

Sharding make_sharding(std::vector<int64_t> devices, std::vector<int64_t> mesh_shape,
                       std::vector<std::string> axis_names,
                       const std::vector<std::vector<int64_t>>& dims) {
  const Mesh* mesh = Mesh::get(std::move(axis_names), std::move(mesh_shape), std::move(devices));
  std::vector<std::vector<AxisPart>> parts;
  for (const auto& axes : dims) {
    parts.emplace_back();
    for (int64_t axis : axes) {
      if (axis < 0 || static_cast<size_t>(axis) >= mesh->axes().size()) {
        throw std::invalid_argument("a mesh " + mesh->text() + " has no axis number " +
                                    std::to_string(axis));
      }
      const auto k = static_cast<size_t>(axis);
      parts.back().push_back({k, 1, mesh->sizes()[k]});
    }
  }
  return {sharding::Sharding::get(mesh, std::move(parts))};
}

std::vector<std::vector<std::tuple<size_t, int64_t, int64_t>>> parts_of(const Sharding& self) {
  std::vector<std::vector<std::tuple<size_t, int64_t, int64_t>>> result;
  for (const auto& parts : self.value->dims()) {
    result.emplace_back();
    for (const AxisPart& part : parts)
      result.back().emplace_back(part.axis, part.before, part.size);
  }
  return result;
}

void check_rank(const Sharding& self, const std::vector<int64_t>& sizes) {
  TORCH_CHECK_VALUE(sizes.size() == self.value->rank(), "a sharding of ", self.value->rank(),
                    " dimensions, and ", sizes.size(), " sizes");
}

std::vector<std::pair<int64_t, int64_t>> ranges_of(const Sharding& self,
                                                   const std::vector<int64_t>& sizes,
                                                   size_t device) {
  check_rank(self, sizes);
  TORCH_CHECK_VALUE(device < static_cast<size_t>(self.value->num_devices()), "device ", device,
                    " of ", self.value->num_devices());
  std::vector<std::pair<int64_t, int64_t>> result;
  for (const auto& range : self.value->ranges(sizes, device)) {
    result.emplace_back(range.start, range.limit);
  }
  return result;
}

std::optional<Sharding> sharding_of(const at::Tensor& tensor) {
  const sharding::Sharding* sharding = lazy::sharding_of(tensor);
  return sharding ? std::optional(Sharding{sharding}) : std::nullopt;
}

// As xla.OpSharding.Type numbers them, and 5 where several devices hold a part; none where it is
// not known.
std::optional<int> sharding_type_of(const at::Tensor& tensor) {
  const sharding::Sharding* sharding = lazy::sharding_of(tensor);
  if (!sharding) return std::nullopt;
  if (sharding->is_manual()) return 4;
  if (sharding->is_replicated()) return 0;
  return sharding->num_tiles() == sharding->num_devices() ? 3 : 5;
}

std::string spec_of(const at::Tensor& tensor) {
  const sharding::Sharding* sharding = lazy::sharding_of(tensor);
  return sharding ? sharding->hlo() : "";
}

std::vector<std::string> specs_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> specs;
  for (const at::Tensor& tensor : tensors) specs.push_back(spec_of(tensor));
  return specs;
}

using LocalShards = std::vector<std::pair<at::Tensor, std::string>>;

// What each device holds of a tensor, with the device's name, and how that is cut: nothing for a
// tensor of one device. Where it is known how the tensor is to lie, what is not computed yet is
// made so. `distinct`: of devices that hold the same the first only, in the order of tiles.
std::pair<LocalShards, std::optional<Sharding>> local_shards(const at::Tensor& tensor,
                                                             bool distinct) {
  ir::Value value = lazy::read(tensor);
  const sharding::Sharding* sharding = lazy::sharding_of(tensor);
  if (sharding && !sharding->is_manual() && !lazy::DeviceData::of(value)) {
    const at::Tensor placed = lazy::make(std::move(value), tensor.scalar_type(), tensor.device());
    lazy::storage_of(placed).set_sharding(sharding);
    lazy::sync(tensor.device());
    value = lazy::storage_of(placed).value();
  }
  const auto data = lazy::materialize(std::move(value), tensor.device());
  const lazy::Array& array = data->array();
  const sharding::Sharding* lies = array.sharding();
  std::vector<size_t> wanted(array.num_shards());
  std::iota(wanted.begin(), wanted.end(), size_t{0});
  if (distinct && lies && !lies->is_manual()) wanted = lies->holders();
  const auto shards = lazy::fetch_shards(array, wanted, tensor.sizes(), tensor.scalar_type());
  const auto& devices = lazy::Runtime::get().client().addressable_devices();
  LocalShards result;
  for (size_t i = 0; i < shards.size(); ++i) {
    result.emplace_back(shards[i], lazy::Runtime::get().device_type() + ":" +
                                       std::to_string(devices[wanted[i]]->id()));
  }
  return {std::move(result), lies ? std::optional(Sharding{lies}) : std::nullopt};
}

// Replaces the tensor's contents by those of the devices' parts.
void load_local_shards(const at::Tensor& tensor, const std::vector<at::Tensor>& shards) {
  const sharding::Sharding* sharding = lazy::sharding_of(tensor);
  TORCH_CHECK_VALUE(sharding, "the tensor has no sharding to load shards by");
  for (const at::Tensor& shard : shards) {
    TORCH_CHECK_VALUE(shard.scalar_type() == tensor.scalar_type(), "a shard of dtype ",
                      shard.scalar_type(), " for a tensor of dtype ", tensor.scalar_type());
  }
  lazy::write(tensor, lazy::read(lazy::from_shards(shards, tensor.sizes(), sharding)));
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

at::Tensor scaled(const at::Tensor& tensor, double scale) {
  return scale == 1 ? tensor : at::mul(tensor, scale);
}

// The program that ran last, as the compiler left it: a serialized HloModuleProtoWithConfig (the
// format's name comes with it), and bytes on each device.
py::object last_program() {
  std::shared_ptr<pjrt::Executable> executable;
  pjrt::OptimizedProgram program;
  std::optional<pjrt::CompiledMemoryStats> memory;
  {
    py::gil_scoped_release no_gil;
    executable = lazy::last_executed();
    if (executable) {
      program = executable->optimized_program();
      memory = executable->memory_stats();
    }
  }
  if (!executable) return py::none();
  py::dict result;
  result["name"] = executable->name();
  result["format"] = program.format;
  result["program"] = py::bytes(program.code);
  result["num_partitions"] = executable->num_partitions();
  if (memory) {
    result["argument_bytes"] = memory->argument_size;
    result["output_bytes"] = memory->output_size;
    result["alias_bytes"] = memory->alias_size;
    result["temp_bytes"] = memory->temp_size;
    result["code_bytes"] = memory->generated_code_size;
  }
  return result;
}

}  // namespace

void bind_spmd(py::module_& m) {
  py::class_<Sharding>(m, "Sharding",
                       "How a tensor is cut: Sharding(devices of the mesh, its shape, names of its "
                       "axes, for each dimension of the tensor the axes that cut it).")
      .def(py::init(&make_sharding), py::arg("devices"), py::arg("mesh_shape"),
           py::arg("axis_names"), py::arg("dims"))
      .def_property_readonly("devices",
                             [](const Sharding& s) { return s.value->mesh()->devices(); })
      .def_property_readonly("mesh_shape",
                             [](const Sharding& s) { return s.value->mesh()->sizes(); })
      .def_property_readonly("axis_names",
                             [](const Sharding& s) { return s.value->mesh()->axes(); })
      .def_property_readonly("dims", parts_of,
                             "For each dimension (axis, product of the parts before, size).")
      .def_property_readonly("tiles", [](const Sharding& s) { return s.value->tiles(); })
      .def_property_readonly(
          "tile_of", [](const Sharding& s) { return s.value->tile_of(); },
          "The row-major index of each partition's tile.")
      .def_property_readonly("is_replicated",
                             [](const Sharding& s) { return s.value->is_replicated(); })
      .def_property_readonly("is_manual", [](const Sharding& s) { return s.value->is_manual(); })
      .def_property_readonly("hlo", [](const Sharding& s) { return s.value->hlo(); })
      .def("ranges", ranges_of, py::arg("sizes"), py::arg("device"))
      .def(
          "tile_dims",
          [](const Sharding& s, const std::vector<int64_t>& sizes) {
            check_rank(s, sizes);
            return s.value->tile_dims(sizes);
          },
          py::arg("sizes"))
      .def("__repr__", [](const Sharding& s) { return s.value->hlo(); })
      .def(
          "__eq__",
          [](const Sharding& a, const Sharding& b) {
            return a.value->layout() == b.value->layout();
          },
          py::is_operator())
      .def("__hash__", [](const Sharding& s) { return s.value->layout(); })
      .def(py::pickle(
          [](const Sharding& s) {
            TORCH_CHECK_VALUE(!s.value->is_manual(), "{manual} has no meaning elsewhere");
            const Mesh* mesh = s.value->mesh();
            return py::make_tuple(mesh->devices(), mesh->sizes(), mesh->axes(), parts_of(s));
          },
          [](const py::tuple& state) {
            const Mesh* mesh = Mesh::get(state[2].cast<std::vector<std::string>>(),
                                         state[1].cast<std::vector<int64_t>>(),
                                         state[0].cast<std::vector<int64_t>>());
            std::vector<std::vector<AxisPart>> dims;
            using Parts = std::vector<std::vector<std::tuple<size_t, int64_t, int64_t>>>;
            for (const auto& parts : state[3].cast<Parts>()) {
              dims.emplace_back();
              for (const auto& [axis, before, size] : parts) {
                dims.back().push_back({axis, before, size});
              }
            }
            return Sharding{sharding::Sharding::get(mesh, std::move(dims))};
          }));

  m.def("_xla_last_program", last_program);
  m.def("_set_replication_warning", lazy::set_replication_warning, py::arg("bytes"));
  m.def(
      "_set_shardy",
      [](bool shardy) {
        sharding::choose_dialect(shardy ? sharding::Dialect::kShardy : sharding::Dialect::kGspmd);
      },
      py::arg("shardy"));
  m.def("_uses_shardy", [] { return sharding::dialect() == sharding::Dialect::kShardy; });
  m.def("_xla_use_spmd", lazy::use_spmd, WithoutGil());
  m.def("_xla_is_spmd", lazy::is_spmd);
  m.def(
      "_xla_mark_sharding",
      [](const at::Tensor& tensor, const Sharding& s) { lazy::mark_sharding(tensor, s.value); },
      WithoutGil());
  m.def(
      "_xla_annotate_custom_sharding",
      [](const at::Tensor& tensor, const Sharding& s) {
        lazy::mark_sharding(tensor, s.value, /*again=*/true);
      },
      WithoutGil());
  m.def("_xla_clear_sharding", lazy::clear_sharding, WithoutGil());
  m.def(
      "_xla_constrain_sharding",
      [](const at::Tensor& tensor, const Sharding& s) {
        return lazy::constrained(tensor, s.value);
      },
      WithoutGil());
  m.def(
      "_spmd_full_to_shard_shape",
      [](const at::Tensor& tensor, const std::optional<Sharding>& s) {
        const sharding::Sharding* cut = s ? s->value : lazy::sharding_of(tensor);
        TORCH_CHECK(cut, "enable_manual_sharding: it is not known how the tensor is cut");
        return lazy::enter_manual(tensor, cut);
      },
      py::arg("tensor"), py::arg("sharding") = py::none(), WithoutGil());
  m.def(
      "_spmd_shard_to_full_shape",
      [](const at::Tensor& tensor, const Sharding& s, const std::vector<int64_t>& sizes,
         const py::object&) { return lazy::leave_manual(tensor, sizes, s.value); },
      py::arg("tensor"), py::arg("sharding"), py::arg("sizes"), py::arg("dtype") = py::none());
  m.def("_mark_manual_sharding", lazy::mark_manual, WithoutGil());
  m.def(
      "_xla_spmd_all_reduce",
      [](const std::string& type, const at::Tensor& piece, double scale,
         lazy::DeviceGroups groups) {
        return scaled(lazy::reduce_manual(type, piece, std::move(groups)), scale);
      },
      py::arg("reduce_type"), py::arg("tensor"), py::arg("scale"), py::arg("groups"), WithoutGil());
  m.def(
      "_xla_spmd_reduce_scatter",
      [](const std::string& type, const at::Tensor& piece, double scale, int64_t dim,
         int64_t shards, lazy::DeviceGroups groups) {
        return scaled(lazy::reduce_scatter_manual(type, piece, dim, shards, std::move(groups)),
                      scale);
      },
      py::arg("reduce_type"), py::arg("tensor"), py::arg("scale"), py::arg("scatter_dim"),
      py::arg("shard_count"), py::arg("groups"), WithoutGil());
  m.def("_xla_spmd_all_gather", lazy::gather_manual, py::arg("tensor"), py::arg("dim"),
        py::arg("groups"), WithoutGil());
  m.def("_xla_get_sharding", sharding_of, WithoutGil());
  // Names by which programs for torch_xla of old know the same.
  m.def("_get_xla_op_sharding", sharding_of, WithoutGil());
  m.def("_get_xla_sharding_type", sharding_type_of, WithoutGil());
  m.def("_xla_force_spmd_device", lazy::use_spmd, WithoutGil());
  m.def("_xla_get_spmd_config_is_locked", lazy::Runtime::is_initialized);
  m.def("_xla_get_auto_sharding", [] { return false; });
  m.def(
      "_get_local_shards",
      [](const std::vector<at::Tensor>& tensors) {
        std::vector<LocalShards> result;
        for (const at::Tensor& tensor : tensors) {
          result.push_back(local_shards(tensor, /*distinct=*/false).first);
        }
        return result;
      },
      py::arg("tensors"), WithoutGil());
  m.def("_get_xla_sharding_spec", spec_of, WithoutGil());
  m.def("_get_xla_sharding_specs", specs_of, WithoutGil());
  m.def("_xla_local_shards", local_shards, py::arg("tensor"), py::arg("distinct") = false,
        WithoutGil());
  m.def("_xla_load_local_shards", load_local_shards, WithoutGil());
  m.def(
      "_xla_tensor_from_shards",
      [](const std::vector<at::Tensor>& shards, const std::vector<int64_t>& sizes,
         const Sharding& s) { return lazy::from_shards(shards, sizes, s.value); },
      WithoutGil());
}

}  // namespace torch_xla::python
