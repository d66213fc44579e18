#include "cli/cluster/add_cluster.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster/member_objects.h"
#include "cli/cluster/server_objects.h"
#include "lib/base/host_port.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/time.h"
#include "lib/kube/client/service_account_token.h"
#include "lib/kube/http/server_url.h"
#include "lib/kubeapi/pod_policy.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;

constexpr size_t kMaxCaBytes = size_t{1} << 20;
constexpr char kServiceAccountTokenType[] = "kubernetes.io/service-account-token";
constexpr absl::Duration kAddedPollInterval = absl::Milliseconds(500);

absl::Status ApplyAll(kube::ApiClient& client, const std::vector<ClusterObject>& objects, const std::string& where,
                      const ProgressCallback& report_progress) {
  for (const ClusterObject& object : objects) {
    const auto applied = client.Apply(object.resource, object.key, object.body.dump(), {.field_manager = kFieldManager});
    if (kube::IsApiNotFound(applied.status()) && object.resource.group == kAdmissionPolicyResource.group) {
      return absl::FailedPreconditionError(absl::StrCat(where, ": its API server has no ", object.resource.kind,
                                                        ", without which nothing would "
                                                        "keep Pods of jobs from their nodes: Kubernetes 1.30 or newer is needed"));
    }
    if (!applied.ok()) return Named(applied.status(), where, object.resource, object.key);
    report_progress(absl::StrCat(where, ": ", object.resource.kind, " ", object.key.ToString()));
  }
  return absl::OkStatus();
}

// By which the hub reaches the member.
absl::StatusOr<std::string> ServerFor(const AddClusterOptions& options, const kube::ClientConfig& config,
                                      const ProgressCallback& report_progress) {
  const std::string server = options.server.empty() ? config.server : options.server;
  if (!absl::StartsWith(server, "https://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("the member's server ", kube::RedactUserInfo(server), " is not https://; --server names another"));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ServerUrl url, kube::ParseServerUrl(server));
  if (!base::IsLoopback(url.host)) return server;
  if (options.server.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the member's server ", server,
                                                   ", as its kubeconfig has it, leads to this machine alone: "
                                                   "the hub's Pods would meet themselves there; name one that the hub reaches by --server "
                                                   "https://HOST:PORT"));
  }
  report_progress(absl::StrCat("warning: --server ", server,
                               " leads each machine to itself: the hub reaches the member there only if both are on one"));
  return server;
}

