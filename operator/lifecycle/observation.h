// What is known of one job when somebody looks: the desired state, what is remembered of it in its status, and what there is in the
// clusters. Plain values; what decides over them (decide.h) makes no requests.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lib/job/fusion_job.h"
#include "operator/lifecycle/progress.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::lifecycle {

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed, kUnknown };

// PodView::reason of a container that the kernel has killed for memory.
inline constexpr char kKilledForMemory[] = "OOMKilled";

struct PodView {
  std::string ns;
  std::string name;
  std::string uid;
  // By its own words: the job's name, and the uid of the owner ConfigMap. Both empty where its name or its owner is not what
  // such a pod's is.
  std::string job, owner;
  std::string role;  // kBrokerRole, kExecutorRole
  std::string cluster;
  int index = 0;        // of an executor
  int64_t attempt = 0;  // -1: its label says none
  PodPhase phase = PodPhase::kPending;
  bool ready = false;
  absl::Time created_at = absl::InfinitePast();  // by its cluster's clock
  std::optional<absl::Time> deleted_at;          // it is terminating since then, its grace period included
  std::optional<int> exit_code;                  // of the main container, when it has ended for good
  std::string reason;                            // CamelCase: OOMKilled, Evicted, Unschedulable, CrashLoopBackOff, ImagePullBackOff ...
  std::string message;                           // of the same, in words
  std::string disruption;                        // who ends it: PreemptionByScheduler, DeletionByTaintManager ...; empty: none
  // Its node has not been ready since then, and is called so; nothing: it is, or nothing is known of it.
  std::optional<absl::Time> node_away_since;
  std::string node;
  std::string address;             // IP
  std::optional<Progress> report;  // what the broker left behind when it ended
  int container_restarts = 0;
  bool killed_for_memory = false;  // the life before of its main container, which was started again since

  bool operator==(const PodView&) const = default;
};

// The reason of a refusal by a ResourceQuota.
inline constexpr char kQuotaExceeded[] = "QuotaExceeded";

// What a cluster's API server will not have of the job.
struct Refusal {
  std::string reason;   // CamelCase
  std::string message;  // with the server's words

  bool operator==(const Refusal&) const = default;
};

struct ClusterView {
  std::string name;
  bool reachable = true;
  bool lost = false;              // out of reach for so long that what ran there counts as lost
  bool listed = true;             // what is there was read once, if perhaps long ago; else the owner ConfigMap and pods below say nothing
  bool registered = true;         // there is a FusionCluster of this name
  bool used = false;              // the job's status says that something of it may be there
  bool owner_config_map = false;  // the job's owner ConfigMap is there
  bool owner_config_map_terminating = false;
  bool owner_config_map_preserved = false;  // and is marked to stay without its job
  std::string waiting;                      // what has to be there before its pods can be made, in words; empty: nothing
  // Where executors there are reached from other clusters, in words, empty if they are not dialed; nothing: not known.
  std::optional<std::string> endpoint;
  // Of something that is missing there, or cannot be removed. Until `retry_at` it is not asked for again; infinite: not for this spec.
  std::optional<Refusal> refusal;
  absl::Time retry_at = absl::InfinitePast();
  bool dry_run_accepted = false;  // asked again since it refused that, and it would take the job's pods now
  bool dry_run_pending = false;   // whether it would take the job's pods is about to be known
  std::vector<PodView> pods;
};

// What was found wrong with the spec of a job that has made steps: such a job is not given up, it waits for another spec.
struct RefusedSpec {
  int64_t generation = 0;  // of that spec
  std::string reason;      // CamelCase
  std::string message;     // a sentence
  absl::Time since;
};

