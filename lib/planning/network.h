// Links between devices as a planner needs them: with their latency, their own rate and the shared links that others use too. What many
// pairs have alike is said once for their sites, so that the size is that of the document, not the square of the number of devices.
//
// Pure functions; plain data.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/job/topology.h"
#include "lib/scheduler/snapshot.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::planning {

// Ends are positions in the list of devices and in `sites`, as in scheduler::PlanRequest.
struct Network {
  struct Ports {
    int out = -1, in = -1;
  };
  std::vector<scheduler::SharedResource> resources;
  std::vector<scheduler::Link> links;
  std::vector<std::string> sites;
  std::vector<scheduler::SiteLink> site_links;
  std::vector<Ports> ports;  // of each device
};

// Declared links; ends are positions in job::LinkTable::devices(). Errors: those of LinkTable::Create.
absl::StatusOr<Network> NetworkOf(const job::Topology& topology);

// Measured links, one representative pair for each ordered pair of sites: it speaks for all pairs of the two sites, which share it in
// that direction; inside a site it speaks for every device's own port. A link with a shared_link speaks for its two devices alone, and goes
// before that of their sites; pairs with the same one share it. A latency of one way counts as it is, else it is half the round trip. Where
// only the opposite direction of two sites was measured it stands for both. Pairs of sites that were not measured get no link. A pair
// measured itself keeps its own latency. `links` name devices of `devices` (wire::ParseProfiles checks).
Network NetworkOf(const std::vector<wire::DeviceProfile>& devices, const std::vector<wire::MeasuredLink>& links);

}  // namespace fusionllm::planning