absl::Status CheckNamespaces(const AddClusterOptions& options) {
  if (options.job_namespaces.empty() && !options.all_namespaces) {
    return absl::InvalidArgumentError(
        "name the namespaces of jobs by --job-namespace, where alone the hub may make Pods and read Secrets, or "
        "give it these rights in all of the member by --all-namespaces");
  }
  if (!options.job_namespaces.empty() && options.all_namespaces) {
    return absl::InvalidArgumentError("--job-namespace and --all-namespaces contradict each other");
  }
  for (const std::string& ns : options.job_namespaces) {
    if (kubeapi::IsSystemNamespace(ns)) {
      return absl::InvalidArgumentError(absl::StrCat("--job-namespace ", ns, ": it is Kubernetes' own, and jobs may have nothing there"));
    }
    if (ns == options.member_namespace) {
      return absl::InvalidArgumentError(absl::StrCat("--job-namespace ", ns,
                                                     ": it is that of the hub's account (--member-namespace), and jobs "
                                                     "may have nothing beside it"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckHub(const AddClusterOptions& options, kube::ApiClient& hub) {
  const auto clusters = hub.List(kFusionClusterResource, "", {.limit = 1});
  if (kube::IsApiNotFound(clusters.status())) {
    return absl::NotFoundError("the hub knows no FusionClusters: is the chart installed there?");
  }
  FUSIONLLM_RETURN_IF_ERROR(clusters.status());
  FUSIONLLM_ASSIGN_OR_RETURN(const json cluster, GetIfExists(hub, kFusionClusterResource, {"", options.name}));
  if (!cluster.is_null() && TextAt(cluster, "/spec/kubeConfig/location") != options.name) {
    return absl::AlreadyExistsError(
        absl::StrCat("the hub has a FusionCluster ", options.name, " already, by other credentials; take another name"));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const json secret, GetIfExists(hub, kSecretResource, {options.hub_namespace, options.name}));
  if (!secret.is_null() && !IsManagedByFusionctl(secret)) {
    return absl::AlreadyExistsError(absl::StrCat("the hub has a Secret ", options.hub_namespace, "/", options.name,
                                                 " that this command did not make; take another name, or delete it"));
  }
  // Its schema, its policies and its namespace would else say no when the member has an account with rights already.
  for (const ClusterObject& object : HubObjects(options, /*kubeconfig=*/"")) {
    const auto tried = hub.Apply(object.resource, object.key, object.body.dump(), {.field_manager = kFieldManager, .dry_run = true});
    if (!tried.ok()) return Named(tried.status(), "hub", object.resource, object.key);
  }
  return absl::OkStatus();
}

// What an earlier call granted and this one does not.
struct Withdrawn {
  std::vector<std::string> namespaces;  // by their RoleBindings
  bool all = false;                     // the ClusterRoleBinding, so that only namespaces that are named now have rights
};

absl::StatusOr<Withdrawn> FindWithdrawn(const AddClusterOptions& options, kube::ApiClient& member) {
  const std::string work = WorkRole(options.account);
  const std::set<std::string> kept(options.job_namespaces.begin(), options.job_namespaces.end());
  Withdrawn withdrawn;
  FUSIONLLM_ASSIGN_OR_RETURN(withdrawn.namespaces, NamespacesOf(member, work));
  std::erase_if(withdrawn.namespaces, [&](const std::string& ns) { return kept.contains(ns); });
  if (kept.empty()) return withdrawn;
  const absl::StatusOr<json> everywhere = GetIfExists(member, kClusterRoleBindingResource, {"", work});
  if (!everywhere.ok()) return Named(everywhere.status(), "member", kClusterRoleBindingResource, {"", work});
  withdrawn.all = IsManagedByFusionctl(*everywhere);
  return withdrawn;
}

// Without its rights the hub could neither watch nor delete what a job has in the member.
absl::Status CheckNoJobsLoseRights(const AddClusterOptions& options, const Withdrawn& withdrawn, kube::ApiClient& hub) {
  const std::set<std::string> kept(options.job_namespaces.begin(), options.job_namespaces.end());
  const std::set<std::string> gone(withdrawn.namespaces.begin(), withdrawn.namespaces.end());
  if (kept.empty() || (gone.empty() && !withdrawn.all)) return absl::OkStatus();  // rights in all namespaces are more than those in some
  const auto concerns = [&](const std::string& ns) { return withdrawn.all ? !kept.contains(ns) : gone.contains(ns); };
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, JobsInCluster(hub, options.name, concerns));
  if (jobs.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cluster ", options.name, " has objects of ", JobsText(jobs),
                                                    "; in namespaces that are not named the hub could neither watch nor delete them: "
                                                    "delete these jobs first, or name their namespaces by --job-namespace as well"));
}

absl::StatusOr<std::string> TokenBoundTo(const AddClusterOptions& options, kube::ApiClient& member, const json& secret) {
  const kube::ServiceAccountToken wanted{.account = {options.member_namespace, options.account},
                                         .secret = TokenSecret(options).name,
                                         .secret_uid = TextAt(secret, "/metadata/uid")};
  absl::StatusOr<std::string> token = kube::RequestToken(member, wanted, kubeapi::kTokenLife);
  if (token.ok()) return token;
  return absl::Status(token.status().code(),
                      absl::StrCat("member: a token of ServiceAccount ", wanted.account.ToString(), ": ", token.status().message()));
}

// After what is granted now, so that the hub is never without.
absl::Status WithdrawRights(const AddClusterOptions& options, const Withdrawn& withdrawn, kube::ApiClient& member,
                            const ProgressCallback& report_progress) {
  const std::string work = WorkRole(options.account);
  for (const std::string& ns : withdrawn.namespaces) {
    FUSIONLLM_RETURN_IF_ERROR(DeleteIfManaged(member, "member", kRoleBindingResource, {ns, work}, report_progress).status());
  }
  if (options.job_namespaces.empty()) return absl::OkStatus();
  return DeleteIfManaged(member, "member", kClusterRoleBindingResource, {"", work}, report_progress).status();
}

// The Secret to which tokens are bound, as the member has it now. Until this command made tokens that end its Secret held one that never
// does.
absl::StatusOr<json> BoundSecret(const AddClusterOptions& options, kube::ApiClient& member, const ClusterObject& object,
                                 const ProgressCallback& report_progress) {
  FUSIONLLM_ASSIGN_OR_RETURN(const json old, GetIfExists(member, kSecretResource, object.key));
  if (TextAt(old, "/type") == kServiceAccountTokenType && IsManagedByFusionctl(old)) {
    // Not before it is known that there will be another one: the hub has this one alone.
    FUSIONLLM_RETURN_IF_ERROR(TokenBoundTo(options, member, old).status());
    FUSIONLLM_RETURN_IF_ERROR(DeleteIfManaged(member, "member", kSecretResource, object.key, report_progress).status());
  }
  FUSIONLLM_RETURN_IF_ERROR(ApplyAll(member, {object}, "member", report_progress));
  return GetIfExists(member, kSecretResource, object.key);
}

// Of who does not check the server's certificate: what the control plane of the member writes into each namespace, a moment after it was
// made.
absl::StatusOr<std::string> WaitForAuthority(const AddClusterOptions& options, kube::ApiClient& member, kube::Clock& clock) {
  const kube::ObjectKey key{options.member_namespace, "kube-root-ca.crt"};
  const absl::Duration end = clock.Monotonic() + options.timeout;
  for (;; clock.WaitFor(kAddedPollInterval, {})) {
    FUSIONLLM_ASSIGN_OR_RETURN(const json map, GetIfExists(member, kConfigMapResource, key));
    std::string ca_pem = map.is_null() ? "" : TextAt(map, "/data/ca.crt");
    if (!ca_pem.empty()) return ca_pem;
    if (clock.Monotonic() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat("member: no ca.crt appeared in ConfigMap ", key.ToString(), " within ", absl::FormatDuration(options.timeout)));
    }
  }
}

absl::StatusOr<std::string> AuthorityOf(const AddClusterOptions& options, const kube::ClientConfig& config, kube::ApiClient& member,
                                        kube::Clock& clock) {
  // Who does not check the server's certificate has no authority to name; the hub always checks, by the member's own.
  if (config.insecure) return WaitForAuthority(options, member, clock);
  if (config.ca.path.empty()) return config.ca.data;
  return base::ReadSmallFile(config.ca.path, kMaxCaBytes);
}

AddedCluster ReadyOf(const json& cluster) {
  AddedCluster added{.message = "the hub's operator has not looked at it yet"};
  const json conditions = cluster.value("/status/conditions"_json_pointer, json::array());
  for (const json& condition : conditions) {
    if (TextAt(condition, "/type") != "Ready") continue;
    added.ready = TextAt(condition, "/status") == "True";
    added.message = TextAt(condition, "/message");
  }
  return added;
}

}  // namespace

absl::StatusOr<AddedCluster> AddCluster(const AddClusterOptions& options, kube::ApiClient& hub, kube::ApiClient& member,
                                        const kube::ClientConfig& member_config, kube::Clock& clock,
                                        const ProgressCallback& report_progress) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string server, ServerFor(options, member_config, report_progress));
  FUSIONLLM_RETURN_IF_ERROR(CheckNamespaces(options));
  FUSIONLLM_RETURN_IF_ERROR(CheckHub(options, hub));
  FUSIONLLM_ASSIGN_OR_RETURN(const Withdrawn withdrawn, FindWithdrawn(options, member));
  FUSIONLLM_RETURN_IF_ERROR(CheckNoJobsLoseRights(options, withdrawn, hub));
  std::vector<ClusterObject> objects = MemberObjects(options);
  const ClusterObject bound = std::move(objects.back());
  objects.pop_back();
  FUSIONLLM_RETURN_IF_ERROR(ApplyAll(member, objects, "member", report_progress));
  FUSIONLLM_RETURN_IF_ERROR(WithdrawRights(options, withdrawn, member, report_progress));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string ca_pem, AuthorityOf(options, member_config, member, clock));
  FUSIONLLM_ASSIGN_OR_RETURN(const json secret, BoundSecret(options, member, bound, report_progress));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string token, TokenBoundTo(options, member, secret));
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ServiceAccountToken read, kube::ReadServiceAccountToken(token));
  report_progress(
      absl::StrCat("member: made a token valid until ", kube::TimeText(*read.expires_at), "; the hub's operator renews it before then"));
  const std::string kubeconfig = MemberKubeconfig(options, member_config, server, ca_pem, token);
  FUSIONLLM_RETURN_IF_ERROR(ApplyAll(hub, HubObjects(options, kubeconfig), "hub", report_progress));
  const absl::Duration end = clock.Monotonic() + options.timeout;
  for (;;) {
    FUSIONLLM_ASSIGN_OR_RETURN(const json cluster, GetIfExists(hub, kFusionClusterResource, {"", options.name}));
    AddedCluster added = ReadyOf(cluster);
    added.server = server;
    if (added.ready || clock.Monotonic() >= end) return added;
    clock.WaitFor(kAddedPollInterval, {});
  }
}

}  // namespace fusionllm::cli
