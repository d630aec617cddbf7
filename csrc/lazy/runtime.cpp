#include "lazy/runtime.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "lazy/dry_run.h"
#include "lazy/host_memory.h"
#include "pjrt/plugin.h"
#include "sharding/dialect.h"

namespace torch_xla::lazy {
namespace {

std::function<RuntimeConfig()> g_configurator;
std::atomic<Runtime*> g_runtime{nullptr};
std::atomic<size_t> g_partitions{0};  // 0: not in SPMD mode
thread_local c10::DeviceIndex t_current_device = 0;

// What a plugin reads shardings in. A dry run's programs are for another plugin, which is as new as
// its compiler.
sharding::Dialect dialect_of(const pjrt::Plugin& plugin) {
  if (is_dry_run()) return sharding::Dialect::kShardy;
  const auto found = plugin.attributes().find("stablehlo_current_version");
  const auto* version = found == plugin.attributes().end()
                            ? nullptr
                            : std::get_if<std::vector<int64_t>>(&found->second);
  return sharding::dialect_for(version ? std::span<const int64_t>(*version)
                                       : std::span<const int64_t>());
}

}  // namespace

bool is_spmd() { return g_partitions.load(std::memory_order_relaxed) != 0; }

size_t num_partitions() {
  const size_t count = g_partitions.load(std::memory_order_relaxed);
  return count == 0 ? 1 : count;
}

void set_spmd(size_t partitions) { g_partitions.store(partitions); }

void set_runtime_configurator(std::function<RuntimeConfig()> configurator) {
  g_configurator = std::move(configurator);
}

Runtime::Runtime(RuntimeConfig config) : config_(std::move(config)) {
  if (config_.device_type == "CPU") host_memory::keep_blocks();
  client_ = pjrt::Client::create(pjrt::Plugin::load(config_.plugin_path), config_.client_options);
  // What a dry run traces is for other devices than the plugin's.
  is_cpu_ = client_->platform_name() == "cpu" && !is_dry_run();
  sharding::set_dialect_of_plugin(dialect_of(*client_->plugin()));
}

Runtime& Runtime::get() {
  if (Runtime* runtime = g_runtime.load(std::memory_order_acquire)) return *runtime;
  TORCH_CHECK(g_configurator, "the XLA runtime has no configuration: import torch_xla first");
  // The configurator runs Python and may wait for the GIL, so it runs outside the lock; when two
  // threads race, the first client wins.
  RuntimeConfig config = g_configurator();
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (!g_runtime.load()) {
    // Never destroyed: plugins do not survive the static destructors of other libraries.
    g_runtime.store(new Runtime(std::move(config)), std::memory_order_release);
  }
  return *g_runtime.load();
}

bool Runtime::is_initialized() { return g_runtime.load(std::memory_order_acquire) != nullptr; }

int Runtime::device_count() const {
  return is_spmd() ? 1 : static_cast<int>(client_->addressable_devices().size());
}

pjrt::Device* Runtime::device(c10::Device device) const {
  const auto& devices = client_->addressable_devices();
  const int index = device.index() < 0 ? 0 : device.index();
  TORCH_CHECK(!is_spmd() || index == 0, "no device xla:", index,
              ": in SPMD mode xla:0 stands for all devices");
  TORCH_CHECK(index < static_cast<int>(devices.size()), "no device xla:", index, ": the ",
              config_.device_type, " plugin has ", devices.size(),
              " (xla:0 to xla:", devices.size() - 1, ")");
  return devices[static_cast<size_t>(index)];
}

int64_t memory_limit(c10::DeviceIndex device) {
  const auto stats = Runtime::get().device({c10::kXLA, device})->memory_stats();
  if (stats && stats->bytes_limit) return *stats->bytes_limit;
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
}

c10::DeviceIndex current_device() { return t_current_device; }

void set_current_device(c10::DeviceIndex index) {
  if (index >= 0) t_current_device = index;
}

c10::Device normalize(c10::Device device) {
  TORCH_CHECK(device.is_xla(), "expected an xla device, got ", device);
  return device.has_index() ? device : c10::Device(c10::kXLA, current_device());
}

}  // namespace torch_xla::lazy