// What the job's status holds that cannot be seen anywhere else.
struct PersistedState {
  int64_t attempt = 0;           // number of this one; resumptions and other numbers of executors begin new ones, too
  int64_t restarts = 0;          // of the whole job, because something failed or was lost
  int64_t counted_restarts = 0;  // of these, those that count towards failurePolicy.maxRestarts
  std::optional<absl::Time> started_at;
  std::optional<absl::Time> completed_at;
  bool complete = false, failed = false;           // at most one; for ever
  bool made_steps = false;                         // in any attempt
  std::optional<RefusedSpec> refused_spec;         // the last one, while no other was accepted
  bool was_ready = false;                          // in this attempt
  std::string out_of_memory;                       // what was last said of a pod that was killed for memory, while it is not ready
  bool quota_exceeded = false;                     // a quota has refused pods, and not all that were wanted were made since
  std::optional<absl::Time> capacity_wait_since;   // it waits for room
  std::optional<absl::Time> restarting_since;      // an attempt ended so, and the next one has not made a step yet
  std::optional<absl::Time> unready_since;         // the last attempt that was ready ended, or the first one began
  bool resized = false;                            // and that was for another number of executors
  bool was_suspended = false;                      // or is
  bool suspending = false;                         // its pods were being ended for that
  std::optional<absl::Time> resumed_at;            // if it was
  std::optional<absl::Time> extra_capacity_since;  // there is room for more executors than it runs with
  std::map<std::string, std::string> avoided;      // clusters that it has left for good, and why
};

// Of a job that waits for its turn in a queue of Kueue's (kueue/queue_status.h).
struct QueueStatus {
  bool holds = true;                                        // the job is to have no Pods
  bool admitted = false;                                    // it has the quota for them
  std::string reason;                                       // CamelCase, of the condition Admitted
  std::string message;                                      // of the same
  absl::Duration requeue_after = absl::InfiniteDuration();  // when it is looked for what is not reported

  bool operator==(const QueueStatus&) const = default;
};

struct Observation {
  job::FusionJob job;
  manifests::JobIdentity identity;
  absl::Time now;
  absl::Time created_at;
  std::optional<absl::Time> deleted_at;
  bool finalizer = false;
  bool force_delete = false;  // somebody wants it gone, whatever is left
  int64_t generation = 0;     // of the spec
  PersistedState persisted;
  std::vector<manifests::ExecutorSlot> slots;           // the executors wanted, as placed or proposed; empty: nothing fits
  bool placed = false;                                  // the attempt has begun with them
  int64_t wanted_when_placed = 0;                       // `wanted` when it began; 0: not known
  std::vector<manifests::ExecutorSlot> next_placement;  // where they would go if an attempt began now; empty: nowhere, or no one has asked
  int64_t wanted = 0;                                   // executors that train, if there were room
  std::string strategy_change;     // how `job` was changed for an attempt after the first, as a sentence; empty: not at all
  std::string placement_problem;   // why nothing fits, with what is short in which cluster
  std::string placement_shortage;  // of a proposal: why fewer than wanted
  bool follows_plan = false;       // of a proposal: it follows a plan of the scheduler
  std::string hint_reason;         // CamelCase; empty: the scheduler was not asked
  std::string hint;                // what it said, in words
  std::vector<ClusterView> clusters;
  std::optional<Progress> final_report;        // the last word of the attempt's broker, whose pod is gone
  std::string left_disruption;                 // of that pod (PodView::disruption)
  std::string broker_endpoint;                 // where executors reach the broker; empty: not known
  bool made_progress = false;                  // the attempt's broker says that it has made a step
  std::optional<int64_t> connected_executors;  // executors that the broker is in touch with, as far as it has said
  // Executors that the plan in force was made over, and that the run trains on when none is missing, likewise; 0: not known.
  int64_t plan_executors = 0, wanted_executors = 0;

  std::string wait_reason, wait;  // of the attempt's broker (progress.h); empty: its run waits for nothing, or nothing is known

  std::optional<QueueStatus> queue;  // nothing: it is in none, or is suspended
  bool leaves_queue = false;         // it is in none, and has a Workload still

  // It waits for another spec.
  bool refused() const { return persisted.refused_spec.has_value() && persisted.refused_spec->generation == generation; }
  bool is_queued() const { return queue.has_value() && queue->holds; }
  // It wants no pods.
  bool IsInactive() const {
    return persisted.complete || persisted.failed || job.spec.suspend || deleted_at.has_value() || refused() || is_queued();
  }
};

}  // namespace fusionllm::op::lifecycle
