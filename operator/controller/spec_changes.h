// When a change of the spec of a running job takes effect, field by field, and what is said of it. Pure functions, thread-safe.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::op::controller {

enum class TakesEffect {
  // Never: the API server refuses the change until the job is suspended, or altogether (lib/kubeapi/rules.cc). By a definition without
  // that rule it is as kNextAttempt.
  kRefused,
  kNextAttempt,   // a broker, a Pod or a placement takes it when it begins
  kAtOnce,        // the operator reads it each time it looks
  kWithCondition  // at once, and a condition with events of its own tells of it (Suspended, Resizing)
};

// `path`: "spec.executors.min", or of anything below a field. Nothing: it is no field of the spec.
std::optional<TakesEffect> WhenTakesEffect(absl::string_view path);

// What users read of the difference, with old and new values and when each takes effect; empty where there is nothing to say.
std::string DescribeSpecChanges(const job::FusionJob& from, const job::FusionJob& to);

}  // namespace fusionllm::op::controller
