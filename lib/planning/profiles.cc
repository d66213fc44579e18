#include "lib/planning/profiles.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/planning/gpu_profile.h"

namespace fusionllm::planning {

namespace {

absl::StatusOr<wire::DeviceProfile> MachineOf(const job::Device& device, const std::vector<wire::DeviceProfile>& measured,
                                              int64_t machine_memory_bytes, estimator::Arithmetic arithmetic) {
  if (device.profile.has_value()) {
    const estimator::GpuSpec* const gpu = estimator::FindGpu(*device.profile);
    if (gpu == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("device ", device.name, ": no GPU profile is named ", *device.profile));
    }
    return ProfileOf(*gpu, arithmetic);
  }
  if (measured.empty()) return absl::InvalidArgumentError("the profiles name no measured device");
  const auto own = std::find_if(measured.begin(), measured.end(), [&](const wire::DeviceProfile& d) { return d.name == device.name; });
  wire::DeviceProfile machine = own == measured.end() ? measured.front() : *own;
  machine.threads = static_cast<int>(device.threads);
  machine.memory_bytes = machine_memory_bytes;
  return machine;
}

}  // namespace

estimator::Arithmetic ArithmeticOf(job::Precision precision) {
  return precision == job::Precision::kBf16 ? estimator::Arithmetic::kBf16 : estimator::Arithmetic::kFp32;
}

absl::StatusOr<Profiles> ProfilesFromTopology(const job::Topology& topology, const std::vector<wire::DeviceProfile>& measured,
                                              int64_t machine_memory_bytes, estimator::Arithmetic arithmetic) {
  FUSIONLLM_ASSIGN_OR_RETURN(const job::LinkTable table, job::LinkTable::Create(topology));
  Profiles profiles;
  FUSIONLLM_ASSIGN_OR_RETURN(profiles.network, NetworkOf(topology));
  for (const job::LinkTable::Place& place : table.devices()) {
    FUSIONLLM_ASSIGN_OR_RETURN(wire::DeviceProfile device, MachineOf(place.device, measured, machine_memory_bytes, arithmetic));
    device.name = place.device.name;
    device.site = topology.spec.sites[place.site].name;
    device.compute_scale = place.device.compute_scale;
    device.spare = place.device.role == job::Role::kSpare;
    if (place.device.memory.has_value()) device.memory_bytes = place.device.memory->bytes;
    profiles.devices.push_back(std::move(device));
  }
  return profiles;
}

Profiles ProfilesFromDocument(wire::ProfilesDocument document) {
  Profiles profiles{.network = NetworkOf(document.devices, document.links)};
  profiles.devices = std::move(document.devices);
  return profiles;
}

const wire::DeviceProfile& CodecReferenceDevice(const Profiles& profiles) {
  const auto measured =
      std::find_if(profiles.devices.begin(), profiles.devices.end(), [](const auto& device) { return device.specification.empty(); });
  return measured == profiles.devices.end() ? profiles.devices.front() : *measured;
}

}  // namespace fusionllm::planning
