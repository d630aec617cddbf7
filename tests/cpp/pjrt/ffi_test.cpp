#include "pjrt/ffi.h"

#include <atomic>

#include "pjrt/plugins.h"

namespace torch_xla::pjrt::testing {
namespace {

// result = alpha * x + n, checking every kind of attribute on the way.
void scale(const FfiCall& call) {
  if (call.num_args() != 1 || call.num_results() != 1) throw std::runtime_error("one in, one out");
  const FfiBuffer x = call.arg(0), y = call.result(0);
  const double alpha = call.float_attr("alpha");
  const int64_t n = call.int_attr("n") + call.int_attr("small");
  if (call.string_attr("tag") != "hello" || call.bool_attr("off") || !call.has_attr("perm") ||
      call.has_attr("nothing")) {
    throw Error(ErrorCode::kInvalidArgument, "attributes read wrongly");
  }
  int64_t sum = n;
  for (int64_t p : call.ints_attr("perm")) sum += p;
  if (x.type != BufferType::kF32 || x.dims.size() != 2) throw std::runtime_error("wrong operand");
  for (int64_t i = 0; i < x.dims[0] * x.dims[1]; ++i) {
    static_cast<float*>(y.data)[i] =
        static_cast<float>(alpha * static_cast<const float*>(x.data)[i] + static_cast<double>(sum));
  }
}

void read_missing_attribute(const FfiCall& call) { call.int_attr("nothing"); }
void read_wrong_attribute(const FfiCall& call) { call.int_attr("alpha"); }
void read_missing_argument(const FfiCall& call) { call.arg(1); }
void throw_standard(const FfiCall&) { throw std::runtime_error("a plain exception"); }
void throw_odd(const FfiCall&) { throw 3; }

// Says the type it sees.
void say_type(const FfiCall& call) {
  throw Error(ErrorCode::kInternal, std::string("type is ") + to_string(call.arg(0).type) + ".");
}

// result = x + 1, an element a task. Tasks that have others in them end too.
void increment(const FfiCall& call) {
  if (call.num_threads() < 1) throw std::runtime_error("no threads");
  const FfiBuffer x = call.arg(0), y = call.result(0);
  const auto count = static_cast<size_t>(x.dims[0] * x.dims[1]);
  call.in_parallel(0, [](size_t) { throw std::runtime_error("there is no task"); });
  call.in_parallel(count, [&](size_t i) {
    call.in_parallel(3, [&](size_t k) {
      if (k != 1) return;
      static_cast<float*>(y.data)[i] = static_cast<const float*>(x.data)[i] + 1;
    });
  });
}

void fail_in_parallel(const FfiCall& call) {
  std::atomic<int> calls = 0;
  try {
    call.in_parallel(8, [&](size_t i) {
      ++calls;
      if (i == 5) throw Error(ErrorCode::kAborted, "task 5");
    });
  } catch (const Error& error) {
    if (calls == 8) throw;
    throw std::runtime_error("not all tasks were called");
  }
}

class FfiTest : public PluginTest {
 protected:
  static std::string program(const std::string& target, const std::string& type = "2x2xf32") {
    return "func.func @main(%a: tensor<" + type + ">) -> tensor<" + type +
           "> { %0 = stablehlo.custom_call @" + target +
           "(%a) {api_version = 4 : i32, has_side_effect = true, backend_config = {"
           "alpha = 2.5 : f32, n = 7 : i64, small = 1 : i32, tag = \"hello\", off = false, "
           "perm = array<i64: 1, 0, 2>}} : (tensor<" +
           type + ">) -> tensor<" + type + "> return %0 : tensor<" + type + "> }";
  }

