// What a job's pins name, compared with the devices and ops there are: before anything is measured, which takes seconds to minutes.
//
// Pure. Planners check pins, too (scheduler::Problem): the devices of a run with machines that join are known to them alone.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/planning/what_if.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

// `hardware`: its devices need not be measured. `place` is what has them, for messages: "topology two-sites".
// Errors: InvalidArgument, a line for each finding that begins with its field ("spec.strategy.pins[1].device: .."), with the nearest name
// and those there are: a device or op that is not there, a device that is a spare, an op pinned to two devices. What no plan can
// meet is the planner's to refuse.
absl::Status CheckPins(const workload::Workload& workload, const Hardware& hardware, absl::string_view place);

// The part that needs no devices: patterns that match no op, and ops pinned to two devices.
absl::Status CheckPinnedOps(const workload::Workload& workload);

}  // namespace fusionllm::planning
