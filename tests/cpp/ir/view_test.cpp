// Reads and writes through random geometries, compared with walking a block of bytes.

#include "ir/view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <sstream>

#include "ir/dump.h"
#include "ir/run.h"

namespace torch_xla::ir {
namespace {

using stablehlo::Dims;
using testing::Array;
using Bytes = std::vector<std::byte>;

int64_t product(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

size_t width_of(ElementType type) { return static_cast<size_t>(stablehlo::byte_size(type)); }

// A geometry that owns its numbers.
struct View {
  ElementType type = ElementType::kF32;
  Dims sizes, strides;
  int64_t offset = 0;

  Geometry geometry() const { return {type, sizes, strides, offset}; }
  size_t rank() const { return sizes.size(); }
  int64_t last() const {
    int64_t last = offset;
    for (size_t d = 0; d < rank(); ++d) last += (sizes[d] - 1) * strides[d];
    return last;
  }
  std::string to_string() const {
    std::ostringstream out;
    out << ShapeRef{type, sizes}.to_string() << " strides " << stablehlo::to_string(strides)
        << " offset " << offset;
    return out.str();
  }
};

// --- The reference: memory is bytes, a view is a walk over them ---

// Byte offsets of the elements of a view, row-major.
std::vector<size_t> walk(const View& view) {
  std::vector<size_t> offsets;
  Dims index(view.rank(), 0);
  for (int64_t count = product(view.sizes); count > 0; --count) {
    int64_t at = view.offset;
    for (size_t d = 0; d < view.rank(); ++d) at += index[d] * view.strides[d];
    offsets.push_back(static_cast<size_t>(at) * width_of(view.type));
    for (size_t d = view.rank(); d-- > 0;) {
      if (++index[d] < view.sizes[d]) break;
      index[d] = 0;
    }
  }
  return offsets;
}

// A bool that is written or read as bytes is true for any byte that is not zero.
void normalize(ElementType type, Bytes& bytes) {
  if (type != ElementType::kPred) return;
  for (std::byte& byte : bytes) byte = byte == std::byte{0} ? std::byte{0} : std::byte{1};
}

Bytes read_memory(const Bytes& memory, const View& view) {
  const size_t width = width_of(view.type);
  Bytes elements;
  for (size_t at : walk(view)) {
    elements.insert(elements.end(), memory.begin() + static_cast<ptrdiff_t>(at),
                    memory.begin() + static_cast<ptrdiff_t>(at + width));
  }
  normalize(view.type, elements);
  return elements;
}

void write_memory(Bytes& memory, const View& view, const Bytes& elements) {
  const size_t width = width_of(view.type);
  size_t next = 0;
  for (size_t at : walk(view)) {
    std::copy_n(elements.begin() + static_cast<ptrdiff_t>(next), width,
                memory.begin() + static_cast<ptrdiff_t>(at));
    next += width;
  }
}

bool overlaps(const View& view) {
  std::vector<size_t> offsets = walk(view);
  std::sort(offsets.begin(), offsets.end());
  return std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end();
}

// --- Random geometries ---

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  int64_t between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  bool one_in(int64_t n) { return between(1, n) == 1; }
  template <class T>
  T choose(std::initializer_list<T> items) {
    return *(items.begin() + between(0, static_cast<int64_t>(items.size()) - 1));
  }
  size_t dim_of(const View& view) {
    return static_cast<size_t>(between(0, static_cast<int64_t>(view.rank()) - 1));
  }
  void shuffle(Dims& dims) { std::shuffle(dims.begin(), dims.end(), engine_); }

  // Bytes of which no float type makes a NaN, an infinity or a denormal: those may lose bits.
  Bytes bytes(ElementType type, size_t count) {
    Bytes result(count);
    for (std::byte& byte : result) {
      byte =
          static_cast<std::byte>(type == ElementType::kPred ? between(0, 1) : between(0x20, 0x5f));
    }
    return result;
  }

 private:
  std::mt19937_64 engine_;
};

Dims row_major(const Dims& sizes) {
  Dims strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

// The base of a storage: row-major, or with permuted strides.
View random_base(Random& random, ElementType type) {
  View base{type, {}, {}, 0};
  const int64_t rank = random.between(0, 4);
  for (int64_t d = 0; d < rank; ++d) base.sizes.push_back(random.between(1, 6));
  if (!random.one_in(3)) {
    base.strides = row_major(base.sizes);
    return base;
  }
  Dims order = stablehlo::iota_dims(base.rank());
  random.shuffle(order);
  base.strides = Dims(base.rank(), 1);
  int64_t stride = 1;
  for (int64_t d : order) {
    base.strides[static_cast<size_t>(d)] = stride;
    stride *= base.sizes[static_cast<size_t>(d)];
  }
  return base;
}

void slice(Random& random, View& view) {
  const size_t d = random.dim_of(view);
  const int64_t start = random.between(0, view.sizes[d] - 1), step = random.between(1, 3);
  const int64_t most = (view.sizes[d] - 1 - start) / step + 1;
  view.offset += start * view.strides[d];
  view.sizes[d] = random.between(1, most);
  view.strides[d] *= step;
}

void select(Random& random, View& view) {
  const size_t d = random.dim_of(view);
  view.offset += random.between(0, view.sizes[d] - 1) * view.strides[d];
  view.sizes.erase(d);
  view.strides.erase(d);
}

void transpose(Random& random, View& view) {
  const size_t a = random.dim_of(view), b = random.dim_of(view);
  std::swap(view.sizes[a], view.sizes[b]);
  std::swap(view.strides[a], view.strides[b]);
}

void split(Random& random, View& view) {
  const size_t d = random.dim_of(view);
  Dims divisors;
  for (int64_t n = 1; n <= view.sizes[d]; ++n) {
    if (view.sizes[d] % n == 0) divisors.push_back(n);
  }
  const int64_t inner =
      divisors[static_cast<size_t>(random.between(0, static_cast<int64_t>(divisors.size()) - 1))];
  view.sizes[d] /= inner;
  view.strides[d] *= inner;
  view.sizes.insert(d + 1, inner);
  view.strides.insert(d + 1, view.strides[d] / inner);
}

void merge(Random& random, View& view) {
  const size_t d = random.dim_of(view);
  if (d + 1 >= view.rank() || view.strides[d] != view.strides[d + 1] * view.sizes[d + 1]) return;
  view.sizes[d] *= view.sizes[d + 1];
  view.strides[d] = view.strides[d + 1];
  view.sizes.erase(d + 1);
  view.strides.erase(d + 1);
}

void diagonal(Random& random, View& view) {
  if (view.rank() < 2) return;
  const size_t a = random.dim_of(view);
  const size_t b = (a + 1) % view.rank();
  const int64_t shift = random.between(0, view.sizes[b] - 1);
  view.offset += shift * view.strides[b];
  const int64_t size = std::min(view.sizes[a], view.sizes[b] - shift);
  const int64_t stride = view.strides[a] + view.strides[b];
  for (size_t d : {std::max(a, b), std::min(a, b)}) {
    view.sizes.erase(d);
    view.strides.erase(d);
  }
  view.sizes.push_back(size);
  view.strides.push_back(stride);
}

// Windows along a dim, which overlap when they are larger than the step.
void unfold(Random& random, View& view) {
  const size_t d = random.dim_of(view);
  const int64_t size = random.between(1, view.sizes[d]), step = random.between(1, 3);
  const int64_t stride = view.strides[d];
  view.sizes[d] = (view.sizes[d] - size) / step + 1;
  view.strides[d] *= step;
  view.sizes.push_back(size);
  view.strides.push_back(stride);
}

void expand(Random& random, View& view) {
  const int64_t size = random.between(1, 3);
  for (size_t d = 0; d < view.rank(); ++d) {
    if (view.sizes[d] == 1 && random.one_in(2)) {
      view.sizes[d] = size;
      view.strides[d] = 0;
      return;
    }
  }
  view.sizes.insert(0, size);
  view.strides.insert(0, 0);
}

// Tensor.view(dtype), view_as_real and view_as_complex where they are possible.
void retype(Random& random, View& view, ElementType to) {
  const auto from_width = static_cast<int64_t>(width_of(view.type));
  const auto to_width = static_cast<int64_t>(width_of(to));
  if (from_width > to_width) {
    const int64_t ratio = from_width / to_width;
    for (int64_t& stride : view.strides) stride *= ratio;
    view.offset *= ratio;
    view.sizes.push_back(ratio);
    view.strides.push_back(1);
  } else if (from_width < to_width) {
    const int64_t ratio = to_width / from_width;
    if (view.rank() == 0 || view.sizes.back() % ratio != 0 || view.strides.back() != 1 ||
        view.offset % ratio != 0) {
      return;
    }
    for (size_t d = 0; d + 1 < view.rank(); ++d) {
      if (view.strides[d] % ratio != 0) return;
    }
    for (int64_t& stride : view.strides) stride /= ratio;
    view.strides.back() = 1;
    view.offset /= ratio;
    view.sizes.back() /= ratio;
  }
  view.type = to;
  if (random.one_in(2)) merge(random, view);
}

// Any sizes and strides that fit into `count` elements.
View random_strided(Random& random, ElementType type, int64_t count) {
  View view{type, {}, {}, random.between(0, count - 1)};
  int64_t left = count - 1 - view.offset;
  const int64_t rank = random.between(0, 3);
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t stride = random.between(0, 7);
    const int64_t size =
        random.between(1, stride == 0 ? 3 : std::min<int64_t>(left / stride, 4) + 1);
    view.sizes.push_back(size);
    view.strides.push_back(stride);
    left -= (size - 1) * stride;
  }
  return view;
}

View random_view(Random& random, const View& base, std::initializer_list<ElementType> types) {
  View view = base;
  const int64_t steps = random.between(0, 6);
  for (int64_t i = 0; i < steps; ++i) {
    if (types.size() > 0 && random.one_in(3)) retype(random, view, random.choose(types));
    if (view.rank() == 0 || product(view.sizes) > 500) {
      expand(random, view);
      break;
    }
    using Change = void (*)(Random&, View&);
    random.choose<Change>({slice, slice, select, transpose, transpose, split, merge, diagonal,
                           unfold, expand})(random, view);
  }
  if (types.size() == 0 && random.one_in(5)) {
    return random_strided(random, base.type, product(base.sizes));
  }
  return view;
}

// --- Comparison ---

Array array_of(const View& view, const Bytes& elements) {
  return {view.type, view.sizes, elements};
}

struct Check {
  View view;
  Value node;
  Bytes expected;
};

// One storage: its memory, and reads and writes through many views of it.
class Storage {
 public:
  Storage(Random& random, const View& base)
      : base_(base),
        memory_(random.bytes(base.type,
                             static_cast<size_t>(product(base.sizes)) * width_of(base.type))),
        value_(testing::input(array_of(base, read_memory(memory_, base)))) {}

