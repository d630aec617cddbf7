#include "pjrt/executable.h"

#include <malloc.h>

#include <atomic>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include "pjrt/ffi.h"
#include "pjrt/plugins.h"

namespace torch_xla::pjrt::testing {
namespace {

constexpr char kAdd[] = R"(
module @add {
  func.func @main(%a: tensor<3xf32>, %b: tensor<3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.add %a, %b : tensor<3xf32>
    return %0 : tensor<3xf32>
  }
})";

// Its first input is donated to its result.
constexpr char kAddInto[] = R"(
module @add_into {
  func.func @main(%a: tensor<3xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<3xf32>)
      -> tensor<3xf32> {
    %0 = stablehlo.add %a, %b : tensor<3xf32>
    return %0 : tensor<3xf32>
  }
})";

// Sums over all replicas.
constexpr char kAllReduce[] = R"(
module @all_reduce attributes {mhlo.num_replicas = 2 : i32} {
  func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "stablehlo.all_reduce"(%a) ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}
      : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
})";

using Floats = std::vector<float>;

class ExecutableTest : public PluginTest {
 protected:
  static std::vector<std::unique_ptr<Buffer>> run(Executable& program, std::vector<Buffer*> args,
                                                  const ExecuteOptions& options = {}) {
    return program.execute(args, options);
  }
};
TORCH_XLA_FOR_EACH_PLUGIN(ExecutableTest);

TEST_P(ExecutableTest, AddsAndDescribesItself) {
  auto program = compile(kAdd);
  EXPECT_TRUE(contains(program->name(), "add")) << program->name();
  EXPECT_EQ(program->num_outputs(), 1);
  EXPECT_EQ(program->num_replicas(), 1);
  EXPECT_EQ(program->num_partitions(), 1);
  EXPECT_EQ(program->output_types(), std::vector<BufferType>{BufferType::kF32});
  EXPECT_EQ(program->output_dims(), (std::vector<std::vector<int64_t>>{{3}}));
  EXPECT_EQ(program->addressable_devices(), std::vector<Device*>{device()});
  auto a = floats({1, 2, 3}), b = floats({10, 20, 30});
  auto outputs = run(*program, {a.get(), b.get()});
  ASSERT_EQ(outputs.size(), 1);
  EXPECT_EQ(download(*outputs[0]), (Floats{11, 22, 33}));
  EXPECT_FALSE(a->is_deleted());
}

