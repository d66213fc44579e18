#include "operator/controller/dry_run_pods.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "operator/controller/member_writes.h"
#include "operator/controller/missing_references.h"
#include "operator/manifests/resources.h"
#include "operator/placement/candidates.h"

namespace fusionllm::op::controller {
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

}  // namespace

absl::StatusOr<std::optional<Refused>> DryRunPods(cache::Member& member, const DryRunRequest& request, std::stop_token stop) {
  const manifests::JobIdentity& identity = *request.identity;
  const manifests::Owner owner = manifests::OwnerConfigMapReference(identity, kSomeUid);
  const kube::CallOptions call{.stop = std::move(stop)};
  std::vector<json> pods;
  if (request.broker) {
    absl::StatusOr<json> pod = manifests::BrokerPod(identity, *request.job, request.attempt, *request.images, owner);
    if (!pod.ok()) return RefusedTemplate(pod.status());
    pods.push_back(*std::move(pod));
  }
  if (request.executor.has_value()) {
    // What hardware it asks for is not known while the cluster's nodes are not.
    const manifests::DeviceKind hardware = placement::HardwareIn(member, request.job->spec.placement).value_or(manifests::DeviceKind());
    absl::StatusOr<json> pod = manifests::ExecutorPod(identity, *request.job, *request.executor, request.attempt.number,
                                                      {.broker = kSomeAddress}, *request.images, owner, hardware);
    if (!pod.ok()) return RefusedTemplate(pod.status());
    pods.push_back(*std::move(pod));
  }
  for (const json& pod : pods) {
    absl::Status status =
        member.client()
            .Create(manifests::kPods, identity.ns, pod.dump(), {.field_manager = manifests::kFieldManager, .dry_run = true}, call)
            .status();
    // One of the job's own is looked at when it is to be made.
    if (kube::IsApiAlreadyExists(status)) status = FindPodOfThatName(member, identity, pod, call).status();
    if (status.ok() || CannotBeTried(status)) continue;
    if (std::optional<Refused> refused = RefusalOf(MarkPodError(status), request.where)) return refused;
    return status;
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string missing, MissingReferences(member.client(), identity, request.executor, pods, call.stop));
  if (!missing.empty()) return RefusedObjects(request.where, missing);
  return std::optional<Refused>();
}

}  // namespace fusionllm::op::controller
