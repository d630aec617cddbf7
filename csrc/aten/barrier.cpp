#include "aten/barrier.h"

#include <c10/util/Exception.h>

#include "ir/lowering.h"
#include "lazy/tensor.h"

namespace torch_xla::aten {
namespace {

const ir::Op kBarrier{"xla::optimization_barrier",
                      [](ir::Lowering& l, const ir::Node&) -> ir::Results {
                        return l->optimization_barrier(l.operands());
                      }};

}  // namespace

void optimization_barrier_(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return;
  std::vector<ir::Value> values;
  std::vector<ir::ShapeRef> shapes;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(lazy::is_xla(tensor) && tensor.device() == tensors[0].device(),
                "optimization_barrier_: expected tensors of one xla device, got ",
                tensors[0].device(), " and ", tensor.device());
    values.push_back(lazy::read(tensor));
    shapes.push_back(values.back().shape());
  }
  const ir::NodePtr node = ir::Node::make(kBarrier, values, {}, shapes);
  for (size_t i = 0; i < tensors.size(); ++i) {
    lazy::write(tensors[i], ir::Value(node, static_cast<uint32_t>(i)));
  }
}

}  // namespace torch_xla::aten