TEST_P(ExecutableTest, SeveralOutputsOfSeveralTypes) {
  auto program = compile(R"(
    func.func @main(%a: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<2x3xi1>, tensor<f32>, tensor<0xi64>) {
      %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
      %1 = stablehlo.compare GT, %a, %a : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
      %2 = stablehlo.constant dense<7.0> : tensor<f32>
      %3 = stablehlo.constant dense<> : tensor<0xi64>
      return %0, %1, %2, %3 : tensor<3x2xf32>, tensor<2x3xi1>, tensor<f32>, tensor<0xi64>
    })");
  EXPECT_EQ(program->output_dims(), (std::vector<std::vector<int64_t>>{{3, 2}, {2, 3}, {}, {0}}));
  EXPECT_EQ(program->output_types(),
            (std::vector{BufferType::kF32, BufferType::kPred, BufferType::kF32, BufferType::kS64}));
  auto a = upload<float>({0, 1, 2, 3, 4, 5}, {2, 3}, BufferType::kF32);
  auto outputs = run(*program, {a.get()});
  EXPECT_EQ(download(*outputs[0]), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(download<uint8_t>(*outputs[1]), std::vector<uint8_t>(6, 0));
  EXPECT_EQ(download(*outputs[2]), Floats{7});
  EXPECT_EQ(download<int64_t>(*outputs[3]).size(), 0);
}

TEST_P(ExecutableTest, NoInputsNoOutputs) {
  auto program = compile("func.func @main() { return }");
  std::vector<Event> done;
  EXPECT_TRUE(run(*program, {}, {.done = &done}).empty());
  ASSERT_EQ(done.size(), 1);
  done[0].wait();
}

TEST_P(ExecutableTest, CompileErrorsCarryThePluginsText) {
  const Error syntax = error_of([] { compile("this is no program"); });
  EXPECT_GT(std::string(syntax.what()).size(), 10);
  const Error type = error_of([] {
    compile(
        "func.func @main(%a: tensor<3xf32>, %b: tensor<4xf32>) -> tensor<3xf32> {"
        " %0 = stablehlo.add %a, %b : tensor<3xf32> return %0 : tensor<3xf32> }");
  });
  EXPECT_NE(std::string(type.what()).find("tensor<4xf32>"), std::string::npos) << type.what();
  const Error target = error_of([] {
    compile(
        "func.func @main(%a: tensor<f32>) -> tensor<f32> {"
        " %0 = stablehlo.custom_call @there_is_no_such_target(%a) {api_version = 4 : i32}"
        " : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32> }");
  });
  EXPECT_TRUE(contains(target.what(), "there_is_no_such_target")) << target.what();
  EXPECT_THROW(compile(""), Error);
}

TEST_P(ExecutableTest, CompileOptionsOfThePlugin) {
  const Error unknown = error_of([] { compile(kAdd, {.env_overrides = {{"xla_no_such", true}}}); });
  EXPECT_TRUE(contains(unknown.what(), "xla_no_such")) << unknown.what();

  constexpr char kMax[] =
      "func.func @main(%a: tensor<3xf32>, %b: tensor<3xf32>) -> tensor<3xf32> {"
      " %0 = stablehlo.maximum %a, %b : tensor<3xf32> return %0 : tensor<3xf32> }";
  const float nan = std::numeric_limits<float>::quiet_NaN();
  auto a = floats({nan, 1, 2}), b = floats({1, nan, 1});
  for (const Option& no : {Option(false), Option("False")}) {
    auto program = compile(kMax, {.env_overrides = {{"xla_cpu_enable_fast_min_max", no}}});
    const Floats result = download(*run(*program, {a.get(), b.get()})[0]);
    EXPECT_TRUE(std::isnan(result[0]) && std::isnan(result[1])) << "NaN is lost without the option";
    EXPECT_EQ(result[2], 2);
  }
}

TEST_P(ExecutableTest, ImpossibleDeviceAssignments) {
  EXPECT_TRUE(contains(error_of([] { compile(kAdd, {.num_replicas = 3}); }).what(),
                       "need 3 devices; there are 2"));
  EXPECT_TRUE(contains(error_of([] { compile(kAdd, {.device_assignment = {0, 1}}); }).what(),
                       "names 2 devices for 1 replicas x 1 partitions"));
  EXPECT_TRUE(contains(error_of([] { compile(kAdd, {.device_assignment = {77}}); }).what(),
                       "device 77, which does not exist"));
  EXPECT_TRUE(contains(
      error_of([] { compile(kAdd, {.num_replicas = 2, .device_assignment = {0, 0}}); }).what(),
      "device 0 twice"));
  EXPECT_THROW(compile(kAdd, {.num_replicas = 0}), Error);
  EXPECT_THROW(compile(kAdd, {.num_replicas = 1 << 30, .num_partitions = 1 << 30}), Error);
}

TEST_P(ExecutableTest, RefusesBadArguments) {
  auto program = compile(kAdd);
  auto a = floats({1, 2, 3});
  auto wrong_shape = floats({1, 2});
  auto elsewhere = floats({1, 2, 3}, device(1));
  auto deleted = floats({1, 2, 3});
  deleted->delete_now();
  auto other_client = client(3)->buffer_from_host(
      Floats(3).data(), BufferType::kF32, std::vector<int64_t>{3}, {}, client(3)->devices()[0],
      HostBufferSemantics::kImmutableOnlyDuringCall);
  auto fails = [&](std::vector<Buffer*> args) {
    // Refused at once or through the result, but never computed.
    EXPECT_THROW(
        {
          auto outputs = run(*program, args);
          for (auto& output : outputs) output->ready().wait();
        },
        Error);
  };
  fails({a.get()});
  fails({a.get(), a.get(), a.get()});
  fails({a.get(), nullptr});
  fails({a.get(), wrong_shape.get()});
  fails({a.get(), elsewhere.get()});
  fails({a.get(), deleted.get()});
  fails({a.get(), other_client.get()});
  EXPECT_THROW(run(*program, {a.get(), a.get()}, {.non_donatable_input_indices = {2}}), Error);
  EXPECT_THROW(run(*program, {a.get(), a.get()}, {.non_donatable_input_indices = {-1}}), Error);
  EXPECT_EQ(download(*run(*program, {a.get(), a.get()})[0]), (Floats{2, 4, 6})) << "still works";
}

TEST_P(ExecutableTest, Donation) {
  auto program = compile(kAddInto);
  auto a = floats({1, 2, 3}), b = floats({1, 1, 1});
  a->ready().wait();
  const uintptr_t address = a->unsafe_pointer();
  auto outputs = run(*program, {a.get(), b.get()});
  EXPECT_TRUE(a->is_deleted());
  EXPECT_FALSE(b->is_deleted());
  EXPECT_EQ(download(*outputs[0]), (Floats{2, 3, 4}));
  EXPECT_EQ(outputs[0]->unsafe_pointer(), address);
  EXPECT_THROW(run(*program, {a.get(), b.get()}), Error) << "a is gone";
}

TEST_P(ExecutableTest, NonDonatableInputSurvives) {
  auto program = compile(kAddInto);
  auto a = floats({1, 2, 3}), b = floats({1, 1, 1});
  auto outputs = run(*program, {a.get(), b.get()}, {.non_donatable_input_indices = {0}});
  EXPECT_FALSE(a->is_deleted());
  EXPECT_EQ(download(*outputs[0]), (Floats{2, 3, 4}));
  EXPECT_EQ(download(*a), (Floats{1, 2, 3}));
}

TEST_P(ExecutableTest, BufferDonor) {
  auto program = compile(R"(
    func.func @main(%a: tensor<3xf32> {jax.buffer_donor = true}) -> tensor<3xf32> {
      %0 = stablehlo.negate %a : tensor<3xf32>
      return %0 : tensor<3xf32>
    })");
  auto a = floats({1, 2, 3});
  auto outputs = run(*program, {a.get()});
  EXPECT_TRUE(a->is_deleted());
  EXPECT_EQ(download(*outputs[0]), (Floats{-1, -2, -3}));
}

TEST_P(ExecutableTest, ProgramCanBeDroppedWhileItRuns) {
  auto program = compile(R"(
    func.func @main(%a: tensor<400x400xf32>) -> tensor<400x400xf32> {
      %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
        : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
      return %0 : tensor<400x400xf32>
    })");
  auto a = upload(Floats(160000, 1.f), {400, 400}, BufferType::kF32);
  auto outputs = run(*program, {a.get()});
  program.reset();
  a.reset();
  EXPECT_EQ(download(*outputs[0]), Floats(160000, 400.f));
}

TEST_P(ExecutableTest, SerializeAndLoad) {
  auto program = compile(kAdd);
  const std::string bytes = program->serialize();
  EXPECT_FALSE(bytes.empty());
  program.reset();
  auto loaded = client()->load(bytes);
  auto a = floats({1, 2, 3});
  EXPECT_EQ(download(*run(*loaded, {a.get(), a.get()})[0]), (Floats{2, 4, 6}));
  EXPECT_EQ(loaded->output_dims(), (std::vector<std::vector<int64_t>>{{3}}));
  EXPECT_THROW(client()->load("these are not the bytes of a program"), Error);
  EXPECT_THROW(client()->load(""), Error);
}

TEST_P(ExecutableTest, Introspection) {
  auto program = compile(kAdd);
  const OptimizedProgram optimized = program->optimized_program();
  EXPECT_FALSE(optimized.format.empty());
  EXPECT_FALSE(optimized.code.empty());
  const auto stats = program->memory_stats();
  ASSERT_TRUE(stats.has_value());
  EXPECT_EQ(stats->argument_size, 24);
  EXPECT_EQ(stats->output_size, 12);
  if (auto kinds = program->output_memory_kinds()) {
    EXPECT_EQ(kinds->size(), 1);
  }
  if (auto costs = program->cost_analysis()) {
    EXPECT_TRUE(costs->contains("flops"));
  }
  if (auto fingerprint = program->fingerprint()) {
    EXPECT_EQ(fingerprint, compile(kAdd)->fingerprint());
  }
}

TEST_P(ExecutableTest, OnAnotherDevice) {
  auto program = compile(kAdd, {.device_assignment = {device(1)->id()}});
  EXPECT_EQ(program->addressable_devices(), std::vector<Device*>{device(1)});
  auto a = floats({1, 2, 3}, device(1));
  auto outputs = run(*program, {a.get(), a.get()});
  EXPECT_EQ(outputs[0]->device(), device(1));
  EXPECT_EQ(download(*outputs[0]), (Floats{2, 4, 6}));
}

TEST_P(ExecutableTest, PortableProgramRunsOnAnyDevice) {
  auto program = compile(kAdd, {.portable = true});
  for (size_t i = 0; i < 2; ++i) {
    auto a = floats({1, 2, 3}, device(i));
    auto outputs = run(*program, {a.get(), a.get()}, {.execute_device = device(i)});
    EXPECT_EQ(outputs[0]->device(), device(i));
    EXPECT_EQ(download(*outputs[0]), (Floats{2, 4, 6}));
  }
}

TEST_P(ExecutableTest, Replicas) {
  auto program = compile(kAllReduce, {.num_replicas = 2});
  EXPECT_EQ(program->num_replicas(), 2);
  EXPECT_EQ(program->addressable_devices().size(), 2);
  auto a = floats({1, 2}, device(0)), b = floats({10, 20}, device(1));
  std::vector<Event> done;
  const std::vector<std::vector<Buffer*>> args{{a.get()}, {b.get()}};
  auto outputs = program->execute_sharded(args, {.done = &done});
  ASSERT_EQ(outputs.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(outputs[i][0]->device(), device(i));
    EXPECT_EQ(download(*outputs[i][0]), (Floats{11, 22}));
  }
  ASSERT_EQ(done.size(), 2);
  for (Event& event : done) event.wait();

  EXPECT_THROW(run(*program, {a.get()}), Error);
  const std::vector<std::vector<Buffer*>> one_list{{a.get()}}, ragged{{a.get()}, {}};
  EXPECT_THROW(program->execute_sharded(one_list), Error);
  EXPECT_THROW(program->execute_sharded(ragged), Error);
}

TEST_P(ExecutableTest, OneThreadForEachReplica) {
  auto program = compile(kAllReduce, {.num_replicas = 2});
  for (int launch = 1; launch <= 3; ++launch) {
    std::vector<Floats> results(2);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        auto a = floats({1.f + i, 2}, device(i));
        results[i] = download(
            *run(*program, {a.get()}, {.launch_id = launch, .execute_device = device(i)})[0]);
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(results[0], (Floats{3, 4}));
    EXPECT_EQ(results[1], (Floats{3, 4}));
  }
}

TEST_P(ExecutableTest, Partitions) {
  auto program = compile(R"(
    module @spmd attributes {mhlo.num_partitions = 2 : i32} {
      func.func @main(%a: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) -> tensor<f32> {
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %0 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0]
          : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
        return %0 : tensor<f32>
      }
    })",
                         {.num_partitions = 2, .use_spmd_partitioning = true});
  EXPECT_EQ(program->num_partitions(), 2);
  auto a = floats({1, 2}, device(0)), b = floats({3, 4}, device(1));
  const std::vector<std::vector<Buffer*>> args{{a.get()}, {b.get()}};
  auto outputs = program->execute_sharded(args);
  EXPECT_EQ(download(*outputs[0][0]), Floats{10});
  EXPECT_EQ(download(*outputs[1][0]), Floats{10});
}

