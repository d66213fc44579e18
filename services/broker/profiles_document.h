// What was measured of a run's devices and links, as the document that a plan is made from (lib/wire/profile_json.h).
//
// Pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/broker/events.h"
#include "lib/broker/run_state.h"
#include "lib/job/topology.h"

namespace fusionllm::services {

// The names of links of a topology: pairs of devices whose most specific link is not that of their sites.
broker::LinkNames LinkNamesOf(const job::LinkTable& links);

// `devices`, in this order, with the links that join them. A link of two sites was measured between two devices for all: when one of them
// is not among `devices`, others of their sites stand for them. Where several pairs of two sites were measured the lower rate and the
// longer round trip hold. Devices without a profile are left out.
std::string ProfilesDocument(const std::vector<std::string>& devices, const broker::RunState& state);

// The same as a question for a plan over the devices of `ask`: those it calls slow take so many times as long as their profiles say, and
// none is a spare, whatever it was declared as: a spare among them has a stage already, or is wanted for one.
std::string ProfilesFor(const broker::RequestPlan& ask, const std::vector<std::string>& devices, const broker::RunState& state);

// Takes saved profiles (fusionctl bench --calibrate, or profiles.json of an earlier run) for devices and links of this run. With a topology
// place, memory, scale and role of a device are what it says. A device that is not in the topology, or was measured with another number of
// threads or other kernels than `backend`, is not taken over, nor are its links. Errors: InvalidArgument naming the field.
absl::Status TakeKnownProfiles(const std::string& text, const std::string& backend, const job::LinkTable* topology,
                               broker::RunOptions& options);

}  // namespace fusionllm::services
