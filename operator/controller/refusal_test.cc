// What API servers refuse, and what of it a job's status says.
#include "operator/controller/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/kube/api/api_error.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using kube::testing::Fault;
using nlohmann::json;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobObject;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TwoClustersTest;

std::string Answer(int code, const std::string& reason, const std::string& message, const std::string& cause = "") {
  json status = {{"kind", "Status"}, {"apiVersion", "v1"}, {"code", code}, {"reason", reason}, {"message", message}};
  if (!cause.empty()) status["details"]["causes"] = {{{"reason", cause}, {"message", message}}};
  return status.dump();
}

std::string ReasonOf(int code, const std::string& reason, const std::string& message, const std::string& cause = "", bool pods = true) {
  const absl::Status status = kube::ToStatus(kube::ParseApiError(code, Answer(code, reason, message, cause)));
  const std::optional<Refused> refused = RefusalOf(pods ? MarkPodError(status) : status, "Cluster tokyo");
  if (!refused.has_value()) return "none";
  EXPECT_EQ(refused->refusal.message, "Cluster tokyo: " + message);
  return absl::StrCat(refused->refusal.reason, refused->retry_after < absl::InfiniteDuration() ? "" : " for ever");
}

TEST(RefusalTest, EachAnswerHasItsReason) {
  EXPECT_EQ(ReasonOf(403, "Forbidden", "pods \"a\" is forbidden: exceeded quota: compute, requested: pods=1"), "QuotaExceeded");
  EXPECT_EQ(ReasonOf(403, "Forbidden", "namespace team is being terminated", "NamespaceTerminating"), "NamespaceTerminating");
  EXPECT_EQ(ReasonOf(403, "Forbidden", "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\""), "Forbidden");
  EXPECT_EQ(ReasonOf(404, "NotFound", "namespaces \"team\" not found"), "NamespaceMissing");
  EXPECT_EQ(ReasonOf(404, "NotFound", "the server could not find the requested resource"), "none");
  EXPECT_EQ(ReasonOf(422, "Invalid", "Pod \"a\" is invalid: spec.containers[0].image: Required value"), "InvalidTemplate for ever");
  EXPECT_EQ(ReasonOf(400, "BadRequest", "Pod in version \"v1\" cannot be handled as a Pod"), "InvalidTemplate for ever");
  EXPECT_EQ(ReasonOf(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"), "InvalidTemplate for ever");
  EXPECT_EQ(ReasonOf(422, "Invalid", "Service \"a\" is invalid", "", /*pods=*/false), "InvalidObject") << "an update may put that right";
  for (const int code : {401, 408, 409, 429, 500, 503}) EXPECT_EQ(ReasonOf(code, "", "x"), "none") << code;
  EXPECT_FALSE(RefusalOf(absl::OkStatus(), "tokyo").has_value());
  EXPECT_FALSE(RefusalOf(absl::UnavailableError("no connection"), "tokyo").has_value());
  EXPECT_EQ(RefusalOf(absl::AlreadyExistsError("it is theirs"), "tokyo")->refusal.reason, "Conflict");
}

TEST(RefusalTest, WhatWillNotPassSoonIsAskedForSeldom) {
  const auto again = [](int code, const std::string& reason, const std::string& message, const std::string& cause = "") {
    return RefusalOf(kube::ToStatus(kube::ParseApiError(code, Answer(code, reason, message, cause))), "tokyo")->retry_after;
  };
  EXPECT_EQ(again(403, "Forbidden", "namespace team is being terminated", "NamespaceTerminating"), absl::Minutes(5));
  EXPECT_EQ(again(403, "Forbidden", "pods is forbidden: exceeded quota: compute"), absl::Minutes(1));
  EXPECT_EQ(again(403, "Forbidden", "pods is forbidden: no right"), absl::Minutes(1));
  EXPECT_EQ(again(404, "NotFound", "namespaces \"team\" not found"), absl::Seconds(15));
}

class RefusedJobTest : public TwoClustersTest {
 protected:
  static Fault NoPods(int code, const std::string& reason, const std::string& message, int times = 1 << 20, int skip = 0) {
    return {.verb = "create", .target = "/pods", .skip = skip, .times = times, .code = code, .body = Answer(code, reason, message)};
  }
  static Fault Quota(int times = 1 << 20, int skip = 0) {
    return NoPods(403, "Forbidden", "pods is forbidden: exceeded quota: compute", times, skip);
  }
  // Requests that change something, or would.
  static std::vector<std::string> Writes(const testing::FakeApiServer& server) {
    std::vector<std::string> writes;
    for (const auto& request : server.requests()) {
      if (request.verb == "get" || request.verb == "list" || request.verb == "watch") continue;
      const bool dry = request.target.find("dryRun") != std::string::npos;
      writes.push_back(absl::StrCat(dry ? "dry " : "", request.verb, " ", request.target.substr(0, request.target.find('?'))));
    }
    return writes;
  }
  void ExpectNoWrites() {
    server_.ForgetRequests();
    tokyo_server_.ForgetRequests();
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(Reconcile().status.ok());
      EXPECT_TRUE(ReconcileTokyo().status.ok());
    }
    EXPECT_THAT(Writes(server_), IsEmpty());
    EXPECT_THAT(Writes(tokyo_server_), IsEmpty());
  }
  json InTokyo() { return json::parse(tokyo_client_->List(manifests::kPods, "default").value())["items"]; }
};

TEST_F(RefusedJobTest, RejectedTemplateIsRetriedOnlyAfterSpecChange) {
  members_.remote_.clear();
  server_.AddFault(NoPods(422, "Invalid", "Pod \"train-local-0-r0\" is invalid: spec.tolerations: Invalid value", 1, 1));
  Submit();
  Settle();
  EXPECT_EQ(Condition("Scheduled"), "False InvalidTemplate");
  EXPECT_EQ(Condition("Ready"), "False InvalidTemplate");
  EXPECT_THAT(ConditionObject("Scheduled")["message"], HasSubstr("The hub: Pod \"train-local-0-r0\" is invalid: spec.tolerations"));
  EXPECT_EQ(Job()["status"]["state"], "Pending");
  EXPECT_EQ(Job()["status"]["reason"], "InvalidTemplate");
  EXPECT_THAT(Job()["status"]["clusterStatuses"][0]["message"], HasSubstr("spec.tolerations"));
  EXPECT_THAT(server_.objects(), Not(Contains(HasSubstr("configmaps default/train")))) << "nothing was made";
  clock_.Advance(absl::Hours(24));
  server_.ForgetRequests();
  EXPECT_EQ(Reconcile().after, absl::InfiniteDuration());
  EXPECT_THAT(Writes(server_), IsEmpty());
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"executors", {{"replicas", 1}}}}}});
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_EQ(Condition("Scheduled"), "True Scheduled");
  EXPECT_FALSE(Job()["status"]["clusterStatuses"][0].contains("message"));
}

