#include "operator/reconcile/try_pods.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/pod_references.h"
#include "operator/manifests/resources.h"
#include "operator/placement/survey.h"

namespace fusionllm::op {
namespace {

using nlohmann::json;

// Stand for what is made later, and only known then.
constexpr char kSomeUid[] = "00000000-0000-0000-0000-000000000000";
constexpr char kSomeAddress[] = "broker:7000";

// A webhook with side effects takes no dry runs; it has not seen the Pod.
bool CannotBeTried(const absl::Status& status) {
  const std::optional<kube::ApiError> error = kube::ApiErrorOf(status);
  return error.has_value() && absl::StrContains(error->message, "does not support dry run");
}

// Enough to see what is wrong.
constexpr size_t kMostNamed = 5;

// What the operator itself makes for them, later.
bool IsOurs(const PodReference& reference, const JobIdentity& job, const std::optional<ExecutorSlot>& executor) {
  if (reference.kind == &kConfigMaps) return reference.name == JobDocumentName(job);
  return reference.name == BrokerSecretName(job) || (executor.has_value() && reference.name == ExecutorSecretName(job, executor->index));
}

// Those of pods of the job that are not there, in words; empty: all are. One that may not be looked at counts as being there.
absl::StatusOr<std::string> Missing(kube::ApiClient& client, const TrialRequest& request, const std::vector<json>& pods,
                                    const std::stop_token& stop) {
  const JobIdentity& job = *request.identity;
  std::set<std::pair<std::string, std::string>> looked_at;  // by kind and name
  std::vector<std::string> missing;
  size_t more = 0;
  for (const json& pod : pods) {
    for (const PodReference& reference : ReferencesOf(pod)) {
      if (IsOurs(reference, job, request.executor) || !looked_at.emplace(reference.kind->kind, reference.name).second) continue;
      const absl::Status status = client.GetMetadata(*reference.kind, {job.ns, reference.name}, {.stop = stop}).status();
      if (status.ok() || kube::IsApiForbidden(status)) continue;
      if (!kube::IsApiNotFound(status)) return status;
      if (missing.size() >= kMostNamed) {
        ++more;
        continue;
      }
      const std::string role = kube::TextAt(pod, "metadata", "labels", kRoleLabel);
      missing.push_back(absl::StrCat(reference.kind->kind, " ", reference.name, " (", reference.use, " of the ", role, ")"));
    }
  }
  if (missing.empty()) return "";
  return absl::StrCat("namespace ", job.ns, " has no ", absl::StrJoin(missing, ", no "),
                      more > 0 ? absl::StrCat(", and ", more, " more") : "", ".");
}

}  // namespace

absl::StatusOr<std::optional<Refused>> TryPods(Member& member, const TrialRequest& request, std::stop_token stop) {
  const JobIdentity& identity = *request.identity;
  const Owner owner = AnchorOwner(identity, kSomeUid);
  std::vector<json> pods;
  if (request.broker) {
    absl::StatusOr<json> pod = BrokerPod(identity, *request.job, request.attempt, *request.images, owner);
    if (!pod.ok()) return RefusedTemplate(pod.status());
    pods.push_back(*std::move(pod));
  }
  if (request.executor.has_value()) {
    // What hardware it asks for is not known while the cluster's nodes are not.
    const DeviceKind hardware = HardwareIn(member.Capacity().get(), request.job->spec.placement).value_or(DeviceKind());
    absl::StatusOr<json> pod = ExecutorPod(identity, *request.job, *request.executor, request.attempt.number, {.broker = kSomeAddress},
                                           *request.images, owner, hardware);
    if (!pod.ok()) return RefusedTemplate(pod.status());
    pods.push_back(*std::move(pod));
  }
  for (const json& pod : pods) {
    const absl::Status status =
        member.client().Create(kPods, identity.ns, pod.dump(), {.field_manager = kFieldManager, .dry_run = true}, {.stop = stop}).status();
    // One that is there already is looked at when it is to be made.
    if (status.ok() || kube::IsApiAlreadyExists(status) || CannotBeTried(status)) continue;
    if (std::optional<Refused> refused = RefusalOf(OfPod(status), request.cluster)) return refused;
    return status;
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string missing, Missing(member.client(), request, pods, stop));
  if (!missing.empty()) return RefusedObjects(request.cluster, missing);
  return std::optional<Refused>();
}

}  // namespace fusionllm::op
