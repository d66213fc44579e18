#include "lib/kubeapi/reference.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/job/describer.h"
#include "lib/job/reference.h"
#include "lib/kubeapi/crd.h"
#include "lib/kubeapi/fusion_cluster_fields.h"

namespace fusionllm::kubeapi {
namespace {

struct ConditionDoc {
  absl::string_view type;  // or reason
  absl::string_view doc;
};

constexpr ConditionDoc kJobConditions[] = {
    {kAccepted,
     "False: the operator cannot make sense of the spec, or the broker of a job that has made steps refuses it (InvalidInput, "
     "PlacementFailed); the message names the field."},
    {kAdmitted,
     "Kueue has admitted the job's Workload, by which the job may have Pods. False: it waits in its queue, which the message names, or "
     "Kueue "
     "is missing. Absent: the job has no label kueue.x-k8s.io/queue-name, or is suspended."},
    {kQuotaReserved, "A ResourceQuota refused the job's Pods and does so no more; False: it does. Absent: none ever has."},
    {kScheduled,
     "Every chosen cluster has its part of the job, or gets it. False: there is no room, or a cluster refuses it: the reason is one of "
     "PlacementFailed, InsufficientCapacity, InvalidTemplate, InvalidObject, QuotaExceeded, Forbidden, NamespaceMissing, "
     "NamespaceTerminating, ObjectMissing and Conflict."},
    {kPlacementHint,
     "The scheduler service was asked where the job runs fastest, and executors are placed so; False: it was not asked this time or gave "
     "no plan, and the message says why. Absent: it was never asked."},
    {kReady, "All executors that were placed, spares apart, are ready, and the broker runs."},
    {kSuspended, "Nothing of the job runs, because spec.suspend is set or it waits in a queue of Kueue's (Queued)."},
    {kRestarting,
     "An attempt has ended, by a failure, a loss or for another number of executors, and the next one has not made a step yet; the message "
     "says why."},
    {kResizing, "There is room for more executors; False: the reason says why the number stays, or that it has changed."},
    {kDegraded, "Of a job that was ready, executors are missing, a cluster is lost, or the run waits for what its broker says."},
    {kCheckpointStale,
     "The newest checkpoint is more than three times spec.checkpoint.everySteps behind the last step, or as many steps were made and there "
     "is none. False: a newer one is there. Absent: it never was."},
    {kJobDeleting, "The job is being deleted; the message says what is left, and where."},
    {kComplete, "The last step is done. Never taken back."},
    {kFailed, "The job has failed for good; the reason says why. Never taken back."},
};

// Of the condition Failed.
constexpr ConditionDoc kFailedReasons[] = {
    {"BackoffLimitExceeded", "No restart is left of `failurePolicy.maxRestarts`."},
    {"DeadlineExceeded", "The job was active for longer than `activeDeadlineSeconds`."},
    {"FailurePolicy", "A rule of `failurePolicy`, which the message names, says so."},
    {"InvalidInput",
     "The broker found wrong what the job names: data, a graph, a checkpoint; or relative paths of data have no `data.volume`."},
    {"InvalidSpec", "The operator cannot make sense of the spec; `Accepted` says the same."},
    {"PendingDeadlineExceeded", "The job was not ready within `pendingDeadlineSeconds`."},
    {"PlacementFailed", "The executors have joined, and no plan fits them."},
};

// In clusterStatuses.
constexpr ConditionDoc kPartConditions[] = {
    {kExcluded, "The job has left the cluster by a rule of its failure policy, which the message names."},
};

constexpr ConditionDoc kClusterConditions[] = {
    {kReady, "Jobs may use the cluster: all below that is needed holds."},
    {kConnected,
     "Its API server answers and is watched; otherwise the message says why. It is tried again all the time, which a status does not "
     "count."},
    {kCredentialsValid,
     "The kubeconfig, or what the ClusterProfile says, can be used and is allowed what jobs need; the message names what is missing."},
    {kControlPlaneHealthy, "Its API server calls itself ready (`/readyz`). Absent: it does not say."},
    {kClockSynced,
     "The clock of its API server differs from the operator's by less than 5 s (2.5 s to be True again), as the dates of its answers tell. "
     "Jobs run all the same; "
     "certificates and tokens are valid by the clock of the machine that checks them. Absent: it does not say."},
    {kTokenRenewed,
     "The token in the Secret, which has the label `fusionllm.io/renew-token`, ends when the message says, and is renewed before. False: "
     "it "
     "could not be renewed (RenewalFailed: it is used until it ends, and tried again), or it never ends or is bound to no Secret "
     "(NotRenewable: `fusionctl cluster add` again makes another). Absent: the Secret has no such label, or there is none."},
    {kConflict,
     "It is the hub, or registered already, or another cluster stands behind the name than before (clusterUID): it is not used. Or, with "
     "the reason NotOurs, an object there is in the way of one job: others use the cluster. The message says which."},
};

template <size_t N>
void AppendConditions(const ConditionDoc (&conditions)[N], std::string& page, absl::string_view head = "condition | True means") {
  absl::StrAppend(&page, "\n| ", head, " |\n|---|---|\n");
  for (const ConditionDoc& condition : conditions) absl::StrAppend(&page, "| `", condition.type, "` | ", condition.doc, " |\n");
}

template <size_t N>
std::vector<std::string> TypesOf(const ConditionDoc (&conditions)[N]) {
  std::vector<std::string> types;
  for (const ConditionDoc& condition : conditions) types.emplace_back(condition.type);
  return types;
}

void AppendRules(const std::vector<Rule>& rules, std::string& page) {
  absl::StrAppend(&page, "\n| field | rule |\n|---|---|\n");
  for (const Rule& rule : rules) {
    const std::string field = absl::StrCat(rule.path, rule.path.empty() && !rule.field.empty() ? rule.field.substr(1) : rule.field);
    absl::StrAppend(&page, "| ", field.empty() ? "" : absl::StrCat("`", field, "`"), " | ",
                    absl::StrReplaceAll(rule.message, {{"|", "\\|"}}), " |\n");
  }
}

}  // namespace

std::vector<std::string> DocumentedJobConditions() { return TypesOf(kJobConditions); }

std::vector<std::string> DocumentedFailedReasons() { return TypesOf(kFailedReasons); }

std::vector<std::string> DocumentedPartConditions() { return TypesOf(kPartConditions); }

std::string ReferencePage() {
  std::string page = absl::StrCat(
      "# FusionCluster, and the status of a FusionJob\n\n"
      "<!-- Generated from lib/kubeapi: `tools/check-generated.sh --write` rewrites it. -->\n\n"
      "The spec of a FusionJob is that of a job file: [job-reference.md](job-reference.md). `kubectl explain fusionjob.spec` says the "
      "same.\n\n"
      "In a cluster, besides: a FusionCluster's name has at most ",
      kMaxClusterName,
      " characters; relative paths of data lie in `data.volume`, those of a graph in `model.graph.volume` or `data.volume`. The API server "
      "checks "
      "types, ranges and the rules below; what no schema can say the operator checks, and answers with the condition `Accepted`.\n\n"
      "## FusionJob: rules\n");
  AppendRules(FusionJobRules(), page);
  absl::StrAppend(&page,
                  "\n## FusionJob: conditions\n\nTheir reasons, and what to do: [conditions-and-reasons.md](conditions-and-reasons.md).\n");
  AppendConditions(kJobConditions, page);
  absl::StrAppend(&page, "\nThe reason of `Failed` is one of these; those of other conditions may be more some day:\n");
  AppendConditions(kFailedReasons, page, "reason | why");
  absl::StrAppend(&page, "\nOf a job's part in a cluster, in `status.clusterStatuses`:\n");
  AppendConditions(kPartConditions, page);
  absl::StrAppend(&page, "\n## FusionJob: status\n");
  job::AppendTables(job::Describer::Root<FusionJobStatus>(), "status", page);
  absl::StrAppend(&page,
                  "\n## FusionCluster\n\n"
                  "```yaml\n"
                  "apiVersion: fusionllm.io/v1alpha1\n"
                  "kind: FusionCluster\n"
                  "metadata: {name: paris, labels: {region: eu}}\n"
                  "spec:\n"
                  "  kubeConfig: {location: paris-kubeconfig}   # a Secret in the operator's namespace\n"
                  "  network:\n"
                  "    address: 203.0.113.10\n"
                  "    links: [{to: tokyo, bandwidth: 20Mbit, latency: 110ms}]\n"
                  "```\n");
  AppendRules(FusionClusterRules(), page);
  AppendConditions(kClusterConditions, page);
  job::AppendTables(job::Describer::Root<FusionCluster>(), "", page);
  return page;
}

}  // namespace fusionllm::kubeapi
