#include "operator/federation/member_probe.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "lib/base/cut_text.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kubeapi/fusion_job_status_fields.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op {

absl::StatusOr<std::string> ReadClusterUid(kube::ApiClient& api, const kube::CallOptions& call) {
  const absl::StatusOr<std::string> answer = api.Get(kNamespaces, {"", "kube-system"}, call);
  if (kube::IsApiNotFound(answer.status())) return "";
  if (!answer.ok()) return answer.status();
  const std::string uid = kube::TextAt(kube::ParseJson(*answer), "metadata", "uid");
  if (uid.empty()) return absl::InternalError("its namespace kube-system has no UID");
  return base::CutText(uid, kubeapi::kMaxShortText);
}

absl::Status MemberProbe::Ask(const std::stop_token& stop) {
  const kube::CallOptions call{.timeout = kCallTimeout, .stop = stop};
  const absl::StatusOr<std::string> uid = ReadClusterUid(api_, call);
  MemberFacts facts;
  {
    const std::lock_guard lock(mutex_);
    answer_ = uid.status();
    if (!uid.ok()) return answer_;
    if (facts_ != nullptr) facts = *facts_;
  }
  facts.uid = *uid;
  const absl::Duration now = clock_.Monotonic();
  if (now - version_at_ >= kVersionEvery) {
    const absl::StatusOr<std::string> answer = api_.GetPath("/version", call);
    const std::string version = answer.ok() ? kube::TextAt(kube::ParseJson(*answer), "gitVersion") : "";
    if (!version.empty()) {
      facts.version = base::CutText(version, kubeapi::kMaxShortText);
      version_at_ = now;
    }
  }
  const std::lock_guard lock(mutex_);
  facts_ = std::make_shared<const MemberFacts>(std::move(facts));
  return absl::OkStatus();
}

std::shared_ptr<const MemberFacts> MemberProbe::Facts() const {
  const std::lock_guard lock(mutex_);
  return facts_;
}

absl::Status MemberProbe::Answer() const {
  const std::lock_guard lock(mutex_);
  return answer_;
}

}  // namespace fusionllm::op
