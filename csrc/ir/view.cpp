#include "ir/view.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "ir/lowering.h"
#include "ir/stretch.h"

namespace torch_xla::ir {
namespace {

using stablehlo::Builder;
using stablehlo::Dims;
using XlaValue = stablehlo::Value;

int64_t product(std::span<const int64_t> dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

// One step on the way from a base to a view, undone in reverse order by a write.
struct Step {
  enum Kind {
    kTranspose,      // a: permutation
    kReshape,        // a: sizes
    kSlice,          // a: start, b: limit, c: strides
    kPad,            // a: elements added at the high end of each dim
    kBroadcast,      // a: sizes, b: where each dim goes
    kBitcast,        // type; may add or remove a last dim
    kConvert,        // type; bool to and from its byte
    kComplexToReal,  // adds a last dim of 2
    kRealToComplex,  // removes a last dim of 2
    kGather,         // a: sizes, b: strides, offset, from a flat value
  };
  Kind kind;
  Dims a, b, c;
  ElementType type = ElementType::kF32;
  int64_t offset = 0;
};

struct ViewDim {
  size_t index;  // in the view
  int64_t size;
  int64_t step;  // in the memory dim it walks
};

// A memory dim on its way to the view: `dims` walk it, largest step first, from `offset`.
struct MemoryDim {
  int64_t size;
  int64_t stride;
  int64_t offset = 0;
  std::vector<ViewDim> dims;
};

// Derives the steps. Memory is seen as a row-major array of "memory dims"; each view dim walks one
// of them, after neighbours were merged where it crosses between them.
class Planner {
 public:
  Planner(ShapeRef base, std::span<const int64_t> base_strides, const Geometry& view)
      : view_(view) {
    if (base.num_elements() == 0) throw std::logic_error("view reaches outside its storage");
    to_memory_order(base, base_strides);
    if (base.type != view.type) reinterpret(base.type, view.type);
    if (assign()) {
      slice_and_split();
      to_view_order();
    } else {
      gather();
    }
    // Last, so that a write leaves all other bytes as they are.
    if (view.type == ElementType::kPred && base.type != view.type) {
      retype(Step::kConvert, view.type);
    }
  }

  std::vector<Step> take() { return std::move(steps_); }

 private:
  Dims sizes() const {
    Dims sizes;
    for (const MemoryDim& dim : memory_) sizes.push_back(dim.size);
    return sizes;
  }

  void set_memory(std::span<const int64_t> sizes) {
    memory_.clear();
    int64_t stride = product(sizes);
    for (int64_t size : sizes) {
      stride /= size;
      memory_.push_back({size, stride, 0, {}});
    }
  }

  void to_memory_order(ShapeRef base, std::span<const int64_t> strides) {
    // Dims of size 1 have any stride: they do not take part in the order.
    Dims order, ones;
    for (size_t d = 0; d < base.dims.size(); ++d) {
      (base.dims[d] == 1 ? ones : order).push_back(static_cast<int64_t>(d));
    }
    if (!strides.empty()) {
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
      });
    }
    Dims memory_sizes;
    for (int64_t d : order) memory_sizes.push_back(base.dims[static_cast<size_t>(d)]);
    if (memory_sizes.empty()) memory_sizes.push_back(1);
    if (!std::is_sorted(order.begin(), order.end())) {
      for (int64_t d : ones) order.push_back(d);
      steps_.push_back({Step::kTranspose, order, {}, {}});
    }
    set_memory(memory_sizes);
    reshape(memory_sizes);
  }