  void add(Random& random, const View& view) {
    const Base base{value_, strides()};
    checks_.push_back({view, read_view(base, view.geometry()), read_memory(memory_, view)});

    const auto bytes = static_cast<size_t>(product(view.sizes)) * width_of(view.type);
    // Which of overlapping elements stays is not defined, so they are all the same.
    Bytes source = random.bytes(view.type, bytes);
    if (overlaps(view)) std::fill(source.begin(), source.end(), std::byte{1});
    Bytes after = memory_;
    write_memory(after, view, source);
    normalize(base_.type, after);
    const Value update = testing::input(array_of(view, source));
    checks_.push_back({view, write_view(base, view.geometry(), update), read_memory(after, base_)});
  }

  void check(pjrt::Client& client) const {
    std::vector<Value> roots;
    for (const Check& check : checks_) roots.push_back(check.node);
    const std::vector<Array> results = testing::evaluate(client, roots);
    for (size_t i = 0; i < checks_.size(); ++i) {
      EXPECT_EQ(results[i].bytes, checks_[i].expected)
          << (i % 2 == 0 ? "read of " : "write to ") << checks_[i].view.to_string()
          << "\nin a base " << base_.to_string();
    }
  }

 private:
  // As storages keep them: none for row-major ones.
  std::span<const int64_t> strides() const {
    if (base_.strides == row_major(base_.sizes)) return {};
    return base_.strides;
  }

