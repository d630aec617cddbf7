#include "pjrt/plugin.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "pjrt/plugins.h"

namespace torch_xla::pjrt::testing {
namespace {

namespace fs = std::filesystem;

// A file that is gone at the end of the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content)
      : path_(fs::temp_directory_path() / ("torch_xla_plugin_test_" + std::to_string(getpid()))) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { fs::remove(path_); }
  std::string path() const { return path_; }

 private:
  fs::path path_;
};

TEST(PluginLoad, NoSuchFile) {
  const Error error = error_of([] { Plugin::load("/does/not/exist.so"); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(contains(error.what(), "/does/not/exist.so"));
  EXPECT_TRUE(contains(error.what(), "No such file"));
}

TEST(PluginLoad, EmptyPath) {
  EXPECT_EQ(error_of([] { Plugin::load(""); }).code(), ErrorCode::kNotFound);
}

TEST(PluginLoad, Directory) {
  const Error error = error_of([] { Plugin::load(fs::temp_directory_path()); });
  EXPECT_TRUE(contains(error.what(), "is not a file"));
}

TEST(PluginLoad, TextFile) {
  TemporaryFile file("this is not a library");
  const Error error = error_of([&] { Plugin::load(file.path()); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(contains(error.what(), "is not a shared library"));
}

TEST(PluginLoad, EmptyFile) {
  TemporaryFile file("");
  EXPECT_TRUE(
      contains(error_of([&] { Plugin::load(file.path()); }).what(), "is not a shared library"));
}

TEST(PluginLoad, DamagedLibrary) {
  TemporaryFile file(std::string("\x7f") + "ELF and nothing more");
  EXPECT_TRUE(contains(error_of([&] { Plugin::load(file.path()); }).what(), "cannot be loaded"));
}

TEST(PluginLoad, LibraryThatIsNoPlugin) {
  // Any shared library will do; the loader has one of C++ in this very process.
  std::string library;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (contains(line, "libstdc++.so")) library = line.substr(line.find('/'));
  }
  if (library.empty()) GTEST_SKIP() << "libstdc++ is linked statically";
  const Error error = error_of([&] { Plugin::load(library); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(contains(error.what(), "not a PJRT plugin: no symbol GetPjrtApi"));
}

abi::Api table(int major, int minor, size_t size = sizeof(abi::Api)) {
  abi::Api api{};
  api.struct_size = size;
  api.pjrt_api_version.major_version = major;
  api.pjrt_api_version.minor_version = minor;
  return api;
}

TEST(PluginVersion, AnotherMajor) {
  const abi::Api api = table(1, 0);
  const Error error = error_of([&] { Plugin::from_api(&api, "fake"); });
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(contains(error.what(), "'fake' speaks PJRT API 1.0"));
  EXPECT_TRUE(contains(error.what(), "0.81 and later of 0.x"));
}

TEST(PluginVersion, TooOld) {
  const abi::Api api = table(0, 80);
  EXPECT_TRUE(contains(error_of([&] { Plugin::from_api(&api, "fake"); }).what(), "API 0.80"));
}

TEST(PluginVersion, NullAndShortTables) {
  EXPECT_TRUE(contains(error_of([] { Plugin::from_api(nullptr, "fake"); }).what(), "null"));
  const abi::Api tiny = table(0, 114, 8);
  EXPECT_TRUE(contains(error_of([&] { Plugin::from_api(&tiny, "fake"); }).what(), "no version"));
  const abi::Api cut = table(0, 114, offsetof(abi::Api, Error_Destroy) + 8);
  EXPECT_TRUE(contains(error_of([&] { Plugin::from_api(&cut, "fake"); }).what(), "only 48 bytes"));
}

TEST(PluginVersion, FunctionsThatAreMissing) {
  abi::Api api = table(0, 81, offsetof(abi::Api, Client_Create) + sizeof(void*));
  const auto plugin = Plugin::from_api(&api, "fake");
  EXPECT_EQ(plugin->path(), "fake");
  EXPECT_FALSE(plugin->has_function(&abi::Api::Client_Create));   // null
  EXPECT_FALSE(plugin->has_function(&abi::Api::Client_Destroy));  // beyond the end
  const Error error = error_of([&] { Client::create(plugin); });
  EXPECT_EQ(error.code(), ErrorCode::kUnimplemented);
  EXPECT_TRUE(contains(error.what(), "PJRT_Client_Create"));
}

class PluginInfo : public PluginTest {};
TORCH_XLA_FOR_EACH_PLUGIN(PluginInfo);

TEST_P(PluginInfo, VersionAndFunctions) {
  EXPECT_EQ(plugin()->api_version().major, 0);
  EXPECT_GE(plugin()->api_version().minor, abi::kOldestMinorVersion);
  EXPECT_TRUE(plugin()->has_function(&abi::Api::LoadedExecutable_Execute));
}

TEST_P(PluginInfo, SecondLoadGivesTheSameObject) {
  const fs::path path = GetParam();
  const auto roundabout =
      path.parent_path() / ".." / path.parent_path().filename() / path.filename();
  EXPECT_EQ(Plugin::load(roundabout), plugin());
}

TEST_P(PluginInfo, HasFfiExtension) {
  const std::vector<int> extensions = plugin()->extensions();
  EXPECT_NE(std::find(extensions.begin(), extensions.end(), abi::kExtensionFfi), extensions.end());
  EXPECT_NE(plugin()->extension(abi::kExtensionFfi), nullptr);
}

TEST_P(PluginInfo, SaysWhichStableHloItReads) {
  EXPECT_TRUE(plugin()->attributes().contains("stablehlo_current_version"));
}

// A table that ends early stands for an older plugin.
TEST_P(PluginInfo, OlderTableLosesOnlyItsNewFunctions) {
  abi::Api api = *plugin()->api();
  api.struct_size = offsetof(abi::Api, Executable_Fingerprint);
  const auto older = Plugin::from_api(&api, "older");
  const auto client = Client::create(older);
  auto program = client->compile(
      "func.func @main(%a: tensor<f32>) -> tensor<f32> {"
      " return %a : tensor<f32> }");
  EXPECT_FALSE(program->memory_stats().has_value());
  EXPECT_EQ(program->num_outputs(), 1);
}

}  // namespace
}  // namespace torch_xla::pjrt::testing
