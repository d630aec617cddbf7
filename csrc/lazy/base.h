#pragma once

#include "lazy/storage.h"

namespace torch_xla::lazy {

// How a storage's contents are seen, kept apart from them.
struct Base {
  ir::ElementType type;
  stablehlo::Dims sizes, strides;  // strides empty: row-major

  explicit Base(const LazyStorage& storage)
      : type(storage.type()), sizes(storage.sizes()), strides(storage.strides()) {}
  bool fits(const LazyStorage& storage) const {
    return type == storage.type() && sizes == storage.sizes() && strides == storage.strides();
  }
};

}  // namespace torch_xla::lazy
