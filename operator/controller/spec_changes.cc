#include "operator/controller/spec_changes.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lib/job/differences.h"

namespace fusionllm::op::controller {
namespace {

constexpr size_t kMaxNamedFields = 8;

struct FieldEffect {
  absl::string_view field;
  TakesEffect when;
};

constexpr FieldEffect kFields[] = {
    {"spec.model", TakesEffect::kRefused},
    {"spec.data", TakesEffect::kRefused},
    {"spec.training", TakesEffect::kRefused},
    {"spec.strategy", TakesEffect::kRefused},
    {"spec.compression", TakesEffect::kRefused},
    {"spec.network", TakesEffect::kRefused},
    {"spec.broker", TakesEffect::kRefused},
    {"spec.managedBy", TakesEffect::kRefused},
    {"spec.checkpoint", TakesEffect::kNextAttempt},
    {"spec.placement", TakesEffect::kNextAttempt},
    {"spec.objectStore", TakesEffect::kNextAttempt},
    {"spec.executors.min", TakesEffect::kNextAttempt},
    {"spec.executors.spares", TakesEffect::kNextAttempt},
    {"spec.executors.threads", TakesEffect::kNextAttempt},
    {"spec.executors.brokerLostTimeoutSeconds", TakesEffect::kNextAttempt},
    {"spec.executors.template", TakesEffect::kNextAttempt},
    {"spec.executors.stabilizationSeconds", TakesEffect::kAtOnce},
    {"spec.queueName", TakesEffect::kAtOnce},
    {"spec.failurePolicy", TakesEffect::kAtOnce},
    {"spec.activeDeadlineSeconds", TakesEffect::kAtOnce},
    {"spec.pendingDeadlineSeconds", TakesEffect::kAtOnce},
    {"spec.ttlSecondsAfterFinished", TakesEffect::kAtOnce},
    {"spec.cleanPodPolicy", TakesEffect::kAtOnce},
    {"spec.forceDeleteAfterSeconds", TakesEffect::kAtOnce},
    {"spec.preserveResourcesOnDeletion", TakesEffect::kAtOnce},
    {"spec.suspend", TakesEffect::kWithCondition},
    {"spec.executors.replicas", TakesEffect::kWithCondition},
    {"spec.executors.max", TakesEffect::kWithCondition},
};

bool IsIn(absl::string_view path, absl::string_view field) {
  return absl::ConsumePrefix(&path, field) && (path.empty() || path[0] == '.' || path[0] == '[');
}

}  // namespace

std::optional<TakesEffect> WhenTakesEffect(absl::string_view path) {
  for (const FieldEffect& known : kFields) {
    if (IsIn(path, known.field)) return known.when;
  }
  return std::nullopt;
}

std::string DescribeSpecChanges(const job::FusionJob& from, const job::FusionJob& to) {
  std::vector<job::FieldDifference> later, at_once;
  for (job::FieldDifference& difference : job::Differences(from, to)) {
    const std::optional<TakesEffect> when = WhenTakesEffect(difference.path);
    if (!when.has_value() || *when == TakesEffect::kWithCondition) continue;
    (*when == TakesEffect::kAtOnce ? at_once : later).push_back(std::move(difference));
  }
  std::vector<std::string> sentences;
  if (!later.empty()) {
    sentences.push_back(absl::StrCat(job::ToString(later, kMaxNamedFields),
                                     ": takes effect with the job's next attempt. What runs goes on as it began; to suspend the job and to "
                                     "resume it begins the next attempt."));
  }
  if (!at_once.empty()) sentences.push_back(absl::StrCat(job::ToString(at_once, kMaxNamedFields), ": takes effect at once."));
  return absl::StrJoin(sentences, " ");
}

}  // namespace fusionllm::op::controller
