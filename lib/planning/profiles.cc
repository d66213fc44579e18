#include "lib/planning/profiles.h"

#include <algorithm>
#include <utility>

#include "lib/base/status_macros.h"

namespace fusionllm::planning {

absl::StatusOr<Profiles> ProfilesFromTopology(const job::Topology& topology, const std::vector<wire::DeviceProfile>& measured,
                                              int64_t machine_memory_bytes) {
  if (measured.empty()) return absl::InvalidArgumentError("the profiles name no measured device");
  FUSIONLLM_ASSIGN_OR_RETURN(const job::LinkTable table, job::LinkTable::Create(topology));
  Profiles profiles;
  FUSIONLLM_ASSIGN_OR_RETURN(profiles.network, NetworkOf(topology));
  for (const job::LinkTable::Place& place : table.devices()) {
    const auto own =
        std::find_if(measured.begin(), measured.end(), [&](const wire::DeviceProfile& d) { return d.name == place.device.name; });
    wire::DeviceProfile device = own == measured.end() ? measured.front() : *own;
    device.name = place.device.name;
    device.site = topology.spec.sites[place.site].name;
    device.compute_scale = place.device.compute_scale;
    device.spare = place.device.role == job::Role::kSpare;
    device.threads = static_cast<int>(place.device.threads);
    device.memory_bytes = place.device.memory.has_value() ? place.device.memory->bytes : machine_memory_bytes;
    profiles.devices.push_back(std::move(device));
  }
  return profiles;
}

Profiles ProfilesFromDocument(wire::ProfilesDocument document) {
  Profiles profiles{.network = NetworkOf(document.devices, document.links)};
  profiles.devices = std::move(document.devices);
  return profiles;
}

}  // namespace fusionllm::planning
