// FusionJob's status, as plain values in the order of the object: what the operator writes and everybody reads.
//
// Described for readers in docs/reference/kubernetes-reference.md, which is generated from fusion_job_status_fields.h. Read and written
// with objects.h. Numbers that are no whole numbers (a loss, a rate) are text: an API has no floats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lib/kubeapi/condition.h"

namespace fusionllm::kubeapi {

// Conditions of a FusionJob besides Complete and Failed.
inline constexpr absl::string_view kAccepted = "Accepted";
inline constexpr absl::string_view kQuotaReserved = "QuotaReserved";
inline constexpr absl::string_view kScheduled = "Scheduled";
inline constexpr absl::string_view kReady = "Ready";
inline constexpr absl::string_view kSuspended = "Suspended";
inline constexpr absl::string_view kRestarting = "Restarting";
inline constexpr absl::string_view kDegraded = "Degraded";
inline constexpr absl::string_view kCheckpointStale = "CheckpointStale";
inline constexpr absl::string_view kResizing = "Resizing";
inline constexpr absl::string_view kJobDeleting = "Deleting";
inline constexpr absl::string_view kPlacementHint = "PlacementHint";
inline constexpr absl::string_view kAdmitted = "Admitted";
// Of a cluster in a FusionJob's status: a rule of the failure policy keeps the job away from it.
inline constexpr absl::string_view kExcluded = "Excluded";

struct ClusterStatus {
  std::string name;
  bool local = false;
  std::vector<Condition> conditions;
  std::string state;  // for printing
  int64_t active = 0, ready = 0, succeeded = 0, failed = 0, terminating = 0;
  int64_t epoch = 0;
  std::optional<std::string> endpoint;
  std::optional<absl::Time> last_heartbeat_time;
  std::string message;
  bool operator==(const ClusterStatus&) const = default;
};

struct Metric {
  std::string name;
  std::string value;
  bool operator==(const Metric&) const = default;
};

struct TrainerStatus {
  int64_t step = 0, steps = 0;
  int64_t progress_percentage = 0;
  std::optional<int64_t> estimated_remaining_seconds;
  std::string progress, eta;  // for printing
  std::optional<std::string> loss, tokens_per_second, slowest_link;
  std::optional<int64_t> predicted_step_milliseconds, measured_step_milliseconds;
  std::vector<Metric> metrics;
  std::optional<absl::Time> last_updated_time;
  bool operator==(const TrainerStatus&) const = default;
};

struct CheckpointStatus {
  std::string uri;
  int64_t step = 0;
  std::optional<absl::Time> time;
  bool operator==(const CheckpointStatus&) const = default;
};

struct PlanStatus {
  int64_t epoch = 0;
  int64_t stages = 0;
  int64_t replicas = 1;  // of each stage
  std::optional<int64_t> predicted_step_milliseconds;
  bool operator==(const PlanStatus&) const = default;
};

struct FusionJobStatus {
  int64_t observed_generation = 0;
  std::string state, reason;  // for printing
  std::vector<Condition> conditions;
  std::optional<absl::Time> start_time, completion_time;
  int64_t replicas = 0, ready_replicas = 0;
  std::string selector;
  std::string executors, clusters;  // for printing: "3/4"
  int64_t attempt = 0, restarts = 0, restarts_count_towards_max = 0;
  std::vector<ClusterStatus> cluster_statuses;
  std::optional<PlanStatus> plan;
  std::optional<TrainerStatus> trainer_status;
  std::optional<CheckpointStatus> checkpoint;
  std::optional<std::string> endpoint;
  bool operator==(const FusionJobStatus&) const = default;
};

// Fills in what is there for printing only (reason, executors, clusters, progress, eta) from the rest. `executors_wanted`: how
// many the job should have.
void Summarize(int64_t executors_wanted, FusionJobStatus& status);

// Gives conditions that the previous release has written the names that they have now, so that what they remember is not lost.
void RenameFormerConditions(FusionJobStatus& status);

}  // namespace fusionllm::kubeapi
