#include "stablehlo/run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "pjrt/client.h"
#include "pjrt/plugin.h"

namespace torch_xla::stablehlo::testing {
namespace {

constexpr int64_t kDevices = 4;

struct Backend {
  std::string path;
  std::shared_ptr<pjrt::Client> client;
};

const std::vector<Backend>& backends() {
  static const auto* all = [] {
    auto* made = new std::vector<Backend>;
    const char* list = std::getenv("TORCH_XLA_TEST_PLUGINS");
    std::string paths = list ? list : "";
    for (size_t at = 0; at < paths.size();) {
      size_t end = std::min(paths.find(':', at), paths.size());
      if (end > at) {
        std::string path = paths.substr(at, end - at);
        made->push_back({path, pjrt::Client::create(pjrt::Plugin::load(path),
                                                    {{"cpu_device_count", kDevices}})});
      }
      at = end + 1;
    }
    return made;
  }();
  return *all;
}

pjrt::BufferType buffer_type(ElementType type) {
  switch (type) {
    case ElementType::kPred:
      return pjrt::BufferType::kPred;
    case ElementType::kS8:
      return pjrt::BufferType::kS8;
    case ElementType::kS16:
      return pjrt::BufferType::kS16;
    case ElementType::kS32:
      return pjrt::BufferType::kS32;
    case ElementType::kS64:
      return pjrt::BufferType::kS64;
    case ElementType::kU8:
      return pjrt::BufferType::kU8;
    case ElementType::kU16:
      return pjrt::BufferType::kU16;
    case ElementType::kU32:
      return pjrt::BufferType::kU32;
    case ElementType::kU64:
      return pjrt::BufferType::kU64;
    case ElementType::kF32:
      return pjrt::BufferType::kF32;
    case ElementType::kF64:
      return pjrt::BufferType::kF64;
    case ElementType::kC64:
      return pjrt::BufferType::kC64;
    case ElementType::kC128:
      return pjrt::BufferType::kC128;
    default:
      throw std::logic_error("no test arrays of type " + std::string(hlo_name(type)));
  }
}

// Calls f with a value of the C++ type of one number: an element, or half of a complex one.
template <typename F>
void with_type(ElementType type, F f) {
  switch (real_type(type)) {
    case ElementType::kPred:
      return f(bool{});
    case ElementType::kS8:
      return f(int8_t{});
    case ElementType::kS16:
      return f(int16_t{});
    case ElementType::kS32:
      return f(int32_t{});
    case ElementType::kS64:
      return f(int64_t{});
    case ElementType::kU8:
      return f(uint8_t{});
    case ElementType::kU16:
      return f(uint16_t{});
    case ElementType::kU32:
      return f(uint32_t{});
    case ElementType::kU64:
      return f(uint64_t{});
    case ElementType::kF32:
      return f(float{});
    case ElementType::kF64:
      return f(double{});
    default:
      throw std::logic_error("no test arrays of type " + std::string(hlo_name(type)));
  }
}

std::vector<TensorType> types_of(const std::vector<Array>& arrays) {
  std::vector<TensorType> types;
  for (const Array& a : arrays) types.push_back(a.type);
  return types;
}

std::unique_ptr<pjrt::Buffer> upload(pjrt::Client& client, const Array& a, pjrt::Device* device) {
  return client.buffer_from_host(a.bytes.data(), buffer_type(a.type.type), a.type.dims, {}, device,
                                 pjrt::HostBufferSemantics::kImmutableOnlyDuringCall);
}

Array download(const pjrt::Buffer& buffer, const TensorType& type) {
  Array a{type, std::vector<std::byte>(buffer.host_bytes())};
  buffer.copy_to_host(a.bytes.data(), a.bytes.size()).wait();
  return a;
}

void compare(const pjrt::Buffer& buffer, const Array& wanted, double tolerance) {
  ASSERT_EQ(buffer.type(), buffer_type(wanted.type.type));
  ASSERT_EQ(Dims(buffer.dims()), wanted.type.dims) << to_string(Dims(buffer.dims()));
  std::vector<double> got = numbers(download(buffer, wanted.type));
  std::vector<double> want = numbers(wanted);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    if (got[i] == want[i]) continue;
    EXPECT_LE(std::abs(got[i] - want[i]), tolerance * std::max(1.0, std::abs(want[i])))
        << "element " << i << ": " << got[i] << " instead of " << want[i];
  }
}

pjrt::CompileOptions compile_options(int replicas) {
  pjrt::CompileOptions options;
  options.num_replicas = replicas;
  options.env_overrides = {{"xla_cpu_enable_fast_min_max", false}};
  return options;
}

}  // namespace

