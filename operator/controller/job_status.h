// Between a job's status as people and programs read it, and what decisions are made of. Pure functions.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/kubeapi/fusion_job_status.h"
#include "operator/cache/job_view.h"
#include "operator/lifecycle/decide.h"
#include "operator/lifecycle/progress.h"

namespace fusionllm::op::controller {

// Progress is written no more often than this, unless the job ends.
inline constexpr absl::Duration kProgressEvery = absl::Seconds(10);

// Of a cluster whose FusionCluster is gone: its state, and its message from then on and once what ran there counts as lost.
inline constexpr char kRemovedState[] = "Removed";
inline constexpr char kRemoved[] = "Its FusionCluster is gone; what runs there goes on for all that is known.";
inline constexpr char kRemovedAndLost[] = "Its FusionCluster is gone, for so long that what ran there counts as lost.";

lifecycle::PersistedState PersistedStateOf(const kubeapi::FusionJobStatus& status);

// Clusters that a status with these parts goes on naming, whatever the next attempt uses: the hub, which has the broker, and where
// something of an earlier one may be left.
std::set<std::string> NamedFor(const std::vector<lifecycle::ClusterView>& seen, const std::vector<kubeapi::ClusterStatus>& parts);

// The status after a decision. Equal to the one before when nothing has changed that is worth a write. `progress`: absent: nothing new.
kubeapi::FusionJobStatus BuildStatus(const cache::JobView& view, const lifecycle::Observation& seen, const lifecycle::Decision& decision,
                                     const std::optional<lifecycle::Progress>& progress);

// The status of a job whose spec is wrong: that is said, and all else stays as it is. `kept`: what is said of that, after the error.
kubeapi::FusionJobStatus RefusedStatus(const cache::JobView& view, absl::string_view kept, absl::Time now);

// The body to apply to the status subresource of the job at that version.
std::string StatusBody(const cache::JobView& view, const std::string& resource_version, const kubeapi::FusionJobStatus& status);

}  // namespace fusionllm::op::controller
