// metav1.Condition, and the rules for changing one that let clients trust what they read.
//
// Plain values and pure functions. Times are kept to the second, as Kubernetes writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/job/schema.h"

namespace fusionllm::kubeapi {

inline constexpr size_t kMaxConditions = 16;
inline constexpr size_t kMaxConditionMessage = 32768;

// The two ends of a job, named as those of batch/v1 Job, so that `kubectl wait --for=condition=Complete` works.
inline constexpr absl::string_view kComplete = "Complete";
inline constexpr absl::string_view kFailed = "Failed";

enum class ConditionStatus { kTrue, kFalse, kUnknown };

struct Condition {
  std::string type;
  ConditionStatus status = ConditionStatus::kUnknown;
  int64_t observed_generation = 0;
  absl::Time last_transition_time;  // the epoch: never set
  std::string reason;               // CamelCase, for machines
  std::string message;              // for people; may be empty
  bool operator==(const Condition&) const = default;
};

const Condition* FindCondition(const std::vector<Condition>& conditions, absl::string_view type);
bool IsTrue(const std::vector<Condition>& conditions, absl::string_view type);
// Complete or Failed is True: nothing more will happen.
bool IsFinished(const std::vector<Condition>& conditions);

// Adds the condition or changes the one of its type; true when something differs from before, so that nothing need be written otherwise.
// lastTransitionTime becomes `now` only when the status changes; that of `wanted` is not read. A job ends once: a Complete or Failed that
// is True stays as it is, and the other one cannot become True beside it. An empty reason becomes the type; a message is cut at its limit.
bool SetCondition(std::vector<Condition>& conditions, Condition wanted, absl::Time now);

template <class V>
void Visit(V& v, Condition& c) {
  v.Field("type", c.type, {.required = true, .max_length = 316}, "What the condition says, in CamelCase.");
  v.Field("status", c.status, {.required = true}, "Whether the condition holds, or Unknown where it cannot be known.");
  v.Field("observedGeneration", c.observed_generation, {.min = 0}, "Generation of the spec that this was decided on.");
  v.Field("lastTransitionTime", c.last_transition_time, {.required = true}, "When the status changed last.");
  v.Field("reason", c.reason, {.required = true, .max_length = 1024}, "Why, in one CamelCase word, for machines.");
  v.Field("message", c.message, {.required = true, .may_be_empty = true, .max_length = kMaxConditionMessage},
          "Why that is so, as a sentence for people.");
}

}  // namespace fusionllm::kubeapi

namespace fusionllm::job {
FUSIONLLM_JOB_ENUM(kubeapi::ConditionStatus, {"True", E::kTrue}, {"False", E::kFalse}, {"Unknown", E::kUnknown});
}  // namespace fusionllm::job
