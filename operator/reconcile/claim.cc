#include "operator/reconcile/claim.h"

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op {
namespace {

using nlohmann::json;

json MetadataOf(const std::string& text) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  return object.is_object() ? object.value("metadata", json::object()) : json::object();
}

ClaimedAnchor ClaimedOf(const json& metadata) { return {metadata.value("uid", ""), metadata.value("resourceVersion", "")}; }

}  // namespace

absl::StatusOr<std::optional<ClaimedAnchor>> Claim(Member& member, const JobIdentity& job, Fence& fence, std::stop_token stop) {
  const kube::ObjectKey key{job.ns, AnchorName(job)};
  const absl::StatusOr<std::string> answer = member.client().Get(kConfigMaps, key, {.stop = stop});
  if (kube::IsApiNotFound(answer.status())) return std::nullopt;
  FUSIONLLM_RETURN_IF_ERROR(answer.status());
  const json metadata = MetadataOf(*answer);
  if (metadata.value("labels", json::object()).value(kJobUidLabel, "") != job.uid) return std::nullopt;
  int64_t epoch = 0;
  if (!absl::SimpleAtoi(metadata.value("annotations", json::object()).value(kEpochAnnotation, ""), &epoch)) epoch = 0;
  if (epoch > fence.epoch()) FUSIONLLM_RETURN_IF_ERROR(fence.Outranked(epoch, stop));
  if (epoch == fence.epoch()) return ClaimedOf(metadata);
  const json patch = {{"metadata",
                       {{"uid", metadata.value("uid", "")},
                        {"resourceVersion", metadata.value("resourceVersion", "")},
                        {"annotations", {{kEpochAnnotation, absl::StrCat(fence.epoch())}}}}}};
  const absl::StatusOr<std::string> claimed =
      member.client().Patch(kConfigMaps, key, kube::PatchType::kMerge, patch.dump(), {.field_manager = kFieldManager}, {.stop = stop});
  if (kube::IsApiConflict(claimed.status()) || kube::IsApiNotFound(claimed.status())) {
    return absl::UnavailableError(absl::StrCat("ConfigMap ", key.ToString(), " in cluster ", member.name(), " was changed meanwhile"));
  }
  FUSIONLLM_RETURN_IF_ERROR(claimed.status());
  member.Wrote(job.uid, kConfigMaps, *claimed);
  return ClaimedOf(MetadataOf(*claimed));
}

}  // namespace fusionllm::op