  // The message of a call that fails.
  static std::string failure(const std::string& target, FfiEntry entry,
                             const std::string& type = "2x2xf32",
                             BufferType buffer_type = BufferType::kF32) {
    register_ffi_handler(*plugin(), target, "Host", entry);
    auto executable = compile(program(target, type));
    const std::vector<int64_t> dims{2, 2};
    const std::vector<uint8_t> data(host_bytes(buffer_type, dims));
    auto a = upload(data, dims, buffer_type);
    return error_of([&] {
             Buffer* args[] = {a.get()};
             executable->execute(args)[0]->ready().wait();
           })
        .what();
  }
};
TORCH_XLA_FOR_EACH_PLUGIN(FfiTest);

TEST_P(FfiTest, CallsTheHandler) {
  register_ffi_handler(*plugin(), "torch_xla_test_scale", "Host", ffi_entry<scale>);
  auto executable = compile(program("torch_xla_test_scale"));
  auto a = upload<float>({0, 1, 2, 3}, {2, 2}, BufferType::kF32);
  Buffer* args[] = {a.get()};
  EXPECT_EQ(download(*executable->execute(args)[0]), (std::vector<float>{11, 13.5, 16, 18.5}));

  auto loaded = client()->load(executable->serialize());
  EXPECT_EQ(download(*loaded->execute(args)[0]), (std::vector<float>{11, 13.5, 16, 18.5}));
}

TEST_P(FfiTest, ExceptionsBecomeErrors) {
  EXPECT_TRUE(contains(failure("torch_xla_test_a", ffi_entry<read_missing_attribute>),
                       "no attribute 'nothing'"));
  EXPECT_TRUE(contains(failure("torch_xla_test_b", ffi_entry<read_wrong_attribute>),
                       "attribute 'alpha' is f32, not an integer"));
  EXPECT_TRUE(
      contains(failure("torch_xla_test_c", ffi_entry<read_missing_argument>), "argument 1 of 1"));
  EXPECT_TRUE(
      contains(failure("torch_xla_test_d", ffi_entry<throw_standard>), "a plain exception"));
  EXPECT_TRUE(contains(failure("torch_xla_test_e", ffi_entry<throw_odd>), "unknown exception"));
}

TEST_P(FfiTest, SharesItsWorkWithThePluginsThreads) {
  register_ffi_handler(*plugin(), "torch_xla_test_increment", "Host", ffi_entry<increment>);
  auto executable = compile(program("torch_xla_test_increment"));
  auto a = upload<float>({0, 1, 2, 3}, {2, 2}, BufferType::kF32);
  Buffer* args[] = {a.get()};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(download(*executable->execute(args)[0]), (std::vector<float>{1, 2, 3, 4}));
  }
  EXPECT_TRUE(contains(failure("torch_xla_test_tasks", ffi_entry<fail_in_parallel>), "task 5"));
}

TEST_P(FfiTest, ElementTypes) {
  const std::pair<const char*, BufferType> types[] = {
      {"i1", BufferType::kPred},           {"i8", BufferType::kS8},
      {"ui64", BufferType::kU64},          {"f16", BufferType::kF16},
      {"bf16", BufferType::kBF16},         {"f64", BufferType::kF64},
      {"f8E5M2", BufferType::kF8E5M2},     {"complex<f32>", BufferType::kC64},
      {"complex<f64>", BufferType::kC128}, {"f8E4M3FN", BufferType::kF8E4M3FN}};
  int number = 0;
  for (const auto& [name, type] : types) {
    const std::string text = failure("torch_xla_test_type" + std::to_string(number++),
                                     ffi_entry<say_type>, std::string("2x2x") + name, type);
    EXPECT_TRUE(contains(text, std::string("type is ") + name + ".")) << text;
  }
}

TEST(Ffi, PluginWithoutTheExtension) {
  abi::Api api{};
  api.struct_size = sizeof api;
  api.pjrt_api_version.minor_version = 114;
  auto plugin = Plugin::from_api(&api, "plain");
  const Error error =
      error_of([&] { register_ffi_handler(*plugin, "f", "Host", ffi_entry<throw_odd>); });
  EXPECT_EQ(error.code(), ErrorCode::kUnimplemented);
  EXPECT_TRUE(contains(error.what(), "'plain' has no FFI extension"));
}

}  // namespace
}  // namespace torch_xla::pjrt::testing
