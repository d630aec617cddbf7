#include "pjrt/topology.h"

#include "pjrt/call.h"
#include "pjrt/named_values.h"

namespace torch_xla::pjrt {

std::shared_ptr<Topology> Topology::create(std::shared_ptr<Plugin> plugin, const std::string& name,
                                           const Options& options) {
  // Some plugins start threads here as they do for a client.
  check_not_forked();
  arm_fork_guard();
  const std::vector<abi::NamedValue> values = to_named_values(options);
  auto args = make<abi::TopologyDescription_Create_Args>();
  args.topology_name = name.data();
  args.topology_name_size = name.size();
  args.create_options = values.data();
  args.num_options = values.size();
  TORCH_XLA_PJRT_CALL(plugin->api(), TopologyDescription_Create, args);
  return std::shared_ptr<Topology>(new Topology(std::move(plugin), nullptr, args.topology));
}

std::shared_ptr<Topology> Topology::from_client(std::shared_ptr<Client> client) {
  auto args = make<abi::Client_TopologyDescription_Args>();
  args.client = client->handle();
  TORCH_XLA_PJRT_CALL(client->api(), Client_TopologyDescription, args);
  auto plugin = client->plugin();
  return std::shared_ptr<Topology>(
      new Topology(std::move(plugin), std::move(client), args.topology));
}

Topology::Topology(std::shared_ptr<Plugin> plugin, std::shared_ptr<Client> client,
                   abi::TopologyDescription* topology)
    : plugin_(std::move(plugin)), client_(std::move(client)), topology_(topology) {
  auto args = make<abi::TopologyDescription_GetDeviceDescriptions_Args>();
  args.topology = topology_;
  TORCH_XLA_PJRT_CALL(plugin_->api(), TopologyDescription_GetDeviceDescriptions, args);
  for (size_t i = 0; i < args.num_descriptions; ++i) {
    devices_.push_back(DeviceDescription::read(plugin_->api(), args.descriptions[i]));
  }
}

Topology::~Topology() {
  if (client_ != nullptr) return;
  auto args = make<abi::TopologyDescription_Destroy_Args>();
  args.topology = topology_;
  destroy(plugin_->api(), &abi::Api::TopologyDescription_Destroy, args);
}

std::string Topology::platform_name() const {
  auto args = make<abi::TopologyDescription_PlatformName_Args>();
  args.topology = topology_;
  TORCH_XLA_PJRT_CALL(plugin_->api(), TopologyDescription_PlatformName, args);
  return {args.platform_name, args.platform_name_size};
}

std::string Topology::platform_version() const {
  auto args = make<abi::TopologyDescription_PlatformVersion_Args>();
  args.topology = topology_;
  TORCH_XLA_PJRT_CALL(plugin_->api(), TopologyDescription_PlatformVersion, args);
  return {args.platform_version, args.platform_version_size};
}

Attributes Topology::attributes() const {
  auto args = make<abi::TopologyDescription_Attributes_Args>();
  args.topology = topology_;
  TORCH_XLA_PJRT_CALL(plugin_->api(), TopologyDescription_Attributes, args);
  return to_attributes(args.attributes, args.num_attributes);
}

std::shared_ptr<CompiledProgram> Topology::compile(std::string_view stablehlo,
                                                   const CompileOptions& options) const {
  std::vector<int> ids;
  for (const DeviceDescription& device : devices_) ids.push_back(device.id);
  check_assignment(options, ids);
  const std::string encoded = encode(options);
  constexpr std::string_view kFormat = "mlir";
  auto program = make<abi::Program>();
  program.code = const_cast<char*>(stablehlo.data());  // only read
  program.code_size = stablehlo.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  auto args = make<abi::Compile_Args>();
  args.topology = topology_;
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  args.client = client_ == nullptr ? nullptr : client_->handle();
  TORCH_XLA_PJRT_CALL(plugin_->api(), Compile, args);
  return std::make_shared<CompiledProgram>(plugin_, client_, args.executable);
}

}  // namespace torch_xla::pjrt