TEST_F(RefusedJobTest, ABrokerTemplateOfWhichNoPodCanBeMadeIsSaid) {
  members_.remote_.clear();
  json job = JobObject();
  job["spec"]["broker"] = {{"template", {{"spec", {{"containers", "none"}}}}}};
  Submit(job);
  Settle();
  EXPECT_EQ(Condition("Scheduled"), "False InvalidTemplate");
  EXPECT_THAT(ConditionObject("Scheduled")["message"], HasSubstr("spec.broker.template"));
  EXPECT_EQ(Reconcile().after, absl::InfiniteDuration());
  EXPECT_THAT(PodNames(), IsEmpty());
}

// Whose side effects a trial must not have: it has not seen the Pod.
TEST_F(RefusedJobTest, AWebhookThatTakesNoDryRunsRefusesNothing) {
  members_.remote_.clear();
  server_.AddFault({.verb = "create",
                    .target = "dryRun",
                    .times = 1 << 20,
                    .code = 400,
                    .body = Answer(400, "BadRequest", "admission webhook \"w.example.org\" does not support dry run")});
  Submit();
  Settle();
  EXPECT_EQ(Condition("Scheduled"), "True Scheduled");
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

TEST_F(RefusedJobTest, AQuotaIsAskedAgainSlowlyAndWithoutWritingAnything) {
  members_.remote_.clear();
  server_.AddFault(Quota(2));
  Submit();
  Settle();
  EXPECT_EQ(Condition("Scheduled"), "False QuotaExceeded");
  ExpectNoWrites();
  clock_.Advance(absl::Minutes(1));
  server_.ForgetRequests();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_THAT(Writes(server_), ElementsAre("dry create /api/v1/namespaces/default/pods")) << "refused once more";
  ExpectNoWrites();
  EXPECT_LE(Reconcile().after, absl::Minutes(1)) << "nobody tells when there is room again";
  clock_.Advance(absl::Minutes(1));
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  ASSERT_TRUE(looking_->Delete(manifests::kPods, {"default", "train-local-1-r0"}, {.grace_period_seconds = 0}).ok());
  (void)Reconcile();
  EXPECT_EQ(Condition("Scheduled"), "True Scheduled") << "what is over is not told again";
}

// One pod fits into a quota and the next does not.
TEST_F(RefusedJobTest, WhatIsRefusedWhenItIsMadeIsSaidWithoutComingAndGoing) {
  members_.remote_.clear();
  server_.AddFault(Quota(1, 4));  // two dry runs, the broker, an executor
  Submit();
  Settle();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r0", "train-local-0-r0"));
  EXPECT_EQ(Condition("Scheduled"), "False QuotaExceeded");
  EXPECT_EQ(Condition("Ready"), "False QuotaExceeded");
  ExpectNoWrites();
  server_.AddFault(Quota(1, 1));  // the dry run is well
  clock_.Advance(absl::Minutes(1));
  const json before = Job();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Job(), before) << "the words stay until something was made";
  clock_.Advance(absl::Minutes(1));
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

TEST_F(RefusedJobTest, MemberRejectionStartsNoPodsElsewhere) {
  tokyo_server_.AddFault(NoPods(403, "Forbidden", "pods \"train-tokyo-0-r0\" is forbidden: violates PodSecurity", 2));
  Submit2();
  SettleBoth();
  EXPECT_EQ(Condition("Scheduled"), "False Forbidden");
  EXPECT_THAT(ConditionObject("Scheduled")["message"], HasSubstr("Cluster tokyo: pods \"train-tokyo-0-r0\" is forbidden: violates"));
  EXPECT_THAT(PodNames(), IsEmpty()) << "they would hold devices in vain";
  EXPECT_THAT(tokyo_server_.objects(), Not(Contains(HasSubstr("train"))));
  EXPECT_THAT(enqueued_, Contains("")) << "the hub's part is told";
  ExpectNoWrites();
  clock_.Advance(absl::Minutes(1));
  SettleBoth();
  EXPECT_EQ(Condition("Scheduled"), "False Forbidden");
  clock_.Advance(absl::Minutes(1));
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

// The words survive the operator; what they rest on is asked once more.
TEST_F(RefusedJobTest, RestartedOperatorWritesNothing) {
  members_.remote_.clear();
  server_.AddFault(NoPods(422, "Invalid", "Pod is invalid"));
  Submit();
  Settle();
  const json before = Job();
  Restart();
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Job(), before);
}

TEST_F(RefusedJobTest, AMemberThatDoesNotAnswerHoldsUpTheBeginningForSecondsOnly) {
  Submit2();
  tokyo_server_.AddFault({.verb = "create", .target = "dryRun", .times = 1 << 20, .code = 500, .body = "busy"});
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_THAT(PodNames(), IsEmpty());
  EXPECT_LE(Reconcile().after, absl::Seconds(1));
  clock_.Advance(absl::Seconds(6));
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

TEST_F(RefusedJobTest, ANamespaceThatAMemberLacksIsSaid) {
  for (const char* target : {"/pods", "/configmaps"}) {
    tokyo_server_.AddFault({.verb = "create",
                            .target = target,
                            .times = 1 << 20,
                            .code = 404,
                            .body = Answer(404, "NotFound", "namespaces \"default\" not found")});
  }
  Submit2();
  SettleBoth();
  EXPECT_EQ(Condition("Scheduled"), "False NamespaceMissing");
}

TEST_F(RefusedJobTest, WhatMayNotBeRemovedIsSaidAndTriedEverLater) {
  members_.remote_.clear();
  Submit();
  Settle();
  server_.AddFault({.verb = "delete",
                    .target = "/configmaps/",
                    .times = 1 << 20,
                    .code = 403,
                    .body = Answer(403, "Forbidden", "configmaps \"train-anchor\" is forbidden: cannot delete")});
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  EXPECT_LT(Reconcile().after, absl::Seconds(1)) << "to say so";
  EXPECT_FALSE(Reconcile().status.ok()) << "which counts, so that the next time is later";
  EXPECT_THAT(ConditionObject("Deleting")["message"], HasSubstr("The hub: configmaps \"train-anchor\" is forbidden"));
}

TEST_F(RefusedJobTest, APodOfSomebodyElseIsAConflict) {
  members_.remote_.clear();
  const json theirs = {{"apiVersion", "v1"},
                       {"kind", "Pod"},
                       {"metadata", {{"name", "train-local-1-r0"}, {"namespace", "default"}}},
                       {"spec", {{"containers", {{{"name", "c"}, {"image", "i"}}}}}}};
  ASSERT_TRUE(looking_->Create(manifests::kPods, "default", theirs.dump()).ok());
  const json before = json::parse(looking_->Get(manifests::kPods, {"default", "train-local-1-r0"}).value());
  Submit();
  Settle();
  EXPECT_EQ(Condition("Scheduled"), "False Conflict");
  EXPECT_THAT(ConditionObject("Scheduled")["message"], HasSubstr("Pod train-local-1-r0 in namespace default exists already"));
  EXPECT_EQ(json::parse(looking_->Get(manifests::kPods, {"default", "train-local-1-r0"}).value())["metadata"]["uid"],
            before["metadata"]["uid"]);
  ASSERT_TRUE(looking_->Delete(manifests::kPods, {"default", "train-local-1-r0"}, {.grace_period_seconds = 0}).ok());
  clock_.Advance(absl::Seconds(15));
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

// Of an owner ConfigMap that is gone: its garbage collector is late.
TEST_F(RefusedJobTest, ReplacesPodOfStaleOwner) {
  members_.remote_.clear();
  Submit();
  Settle();
  json pod = json::parse(looking_->Get(manifests::kPods, {"default", "train-local-1-r0"}).value());
  const std::string uid = pod["metadata"]["uid"];
  json owner = pod["metadata"]["ownerReferences"][0];
  owner["uid"] = "of-the-anchor-before";
  const json orphan = {{"metadata", {{"ownerReferences", json::array({owner})}}}};
  Patch(manifests::kPods, "train-local-1-r0", orphan);
  member_->Hide("train-local-1-r0");  // the cache does not show it
  (void)Reconcile();
  member_->Hide("");
  Settle();
  pod = json::parse(looking_->Get(manifests::kPods, {"default", "train-local-1-r0"}).value());
  EXPECT_NE(pod["metadata"]["uid"], uid);
  EXPECT_EQ(pod["metadata"]["ownerReferences"].size(), 1);
}

TEST_F(RefusedJobTest, APodThatWasThereAndIsGoneIsMade) {
  members_.remote_.clear();
  server_.AddFault(
      NoPods(409, "AlreadyExists", "pods \"train-local-1-r0\" already exists", 1, 4));  // two dry runs, the broker, an executor
  Submit();
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

// The cache trails a write whose answer was lost.
TEST_F(RefusedJobTest, APodThatIsThereAlreadyIsTaken) {
  members_.remote_.clear();
  Submit();
  Settle();
  const json before = Pods();
  member_->Hide("train-local-1-r0");
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_THAT(member_->wrote_, Contains("train-local-1-r0")) << "and waited for";
  member_->Hide("");
  Settle();
  EXPECT_EQ(Pods(), before);
}

}  // namespace
}  // namespace fusionllm::op::controller
