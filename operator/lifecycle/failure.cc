#include "operator/lifecycle/failure.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"

namespace fusionllm::op::lifecycle {
namespace {

bool Holds(const job::FailureRule& rule, const PodView& pod) {
  if (rule.on_exit_codes.empty() && rule.on_reasons.empty()) return true;
  const auto named = [](const auto& list, const auto& value) { return std::find(list.begin(), list.end(), value) != list.end(); };
  return (pod.exit_code.has_value() && named(rule.on_exit_codes, *pod.exit_code)) || named(rule.on_reasons, pod.reason) ||
         named(rule.on_reasons, pod.disruption);
}

std::string Describe(const PodView& pod) {
  std::string text = pod.role == manifests::kBrokerRole ? "the broker" : absl::StrCat("executor ", pod.cluster, "-", pod.index);
  const bool ends = pod.deleted_at.has_value() && pod.phase != PodPhase::kFailed;
  absl::StrAppend(&text, pod.exit_code.has_value() ? absl::StrCat(" ended with exit code ", *pod.exit_code)
                         : ends                    ? " is being ended"
                                                   : " failed");
  const char* const comma = pod.reason.empty() || pod.disruption.empty() ? "" : ", ";
  if (!pod.reason.empty() || !pod.disruption.empty()) absl::StrAppend(&text, " (", pod.reason, comma, pod.disruption, ")");
  if (!pod.message.empty()) absl::StrAppend(&text, ": ", pod.message);
  return text;
}

}  // namespace

FailurePolicyResult ApplyFailurePolicy(const job::FailurePolicy& policy, const PodView& pod) {
  FailurePolicyResult verdict{.description = Describe(pod)};
  const auto rule = std::find_if(policy.rules.begin(), policy.rules.end(), [&](const auto& each) { return Holds(each, pod); });
  if (rule != policy.rules.end()) {
    verdict.action = rule->action;
    verdict.rule = rule->name;
    return verdict;
  }
  const bool broker = pod.role == manifests::kBrokerRole;
  const bool hopeless =
      broker && pod.exit_code.has_value() && (*pod.exit_code == base::kExitBadInput || *pod.exit_code == base::kExitInfeasible);
  // A drain, say: it was asked to end, and ended in order, so that a job that keeps checkpoints has lost nothing.
  const bool moved = broker && pod.exit_code == base::kExitInterrupted && !pod.disruption.empty();
  verdict.action = hopeless ? job::FailureAction::kFailJob
                   : moved  ? job::FailureAction::kRestartJobAndIgnoreMaxRestarts
                   : broker ? job::FailureAction::kRestartJob
                            : job::FailureAction::kRestartExecutor;
  return verdict;
}

}  // namespace fusionllm::op::lifecycle
