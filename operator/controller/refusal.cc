#include "operator/controller/refusal.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/api/api_error.h"

namespace fusionllm::op::controller {
namespace {

// What a person, or another job's end, changes: no event comes.
constexpr absl::Duration kSoon = absl::Seconds(15);
constexpr absl::Duration kSlowly = absl::Minutes(1);
constexpr absl::Duration kSeldom = absl::Minutes(5);
constexpr char kOfPod[] = "fusionllm.io/of-pod";  // payload of such errors

}  // namespace

std::optional<Refused> RefusalOf(const absl::Status& status, const std::string& where) {
  if (status.ok()) return std::nullopt;
  const std::optional<kube::ApiError> error = kube::ApiErrorOf(status);
  const auto refused = [&](const char* reason, absl::Duration retry_after) {
    return Refused{{reason, absl::StrCat(where, ": ", error.has_value() ? error->message : std::string(status.message()))}, retry_after};
  };
  // Found by looking, not said by the server.
  if (!error.has_value()) return absl::IsAlreadyExists(status) ? std::optional(refused(kConflict, kSoon)) : std::nullopt;
  if (kube::IsApiNamespaceTerminating(status)) return refused(kNamespaceTerminating, kSeldom);
  if (kube::IsApiQuotaExceeded(status)) return refused(lifecycle::kQuotaExceeded, kSlowly);
  if (kube::IsApiForbidden(status)) return refused(kForbidden, kSlowly);
  if (kube::IsApiNotFound(status)) {
    if (!absl::StrContains(error->message, "namespaces \"")) return std::nullopt;
    return refused(kNamespaceMissing, kSoon);
  }
  if (kube::IsApiInvalid(status) || error->code == 413) {
    // What is not the job's own words may be ours, which an update of the operator, or of the cluster, changes.
    return status.GetPayload(kOfPod).has_value() ? refused(kInvalidTemplate, absl::InfiniteDuration()) : refused(kInvalidObject, kSeldom);
  }
  return std::nullopt;
}

absl::Status MarkPodError(absl::Status status) {
  if (!status.ok()) status.SetPayload(kOfPod, {});
  return status;
}

Refused RefusedObjects(const std::string& where, const std::string& missing) {
  return {{kObjectMissing, absl::StrCat(where, ": ", missing)}, kSoon};
}

Refused RefusedTemplate(const absl::Status& status) {
  return {{kInvalidTemplate, std::string(status.message())}, absl::InfiniteDuration()};
}

}  // namespace fusionllm::op::controller
