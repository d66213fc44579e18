// What to do about a job, as a pure function of what is known of it. Level-based: it needs no memory but the job's status, so an operator
// that was killed at any point decides the same when it comes back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "operator/lifecycle/job_condition.h"
#include "operator/lifecycle/job_state.h"
#include "operator/lifecycle/observation.h"

namespace fusionllm::op::lifecycle {

// Reasons of the condition Scheduled that others look for.
inline constexpr char kPartiallyScheduled[] = "PartiallyScheduled";
inline constexpr char kInsufficientCapacity[] = "InsufficientCapacity";
inline constexpr char kPlacementFailed[] = "PlacementFailed";

// Of the condition Admitted.
inline constexpr char kQueued[] = "Queued";
inline constexpr char kAdmittedByKueue[] = "AdmittedByKueue";
inline constexpr char kEvictedByKueue[] = "EvictedByKueue";
inline constexpr char kKueueNotInstalled[] = "KueueNotInstalled";
inline constexpr char kKueueNotAllowed[] = "KueueNotAllowed";

// In the message of Ready, after the numbers and before what is wrong.
inline constexpr char kAreReady[] = " executors are ready.";
// Of Ready and Degraded, while nothing is known to be wrong.
inline constexpr char kExecutorsStarting[] = "ExecutorsStarting";
// Reason and message of the condition Degraded where it is False.
inline constexpr char kNotDegraded[] = "NotDegraded";
inline constexpr char kNoneIsMissing[] = "No executor of a running job is missing.";

// What is left of a deleted job in a cluster that can be reached, and ends for no reason of ours (another's finalizer holds it), holds the
// job no longer than this, once all that should have ended has had the time for it.
inline constexpr absl::Duration kStuckTimeout = absl::Minutes(10);

// So long a job waits for room for all of its executors before it begins with fewer.
inline constexpr absl::Duration kCapacityWait = absl::Seconds(30);

// So often it is looked whether all is still there that a job needs beside its Pods, while these are not ready.
inline constexpr absl::Duration kObjectRecheckPeriod = absl::Minutes(1);

// Why an attempt is followed by another one, as the condition Restarting and fusionllm_job_restarts_total tell it.
enum class RestartCause { kBrokerFailed, kBrokerLost, kExecutorFailed, kClusterLost, kResized };
inline constexpr RestartCause kRestartCauses[] = {RestartCause::kBrokerFailed, RestartCause::kBrokerLost, RestartCause::kExecutorFailed,
                                                  RestartCause::kClusterLost, RestartCause::kResized};
const char* Name(RestartCause cause);  // CamelCase

struct DesiredCondition {
  JobCondition type = JobCondition::kReady;
  bool status = false;
  std::string reason;   // CamelCase
  std::string message;  // a sentence
};

struct EventRecord {
  bool warning = false;
  std::string reason;
  std::string message;
};

struct PodRemoval {
  std::string cluster, name, uid;
  std::optional<int> grace_seconds;  // absent: the pod's own
};

struct Decision {
  JobState state = JobState::kPending;
  std::vector<DesiredCondition> conditions;
  PersistedState persisted;  // to be written before anything that follows from it is done
  // Everything of the present attempt is wanted: owner ConfigMaps, secrets, the broker, an executor in each slot of `create`.
  bool prepare = false;
  bool awaits_pods = false;  // some of these are not ready
  bool create_broker = false;
  std::vector<manifests::ExecutorSlot> create;
  bool refused = false;  // a cluster does not take its part: none of the attempt's pods is wanted anywhere
  std::vector<PodRemoval> remove;
  bool delete_owner_config_maps = false;    // everything of the job, in all clusters
  bool preserve_owner_config_maps = false;  // marks that all of it stays
  std::vector<std::string> tombstones;      // clusters that may have something left: remembered before the finalizer goes
  bool remove_services = false;             // the job is over: no one dials its broker and executors any more
  bool remove_finalizer = false;            // nothing is left, or nothing more can be done
  bool delete_job = false;                  // its time after the end is over
  std::optional<RestartCause> restart;      // the memory speaks of a new attempt, for this
  bool progress_resumed = false;            // the first step since an attempt ended is made
  std::vector<EventRecord> events;
  absl::Duration requeue_after = absl::InfiniteDuration();  // when only time will change something
};

Decision Decide(const Observation& observed);

}  // namespace fusionllm::op::lifecycle
