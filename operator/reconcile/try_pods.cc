#include "operator/reconcile/try_pods.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "lib/kube/api/api_error.h"
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
  return std::optional<Refused>();
}

}  // namespace fusionllm::op
