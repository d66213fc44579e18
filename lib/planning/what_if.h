// Changes to the world that a plan is made for, in words: "link:paris->tokyo.bandwidth=100Mbit".
//
// Pure functions over plain data. The words are those of topology and job files:
//   link:FROM->TO.bandwidth=100Mbit      a link of the topology, or a measured one; FROM<->TO: both directions; .latency=80ms
//   link:FROM<->TO.duplex=half           both directions take turns (topologies)
//   site:NAME.bandwidth=10Gbit           inside a site, each device's own port; .latency= (topologies)
//   uplink:SITE.egress=50Mbit            all that leaves a site together; .ingress= (topologies)
//   device:NAME=absent                   lost
//   device:NAME.computeScale=0.5         .memory=2Gi
//   device:NAME.straggler=3              everything there takes three times as long
//   spec.FIELD=VALUE                     a field of the job, as with --set
//   schedule=gpipe|1f1b|1f1b-split|interleaved[:VIRTUAL_STAGES]
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/estimator/gpu_specs.h"
#include "lib/job/topology.h"
#include "lib/planning/profiles.h"
#include "lib/schedule/pipeline_schedule.h"

namespace fusionllm::planning {

// What Profiles are made from. With a topology its devices and links count, and `measured` says how fast devices are; else all are
// measured.
struct Hardware {
  wire::ProfilesDocument measured;
  std::optional<job::Topology> topology;
  int64_t machine_memory_bytes = 0;                 // of devices of the topology that name none
  std::optional<estimator::Arithmetic> arithmetic;  // of the topology's GPUs; nothing: what the precision of the job asks for
  // By what-if only.
  std::vector<std::string> absent;
  std::map<std::string, double> slowed;                          // device: factor
  std::vector<std::pair<std::string, std::string>> half_duplex;  // ends of links
};

// `precision`: of the job that is planned. Errors: those of ProfilesFromTopology; InvalidArgument for half duplex links of two rates.
absl::StatusOr<Profiles> ProfilesOf(const Hardware& hardware, job::Precision precision);

// Models of what 1F1B could be, which the runtime does not run.
enum class ScheduleVariant { kNone, kSplitBackward, kInterleaved };

struct ScheduleRequest {
  std::optional<schedule::PipelineSchedule> schedule;  // absent: as planned
  ScheduleVariant variant = ScheduleVariant::kNone;
  int virtual_stages = 2;  // of kInterleaved
};
// Those that ParseSchedule knows; after the last, ":VIRTUAL_STAGES" may follow.
std::vector<std::string> ScheduleNames();
// Errors: InvalidArgument listing the names, or those of scheduler::CheckVirtualStages.
absl::StatusOr<ScheduleRequest> ParseSchedule(absl::string_view text);

struct WhatIfScenario {
  Hardware hardware;
  std::vector<std::string> overrides;  // of the job
  std::optional<ScheduleRequest> schedule;
};

// `text`: one change or several, separated by commas that stand outside brackets. Errors: InvalidArgument naming the key and listing what
// there is.
absl::StatusOr<WhatIfScenario> ApplyWhatIf(absl::string_view text, const Hardware& hardware);

// Names of the devices of `hardware`, in order.
std::vector<std::string> DeviceNames(const Hardware& hardware);
// Errors: InvalidArgument with the nearest name and those there are.
absl::Status CheckDeviceName(const Hardware& hardware, const std::string& name);

}  // namespace fusionllm::planning