  void reshape(const Dims& sizes) { steps_.push_back({Step::kReshape, sizes, {}, {}}); }
  void retype(Step::Kind kind, ElementType type) {
    Step step{kind, {}, {}, {}};
    step.type = type;
    steps_.push_back(step);
  }
  void flatten() {
    const Dims flat{product(sizes())};
    set_memory(flat);
    reshape(flat);
  }
  // Rows of `width` elements, without the last elements that do not fill one.
  void to_rows(int64_t width) {
    flatten();
    const int64_t rows = memory_[0].size / width;
    if (rows == 0) throw std::logic_error("view reaches outside its storage");
    if (rows * width != memory_[0].size) {
      steps_.push_back({Step::kSlice, Dims{0}, Dims{rows * width}, Dims{1}});
    }
    set_memory(Dims{rows, width});
    reshape(Dims{rows, width});
  }
  // The last dim becomes part of the element.
  void drop_last_dim() {
    Dims outer = sizes();
    outer.pop_back();
    set_memory(outer);
  }

  void reinterpret(ElementType from, ElementType to) {
    if (stablehlo::is_complex(from)) {
      from = stablehlo::real_type(from);
      retype(Step::kComplexToReal, from);
      Dims with_pair = sizes();
      with_pair.push_back(2);
      set_memory(with_pair);
    }
    if (from == ElementType::kPred && from != to) {
      from = ElementType::kU8;
      retype(Step::kConvert, from);
    }
    const ElementType target =
        to == ElementType::kPred ? ElementType::kU8 : stablehlo::real_type(to);
    if (from != target) {
      const int narrow = stablehlo::byte_size(from);
      const int wide = stablehlo::byte_size(target);
      if (narrow < wide) {
        to_rows(wide / narrow);
        retype(Step::kBitcast, target);
        drop_last_dim();
      } else {
        retype(Step::kBitcast, target);
        if (narrow > wide) {
          Dims with_parts = sizes();
          with_parts.push_back(narrow / wide);
          set_memory(with_parts);
        }
      }
    }
    if (stablehlo::is_complex(to)) {
      to_rows(2);
      retype(Step::kRealToComplex, to);
      drop_last_dim();
    }
  }

  void merge(size_t coarse) {
    memory_[coarse].size *= memory_[coarse + 1].size;
    memory_[coarse].stride = memory_[coarse + 1].stride;
    memory_.erase(memory_.begin() + static_cast<ptrdiff_t>(coarse) + 1);
    merged_ = true;
  }