void fail_slowly(const FfiCall&) {
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  throw Error(ErrorCode::kDataLoss, "the dog ate it");
}

// The failure of a program reaches its results, theirs, and every way of asking.
TEST_P(ExecutableTest, FailuresComeThroughTheResults) {
  register_ffi_handler(*plugin(), "torch_xla_test_fail_slowly", "Host", ffi_entry<fail_slowly>);
  auto failing = compile(R"(
    func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> {
      %0 = stablehlo.custom_call @torch_xla_test_fail_slowly(%a)
        {api_version = 4 : i32, has_side_effect = true} : (tensor<3xf32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    })");
  auto a = floats({1, 2, 3});
  std::unique_ptr<Buffer> failed;
  try {
    failed = std::move(run(*failing, {a.get()})[0]);
  } catch (const Error& error) {
    // A cheap program runs in the caller, and may be refused at once.
    EXPECT_TRUE(contains(error.what(), "the dog ate it"));
    return;
  }
  const Error error = error_of([&] { failed->ready().wait(); });
  EXPECT_TRUE(contains(error.what(), "the dog ate it")) << error.what();
  Floats target(3);
  EXPECT_TRUE(contains(error_of([&] { failed->copy_to_host(target.data(), 12).wait(); }).what(),
                       "the dog ate it"));

  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr seen;
  failed->ready().on_ready([&](std::exception_ptr problem) {
    std::lock_guard lock(mutex);
    seen = problem;
    changed.notify_all();
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return seen != nullptr; });
  }
  EXPECT_TRUE(contains(error_of([&] { std::rethrow_exception(seen); }).what(), "the dog ate it"));

  auto add = compile(kAdd);
  const Error second = error_of([&] {
    auto outputs = run(*add, {failed.get(), a.get()});
    outputs[0]->ready().wait();
  });
  EXPECT_TRUE(contains(second.what(), "the dog ate it")) << second.what();
  EXPECT_EQ(download(*run(*add, {a.get(), a.get()})[0]), (Floats{2, 4, 6})) << "still works";
}

