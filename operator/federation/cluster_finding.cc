#include "operator/federation/cluster_finding.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lib/kubeapi/condition.h"
#include "lib/kubeapi/fusion_job_status.h"

namespace fusionllm::op::federation {

using kubeapi::ConditionStatus;

ClusterFinding ClassifyConnection(const absl::Status& connection) {
  if (absl::IsUnauthenticated(connection)) return {connection, connection, "Unauthorized"};
  if (absl::IsPermissionDenied(connection)) return {connection, connection, "Forbidden"};
  return {absl::OkStatus(), connection, ""};
}

absl::Status CheckRights(const MemberFacts& facts) {
  constexpr size_t kNamed = 8;
  if (facts.missing.empty()) return absl::OkStatus();
  const std::vector<std::string> named(facts.missing.begin(), facts.missing.begin() + std::min(kNamed, facts.missing.size()));
  const size_t more = facts.missing.size() - named.size();
  return absl::PermissionDeniedError(
      absl::StrCat("may not ", absl::StrJoin(named, ", "), more == 0 ? "" : absl::StrCat(", and ", more, " more")));
}

void SetConditions(const ClusterFinding& finding, const std::string& not_ours, int64_t generation, absl::Time now,
                   kubeapi::FusionClusterStatus& status) {
  const auto set = [&](absl::string_view type, bool holds, std::string reason, std::string message) {
    SetCondition(status.conditions,
                 {.type = std::string(type),
                  .status = holds ? ConditionStatus::kTrue : ConditionStatus::kFalse,
                  .observed_generation = generation,
                  .reason = std::move(reason),
                  .message = std::move(message)},
                 now);
  };
  const ClusterIdentity& identity = finding.identity;
  const kubeapi::Condition* const was_conflict = FindCondition(status.conditions, kubeapi::kConflict);
  if (!identity.conflict.empty()) {
    set(kubeapi::kConflict, true, identity.conflict, identity.message);
  } else if (!not_ours.empty()) {
    set(kubeapi::kConflict, true, "NotOurs", not_ours);
  } else if (!identity.uid.empty() || (was_conflict != nullptr && was_conflict->reason == "NotOurs")) {
    // What was found of who it is stays until it is asked again.
    set(kubeapi::kConflict, false, "NoConflict",
        identity.message.empty() ? "No other FusionCluster names this cluster, and no object of others is in the way of jobs there."
                                 : identity.message);
  }
  if (!identity.uid.empty() && identity.conflict.empty()) status.cluster_uid = identity.uid;
  const std::string credentials(finding.credentials.message()), connection(finding.connection.message());
  set(kubeapi::kCredentialsValid, finding.credentials.ok(), finding.credentials.ok() ? "Valid" : finding.reason,
      finding.credentials.ok() ? "Its API server takes the operator's credentials." : credentials);
  const std::string reason = finding.connection.ok() ? "Connected" : identity.conflict.empty() ? "NotConnected" : identity.conflict;
  set(kubeapi::kConnected, finding.connection.ok(), reason, finding.connection.ok() ? "Its API server is watched." : connection);
  set(kubeapi::kReady, finding.connection.ok(), reason, finding.connection.ok() ? "Jobs may use it." : connection);
  const auto say = [&](absl::string_view type, std::optional<bool> holds, const char* yes, const char* no, std::string message) {
    if (holds.has_value()) return set(type, *holds, *holds ? yes : no, std::move(message));
    std::erase_if(status.conditions, [&](const kubeapi::Condition& condition) { return condition.type == type; });
  };
  const MemberFacts facts = finding.facts == nullptr ? MemberFacts() : *finding.facts;
  say(kubeapi::kControlPlaneHealthy, facts.healthy, "Ready", "NotReady",
      facts.healthy == true ? "Its API server says that it is ready." : facts.health);
  say(kubeapi::kClockSynced, facts.synced, "Synced", "Skewed", facts.synced == true ? "Its clock and the operator's agree." : facts.clock);
  if (!finding.token.has_value()) return;  // what was found of it stays
  const TokenFinding& token = *finding.token;
  say(kubeapi::kTokenRenewed, token.managed ? std::optional(token.renewed) : std::nullopt, token.reason.c_str(), token.reason.c_str(),
      token.message);
}

}  // namespace fusionllm::op::federation
