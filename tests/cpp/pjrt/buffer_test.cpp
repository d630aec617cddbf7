#include "pjrt/buffer.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "pjrt/plugins.h"

namespace torch_xla::pjrt::testing {
namespace {

TEST(HostBytes, Sizes) {
  EXPECT_EQ(host_bytes(BufferType::kF32, std::vector<int64_t>{2, 3}), 24);
  EXPECT_EQ(host_bytes(BufferType::kC128, {}), 16);
  EXPECT_EQ(host_bytes(BufferType::kS4, std::vector<int64_t>{3}), 3);
  EXPECT_EQ(host_bytes(BufferType::kF32, std::vector<int64_t>{INT64_MAX, INT64_MAX, 0}), 0);
  EXPECT_EQ(host_bytes(BufferType::kToken, std::vector<int64_t>{3}), 0);
}

TEST(HostBytes, Errors) {
  EXPECT_THROW(host_bytes(BufferType::kF32, std::vector<int64_t>{-1}), Error);
  EXPECT_THROW(host_bytes(BufferType::kF32, std::vector<int64_t>{INT64_MAX, 4}), Error);
  EXPECT_THROW(host_bytes(BufferType::kF32, std::vector<int64_t>{INT64_MAX, INT64_MAX}), Error);
}

TEST(BufferTypes, Names) {
  EXPECT_STREQ(to_string(BufferType::kPred), "i1");
  EXPECT_STREQ(to_string(BufferType::kBF16), "bf16");
  EXPECT_STREQ(to_string(BufferType::kF4E2M1FN), "f4E2M1FN");
  EXPECT_STREQ(to_string(static_cast<BufferType>(1000)), "invalid");
  EXPECT_EQ(host_element_size(static_cast<BufferType>(1000)), 0);
}

class BufferTest : public PluginTest {};
TORCH_XLA_FOR_EACH_PLUGIN(BufferTest);

TEST_P(BufferTest, RoundTripOfEveryType) {
  const std::vector<int64_t> dims{2, 3};
  for (uint32_t t = 1; t <= static_cast<uint32_t>(BufferType::kF8E8M0FNU); ++t) {
    const auto type = static_cast<BufferType>(t);
    // Less than a byte: the device packs, and what the unused bits hold afterwards is its choice.
    const bool narrow = type == BufferType::kS4 || type == BufferType::kU4 ||
                        type == BufferType::kS2 || type == BufferType::kU2;
    if (type == BufferType::kToken || narrow) continue;
    SCOPED_TRACE(to_string(type));
    std::vector<uint8_t> sent(host_bytes(type, dims));
    std::iota(sent.begin(), sent.end(), 1);
    if (type == BufferType::kPred) sent = {0, 1, 1, 0, 1, 0};
    auto buffer = upload(sent, dims, type);
    EXPECT_EQ(buffer->type(), type);
    EXPECT_TRUE(std::ranges::equal(buffer->dims(), dims));
    EXPECT_EQ(buffer->host_bytes(), sent.size());
    EXPECT_GE(buffer->on_device_bytes(), sent.size());
    EXPECT_EQ(buffer->unpadded_dims(), dims);
    EXPECT_EQ(buffer->device(), device());
    EXPECT_EQ(buffer->memory(), device()->default_memory());
    EXPECT_EQ(download<uint8_t>(*buffer), sent);
  }
}

TEST_P(BufferTest, FourBitIntegers) {
  auto buffer = upload<uint8_t>({1, 7, 0, 5}, {4}, BufferType::kU4);
  EXPECT_EQ(download<uint8_t>(*buffer), (std::vector<uint8_t>{1, 7, 0, 5}));
}

TEST_P(BufferTest, ScalarAndEmpty) {
  auto scalar = upload<float>({2.5f}, {}, BufferType::kF32);
  EXPECT_TRUE(scalar->dims().empty());
  EXPECT_EQ(download(*scalar), std::vector<float>{2.5f});

  const std::vector<int64_t> dims{4, 0, 2};
  auto empty = client()->buffer_from_host(nullptr, BufferType::kF32, dims, {}, device(),
                                          HostBufferSemantics::kImmutableOnlyDuringCall);
  EXPECT_TRUE(std::ranges::equal(empty->dims(), dims));
  EXPECT_EQ(empty->host_bytes(), 0);
  empty->copy_to_host(nullptr, 0).wait();
}

TEST_P(BufferTest, Strided) {
  // The transpose of a row-major 2 x 3 array.
  const float data[] = {0, 1, 2, 3, 4, 5};
  const std::vector<int64_t> dims{3, 2}, strides{4, 12};
  auto buffer = client()->buffer_from_host(data, BufferType::kF32, dims, strides, device(),
                                           HostBufferSemantics::kImmutableOnlyDuringCall);
  EXPECT_EQ(download(*buffer), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST_P(BufferTest, BadUploads) {
  const float data[4] = {};
  const std::vector<int64_t> dims{4}, negative{-4}, strides{4, 4};
  auto upload = [&](const void* from, BufferType type, std::span<const int64_t> shape,
                    std::span<const int64_t> byte_strides) {
    client()->buffer_from_host(from, type, shape, byte_strides, device(),
                               HostBufferSemantics::kImmutableOnlyDuringCall);
  };
  EXPECT_THROW(upload(nullptr, BufferType::kF32, dims, {}), Error);
  EXPECT_THROW(upload(data, BufferType::kInvalid, dims, {}), Error);
  EXPECT_THROW(upload(data, BufferType::kToken, dims, {}), Error);
  EXPECT_THROW(upload(data, BufferType::kF32, negative, {}), Error);
  EXPECT_THROW(upload(data, BufferType::kF32, dims, strides), Error);
}

TEST_P(BufferTest, DownloadIntoTooLittle) {
  auto buffer = floats({1, 2, 3});
  float target[2];
  const Error error = error_of([&] { buffer->copy_to_host(target, sizeof target); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(contains(error.what(), "12 bytes"));
}

// Counts calls and lets a test wait for them.
class Signal {
 public:
  void raise() {
    std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void wait_for(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }
  int count() {
    std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

TEST_P(BufferTest, HostMemoryIsReleasedOnce) {
  const std::vector<float> data(1 << 16, 1.f);
  const std::vector<int64_t> dims{1 << 16};
  for (auto semantics : {HostBufferSemantics::kImmutableOnlyDuringCall,
                         HostBufferSemantics::kImmutableUntilTransferCompletes}) {
    Signal signal;
    auto buffer = client()->buffer_from_host(data.data(), BufferType::kF32, dims, {}, device(),
                                             semantics, [&] { signal.raise(); });
    signal.wait_for(1);
    EXPECT_EQ(download(*buffer), data);
    buffer.reset();
    EXPECT_EQ(signal.count(), 1);
  }
}

TEST_P(BufferTest, ZeroCopy) {
  alignas(64) float data[32];
  std::iota(std::begin(data), std::end(data), 0.f);
  const std::vector<int64_t> dims{32};
  Signal signal;
  auto buffer =
      client()->buffer_from_host(data, BufferType::kF32, dims, {}, device(),
                                 HostBufferSemantics::kImmutableZeroCopy, [&] { signal.raise(); });
  buffer->ready().wait();
  EXPECT_EQ(buffer->unsafe_pointer(), reinterpret_cast<uintptr_t>(data));
  EXPECT_EQ(signal.count(), 0) << "the memory is in use";
  buffer.reset();
  signal.wait_for(1);
}

TEST_P(BufferTest, ZeroCopyFallsBackToACopy) {
  alignas(64) float data[33];
  std::iota(std::begin(data), std::end(data), 0.f);
  const std::vector<int64_t> dims{32};
  Signal signal;
  auto buffer =
      client()->buffer_from_host(data + 1, BufferType::kF32, dims, {}, device(),
                                 HostBufferSemantics::kImmutableZeroCopy, [&] { signal.raise(); });
  signal.wait_for(1);
  data[1] = -1;
  EXPECT_EQ(download(*buffer)[0], 1.f);
}

TEST_P(BufferTest, DeleteNow) {
  auto buffer = floats({1, 2});
  EXPECT_FALSE(buffer->is_deleted());
  buffer->delete_now();
  buffer->delete_now();
  EXPECT_TRUE(buffer->is_deleted());
  EXPECT_EQ(buffer->dims().size(), 1);
  float target[2];
  EXPECT_THROW(buffer->copy_to_host(target, sizeof target).wait(), Error);
  EXPECT_THROW(buffer->unsafe_pointer(), Error);
}

TEST_P(BufferTest, CopyToDeviceAndMemory) {
  auto buffer = floats({1, 2, 3});
  auto there = buffer->copy_to_device(device(1));
  EXPECT_EQ(there->device(), device(1));
  EXPECT_EQ(download(*there), (std::vector<float>{1, 2, 3}));
  for (Memory* memory : device(1)->memories()) {
    SCOPED_TRACE(memory->kind());
    auto copy = buffer->copy_to_memory(memory);
    EXPECT_EQ(copy->memory(), memory);
    EXPECT_EQ(download(*copy), (std::vector<float>{1, 2, 3}));
  }
}

TEST_P(BufferTest, UploadIntoAMemory) {
  const float data[] = {4, 5};
  const std::vector<int64_t> dims{2};
  for (Memory* memory : device()->memories()) {
    SCOPED_TRACE(memory->kind());
    auto buffer = client()->buffer_from_host(data, BufferType::kF32, dims, {}, memory,
                                             HostBufferSemantics::kImmutableOnlyDuringCall);
    EXPECT_EQ(buffer->memory(), memory);
    EXPECT_EQ(download(*buffer), (std::vector<float>{4, 5}));
  }
}

TEST_P(BufferTest, EventOfAReadyBuffer) {
  auto buffer = floats({1});
  Event event = buffer->ready();
  event.wait();
  EXPECT_TRUE(event.is_ready());
  Signal signal;
  event.on_ready([&](std::exception_ptr error) {
    EXPECT_EQ(error, nullptr);
    signal.raise();
  });
  signal.wait_for(1);
}

TEST(EventTest, EmptyIsReady) {
  Event event;
  EXPECT_TRUE(event.is_ready());
  event.wait();
  bool called = false;
  event.on_ready([&](std::exception_ptr error) { called = error == nullptr; });
  EXPECT_TRUE(called);
}

TEST_P(BufferTest, EventsMove) {
  auto buffer = floats({1});
  Event a = buffer->ready();
  Event b = std::move(a);
  b.wait();
  a.wait();  // NOLINT: moved from means empty
  a = std::move(b);
  a.wait();
  a = Event();
  EXPECT_TRUE(a.is_ready());
}

TEST_P(BufferTest, FromManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::vector<float> sent(100, static_cast<float>(t * 1000 + i));
        right += download(*floats(sent, device(t % 2))) == sent;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 400);
}

}  // namespace
}  // namespace torch_xla::pjrt::testing