Array array(ElementType type, const Dims& dims, const std::vector<double>& values) {
  Array a{{type, dims}, {}};
  a.bytes.resize(static_cast<size_t>(a.type.byte_size()));
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if (values.size() * sizeof(T) != a.bytes.size()) {
      throw std::logic_error("wrong count of numbers for " + to_string(a.type));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      T value = static_cast<T>(values[i]);
      std::memcpy(a.bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return a;
}

Array f32(const Dims& dims, const std::vector<double>& values) {
  return array(ElementType::kF32, dims, values);
}
Array s32(const Dims& dims, const std::vector<double>& values) {
  return array(ElementType::kS32, dims, values);
}
Array pred(const Dims& dims, const std::vector<double>& values) {
  return array(ElementType::kPred, dims, values);
}
Array c64(const Dims& dims, const std::vector<double>& values) {
  return array(ElementType::kC64, dims, values);
}

std::vector<double> numbers(const Array& a) {
  std::vector<double> values;
  with_type(a.type.type, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < a.bytes.size(); i += sizeof(T)) {
      T value;
      std::memcpy(&value, a.bytes.data() + i, sizeof(T));
      values.push_back(static_cast<double>(value));
    }
  });
  return values;
}

std::string text_of(const std::vector<TensorType>& inputs, const Program& program) {
  Builder b;
  Values parameters;
  for (const TensorType& type : inputs) parameters.push_back(b.parameter(type));
  b.ret(program(b, parameters));
  return b.module("test");
}

void expect_replicated(const std::vector<std::vector<Array>>& inputs, const Program& program,
                       const std::vector<std::vector<Array>>& expected) {
  std::string text = text_of(types_of(inputs[0]), program);
  if (backends().empty()) GTEST_SKIP() << "TORCH_XLA_TEST_PLUGINS names no plugin";
  for (const Backend& backend : backends()) {
    SCOPED_TRACE(backend.path + "\n" + text);
    try {
      auto executable =
          backend.client->compile(text, compile_options(static_cast<int>(inputs.size())));
      std::vector<std::unique_ptr<pjrt::Buffer>> owned;
      std::vector<std::vector<pjrt::Buffer*>> arguments(inputs.size());
      for (size_t rank = 0; rank < inputs.size(); ++rank) {
        for (const Array& a : inputs[rank]) {
          owned.push_back(upload(*backend.client, a, executable->addressable_devices()[rank]));
          arguments[rank].push_back(owned.back().get());
        }
      }
      auto results = executable->execute_sharded(arguments);
      for (size_t rank = 0; rank < inputs.size(); ++rank) {
        ASSERT_EQ(results[rank].size(), expected[rank].size());
        for (size_t i = 0; i < expected[rank].size(); ++i) {
          SCOPED_TRACE("rank " + std::to_string(rank) + ", result " + std::to_string(i));
          compare(*results[rank][i], expected[rank][i], 0);
        }
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

void expect_partitioned(int partitions, const std::vector<Array>& shards, const TensorType& global,
                        const std::string& sharding, const Program& program,
                        const Array& expected) {
  Builder b;
  ArgumentAttributes attributes;
  attributes.sdy_sharding = sharding;
  Value parameter = b.parameter(global, attributes);
  b.ret(program(b, {parameter}));
  std::string text = b.module("test");
  if (backends().empty()) GTEST_SKIP() << "TORCH_XLA_TEST_PLUGINS names no plugin";
  pjrt::CompileOptions options;
  options.num_partitions = partitions;
  options.use_spmd_partitioning = true;
  options.use_shardy = true;
  for (const Backend& backend : backends()) {
    SCOPED_TRACE(backend.path + "\n" + text);
    try {
      auto executable = backend.client->compile(text, options);
      std::vector<std::unique_ptr<pjrt::Buffer>> owned;
      std::vector<std::vector<pjrt::Buffer*>> arguments;
      for (size_t i = 0; i < shards.size(); ++i) {
        owned.push_back(upload(*backend.client, shards[i], executable->addressable_devices()[i]));
        arguments.push_back({owned.back().get()});
      }
      auto results = executable->execute_sharded(arguments);
      for (auto& row : results) {
        ASSERT_EQ(row.size(), 1u);
        compare(*row[0], expected, 0);
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

void expect(const std::vector<Array>& inputs, const Program& program,
            const std::vector<Array>& expected, double tolerance) {
  std::string text = text_of(types_of(inputs), program);
  if (backends().empty()) GTEST_SKIP() << "TORCH_XLA_TEST_PLUGINS names no plugin";
  for (const Backend& backend : backends()) {
    SCOPED_TRACE(backend.path + "\n" + text);
    try {
      auto executable = backend.client->compile(text, compile_options(1));
      std::vector<std::unique_ptr<pjrt::Buffer>> owned;
      std::vector<pjrt::Buffer*> arguments;
      for (const Array& a : inputs) {
        owned.push_back(upload(*backend.client, a, executable->addressable_devices()[0]));
        arguments.push_back(owned.back().get());
      }
      auto results = executable->execute(arguments);
      ASSERT_EQ(results.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        SCOPED_TRACE("result " + std::to_string(i));
        compare(*results[i], expected[i], tolerance);
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

void expect_compiles(const std::vector<TensorType>& inputs, const Program& program) {
  std::string text = text_of(inputs, program);
  if (backends().empty()) GTEST_SKIP() << "TORCH_XLA_TEST_PLUGINS names no plugin";
  for (const Backend& backend : backends()) {
    SCOPED_TRACE(backend.path + "\n" + text);
    try {
      backend.client->compile(text, compile_options(1));
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace torch_xla::stablehlo::testing