  // Gives each view dim its memory dim. False: the view overlaps itself and needs a gather.
  bool assign() {
    std::vector<ViewDim> wanted;
    for (size_t i = 0; i < view_.sizes.size(); ++i) {
      if (view_.sizes[i] > 1 && view_.strides[i] > 0) {
        wanted.push_back({i, view_.sizes[i], view_.strides[i]});
      }
    }
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const ViewDim& a, const ViewDim& b) { return a.step > b.step; });
    while (!try_assign(wanted)) {
    }
    if (merged_) reshape(sizes());
    for (const MemoryDim& memory : memory_) {
      int64_t reach = 0;  // of the dims inside the one looked at
      for (size_t i = memory.dims.size(); i-- > 0;) {
        if (memory.dims[i].step <= reach) return false;
        reach += (memory.dims[i].size - 1) * memory.dims[i].step;
      }
    }
    return true;
  }

  // One attempt; merges two memory dims and returns false when they turn out too small.
  bool try_assign(const std::vector<ViewDim>& wanted) {
    for (MemoryDim& memory : memory_) memory.dims.clear();
    for (const ViewDim& dim : wanted) {
      size_t m = 0;
      while (m + 1 < memory_.size() && dim.step < memory_[m].stride) ++m;
      if (dim.step % memory_[m].stride != 0) {
        merge(m);
        return false;
      }
      memory_[m].dims.push_back({dim.index, dim.size, dim.step / memory_[m].stride});
    }
    for (size_t m = 0; m < memory_.size(); ++m) {
      MemoryDim& memory = memory_[m];
      memory.offset = view_.offset / memory.stride;
      if (m > 0) memory.offset %= memory.size;
      int64_t last = memory.offset;
      for (const ViewDim& dim : memory.dims) last += (dim.size - 1) * dim.step;
      if (last < memory.size) continue;
      if (m == 0) throw std::logic_error("view reaches outside its storage");
      merge(m - 1);
      return false;
    }
    return true;
  }

  void gather() {
    if (memory_.size() != 1) flatten();
    Step step{Step::kGather, Dims(view_.sizes), Dims(view_.strides), {}};
    step.offset = view_.offset;
    steps_.push_back(step);
  }

  // Slices every memory dim to what is walked. One walked by several view dims is cut into rows of
  // the largest step, and each row is treated the same way in the next round.
  void slice_and_split() {
    for (bool split = true; split;) {
      split = false;
      Dims start, limit, stride, padding, result;
      std::vector<MemoryDim> next;
      bool cuts = false, pads = false;
      for (const MemoryDim& memory : memory_) {
        start.push_back(memory.offset);
        int64_t end = memory.offset + 1, step = 1, missing = 0;
        if (memory.dims.size() == 1) {
          const ViewDim& dim = memory.dims[0];
          step = dim.step;
          end = memory.offset + (dim.size - 1) * step + 1;
          next.push_back({dim.size, 0, 0, {{dim.index, dim.size, 1}}});
        } else if (!memory.dims.empty()) {
          const ViewDim& outer = memory.dims[0];
          const int64_t wanted = memory.offset + outer.size * outer.step;
          end = std::min(memory.size, wanted);
          missing = wanted - end;
          next.push_back({outer.size, 0, 0, {{outer.index, outer.size, 1}}});
          next.push_back({outer.step, 0, 0, {memory.dims.begin() + 1, memory.dims.end()}});
          split = true;
        }
        limit.push_back(end);
        stride.push_back(step);
        padding.push_back(missing);
        cuts |= memory.offset != 0 || end != memory.size || step != 1;
        pads |= missing != 0;
      }
      if (cuts) steps_.push_back({Step::kSlice, start, limit, stride});
      if (pads) steps_.push_back({Step::kPad, padding, {}, {}});
      memory_ = std::move(next);
      reshape(sizes());
    }
  }

  void to_view_order() {
    // Memory dims are now the walked view dims in memory order.
    Dims order = stablehlo::iota_dims(memory_.size());
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return memory_[static_cast<size_t>(a)].dims[0].index <
             memory_[static_cast<size_t>(b)].dims[0].index;
    });
    if (!std::is_sorted(order.begin(), order.end()))
      steps_.push_back({Step::kTranspose, order, {}, {}});
    bool repeats = false;
    for (size_t i = 0; i < view_.sizes.size(); ++i) {
      repeats |= view_.sizes[i] > 1 && view_.strides[i] == 0;
    }
    if (!repeats) {
      reshape(Dims(view_.sizes));
      return;
    }
    Dims places;
    for (int64_t d : order) {
      places.push_back(static_cast<int64_t>(memory_[static_cast<size_t>(d)].dims[0].index));
    }
    steps_.push_back({Step::kBroadcast, Dims(view_.sizes), places, {}});
  }

  const Geometry& view_;
  std::vector<MemoryDim> memory_;
  std::vector<Step> steps_;
  bool merged_ = false;
};

XlaValue gather_indices(Builder& b, const Step& step) {
  XlaValue index = b.constant(ElementType::kS64, step.a, step.offset);
  for (size_t i = 0; i < step.a.size(); ++i) {
    if (step.b[i] == 0) continue;
    const XlaValue along = b.iota(ElementType::kS64, step.a, static_cast<int64_t>(i));
    index = index + along * step.b[i];
  }
  return index;
}

