#include "cli/cluster/remove_cluster.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/cluster/member_objects.h"
#include "cli/cluster/server_objects.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;

constexpr absl::Duration kRemovedPollInterval = absl::Milliseconds(500);

absl::Status CheckUnused(const RemoveClusterOptions& options, kube::ApiClient& hub) {
  if (options.force) return absl::OkStatus();
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, JobsInCluster(hub, options.name));
  if (jobs.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cluster ", options.name, " has objects of ", JobsText(jobs),
                                                    "; delete them first, or take --force, which leaves in the cluster what cannot be "
                                                    "reached then"));
}

absl::Status CleanMember(const RemoveClusterOptions& options, kube::ApiClient& member, const ProgressCallback& report_progress) {
  // Which namespaces `add` was given is not known here: bindings of the role are found by it.
  const std::string role = WorkRole(options.account);
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> bound, NamespacesOf(member, role));
  for (const std::string& ns : bound) {
    FUSIONLLM_RETURN_IF_ERROR(DeleteIfManaged(member, "member", kRoleBindingResource, {ns, role}, report_progress).status());
  }
  std::vector<ClusterObject> objects =
      MemberObjects({.name = options.name, .member_namespace = options.member_namespace, .account = options.account});
  std::reverse(objects.begin(), objects.end());
  for (const ClusterObject& object : objects) {
    if (object.resource.kind == kNamespaceResource.kind) continue;
    FUSIONLLM_RETURN_IF_ERROR(DeleteIfManaged(member, "member", object.resource, object.key, report_progress).status());
  }
  return absl::OkStatus();
}

// A cluster that was made by hand goes as well: its name was given.
absl::StatusOr<bool> DeleteCluster(const RemoveClusterOptions& options, kube::ApiClient& hub, kube::Clock& clock,
                                   const ProgressCallback& report_progress) {
  const kube::ObjectKey key{"", options.name};
  absl::StatusOr<json> cluster = GetIfExists(hub, kFusionClusterResource, key);
  if (!cluster.ok()) return Named(cluster.status(), "hub", kFusionClusterResource, key);
  if (cluster->is_null()) return false;
  const std::string uid = TextAt(*cluster, "/metadata/uid");
  const auto deleted = hub.Delete(kFusionClusterResource, key, {.uid = uid});
  if (!deleted.ok() && !kube::IsApiNotFound(deleted.status())) return Named(deleted.status(), "hub", kFusionClusterResource, key);
  for (const absl::Duration end = clock.Monotonic() + options.timeout;; clock.WaitFor(kRemovedPollInterval, {})) {
    cluster = GetIfExists(hub, kFusionClusterResource, key);
    if (!cluster.ok()) return Named(cluster.status(), "hub", kFusionClusterResource, key);
    if (cluster->is_null() || TextAt(*cluster, "/metadata/uid") != uid) break;
    if (clock.Monotonic() >= end) {
      return absl::DeadlineExceededError(absl::StrCat("hub: FusionCluster ", options.name, " is held by its finalizers ",
                                                      cluster->value("/metadata/finalizers"_json_pointer, json::array()).dump(), " after ",
                                                      absl::FormatDuration(options.timeout)));
    }
  }
  report_progress(absl::StrCat("hub: deleted FusionCluster ", options.name));
  return true;
}

}  // namespace

absl::Status RemoveCluster(const RemoveClusterOptions& options, kube::ApiClient& hub, kube::ApiClient* member, kube::Clock& clock,
                           const ProgressCallback& report_progress) {
  FUSIONLLM_RETURN_IF_ERROR(CheckUnused(options, hub));
  FUSIONLLM_ASSIGN_OR_RETURN(const bool had_cluster, DeleteCluster(options, hub, clock, report_progress));
  FUSIONLLM_ASSIGN_OR_RETURN(const bool had_secret,
                             DeleteIfManaged(hub, "hub", kSecretResource, {options.hub_namespace, options.name}, report_progress));
  if (member != nullptr) FUSIONLLM_RETURN_IF_ERROR(CleanMember(options, *member, report_progress));
  if (had_cluster || had_secret) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("the hub has no FusionCluster ", options.name, " and no Secret of it in ", options.hub_namespace));
}

}  // namespace fusionllm::cli
