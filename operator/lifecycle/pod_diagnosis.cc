#include "operator/lifecycle/pod_diagnosis.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "lib/base/truncate_utf8.h"
#include "lib/kube/api/json_fields.h"

namespace fusionllm::op::lifecycle {
namespace {

using nlohmann::json;

// What to do must not be cut off for what a cluster says.
constexpr size_t kWordsBytes = 512;

struct Kind {
  const char* of_pod;  // PodView::reason
  const char* reason;
  const char* remedy;  // "$ns": the namespace; "$in": the cluster; "$template": the field of the Pod's template
};

constexpr char kImage[] =
    "Name an image that $in can pull (spec.executors.template, spec.broker.template), or give its namespace $ns the pull secret";
constexpr char kConfig[] = "Make what it names in namespace $ns of $in, or correct the name or key in the job's template";
constexpr char kVolume[] = "See to the volume, and to the keys that it names, in namespace $ns of $in";

constexpr char kMemory[] = "Raise resources.limits.memory in $template, or give the job more executors or smaller micro-batches";

constexpr Kind kKinds[] = {
    {"ErrImagePull", kImageNotAvailable, kImage},
    {"ImagePullBackOff", kImageNotAvailable, kImage},
    {"ErrImageNeverPull", kImageNotAvailable, kImage},
    {"InvalidImageName", kImageNotAvailable, kImage},
    {"ImageInspectError", kImageNotAvailable, kImage},
    {"RegistryUnavailable", kImageNotAvailable, kImage},
    {"CreateContainerConfigError", kContainerConfigError, kConfig},
    {"CreateContainerError", kContainerConfigError, kConfig},
    {"FailedMount", kVolumeNotMounted, kVolume},
    {"FailedAttachVolume", kVolumeNotMounted, kVolume},
    {"FailedMapVolume", kVolumeNotMounted, kVolume},
    {"Unschedulable", kUnschedulable, "It begins as soon as a node of $in has room that it may use"},
    {kKilledForMemory, kOutOfMemory, kMemory},
};

std::string FilledIn(const char* remedy, const std::string& ns, const std::string& cluster, const std::string& role) {
  return absl::StrReplaceAll(
      remedy,
      {{"$ns", ns}, {"$in", cluster}, {"$template", role == manifests::kBrokerRole ? "spec.broker.template" : "spec.executors.template"}});
}

void AddClaim(const json& volume, std::vector<std::string>& claims) {
  const std::string name = kube::TextAt(volume, "persistentVolumeClaim", "claimName");
  if (!name.empty() && std::find(claims.begin(), claims.end(), name) == claims.end()) claims.push_back(name);
}

// Those that Pods of that role mount.
std::vector<std::string> ClaimsOf(const job::Spec& spec, const std::string& role) {
  std::vector<std::string> claims;
  const auto add = [&](const job::RawExtension& volume) { AddClaim(kube::ParseJson(volume.json), claims); };
  add(spec.data.volume);
  if (spec.checkpoint.has_value()) add(spec.checkpoint->volume);
  const bool broker = role == manifests::kBrokerRole;
  if (broker) add(spec.broker.volume);
  const json pod_template = kube::ParseJson(broker ? spec.broker.pod_template.json : spec.executors.pod_template.json);
  for (const json& volume : kube::ListOf(kube::At(pod_template, "spec", "volumes"))) AddClaim(volume, claims);
  return claims;
}

std::string Where(const PodView& pod) {
  return pod.role == manifests::kBrokerRole ? absl::StrCat(pod.name, " on the hub") : absl::StrCat(pod.name, " in ", pod.cluster);
}

}  // namespace

std::vector<std::string> ReasonsWithRemedy() {
  std::vector<std::string> reasons;
  for (const Kind& kind : kKinds) reasons.push_back(kind.of_pod);
  return reasons;
}

std::optional<PodDiagnosis> DiagnosePod(const PodView& pod, const job::Spec& spec, const std::string& ns) {
  const std::string where = Where(pod), cluster = pod.role == manifests::kBrokerRole ? "the hub" : pod.cluster;
  if (pod.node_away_since.has_value()) {
    const std::string until = spec.force_delete_after_seconds == 0 ? "it stays until the node is back or gone"
                                                                   : absl::StrCat("it counts as lost after spec.forceDeleteAfterSeconds, ",
                                                                                  spec.force_delete_after_seconds, " s");
    return PodDiagnosis{kNodeNotReady, absl::StrCat(where, ": its node ", pod.node, " is not ready; ", until)};
  }
  if (pod.reason.empty()) return std::nullopt;
  const std::string words = base::TruncateUtf8(pod.message, kWordsBytes);
  const std::string code = pod.exit_code.value_or(0) != 0 ? absl::StrCat(" (exit code ", *pod.exit_code, ")") : "";
  const std::string what = absl::StrCat(where, ": ", pod.reason, code, words.empty() ? "" : ": ", words);
  const std::vector<std::string> claims = ClaimsOf(spec, pod.role);
  if (pod.reason == "Unschedulable" && !claims.empty() && absl::StrContains(absl::AsciiStrToLower(words), "persistentvolumeclaim")) {
    return PodDiagnosis{kClaimNotBound, absl::StrCat(what, ". See to the claims of its volumes, ", absl::StrJoin(claims, ", "),
                                                     ", in namespace ", ns, " of ", cluster)};
  }
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& each) { return pod.reason == each.of_pod; });
  if (kind == std::end(kKinds)) return PodDiagnosis{pod.role == manifests::kBrokerRole ? kBrokerNotReady : kExecutorsNotReady, what};
  const char* const stop = absl::EndsWith(what, ".") ? " " : ". ";
  return PodDiagnosis{kind->reason, absl::StrCat(what, stop, FilledIn(kind->remedy, ns, cluster, pod.role), ".")};
}

}  // namespace fusionllm::op::lifecycle
