// What torch asks of a device type: a guard for the autograd engine and generic device code, and
// the hooks behind torch.Generator and default generators.

#include <ATen/detail/XLAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>

#include "lazy/executor.h"
#include "lazy/launch.h"
#include "lazy/random.h"
#include "lazy/runtime.h"
#include "lazy/storage.h"

namespace torch_xla::lazy {
namespace {

struct XlaGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kXLA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device old = getDevice();
    set_current_device(device.index());
    return old;
  }
  c10::Device getDevice() const override { return {c10::kXLA, current_device()}; }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    set_current_device(device.index());
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return getStream(stream.device());
  }
  // The autograd engine starts one thread a device at the first backward of the process, and may
  // ask before any xla device was used: then the number is not known, and the plugin not wanted.
  c10::DeviceIndex deviceCount() const noexcept override {
    if (Runtime::is_initialized()) {
      return static_cast<c10::DeviceIndex>(Runtime::get().device_count());
    }
    const char* count = std::getenv("CPU_NUM_DEVICES");
    const int parsed = count ? std::atoi(count) : 0;
    return static_cast<c10::DeviceIndex>(parsed > 0 ? parsed : kExpectedDevices);
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override { wait_device(stream.device()); }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    wait_device({c10::kXLA, device});
  }

 private:
  static constexpr int kExpectedDevices = 8;  // of one host
};

C10_REGISTER_GUARD_IMPL(XLA, XlaGuard)

}  // namespace
}  // namespace torch_xla::lazy

// torch makes it by this very name.
namespace torch_xla::detail {

using namespace torch_xla::lazy;

struct XLAHooks final : at::XLAHooksInterface {
  void init() const override { Runtime::get(); }
  bool hasXLA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return Runtime::is_initialized(); }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(Runtime::get().device_count());
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex old = current_device();
    set_current_device(device);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  std::string showConfig() const override { return "torch_xla over PJRT"; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return make_generator(device);
  }
};

}  // namespace torch_xla::detail

namespace torch_xla::lazy {
namespace {
const bool allocator_set = [] {
  c10::SetAllocator(c10::kXLA, allocator());
  return true;
}();

}  // namespace
}  // namespace torch_xla::lazy

namespace at {
REGISTER_XLA_HOOKS(torch_xla::detail::XLAHooks)
}  // namespace at
