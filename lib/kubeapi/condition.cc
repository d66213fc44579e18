#include "lib/kubeapi/condition.h"

#include <algorithm>
#include <utility>

#include "lib/base/truncate_utf8.h"

namespace fusionllm::kubeapi {
namespace {

bool IsTerminal(absl::string_view type) { return type == kComplete || type == kFailed; }

}  // namespace

const Condition* FindCondition(const std::vector<Condition>& conditions, absl::string_view type) {
  const auto found = std::find_if(conditions.begin(), conditions.end(), [&](const Condition& c) { return c.type == type; });
  return found == conditions.end() ? nullptr : &*found;
}

bool IsTrue(const std::vector<Condition>& conditions, absl::string_view type) {
  const Condition* condition = FindCondition(conditions, type);
  return condition != nullptr && condition->status == ConditionStatus::kTrue;
}

bool IsFinished(const std::vector<Condition>& conditions) { return IsTrue(conditions, kComplete) || IsTrue(conditions, kFailed); }

bool SetCondition(std::vector<Condition>& conditions, Condition wanted, absl::Time now) {
  if (IsTerminal(wanted.type)) {
    if (IsTrue(conditions, wanted.type)) return false;
    if (wanted.status == ConditionStatus::kTrue && IsFinished(conditions)) return false;
  }
  if (wanted.reason.empty()) wanted.reason = wanted.type;
  wanted.message = base::TruncateUtf8(wanted.message, kMaxConditionMessage);
  wanted.last_transition_time = absl::FromUnixSeconds(absl::ToUnixSeconds(now));
  const auto current = std::find_if(conditions.begin(), conditions.end(), [&](const Condition& c) { return c.type == wanted.type; });
  if (current == conditions.end()) {
    conditions.push_back(std::move(wanted));
    return true;
  }
  if (current->status == wanted.status) wanted.last_transition_time = current->last_transition_time;
  if (*current == wanted) return false;
  *current = std::move(wanted);
  return true;
}

}  // namespace fusionllm::kubeapi
