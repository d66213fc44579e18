// Links between devices as a planner needs them: every ordered pair with its latency, its own rate and the wires it shares with others.
//
// Pure functions; plain data.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "lib/job/topology.h"
#include "lib/scheduler/snapshot.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::planning {

struct Network {
  std::vector<scheduler::SharedResource> resources;
  std::vector<scheduler::Link> links;  // ends: positions in the list of devices
};

// Declared links; ends are positions in job::LinkTable::devices(). Errors: those of LinkTable::Create.
absl::StatusOr<Network> NetworkOf(const job::Topology& topology);

// Measured links, one representative pair for each ordered pair of sites: it speaks for all pairs of the two sites, which share it in
// that direction; inside a site it speaks for every device's own port. A link with a line speaks for its two devices alone, and goes before
// that of their sites; pairs with the same line share it. Half the round trip is the latency of each direction. Where only the opposite
// direction of two sites was measured it stands for both. Pairs of sites that nobody measured get no link. A pair measured itself keeps
// its own latency. `links` name devices of `devices` (wire::ParseProfiles checks).
Network NetworkOf(const std::vector<wire::DeviceProfile>& devices, const std::vector<wire::MeasuredLink>& links);

}  // namespace fusionllm::planning
