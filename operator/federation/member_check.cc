#include "operator/federation/member_check.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/truncate_utf8.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kube/client/access_review.h"
#include "lib/kubeapi/fusion_job_status_fields.h"
#include "lib/kubeapi/rights.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;

constexpr size_t kMaxHealthBytes = 256, kMaxApis = 64, kMaxNamespaces = 16;
constexpr absl::string_view kOptionalGroups[] = {"jobset.x-k8s.io",     "kueue.x-k8s.io",  "scheduling.volcano.sh", "batch.volcano.sh",
                                                 "scheduling.x-k8s.io", "resource.k8s.io", "metrics.k8s.io"};

// What is done in the namespaces of jobs.
std::vector<kube::Permission> WorkPermissions() {
  std::vector<kube::Permission> permissions;
  const auto rules = kubeapi::MemberWorkRules();
  for (const auto& rule : rules) {
    for (const auto& resource : rule["resources"]) {
      for (const auto& verb : rule["verbs"]) {
        permissions.push_back({.verb = verb, .resource = {"", "v1", resource.get<std::string>(), "", true}});
      }
    }
  }
  return permissions;
}

}  // namespace

absl::StatusOr<std::string> ReadClusterUid(kube::ApiClient& api, const kube::CallOptions& call) {
  const absl::StatusOr<std::string> answer = api.Get(manifests::kNamespaces, {"", "kube-system"}, call);
  if (kube::IsApiNotFound(answer.status())) return "";
  if (!answer.ok()) return answer.status();
  const std::string uid = kube::TextAt(kube::ParseJson(*answer), "metadata", "uid");
  if (uid.empty()) return absl::InternalError("its namespace kube-system has no UID");
  return base::TruncateUtf8(uid, kubeapi::kMaxShortText);
}

absl::Status MemberCheck::Run(const std::stop_token& stop, bool rights) {
  const kube::CallOptions call{.timeout = kCallTimeout, .stop = stop};
  const absl::StatusOr<std::string> uid = ReadClusterUid(api_, call);
  MemberFacts facts;
  {
    const base::MutexLock lock(mutex_);
    last_status_ = uid.status();
    if (!uid.ok()) return last_status_;
    if (facts_ != nullptr) facts = *facts_;
  }
  facts.uid = *uid;
  FetchHealth(call, facts);
  FetchVersions(call, facts);
  CheckClock(facts);
  if (rights) ReviewPermissions(call, facts);
  const base::MutexLock lock(mutex_);
  facts_ = std::make_shared<const MemberFacts>(std::move(facts));
  return absl::OkStatus();
}

void MemberCheck::FetchHealth(const kube::CallOptions& call, MemberFacts& facts) const {
  const absl::StatusOr<std::string> answer = api_.GetPath("/readyz", call);
  const std::optional<kube::ApiError> error = kube::ApiErrorOf(answer.status());
  // Others than these two answers say nothing of its health: we may not ask, or it has no such page.
  const bool unhealthy = error.has_value() && error->code >= 500;
  facts.healthy = answer.ok() ? std::optional(true) : unhealthy ? std::optional(false) : std::nullopt;
  facts.health = unhealthy ? base::TruncateUtf8(error->message, kMaxHealthBytes) : "";
}

void MemberCheck::FetchVersions(const kube::CallOptions& call, MemberFacts& facts) {
  const absl::Duration now = clock_.Monotonic();
  if (now - versions_at_ < kVersionEvery) return;
  const absl::StatusOr<std::string> answer = api_.GetPath("/version", call), groups = api_.GetPath("/apis", call);
  if (answer.ok()) facts.version = base::TruncateUtf8(kube::TextAt(kube::ParseJson(*answer), "gitVersion"), kubeapi::kMaxShortText);
  if (groups.ok()) {
    facts.apis.clear();
    const json list = kube::ParseJson(*groups);
    for (const json& group : kube::ListOf(kube::At(list, "groups"))) {
      const std::string name = kube::TextAt(group, "name"), version = kube::TextAt(group, "preferredVersion", "groupVersion");
      const bool optional = std::find(std::begin(kOptionalGroups), std::end(kOptionalGroups), name) != std::end(kOptionalGroups);
      if (optional && facts.apis.size() < kMaxApis) facts.apis.push_back(base::TruncateUtf8(version, kubeapi::kMaxShortText));
    }
  }
  if (answer.ok() && groups.ok()) versions_at_ = now;
}

void MemberCheck::CheckClock(MemberFacts& facts) const {
  const std::optional<absl::Duration> ahead = api_.ServerClockSkew();
  if (!ahead.has_value()) return;
  const absl::Duration difference = absl::AbsDuration(*ahead);
  // One at the limit is not reported each minute.
  const absl::Duration tolerance = facts.synced == false ? kClockTolerance / 2 : kClockTolerance;
  facts.synced = difference < tolerance;
  const std::string reported = std::exchange(facts.clock, "");
  if (*facts.synced) return;
  // In steps: a text that counted seconds would be a status to be written each minute.
  constexpr std::pair<absl::Duration, const char*> kSteps[] = {{absl::Hours(24), "more than a day"},
                                                               {absl::Hours(1), "more than an hour"},
                                                               {absl::Minutes(10), "more than ten minutes"},
                                                               {absl::Minutes(1), "more than a minute"},
                                                               {absl::ZeroDuration(), "some seconds"}};
  for (const auto& [least, text] : kSteps) {
    std::string sentence =
        absl::StrCat("its API server's clock is ", text, *ahead > absl::ZeroDuration() ? " ahead of" : " behind", " the operator's");
    // Seconds are all that is reported of it: what lies at a step's edge would be reported in turns.
    if (difference < (sentence == reported ? least / 2 : least)) continue;
    facts.clock = std::move(sentence);
    return;
  }
}

void MemberCheck::ReviewPermissions(const kube::CallOptions& call, MemberFacts& facts) {
  if (namespaces_ == nullptr) return;
  std::set<std::string> namespaces = namespaces_();
  while (namespaces.size() > kMaxNamespaces) namespaces.erase(std::prev(namespaces.end()));
  const absl::Duration now = clock_.Monotonic();
  const bool again = !facts.missing.empty() && now - rights_at_ >= kPermissionRecheckPeriod;
  if (reviewed_ == namespaces && !again) return;
  rights_at_ = now;
  reviewed_ = namespaces;
  // Those that hold everywhere hold in each namespace.
  absl::StatusOr<std::vector<kube::Permission>> missing = kube::MissingPermissions(api_, WorkPermissions(), call);
  std::vector<std::string> texts;
  if (missing.ok() && !missing->empty()) {
    for (const std::string& ns : namespaces) {
      std::vector<kube::Permission> wanted = *missing;
      for (kube::Permission& permission : wanted) permission.ns = ns;
      const absl::StatusOr<std::vector<kube::Permission>> here = kube::MissingPermissions(api_, wanted, call);
      if (!here.ok()) return;  // what was known stays
      for (const kube::Permission& permission : *here) texts.push_back(permission.ToString());
    }
  }
  if (missing.ok()) facts.missing = std::move(texts);
}

std::shared_ptr<const MemberFacts> MemberCheck::Facts() const {
  const base::MutexLock lock(mutex_);
  return facts_;
}

absl::Status MemberCheck::LastStatus() const {
  const base::MutexLock lock(mutex_);
  return last_status_;
}

}  // namespace fusionllm::op::federation
