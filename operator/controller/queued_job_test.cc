// A job that waits in a queue of Kueue's, on an API server in memory; what Kueue does a test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/controller/testing/reconcile_fixture.h"
#include "operator/kueue/kueue_workload.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobObject;
using testing::JobReconcilerTest;
using ::testing::Not;

// Reads the server itself.
class DirectWorkloads : public kueue::WorkloadSource {
 public:
  explicit DirectWorkloads(kube::ApiClient& client) : client_(client) {}
  kueue::WorkloadAccess Access(const std::string&) override { return access_; }
  std::shared_ptr<const json> Find(const kube::ObjectKey& key) const override {
    const auto answer = client_.Get(kueue::kWorkloads, key);
    return answer.ok() ? std::make_shared<const json>(json::parse(*answer)) : nullptr;
  }
  void Wrote(const kube::ObjectKey&, const std::string&) override {}
  void Deleted(const kube::ObjectKey&, const std::string&) override {}
  bool SeenWrites(const kube::ObjectKey&) override { return true; }
  kueue::WorkloadAccess access_ = kueue::WorkloadAccess::kListed;

 private:
  kube::ApiClient& client_;
};

class QueuedJobTest : public JobReconcilerTest {
 protected:
  QueuedJobTest() {
    for (const kube::Resource* const resource : {&kueue::kWorkloads, &kueue::kResourceFlavors, &kueue::kWorkloadPriorityClasses})
      server_.Serve(*resource);
    workloads_ = &kueue_;
    Restart();
    const json flavor = {{"apiVersion", kueue::kResourceFlavors.ApiVersion()},
                         {"kind", kueue::kResourceFlavors.kind},
                         {"metadata", {{"name", "spot"}}},
                         {"spec", {{"nodeLabels", {{"tier", "spot"}}}}}};
    EXPECT_TRUE(looking_->Create(kueue::kResourceFlavors, "", flavor.dump()).ok());
  }
  static json QueuedJob() {
    json job = JobObject();
    job["metadata"]["labels"] = {{"kueue.x-k8s.io/queue-name", "night"}};
    return job;
  }
  json Workload() const {
    const json list = json::parse(looking_->List(kueue::kWorkloads, "default").value())["items"];
    EXPECT_LE(list.size(), 1);
    return list.empty() ? json() : list[0];
  }
  json WorkloadCondition(const std::string& type) const {
    const json workload = Workload();
    for (const json& condition : kube::ListOf(kube::At(workload, "status", "conditions"))) {
      if (condition["type"] == type) return condition;
    }
    return nullptr;
  }
  std::string WorkloadSays(const std::string& type) const { return kube::TextAt(WorkloadCondition(type), "status"); }
  // What Kueue writes; a condition that it names replaces the one before.
  void PlayKueue(const json& conditions, const json& admission) {
    const json workload = Workload();
    json all = conditions;
    for (const json& before : kube::ListOf(kube::At(workload, "status", "conditions"))) {
      const bool replaced = std::any_of(conditions.begin(), conditions.end(), [&](const json& c) { return c["type"] == before["type"]; });
      if (!replaced) all.push_back(before);
    }
    json status = {{"conditions", all}};
    if (!admission.is_null()) status["admission"] = admission;
    Patch(kueue::kWorkloads, workload["metadata"]["name"], {{"status", status}}, "status");
  }
  void Admit(int executors = 2) {
    const auto condition = [](const char* type, const char* status) {
      return json{{"type", type}, {"status", status}, {"reason", "R"}, {"message", ""}, {"lastTransitionTime", "2024-01-01T00:00:00Z"}};
    };
    PlayKueue({condition("QuotaReserved", "True"), condition("Admitted", "True"), condition("Evicted", "False")},
              {{"clusterQueue", "all"},
               {"podSetAssignments",
                {{{"name", "broker"}, {"count", 1}, {"flavors", {{"cpu", "spot"}}}},
                 {{"name", "executor"}, {"count", executors}, {"flavors", {{"cpu", "spot"}}}}}}});
  }
  void Evict(const char* reason) {
    PlayKueue({{{"type", "Evicted"},
                {"status", "True"},
                {"reason", reason},
                {"message", "make way"},
                {"lastTransitionTime", "2024-01-01T00:00:00Z"}}},
              nullptr);
  }

  DirectWorkloads kueue_{*looking_};
};

