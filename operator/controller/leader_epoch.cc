#include "operator/controller/leader_epoch.h"

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

using kube::TextAt;
using nlohmann::json;

json MetadataOf(const std::string& text) { return kube::At(kube::ParseJson(text), "metadata"); }

StampedOwnerConfigMap ClaimedOf(const json& metadata) { return {TextAt(metadata, "uid"), TextAt(metadata, "resourceVersion")}; }

}  // namespace

absl::StatusOr<std::optional<StampedOwnerConfigMap>> StampLeaderEpoch(cache::Member& member, const manifests::JobIdentity& job,
                                                                      Fence& fence, std::stop_token stop) {
  const kube::ObjectKey key{job.ns, manifests::OwnerConfigMapName(job)};
  const absl::StatusOr<std::string> answer = member.client().Get(manifests::kConfigMaps, key, {.stop = stop});
  if (kube::IsApiNotFound(answer.status())) return std::nullopt;
  FUSIONLLM_RETURN_IF_ERROR(answer.status());
  const json metadata = MetadataOf(*answer);
  if (TextAt(metadata, "labels", manifests::kJobUidLabel) != job.uid) return std::nullopt;
  int64_t epoch = 0;
  if (!absl::SimpleAtoi(TextAt(metadata, "annotations", manifests::kEpochAnnotation), &epoch)) epoch = 0;
  // No leader counts that far ahead: someone who may write to the namespace, or the member's server, wrote it. It is written over.
  if (epoch < 0 || epoch - kMaxEpochsAhead > fence.epoch()) {
    base::Log(base::LogLevel::kWarning, absl::StrCat("ConfigMap ", key.ToString(), " in cluster ", member.name(), " has the epoch ", epoch,
                                                     ", which no leader can have counted; it is written over"));
    epoch = 0;
  }
  if (epoch > fence.epoch()) FUSIONLLM_RETURN_IF_ERROR(fence.OnHigherEpoch(epoch, stop));
  if (epoch == fence.epoch()) return ClaimedOf(metadata);
  const json patch = {{"metadata",
                       {{"uid", TextAt(metadata, "uid")},
                        {"resourceVersion", TextAt(metadata, "resourceVersion")},
                        {"annotations", {{manifests::kEpochAnnotation, absl::StrCat(fence.epoch())}}}}}};
  const absl::StatusOr<std::string> claimed = member.client().Patch(manifests::kConfigMaps, key, kube::PatchType::kMerge, patch.dump(),
                                                                    {.field_manager = manifests::kFieldManager}, {.stop = stop});
  if (kube::IsApiConflict(claimed.status()) || kube::IsApiNotFound(claimed.status())) {
    return absl::UnavailableError(absl::StrCat("ConfigMap ", key.ToString(), " in cluster ", member.name(), " was changed meanwhile"));
  }
  FUSIONLLM_RETURN_IF_ERROR(claimed.status());
  member.Wrote(job.uid, manifests::kConfigMaps, *claimed);
  return ClaimedOf(MetadataOf(*claimed));
}

}  // namespace fusionllm::op::controller
