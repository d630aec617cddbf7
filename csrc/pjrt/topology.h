// The shape of a set of devices, present or not, and compilation for it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/client.h"

namespace torch_xla::pjrt {

class Topology {
 public:
  // By the plugin's own name for it, for example "v5e:2x4" (libtpu); options are the plugin's.
  // Throws Error.
  static std::shared_ptr<Topology> create(std::shared_ptr<Plugin> plugin, const std::string& name,
                                          const Options& options = {});
  // That of a live client.
  static std::shared_ptr<Topology> from_client(std::shared_ptr<Client> client);
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  std::string platform_name() const;
  std::string platform_version() const;
  Attributes attributes() const;
  const std::vector<DeviceDescription>& devices() const { return devices_; }

  // Compiles without devices. Throws Error: the compiler's text, a plugin without a compiler for
  // this, or replicas and partitions that the topology cannot hold.
  std::shared_ptr<CompiledProgram> compile(std::string_view stablehlo,
                                           const CompileOptions& options = {}) const;

 private:
  Topology(std::shared_ptr<Plugin> plugin, std::shared_ptr<Client> client,
           abi::TopologyDescription* topology);

  std::shared_ptr<Plugin> plugin_;
  std::shared_ptr<Client> client_;  // set when the client owns the description
  abi::TopologyDescription* topology_;
  std::vector<DeviceDescription> devices_;
};

}  // namespace torch_xla::pjrt
