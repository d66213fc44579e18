// What the reference says of a job's status is what can be in it: each condition and field is set by something, and nothing is set of which
// it does not speak.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "lib/job/describer.h"
#include "lib/kubeapi/fusion_job_status_fields.h"
#include "lib/kubeapi/objects.h"
#include "lib/kubeapi/reference.h"
#include "operator/controller/job_status.h"
#include "operator/lifecycle/failed_reason.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

const absl::Time kStatusTime = absl::FromUnixSeconds(1'800'000'000);

// Leaves and lists of scalars by path: "clusterStatuses[].conditions[].type".
void Documented(const std::vector<job::FieldSchema>& fields, const std::string& prefix, std::set<std::string>& paths) {
  for (const job::FieldSchema& field : fields) {
    const std::string path = absl::StrCat(prefix, field.name);
    const bool list = field.type == job::FieldType::kList;
    const std::vector<job::FieldSchema>& inner = list ? field.children.at(0).children : field.children;
    if (inner.empty()) {
      paths.insert(path);
    } else {
      Documented(inner, absl::StrCat(path, list ? "[]." : "."), paths);
    }
  }
}

void Written(const json& value, const std::string& path, std::set<std::string>& paths) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) Written(inner, path.empty() ? key : absl::StrCat(path, ".", key), paths);
  } else if (value.is_array()) {
    for (const json& inner : value) Written(inner, absl::StrCat(path, "[]"), paths);
  } else {
    paths.insert(path);
  }
}

// A job in two clusters, through what may happen to it.
class StatusReferenceTest : public ::testing::Test {
 protected:
  StatusReferenceTest() {
    view_.identity = seen_.identity = {.name = "train", .ns = "team", .uid = "u1", .origin = "hub"};
    view_.generation = 1;
    spec().checkpoint = job::Checkpoint{.path = "run", .every_steps = 10};
    spec().executors.stabilization_seconds = 60;
    seen_.now = seen_.created_at = kStatusTime;
    seen_.finalizer = true;
    seen_.slots = {{"paris", 0, false}, {"tokyo", 0, false}};
    seen_.wanted = 2;
    seen_.clusters = {{.name = "paris"}, {.name = "tokyo"}};
  }
  job::Spec& spec() { return seen_.job.spec; }

