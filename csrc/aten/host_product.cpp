#include "aten/host_product.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>

#include "aten/cpu_kernels.h"
#include "aten/one_thread.h"
#include "lazy/host_function.h"
#include "pjrt/ffi.h"

namespace torch_xla::aten {
namespace {

constexpr const char* kTarget = "torch_xla.product";

// Part of a dense row-major matrix in the device's memory.
struct Block {
  float* data;
  int64_t rows, columns;
  int64_t stride;  // from row to row

  explicit Block(const pjrt::FfiBuffer& buffer)
      : data(static_cast<float*>(buffer.data)),
        rows(buffer.dims[0]),
        columns(buffer.dims[1]),
        stride(columns) {}

  Block rows_from(int64_t begin, int64_t count) const {
    Block block = *this;
    block.data += begin * stride;
    block.rows = count;
    return block;
  }
  Block columns_from(int64_t begin, int64_t count) const {
    Block block = *this;
    block.data += begin;
    block.columns = count;
    return block;
  }

  at::Tensor tensor() const {
    return at::from_blob(data, {rows, columns}, {stride, 1}, at::kFloat);
  }
  at::Tensor transposed() const {
    return at::from_blob(data, {columns, rows}, {1, stride}, at::kFloat);
  }
};

void multiply(const Block& a, const Block& b, const Block& product) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const OneThread one_thread;
  at::Tensor result = product.tensor();
  at::cpu::mm_out(result, a.transposed(), b.tensor());
}

// The plugin's threads share the product by its rows or its columns, whatever there are more of.
void compute(const pjrt::FfiCall& call) {
  const Block a(call.arg(0)), b(call.arg(1)), product(call.result(0));
  constexpr int64_t kLine = 16;      // elements of a cache line
  constexpr int64_t kPerThread = 2;  // parts: a thread may come late
  constexpr int64_t kShortest = 64;
  const bool by_rows = product.rows >= product.columns;
  const int64_t size = by_rows ? product.rows : product.columns;
  const auto most = static_cast<int64_t>(call.num_threads()) * kPerThread;
  const int64_t parts = std::clamp<int64_t>(size / kShortest, 1, most);
  const int64_t length = ((size + parts - 1) / parts + kLine - 1) / kLine * kLine;
  call.in_parallel(static_cast<size_t>((size + length - 1) / length), [&](size_t i) {
    const int64_t begin = static_cast<int64_t>(i) * length;
    const int64_t count = std::min(length, size - begin);
    if (by_rows) {
      multiply(a.columns_from(begin, count), b, product.rows_from(begin, count));
    } else {
      multiply(a, b.columns_from(begin, count), product.columns_from(begin, count));
    }
  });
}

bool is_available() {
  static const bool available = at::hasMKL() && OneThread::is_possible() &&
                                lazy::register_host_function(kTarget, pjrt::ffi_entry<compute>);
  return available;
}

}  // namespace

bool prefers_host_product(ElementType type, int64_t multiply_adds) {
  constexpr int64_t kLeast = 400'000'000;
  return type == ElementType::kF32 && prefers_cpu_kernel(multiply_adds, kLeast) && is_available();
}

XlaValue host_product(Lowering& l, const XlaValue& a, const XlaValue& b) {
  const auto as_rows = [&](const XlaValue& x) {
    const int64_t columns = x.dim(x.rank() - 1);
    return l->reshape(x, {x.num_elements() / columns, columns});
  };
  const Dims dims{a.dim(a.rank() - 1), b.dim(b.rank() - 1)};
  return l->custom_call(kTarget, {as_rows(a), as_rows(b)}, {{ElementType::kF32, dims}})[0];
}

}  // namespace torch_xla::aten
