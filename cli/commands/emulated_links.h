// The links of a topology as a calibration finds them: latency and bandwidth of each direction, fitted to transfers of many sizes that the
// link emulator carries. The emulator works on times alone (lib/transport/link_emulator.h), so this takes milliseconds, whatever the links.
//
// Pure but for its memory; equal topologies give equal links.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/job/topology.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::cli {

// Beyond so many devices a document of links would be larger than the topology that says the same.
inline constexpr size_t kMaxLinkedDevices = 256;

// One pair for each ordered pair of sites, and one for the inside of each site; pairs with a link of their own have an entry each, measured
// once for each such link. Ends are among `devices`, names of the topology. Jitter and loss show in the intervals. What transfers cannot
// tell, for jitter hides it, is taken from the topology, with 0 samples. Errors: those of LinkTable::Create; InvalidArgument for more than
// kMaxLinkedDevices.
absl::StatusOr<std::vector<wire::MeasuredLink>> MeasureEmulatedLinks(const job::Topology& topology,
                                                                     const std::vector<std::string>& devices);

}  // namespace fusionllm::cli