  void Look(const std::optional<lifecycle::Progress>& progress = std::nullopt) {
    view_.job = seen_.job;
    seen_.persisted = PersistedStateOf(view_.status);
    const lifecycle::Decision decision = lifecycle::Decide(seen_);
    view_.status = BuildStatus(view_, seen_, decision, progress);
    Written(kubeapi::ToJson(view_.status), "", written_);
    for (const kubeapi::Condition& condition : view_.status.conditions) conditions_.insert(condition.type);
    for (const kubeapi::ClusterStatus& cluster : view_.status.cluster_statuses) {
      for (const kubeapi::Condition& condition : cluster.conditions) part_conditions_.insert(condition.type);
    }
  }
  void Run(int64_t attempt) {
    for (lifecycle::ClusterView& cluster : seen_.clusters) cluster.pods.clear();
    seen_.clusters[0].pods.push_back(
        {.name = "b", .role = manifests::kBrokerRole, .cluster = "paris", .attempt = attempt, .phase = lifecycle::PodPhase::kRunning});
    for (lifecycle::ClusterView& cluster : seen_.clusters) {
      cluster.owner_config_map = true;
      cluster.pods.push_back({.name = absl::StrCat("e-", cluster.name),
                              .role = manifests::kExecutorRole,
                              .cluster = cluster.name,
                              .attempt = attempt,
                              .phase = lifecycle::PodPhase::kRunning,
                              .ready = true});
    }
  }
  // All that may be said.
  void Live() {
    seen_.queue = lifecycle::QueueStatus{.holds = true, .reason = lifecycle::kQueued, .message = "Queued."};
    Look();
    seen_.queue.reset();
    seen_.hint_reason = "PlanFound";
    seen_.clusters[1].refusal = lifecycle::Refusal{lifecycle::kQuotaExceeded, "Cluster tokyo: exceeded quota."};
    seen_.clusters[1].retry_at = kStatusTime + absl::Minutes(1);
    Look();
    seen_.clusters[1].refusal.reset();
    seen_.placed = true;
    seen_.broker_endpoint = "192.0.2.1:7000";
    seen_.clusters[1].endpoint = "192.0.2.2:7001";
    Run(0);
    lifecycle::Progress progress{.step = 50,
                                 .steps = 100,
                                 .epoch = 1,
                                 .stages = 2,
                                 .replicas = 2,
                                 .loss = 2.5,
                                 .tokens_per_second = 1000,
                                 .learning_rate = 1e-4,
                                 .step_seconds = 0.5,
                                 .predicted_step_seconds = 0.4,
                                 .eta_seconds = 25,
                                 .slowest_link = "a->b",
                                 .checkpoint_step = 10};
    Look(progress);
    seen_.next_placement = {{"paris", 0, false}, {"tokyo", 0, false}, {"tokyo", 1, false}};
    seen_.wanted = 3;
    Look();  // room for more
    seen_.next_placement.clear();
    seen_.wanted = 2;
    spec().failure_policy.rules = {{.name = "move", .action = job::FailureAction::kReplaceCluster, .on_reasons = {"Evicted"}}};
    spec().failure_policy.max_restarts = 1;
    seen_.clusters[1].pods[0].phase = lifecycle::PodPhase::kFailed;
    seen_.clusters[1].pods[0].reason = "Evicted";
    Look();  // it leaves Tokyo
    seen_.clusters[1].reachable = false;
    Look();
    seen_.clusters[0].pods.clear();
    Run(1);
    seen_.clusters[0].pods[0].phase = lifecycle::PodPhase::kSucceeded;
    const kubeapi::FusionJobStatus before = view_.status;
    Look();  // it is over
    view_.status = before;
    seen_.clusters[0].pods[0].phase = lifecycle::PodPhase::kFailed;
    Look();  // no restart is left
    seen_.deleted_at = kStatusTime;
    Look();
  }

  cache::JobView view_{.job = absl::UnknownError("none")};
  lifecycle::Observation seen_;
  std::set<std::string> written_, conditions_, part_conditions_;
};

TEST_F(StatusReferenceTest, SpeaksOfEachConditionThatCanBeSetAndOfNoOther) {
  std::vector<std::string> can_be_set;
  for (const lifecycle::JobCondition condition : lifecycle::kJobConditions) can_be_set.emplace_back(lifecycle::Name(condition));
  EXPECT_THAT(kubeapi::DocumentedJobConditions(), UnorderedElementsAreArray(can_be_set));
  Live();
  EXPECT_THAT(conditions_, UnorderedElementsAreArray(can_be_set)) << "something sets each";
  EXPECT_THAT(part_conditions_, UnorderedElementsAreArray(kubeapi::DocumentedPartConditions()));
}

TEST_F(StatusReferenceTest, SpeaksOfEachReasonForWhichAJobFailsAndOfNoOther) {
  std::vector<std::string> can_be_set;
  for (const lifecycle::FailedReason reason : lifecycle::kFailedReasons) can_be_set.emplace_back(lifecycle::Name(reason));
  EXPECT_THAT(kubeapi::DocumentedFailedReasons(), UnorderedElementsAreArray(can_be_set));
}

TEST_F(StatusReferenceTest, SpeaksOfEachFieldThatIsSetAndOfNoOther) {
  std::set<std::string> documented;
  Documented(job::Describer::Root<kubeapi::FusionJobStatus>().children, "", documented);
  Live();
  EXPECT_THAT(written_, UnorderedElementsAreArray(documented));
}

}  // namespace
}  // namespace fusionllm::op::controller
