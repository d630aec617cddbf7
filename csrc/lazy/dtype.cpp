#include "lazy/dtype.h"

#include <c10/util/Exception.h>

#include <array>

namespace torch_xla::lazy {
namespace {

using at::ScalarType;
using pjrt::BufferType;
using stablehlo::ElementType;

struct Row {
  ScalarType torch;
  ElementType stablehlo;
  BufferType pjrt;
};

constexpr Row kRows[] = {
    {ScalarType::Float, ElementType::kF32, BufferType::kF32},
    {ScalarType::Long, ElementType::kS64, BufferType::kS64},
    {ScalarType::Bool, ElementType::kPred, BufferType::kPred},
    {ScalarType::BFloat16, ElementType::kBF16, BufferType::kBF16},
    {ScalarType::Half, ElementType::kF16, BufferType::kF16},
    {ScalarType::Double, ElementType::kF64, BufferType::kF64},
    {ScalarType::Int, ElementType::kS32, BufferType::kS32},
    {ScalarType::Byte, ElementType::kU8, BufferType::kU8},
    {ScalarType::Char, ElementType::kS8, BufferType::kS8},
    {ScalarType::Short, ElementType::kS16, BufferType::kS16},
    {ScalarType::ComplexFloat, ElementType::kC64, BufferType::kC64},
    {ScalarType::ComplexDouble, ElementType::kC128, BufferType::kC128},
    {ScalarType::UInt16, ElementType::kU16, BufferType::kU16},
    {ScalarType::UInt32, ElementType::kU32, BufferType::kU32},
    {ScalarType::UInt64, ElementType::kU64, BufferType::kU64},
    {ScalarType::Float8_e5m2, ElementType::kF8E5M2, BufferType::kF8E5M2},
    {ScalarType::Float8_e4m3fn, ElementType::kF8E4M3FN, BufferType::kF8E4M3FN},
    {ScalarType::Float8_e5m2fnuz, ElementType::kF8E5M2FNUZ, BufferType::kF8E5M2FNUZ},
    {ScalarType::Float8_e4m3fnuz, ElementType::kF8E4M3FNUZ, BufferType::kF8E4M3FNUZ},
    {ScalarType::Float8_e8m0fnu, ElementType::kF8E8M0FNU, BufferType::kF8E8M0FNU},
};

// Index of the row of each StableHLO type, or -1.
constexpr auto kRowOf = [] {
  std::array<int8_t, stablehlo::kElementTypeCount> rows;
  rows.fill(-1);
  for (size_t i = 0; i < std::size(kRows); ++i) {
    rows[static_cast<size_t>(kRows[i].stablehlo)] = static_cast<int8_t>(i);
  }
  return rows;
}();

const Row& row_of(ElementType type) {
  const int row = kRowOf[static_cast<size_t>(type)];
  TORCH_CHECK_TYPE(row >= 0, "StableHLO type ", stablehlo::mlir_name(type), " has no torch dtype");
  return kRows[row];
}

}  // namespace

namespace internal {

constexpr std::array<ElementType, static_cast<size_t>(ScalarType::NumOptions)> kElementTypes = [] {
  std::array<ElementType, static_cast<size_t>(ScalarType::NumOptions)> types;
  types.fill(kNoElementType);
  for (const Row& row : kRows) types[static_cast<size_t>(row.torch)] = row.stablehlo;
  types[static_cast<size_t>(ScalarType::ComplexHalf)] = ElementType::kC64;  // see complex_half.h
  return types;
}();

void throw_no_element_type(ScalarType type) {
  TORCH_CHECK_TYPE(false, "the xla device has no tensors of dtype ", type);
}

}  // namespace internal

ElementType element_type(BufferType type) {
  for (const Row& row : kRows) {
    if (row.pjrt == type) return row.stablehlo;
  }
  TORCH_CHECK_TYPE(false, "PJRT buffer type ", static_cast<int>(type), " has no torch dtype");
}

ScalarType scalar_type(ElementType type) { return row_of(type).torch; }

BufferType buffer_type(ElementType type) { return row_of(type).pjrt; }

}  // namespace torch_xla::lazy