TEST_F(QueuedJobTest, WithoutQuotaNothingIsMadeButTheWorkload) {
  Submit(QueuedJob());
  Settle();
  EXPECT_THAT(PodNames(), IsEmpty());
  EXPECT_EQ(Job()["status"]["state"], "Queued");
  EXPECT_EQ(Condition("Admitted"), "False Queued");
  EXPECT_EQ(Condition("Suspended"), "True Queued");
  EXPECT_THAT(ConditionObject("Admitted")["message"], HasSubstr("LocalQueue night"));
  EXPECT_EQ(Workload()["spec"]["queueName"], "night");
  EXPECT_EQ(Workload()["metadata"]["ownerReferences"][0]["uid"], Job()["metadata"]["uid"]);
  EXPECT_THAT(server_.objects(), Not(Contains(HasSubstr("train-anchor"))));
  EXPECT_FALSE(Job()["spec"].value("suspend", false)) << "which is its user's";
  server_.ForgetRequests();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Reconcile().status.ok());
  for (const auto& request : server_.requests()) EXPECT_THAT(request.verb, ::testing::AnyOf("get", "list")) << request.target;
}

TEST_F(QueuedJobTest, AdmittedItRunsOnTheNodesOfItsFlavorToItsEnd) {
  Submit(QueuedJob());
  Settle();
  Admit();
  Settle();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r0", "train-local-0-r0", "train-local-1-r0"));
  for (const json& pod : Pods()) EXPECT_EQ(pod["spec"]["nodeSelector"]["tier"], "spot") << pod["metadata"]["name"];
  EXPECT_EQ(Job()["status"]["state"], "Running");
  EXPECT_EQ(Condition("Admitted"), "True AdmittedByKueue");
  EXPECT_EQ(WorkloadSays("PodsReady"), "True");
  EXPECT_THAT(events_.reasons_, Contains("AdmittedByKueue"));
  EXPECT_THAT(events_.reasons_, Not(Contains("Resumed")));
  EndBroker(0, 0, R"({"step":100,"steps":100,"exit_code":0})");
  Settle();
  EXPECT_EQ(Condition("Complete"), "True Completed");
  EXPECT_EQ(WorkloadSays("Finished"), "True");
  EXPECT_EQ(WorkloadCondition("Finished")["reason"], "Succeeded");
  EXPECT_EQ(Condition("Admitted"), "True AdmittedByKueue") << "as it was";
}

TEST_F(QueuedJobTest, AdmittedInPartItRunsWithFewer) {
  json job = QueuedJob();
  job["spec"]["executors"] = {{"replicas", 3}, {"min", 1}};
  Submit(job);
  Settle();
  EXPECT_EQ(Workload()["spec"]["podSets"][1]["count"], 3);
  EXPECT_EQ(Workload()["spec"]["podSets"][1]["minCount"], 1);
  Admit(/*executors=*/2);
  Settle();
  EXPECT_EQ(Job()["status"]["executors"], "2/2");
}

TEST_F(QueuedJobTest, EvictedItGivesItsQuotaBackWhenItsPodsAreGone) {
  Submit(QueuedJob());
  Settle();
  Admit();
  Settle();
  Evict("Preempted");
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Job()["status"]["state"], "Suspending");
  EXPECT_EQ(WorkloadSays("QuotaReserved"), "True") << "Pods are left";
  Settle();
  EXPECT_THAT(PodNames(), IsEmpty());
  EXPECT_EQ(Job()["status"]["state"], "Queued");
  EXPECT_EQ(Condition("Admitted"), "False EvictedByKueue");
  EXPECT_EQ(Job()["status"]["attempt"], 1);
  EXPECT_EQ(Job()["status"].value("restarts", 0), 0);
  EXPECT_EQ(WorkloadSays("QuotaReserved"), "False");
  EXPECT_EQ(WorkloadSays("Admitted"), "False");
  EXPECT_EQ(WorkloadSays("Requeued"), "True");
  EXPECT_FALSE(Workload()["status"].contains("admission"));
  Admit();
  Settle();
  EXPECT_EQ(Job()["status"]["state"], "Running");
  EXPECT_THAT(PodNames(), Contains("train-broker-r1"));
}

TEST_F(QueuedJobTest, SuspendedByItsUserItHasNoWorkloadUntilItIsResumed) {
  Submit(QueuedJob());
  Settle();
  Admit();
  Settle();
  const std::string before = Workload()["metadata"]["uid"];
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  Settle();
  EXPECT_EQ(Condition("Suspended"), "True Suspended");
  EXPECT_EQ(Condition("Admitted"), "none");
  EXPECT_TRUE(Workload().is_null());
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  Settle();
  EXPECT_EQ(Job()["status"]["state"], "Queued");
  EXPECT_NE(Workload()["metadata"]["uid"], before);
}