XlaValue forward(Builder& b, const Step& step, XlaValue x) {
  switch (step.kind) {
    case Step::kTranspose:
      return b.transpose(x, step.a);
    case Step::kReshape:
      return b.reshape(x, step.a);
    case Step::kSlice:
      return b.slice(x, step.a, step.b, step.c);
    case Step::kPad:
      return b.pad(x, b.scalar(0, x.element_type()), Dims(step.a.size(), 0), step.a);
    case Step::kBroadcast:
      return b.broadcast_in_dim(x, step.a, step.b);
    case Step::kBitcast:
      return b.bitcast_convert(x, step.type);
    case Step::kConvert:
      return step.type == ElementType::kPred ? b.ne(x, b.zeros_like(x)) : b.convert(x, step.type);
    case Step::kComplexToReal: {
      Dims dims = x.dims();
      dims.push_back(1);
      return b.concatenate({b.reshape(b.real(x), dims), b.reshape(b.imag(x), dims)},
                           static_cast<int64_t>(dims.size()) - 1);
    }
    case Step::kRealToComplex: {
      const int64_t last = x.rank() - 1;
      Dims dims = x.dims();
      dims.pop_back();
      return b.complex(b.reshape(b.slice_in_dim(x, 0, 1, 1, last), dims),
                       b.reshape(b.slice_in_dim(x, 1, 2, 1, last), dims));
    }
    case Step::kGather: {
      stablehlo::GatherDimensions dimensions;
      dimensions.collapsed_slice_dims = {0};
      dimensions.start_index_map = {0};
      dimensions.index_vector_dim = static_cast<int64_t>(step.a.size());
      return b.gather(x, gather_indices(b, step), dimensions, {1});
    }
  }
  throw std::logic_error("view: unknown step");
}

// What `before` becomes when the result of the step is replaced by `after`.
XlaValue backward(Builder& b, const Step& step, XlaValue before, XlaValue after) {
  switch (step.kind) {
    case Step::kTranspose: {
      Dims inverse(step.a.size(), 0);
      for (size_t i = 0; i < step.a.size(); ++i) {
        inverse[static_cast<size_t>(step.a[i])] = static_cast<int64_t>(i);
      }
      return b.transpose(after, inverse);
    }
    case Step::kReshape:
      return b.reshape(after, before.dims());
    case Step::kSlice: {
      const bool dense =
          std::all_of(step.c.begin(), step.c.end(), [](int64_t s) { return s == 1; });
      if (dense) {
        stablehlo::Values starts;
        for (int64_t start : step.a) starts.push_back(b.scalar(start, ElementType::kS64));
        return b.dynamic_update_slice(before, after, starts);
      }
      Dims high, interior;
      for (size_t i = 0; i < step.a.size(); ++i) {
        const int64_t size = after.dim(static_cast<int64_t>(i));
        high.push_back(before.dim(static_cast<int64_t>(i)) - step.a[i] - (size - 1) * step.c[i] -
                       1);
        interior.push_back(step.c[i] - 1);
      }
      const XlaValue hit = b.constant(ElementType::kPred, after.dims(), 1);
      const XlaValue mask = b.pad(hit, b.scalar(0, ElementType::kPred), step.a, high, interior);
      const XlaValue spread =
          b.pad(after, b.scalar(0, after.element_type()), step.a, high, interior);
      return b.select(mask, spread, before);
    }
    case Step::kPad:
      return b.slice(after, Dims(step.a.size(), 0), before.dims());
    case Step::kBitcast:
      return b.bitcast_convert(after, before.element_type());
    case Step::kConvert: {
      Step inverse = step;
      inverse.type = before.element_type();
      return forward(b, inverse, after);
    }
    case Step::kComplexToReal: {
      Step inverse = step;
      inverse.kind = Step::kRealToComplex;
      return forward(b, inverse, after);
    }
    case Step::kRealToComplex: {
      Step inverse = step;
      inverse.kind = Step::kComplexToReal;
      return forward(b, inverse, after);
    }
    case Step::kGather: {
      stablehlo::ScatterDimensions dimensions;
      dimensions.inserted_window_dims = {0};
      dimensions.scatter_dims_to_operand_dims = {0};
      dimensions.index_vector_dim = static_cast<int64_t>(step.a.size());
      return b.scatter(before, gather_indices(b, step), after, dimensions,
                       [](XlaValue, XlaValue update) { return update; });
    }
    case Step::kBroadcast: {
      // Of elements that share memory the last one written stays.
      Dims start(step.a.size(), 0);
      for (size_t d = 0; d < start.size(); ++d) {
        if (!step.b.contains(static_cast<int64_t>(d))) start[d] = step.a[d] - 1;
      }
      return b.reshape(b.slice(after, start, step.a), before.dims());
    }
  }
  throw std::logic_error("view: unknown step");
}

