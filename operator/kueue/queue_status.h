// What a job's Workload says of the job, and what is to be done about the Workload next: pure functions. docs/design/adr/0040.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "lib/job/fusion_job.h"
#include "operator/lifecycle/decide.h"
#include "operator/lifecycle/observation.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::kueue {

// Of Workloads on the hub.
enum class WorkloadAccess {
  kUnknown,    // not listed yet, or it cannot be known now
  kMissing,    // the server does not serve them
  kForbidden,  // it does not let the operator list them
  kListed,
};

// When Kueue is looked for again where it is not, or is not to be used.
inline constexpr absl::Duration kKueueDiscoveryPeriod = absl::Seconds(30);

struct QueuedJob {
  manifests::JobIdentity identity;
  const job::FusionJob* job = nullptr;  // as the user wrote it
  std::string queue;                    // the LocalQueue
  std::string priority_class;           // empty: none
  bool started = false;                 // an attempt has, and is not over: there may be Pods
};

// `workload`: the one of the job's name, null: there is none. Nothing: it cannot be known now. Not of a job that is suspended.
std::optional<lifecycle::QueueStatus> QueueStatusOf(const QueuedJob& queued, WorkloadAccess access, const nlohmann::json* workload);

enum class WorkloadAction {
  kNone,
  kCreate,
  kUpdate,   // WorkloadUpdate()
  kDelete,   // another one follows, or none
  kRelease,  // ReleasedStatus()
  kFinish,   // FinishedStatus()
  kUpdatePodsReady,
};

// What of a job its Workload depends on.
struct WorkloadInputs {
  bool queued = false;     // it has the label
  bool suspended = false;  // by its user
  bool over = false;       // Complete or Failed
  bool has_pods = false;   // or may have
  bool ready = false;      // all executors are
};

// One at a time: each is seen before the next. `workload`: as above.
WorkloadAction NextAction(const QueuedJob& queued, const WorkloadInputs& inputs, const nlohmann::json* workload);

}  // namespace fusionllm::op::kueue
