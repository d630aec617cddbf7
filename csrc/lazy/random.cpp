#include "lazy/random.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "ir/lowering.h"
#include "lazy/capture.h"
#include "lazy/draw_state.h"
#include "lazy/runtime.h"
#include "lazy/unknown.h"

namespace torch_xla::lazy {
namespace {

constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

const ir::Op kRngState{"xla::rng_state", [](ir::Lowering& l, const ir::Node&) -> ir::Results {
                         return l->concatenate(
                             {l->reshape(l.operand(0), {1}), l->reshape(l.operand(1), {1})}, 0);
                       }};

// state, count: where a stream is after a draw of so many numbers.
const ir::Op kAfterDraw{"xla::rng_state", [](ir::Lowering& l, const ir::Node&) -> ir::Results {
                          const auto count = l->reshape(l.operand(1), {1});
                          const auto zero = l->zeros_like(count);
                          return l.operand(0) + l->concatenate({zero, count}, 0);
                        }};

// What the calling thread draws from instead of a generator, if anything (set_draw_state).
thread_local ir::Value t_state;

}  // namespace

ir::Value draw_state(c10::Device device) {
  return generator_for(std::nullopt, device).next_state(0);
}

void set_draw_state(ir::Value state) { t_state = std::move(state); }

XlaGenerator::XlaGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(c10::kXLA, device),
                         c10::DispatchKeySet(c10::DispatchKey::XLA)) {}

void XlaGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

void XlaGenerator::set_offset(uint64_t offset) { offset_ = offset; }

uint64_t XlaGenerator::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom(false);
  set_current_seed(random);
  return random;
}

void XlaGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(state.device().is_cpu() && state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                   "the state of an xla generator is a ByteTensor on CPU");
  TORCH_CHECK(state.numel() == kStateBytes && state.is_contiguous(),
              "the state of an xla generator has ", kStateBytes, " bytes, got ", state.numel());
  const auto* bytes = static_cast<const char*>(state.data());
  std::memcpy(&seed_, bytes, sizeof(seed_));
  std::memcpy(&offset_, bytes + sizeof(seed_), sizeof(offset_));
}

c10::intrusive_ptr<c10::TensorImpl> XlaGenerator::get_state() const {
  const at::Tensor state =
      at::empty({static_cast<int64_t>(kStateBytes)}, at::TensorOptions(at::kByte).device(at::kCPU));
  auto* bytes = state.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, &seed_, sizeof(seed_));
  std::memcpy(bytes + sizeof(seed_), &offset_, sizeof(offset_));
  return state.getIntrusivePtr();
}

XlaGenerator* XlaGenerator::clone_impl() const {
  auto* copy = new XlaGenerator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

ir::Value XlaGenerator::next_state(int64_t count) {
  if (t_state) {
    const ir::Value state = t_state;
    t_state = ir::Node::make(kAfterDraw, {state, ir::scalar(count, ir::ElementType::kU64)}, {},
                             state.shape());
    return state;
  }
  Capture* capture = Capture::current();
  uint64_t seed = 0, start = 0;
  if (!capture) {
    // Not held while nodes are made: that may take the GIL, which torch holds when it locks this.
    std::lock_guard lock(mutex_);
    seed = seed_;
    start = offset_;
    // What is only traced uses no numbers up; other threads draw meanwhile.
    if (!is_tracing_only()) offset_ += static_cast<uint64_t>(count);
  }
  const ir::ElementType word = ir::ElementType::kU64;
  const ir::Value key = ir::scalar(static_cast<int64_t>(seed), word);
  const ir::Value counter = ir::scalar(static_cast<int64_t>(start), word);
  if (capture) capture->note_draw(*this, key, counter, count);
  const int64_t two[] = {2};
  return ir::Node::make(kRngState, {key, counter}, {}, ir::ShapeRef{word, two});
}

at::Generator make_generator(c10::DeviceIndex device) {
  return at::make_generator<XlaGenerator>(device < 0 ? current_device() : device);
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* generators = new std::unordered_map<int, at::Generator>;
  if (device < 0) device = current_device();
  std::lock_guard lock(mutex);
  auto [entry, fresh] = generators->try_emplace(device);
  if (fresh) entry->second = make_generator(device);
  return entry->second;
}

XlaGenerator& generator_for(const std::optional<at::Generator>& generator, c10::Device device) {
  const at::Generator& chosen =
      generator && generator->defined() ? *generator : default_generator(device.index());
  TORCH_CHECK(chosen.device().is_xla(), "Expected a '", device.type(),
              "' device type for generator but found '", chosen.device().type(), "'");
  return *static_cast<XlaGenerator*>(chosen.unsafeGetGeneratorImpl());
}

}  // namespace torch_xla::lazy