struct Recorded {
  std::span<const int64_t> base_strides;
  Geometry view;
};

Recorded read_attributes(const Node& node) {
  AttributeReader reader = node.attributes();
  Recorded recorded;
  recorded.base_strides = reader.list();
  recorded.view.type = reader.enumeration<ElementType>();
  recorded.view.sizes = reader.list();
  recorded.view.strides = reader.list();
  recorded.view.offset = reader.integer();
  return recorded;
}

Results lower_read(Lowering& lowering, const Node& node) {
  const Recorded recorded = read_attributes(node);
  Builder& b = lowering.builder();
  if (product(recorded.view.sizes) == 0) {
    return b.constant(recorded.view.type, Dims(recorded.view.sizes), 0);
  }
  const Geometry& view = recorded.view;
  XlaValue x = lowering.operand(0);
  for (const Step& step : Planner(node.operand(0).shape(), recorded.base_strides, view).take()) {
    x = forward(b, step, x);
  }
  return x;
}

Results lower_write(Lowering& lowering, const Node& node) {
  const Recorded recorded = read_attributes(node);
  if (product(recorded.view.sizes) == 0) return lowering.operand(0);
  Builder& b = lowering.builder();
  const std::vector<Step> steps =
      Planner(node.operand(0).shape(), recorded.base_strides, recorded.view).take();
  std::vector<XlaValue> before{lowering.operand(0)};
  for (const Step& step : steps) before.push_back(forward(b, step, before.back()));
  XlaValue x = lowering.operand(1);
  if (const auto condition = lowering.condition()) {
    x = b.select(b.broadcast_to(*condition, x.dims()), x, before.back());
  }
  for (size_t i = steps.size(); i-- > 0;) x = backward(b, steps[i], before[i], x);
  return x;
}

const Op kView{"aten::view", lower_read};
const Op kPermute{"aten::permute", lower_read};
const Op kExpand{"aten::expand", lower_read};
const Op kSlice{"aten::slice", lower_read};
const Op kAsStrided{"aten::as_strided", lower_read};
const Op kViewUpdate{"xla::update_view", lower_write, /*updates=*/true};

// The name a reader of a dump expects; lowering is the same for all.
const Op& name_read(const Base& base, const Geometry& view) {
  bool repeats = false, descending = true;
  int64_t previous = -1;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.sizes[i] == 1) continue;
    repeats |= view.strides[i] == 0;
    descending &= previous < 0 || view.strides[i] <= previous;
    previous = view.strides[i];
  }
  if (repeats) return kExpand;
  if (base.value.type() != view.type) return kView;
  if (product(view.sizes) == base.value.shape().num_elements()) {
    return descending ? kView : kPermute;
  }
  return descending ? kSlice : kAsStrided;
}

}  // namespace

Value read_view(const Base& base, const Geometry& view) {
  return Node::make(name_read(base, view), {base.value},
                    Attributes::of(base.strides, view.type, view.sizes, view.strides, view.offset),
                    ShapeRef{view.type, view.sizes});
}

Value stretch_view(const Value& value, size_t dim, int64_t size) {
  const Node& node = *value.node;
  if (&node.op() != &kExpand) return {};
  const Recorded recorded = read_attributes(node);
  if (recorded.view.strides[dim] != 0) return {};
  Dims sizes(recorded.view.sizes);
  sizes[dim] = size;
  return read_view({node.operand(0), recorded.base_strides},
                   {recorded.view.type, sizes, recorded.view.strides, recorded.view.offset});
}

Value write_view(const Base& base, const Geometry& view, const Value& source) {
  return Node::make(kViewUpdate, {base.value, source},
                    Attributes::of(base.strides, view.type, view.sizes, view.strides, view.offset),
                    base.value.shape());
}

}  // namespace torch_xla::ir