TEST_F(QueuedJobTest, ResizedJobIsQueuedAgain) {
  Submit(QueuedJob());
  Settle();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"executors", {{"replicas", 3}}}}}});
  Settle();
  const std::string waiting = Workload()["metadata"]["uid"];
  EXPECT_EQ(Workload()["spec"]["podSets"][1]["count"], 3);
  Admit(/*executors=*/3);
  Settle();
  EXPECT_EQ(Job()["status"]["executors"], "3/3");
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"executors", {{"replicas", 1}}}}}});
  Settle();
  EXPECT_EQ(Job()["status"]["state"], "Queued");
  EXPECT_NE(Workload()["metadata"]["uid"], waiting) << "a Workload with quota cannot be changed";
  EXPECT_EQ(Workload()["spec"]["podSets"][1]["count"], 1);
}

TEST_F(QueuedJobTest, WithoutItsLabelItRunsAndHasNoWorkload) {
  Submit(QueuedJob());
  Settle();
  Patch(manifests::kFusionJobs, "train", {{"metadata", {{"labels", {{"kueue.x-k8s.io/queue-name", nullptr}}}}}});
  Settle();
  EXPECT_EQ(Job()["status"]["state"], "Running");
  EXPECT_TRUE(Workload().is_null());
  EXPECT_EQ(Condition("Admitted"), "none");
}

TEST_F(QueuedJobTest, WithoutKueueItWaitsAndAJobThatRunsGoesOn) {
  kueue_.access_ = kueue::WorkloadAccess::kMissing;
  Submit(QueuedJob());
  Settle();
  EXPECT_EQ(Condition("Admitted"), "False KueueNotInstalled");
  EXPECT_THAT(PodNames(), IsEmpty());
  EXPECT_TRUE(Workload().is_null());
  EXPECT_EQ(Reconcile().after, kueue::kKueueDiscoveryPeriod) << "nobody tells when it comes";
  kueue_.access_ = kueue::WorkloadAccess::kListed;
  Settle();
  Admit();
  Settle();
  kueue_.access_ = kueue::WorkloadAccess::kForbidden;
  Settle();
  EXPECT_EQ(Job()["status"]["state"], "Running");
  EXPECT_EQ(Condition("Admitted"), "False KueueNotAllowed");
}

TEST_F(QueuedJobTest, AnOperatorThatDoesNotKnowWorkloadsYetTouchesNothing) {
  Submit(QueuedJob());
  Settle();
  Admit();
  Settle();
  Restart();
  kueue_.access_ = kueue::WorkloadAccess::kUnknown;
  server_.ForgetRequests();
  const kube::ReconcileResult result = Reconcile();
  EXPECT_TRUE(result.status.ok());
  for (const auto& request : server_.requests()) EXPECT_THAT(request.verb, ::testing::AnyOf("get", "list")) << request.target;
  EXPECT_EQ(PodNames().size(), 3);
}

TEST_F(QueuedJobTest, ItsPriorityIsThatOfItsClass) {
  json job = QueuedJob();
  job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high";
  Submit(job);
  Settle();
  EXPECT_TRUE(Workload().is_null());
  EXPECT_THAT(ConditionObject("Admitted")["message"], HasSubstr("there is no WorkloadPriorityClass high"));
  const json priority = {{"apiVersion", kueue::kWorkloadPriorityClasses.ApiVersion()},
                         {"kind", kueue::kWorkloadPriorityClasses.kind},
                         {"metadata", {{"name", "high"}}},
                         {"value", 100}};
  EXPECT_TRUE(looking_->Create(kueue::kWorkloadPriorityClasses, "", priority.dump()).ok());
  Settle();
  EXPECT_EQ(Workload()["spec"]["priority"], 100);
}

TEST_F(QueuedJobTest, QueuedJobReportsInvalidTemplate) {
  json job = QueuedJob();
  job["spec"]["executors"]["template"] = {{"spec", {{"volumes", {{{"name", "tls"}}}}}}};
  Submit(job);
  Settle();
  EXPECT_THAT(ConditionObject("Admitted")["message"], HasSubstr("no Workload can be made of the job: spec.executors.template"));
}

TEST_F(QueuedJobTest, OfADeletedJobTheWorkloadGoesAfterItsPods) {
  const std::vector<std::string> before = server_.objects();
  Submit(QueuedJob());
  Settle();
  Admit();
  Settle();
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_FALSE(Workload().is_null()) << "Pods are left";
  Settle();
  EXPECT_EQ(server_.objects(), before);
}

}  // namespace
}  // namespace fusionllm::op::controller
