#include "lazy/shape_text.h"

#include "stablehlo/types.h"

namespace torch_xla::lazy {

std::string shape_text(ir::ElementType type, std::span<const int64_t> dims) {
  std::string text(stablehlo::hlo_name(type));
  const char* separator = "[";
  for (const int64_t dim : dims) {
    text += separator + std::to_string(dim);
    separator = ",";
  }
  return text + (dims.empty() ? "[]" : "]");
}

}  // namespace torch_xla::lazy
