#include "lazy/complex_half.h"

#include "ir/lowering.h"

namespace torch_xla::lazy {
namespace {

using ir::ElementType;
using stablehlo::Dims;
using XlaValue = stablehlo::Value;

const ir::Op kComplexOfPairs{
    "aten::view_as_complex", [](ir::Lowering& l, const ir::Node& n) -> ir::Results {
      stablehlo::Builder& b = l.builder();
      const XlaValue pairs = l.operand(0, ElementType::kF32);
      const int64_t last = pairs.rank() - 1;
      const auto part = [&](int64_t i) {
        return b.reshape(b.slice_in_dim(pairs, i, i + 1, 1, last), Dims(n.output().dims));
      };
      return b.complex(part(0), part(1));
    }};

const ir::Op kPairsOfComplex{
    "aten::view_as_real", [](ir::Lowering& l, const ir::Node& n) -> ir::Results {
      stablehlo::Builder& b = l.builder();
      const XlaValue complex = l.operand(0);
      Dims single(n.output().dims);
      single.back() = 1;
      const int64_t last = static_cast<int64_t>(single.size()) - 1;
      const XlaValue both = b.concatenate(
          {b.reshape(b.real(complex), single), b.reshape(b.imag(complex), single)}, last);
      return b.convert(both, ElementType::kF16);
    }};

}  // namespace

PairGeometry::PairGeometry(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset)
    : sizes_(sizes), offset_(2 * offset) {
  for (int64_t stride : strides) strides_.push_back(2 * stride);
  sizes_.push_back(2);
  strides_.push_back(1);
}

ir::Value complex_of_pairs(const ir::Value& pairs) {
  const std::span<const int64_t> dims = pairs.dims();
  return ir::Node::make(kComplexOfPairs, {pairs}, {},
                        ir::ShapeRef{ElementType::kC64, dims.first(dims.size() - 1)});
}

ir::Value pairs_of_complex(const ir::Value& complex) {
  Dims dims(complex.dims());
  dims.push_back(2);
  return ir::Node::make(kPairsOfComplex, {complex}, {}, ir::ShapeRef{ElementType::kF16, dims});
}

}  // namespace torch_xla::lazy