TEST_P(ExecutableTest, AllocationThatCannotBeMade) {
  // 2^46 floats: more than any address space of today's CPUs has.
  auto text = R"(
    func.func @main(%a: tensor<f32>) -> tensor<8388608x8388608xf32> {
      %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<8388608x8388608xf32>
      return %0 : tensor<8388608x8388608xf32>
    })";
  auto a = upload<float>({1}, {}, BufferType::kF32);
  EXPECT_THROW(
      {
        auto program = compile(text);
        run(*program, {a.get()})[0]->ready().wait();
      },
      Error);
  EXPECT_EQ(download(*a), Floats{1}) << "still works";
}

// Bytes that are allocated now, by the plugin too: it uses the process's malloc.
size_t allocated_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// What `action` leaves behind, in bytes a call.
template <class Action>
double leaked_bytes(int count, Action action) {
  for (int i = 0; i < count; ++i) action();  // fill caches
  const size_t before = allocated_bytes();
  for (int i = 0; i < count; ++i) action();
  return (static_cast<double>(allocated_bytes()) - static_cast<double>(before)) / count;
}

TEST_P(ExecutableTest, ExecutionsDoNotLeak) {
  auto program = compile(kAddInto);
  auto b = floats({1, 2, 3});
  EXPECT_LT(leaked_bytes(5000,
                         [&] {
                           auto a = floats({1, 2, 3});
                           auto outputs = run(*program, {a.get(), b.get()});
                           download(*outputs[0]);
                         }),
            16);
}

// The plugin makes a new description at each question for it, of 700 bytes.
TEST_P(ExecutableTest, ProgramsDoNotLeak) {
  const std::string bytes = compile(kAdd)->serialize();
  EXPECT_LT(leaked_bytes(500,
                         [&] {
                           auto program = client()->load(bytes);
                           EXPECT_EQ(program->output_types().size(), 1);
                           program->optimized_program();
                           program->memory_stats();
                         }),
            200);
}

}  // namespace
}  // namespace torch_xla::pjrt::testing