  View base_;
  Bytes memory_;
  Value value_;
  std::vector<Check> checks_;
};

constexpr int kViewsAStorage = 25;

// All plugins agree on StableHLO, so the first one gets most of the work.
void check_random(int storages, ElementType type, std::initializer_list<ElementType> types,
                  uint64_t seed) {
  TORCH_XLA_NEEDS_PLUGIN();
  for (size_t c = 0; c < testing::clients().size(); ++c) {
    for (int s = 0; s < (c == 0 ? storages : 1) && !::testing::Test::HasFailure(); ++s) {
      const uint64_t own_seed = seed * 1000 + static_cast<uint64_t>(s);
      SCOPED_TRACE("seed " + std::to_string(own_seed));
      Random random(own_seed);
      const View base = random_base(random, type);
      Storage storage(random, base);
      for (int i = 0; i < kViewsAStorage; ++i) {
        storage.add(random, random_view(random, base, types));
      }
      storage.check(*testing::clients()[c]);
    }
  }
}

TEST(View, RandomGeometriesF32) { check_random(20, ElementType::kF32, {}, 1); }
TEST(View, RandomGeometriesBool) { check_random(5, ElementType::kPred, {}, 2); }
TEST(View, RandomGeometriesComplex) { check_random(3, ElementType::kC64, {}, 3); }

TEST(View, FloatsSeenAsOtherTypes) {
  check_random(8, ElementType::kF32,
               {ElementType::kS32, ElementType::kF64, ElementType::kBF16, ElementType::kU8,
                ElementType::kC64, ElementType::kC128, ElementType::kF32},
               4);
}

TEST(View, BytesSeenAsOtherTypes) {
  check_random(5, ElementType::kU8,
               {ElementType::kPred, ElementType::kF16, ElementType::kS64, ElementType::kU8,
                ElementType::kC64},
               5);
}

TEST(View, ComplexNumbersSeenAsPairs) {
  check_random(4, ElementType::kC64,
               {ElementType::kF32, ElementType::kC64, ElementType::kC128, ElementType::kS64}, 6);
  check_random(2, ElementType::kC128, {ElementType::kF64, ElementType::kC64, ElementType::kF32}, 7);
}

TEST(View, BoolsSeenAsBytes) {
  check_random(4, ElementType::kPred, {ElementType::kU8, ElementType::kS8, ElementType::kS32}, 8);
}

void check_one(const View& base, std::initializer_list<View> views) {
  TORCH_XLA_NEEDS_PLUGIN();
  Random random(0);
  Storage storage(random, base);
  for (const View& view : views) storage.add(random, view);
  for (const auto& client : testing::clients()) storage.check(*client);
}

TEST(View, OfAScalar) {
  check_one({ElementType::kF32, {}, {}, 0}, {{ElementType::kF32, {}, {}, 0},
                                             {ElementType::kF32, {1, 1}, {5, 9}, 0},
                                             {ElementType::kF32, {2, 3}, {0, 0}, 0},
                                             {ElementType::kU8, {2}, {2}, 1}});
}

TEST(View, OfABaseWithDimsOfSizeOneInAnyStride) {
  check_one({ElementType::kF32, {1, 3, 1, 2}, {1, 1, 77, 3}, 0},
            {{ElementType::kF32, {6}, {1}, 0}, {ElementType::kF32, {2, 2}, {3, 1}, 1}});
}

// Wider elements need not fill the storage: the rest stays as it is.
TEST(View, WiderElementsLeaveARest) {
  check_one({ElementType::kF32, {5}, {1}, 0},
            {{ElementType::kF64, {2}, {1}, 0}, {ElementType::kC64, {1}, {1}, 1}});
  check_one({ElementType::kU8, {11}, {1}, 0},
            {{ElementType::kF16, {5}, {1}, 0}, {ElementType::kC64, {1}, {1}, 0}});
}

TEST(View, OfNothing) {
  check_one({ElementType::kF32, {0, 3}, {3, 1}, 0},
            {{ElementType::kF32, {0}, {1}, 0}, {ElementType::kU8, {2, 0}, {1, 1}, 0}});
  check_one({ElementType::kF32, {4}, {1}, 0}, {{ElementType::kF32, {2, 0}, {1, 1}, 3}});
}

TEST(View, OutsideItsStorageIsAnErrorNotAWildRead) {
  const Value value = testing::input(testing::f32({4}, {1, 2, 3, 4}));
  const Value empty = testing::input(testing::f32({0}, {}));
  const Value single = testing::input(testing::f32({}, {1}));
  const auto lower = [](const Value& of, const View& view) {
    const Value root = read_view({of, {}}, view.geometry());
    testing::lower_roots(std::span(&root, 1));
  };
  EXPECT_THROW(lower(value, {ElementType::kF32, {3}, {2}, 0}), LoweringError);
  EXPECT_THROW(lower(value, {ElementType::kF32, {}, {}, 4}), LoweringError);
  EXPECT_THROW(lower(value, {ElementType::kC128, {2}, {1}, 0}), LoweringError);
  EXPECT_THROW(lower(empty, {ElementType::kF32, {1}, {1}, 0}), LoweringError);
  EXPECT_THROW(lower(single, {ElementType::kF32, {2}, {1}, 0}), LoweringError);
  EXPECT_THROW(lower(single, {ElementType::kF64, {1}, {1}, 0}), LoweringError);
}

TEST(View, DumpsNameTheOperation) {
  const Value x = testing::input(testing::f32({4, 6}, std::vector<float>(24)));
  const Base base{x, {}};
  const auto name = [&](const View& view) {
    return std::string(read_view(base, view.geometry()).node->op().name);
  };
  EXPECT_EQ(name({ElementType::kF32, {24}, {1}, 0}), "aten::view");
  EXPECT_EQ(name({ElementType::kS32, {24}, {1}, 0}), "aten::view");
  EXPECT_EQ(name({ElementType::kF32, {6, 4}, {1, 6}, 0}), "aten::permute");
  EXPECT_EQ(name({ElementType::kF32, {2, 6}, {6, 1}, 6}), "aten::slice");
  EXPECT_EQ(name({ElementType::kF32, {3, 6}, {0, 1}, 0}), "aten::expand");
  EXPECT_EQ(name({ElementType::kF32, {3, 2}, {1, 2}, 0}), "aten::as_strided");
}

// A read of plain slices and transposes must not turn into a gather: that is slow everywhere.
TEST(View, OnlyOverlappingWindowsGather) {
  const Value x = testing::input(testing::f32({4, 6}, std::vector<float>(24)));
  const auto text = [&](const View& view) {
    const Value root = read_view({x, {}}, view.geometry());
    return testing::lower_roots(std::span(&root, 1)).module;
  };
  const View plain[] = {{ElementType::kF32, {6, 4}, {1, 6}, 0},
                        {ElementType::kF32, {4}, {7}, 0},
                        {ElementType::kF32, {2, 3, 2}, {12, 1, 6}, 2},
                        {ElementType::kF32, {3, 2, 4}, {2, 0, 6}, 1},
                        {ElementType::kF32, {5, 2}, {4, 1}, 1}};
  for (const View& view : plain) {
    EXPECT_EQ(text(view).find("gather"), std::string::npos) << view.to_string();
  }
  EXPECT_NE(text({ElementType::kF32, {3, 2}, {1, 1}, 0}).find("gather"), std::string::npos);
}

}  // namespace
}  // namespace torch_xla::ir
