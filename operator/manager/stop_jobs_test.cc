// Jobs on an API server in memory, whose operator the test plays.
#include "operator/manager/stop_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/watch_recorder.h"
#include "operator/manager/dry_run_job.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::manager {
namespace {

using kube::testing::FakeApiServer;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class StopJobsTest : public ::testing::Test {
 protected:
  StopJobsTest() {
    server_.Serve(manifests::kFusionJobs);
    client_ = std::make_unique<kube::RestClient>(
        kube::ClusterAccess{.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"},
        kube::RestClientOptions{}, clock_);
  }

  void Submit(const std::string& ns, const std::string& name, const json& more = json::object()) {
    if (ns != "default") {
      const json space = {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", ns}}}};
      client_->Create(manifests::kNamespaces, "", space.dump()).IgnoreError();
    }
    json job = {{"apiVersion", "fusionllm.io/v1alpha1"},
                {"kind", "FusionJob"},
                {"metadata", {{"name", name}, {"finalizers", {"fusionllm.io/cleanup"}}}},
                {"spec", {{"model", {{"family", "gpt2"}}}, {"data", {{"path", {"a"}}}}}}};
    job.merge_patch(more);
    ASSERT_TRUE(client_->Create(manifests::kFusionJobs, ns, job.dump()).ok());
  }
  json Job(const std::string& ns, const std::string& name) const {
    return json::parse(client_->Get(manifests::kFusionJobs, {ns, name}).value());
  }
  bool IsSuspended(const std::string& ns, const std::string& name) const { return Job(ns, name)["spec"].value("suspend", false); }
  // As the operator does: the status says of the spec what it is.
  void SetCondition(const std::string& ns, const std::string& name, const std::string& type) {
    const json condition = {{"type", type},
                            {"status", "True"},
                            {"reason", type},
                            {"message", ""},
                            {"observedGeneration", Job(ns, name)["metadata"]["generation"]},
                            {"lastTransitionTime", "2026-01-01T00:00:00Z"}};
    const json patch = {{"status", {{"conditions", {condition}}}}};
    ASSERT_TRUE(client_->Patch(manifests::kFusionJobs, {ns, name}, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}).ok());
  }
  void LetGo(const std::string& ns, const std::string& name) {
    ASSERT_TRUE(client_
                    ->Patch(manifests::kFusionJobs, {ns, name}, kube::PatchType::kMerge, R"({"metadata":{"finalizers":null}})",
                            {.field_manager = "o"})
                    .ok());
  }
  std::future<absl::Status> Begin(StopJobsOptions options) {
    return std::async(std::launch::async, [this, options] { return StopJobs(*client_, clock_, options, {}); });
  }
  std::vector<std::string> Writes() const {
    std::vector<std::string> writes;
    for (const kube::testing::RecordedRequest& request : server_.requests()) {
      if (request.verb == "patch" || request.verb == "delete") writes.push_back(absl::StrCat(request.verb, " ", request.target));
    }
    return writes;
  }

  kube::Clock& clock_ = kube::RealClock();
  FakeApiServer server_{clock_};
  std::unique_ptr<kube::ApiClient> client_;
};

TEST_F(StopJobsTest, JobsAreSuspendedAndWaitedFor) {
  Submit("default", "a");
  Submit("team", "b");
  kube::testing::WatchRecorder watch(*client_, manifests::kFusionJobs, "", {});
  ASSERT_TRUE(watch.WaitForOpen());
  std::future<absl::Status> done = Begin({.timeout = absl::Minutes(1)});
  watch.WaitForEvents(4);  // two that were there, two that are suspended
  EXPECT_TRUE(IsSuspended("default", "a"));
  EXPECT_TRUE(IsSuspended("team", "b"));
  SetCondition("default", "a", "Suspended");
  SetCondition("team", "b", "Suspended");
  EXPECT_EQ(done.get(), absl::OkStatus());
  EXPECT_FALSE(Job("default", "a")["metadata"].contains("deletionTimestamp"));
}

TEST_F(StopJobsTest, AJobThatIsNotStoppedInTimeIsNamed) {
  Submit("default", "endless");
  const absl::Status status = StopJobs(*client_, clock_, {.timeout = absl::Milliseconds(300)}, {});
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("default/endless"));
}

TEST_F(StopJobsTest, AJobThatNamesTheOperatorIsItsOwn) {
  Submit("default", "named", {{"spec", {{"managedBy", "fusionllm.io/fusion-operator"}}}});
  const absl::Status status = StopJobs(*client_, clock_, {.timeout = absl::Milliseconds(300)}, {});
  EXPECT_THAT(std::string(status.message()), HasSubstr("default/named"));
}

TEST_F(StopJobsTest, ReportsServerRejection) {
  Submit("default", "mine");
  server_.AddFault({.verb = "patch", .target = "fusionjobs/mine", .times = 100, .code = 403, .body = "{}"});
  const absl::Status status = StopJobs(*client_, clock_, {.timeout = absl::Milliseconds(300)}, {});
  EXPECT_THAT(std::string(status.message()), HasSubstr("the last refusal, of default/mine"));
}

TEST_F(StopJobsTest, FinishedJobsAndThoseOfOthersAreLeftAlone) {
  Submit("default", "over");
  SetCondition("default", "over", "Complete");
  Submit("default", "elsewhere", {{"spec", {{"managedBy", "kueue.x-k8s.io/multikueue"}}}});
  Submit("default", "held", {{"spec", {{"suspend", true}}}});
  SetCondition("default", "held", "Suspended");
  server_.ForgetRequests();
  EXPECT_EQ(StopJobs(*client_, clock_, {.timeout = absl::Minutes(1)}, {}), absl::OkStatus());
  EXPECT_THAT(Writes(), IsEmpty());
}

// Its status is still that of the time when it was suspended.
TEST_F(StopJobsTest, AJobThatWasResumedIsSuspendedAgain) {
  Submit("default", "resumed");
  SetCondition("default", "resumed", "Suspended");
  kube::testing::WatchRecorder watch(*client_, manifests::kFusionJobs, "", {});
  ASSERT_TRUE(watch.WaitForOpen());
  std::future<absl::Status> done = Begin({.timeout = absl::Minutes(1)});
  watch.WaitForEvents(2);
  EXPECT_TRUE(IsSuspended("default", "resumed"));
  SetCondition("default", "resumed", "Suspended");
  EXPECT_EQ(done.get(), absl::OkStatus());
}

// The operator that should say so may be away.
TEST_F(StopJobsTest, WhatWasSaidOfAnEarlierSpecDoesNotCount) {
  Submit("default", "resumed");
  SetCondition("default", "resumed", "Suspended");
  EXPECT_TRUE(absl::IsDeadlineExceeded(StopJobs(*client_, clock_, {.timeout = absl::Milliseconds(300)}, {})));
}

TEST_F(StopJobsTest, AJobWhoseSpecIsWrongIsStoppedAsAnyOther) {
  Submit("default", "wrong", {{"spec", {{"suspend", true}, {"no", "such"}}}});
  SetCondition("default", "wrong", "Suspended");
  EXPECT_EQ(StopJobs(*client_, clock_, {.timeout = absl::Milliseconds(300)}, {}), absl::OkStatus());
}

TEST_F(StopJobsTest, DeletedJobsAreWaitedForUntilTheirFinalizerIsOff) {
  Submit("default", "a");
  Submit("default", "over");
  SetCondition("default", "over", "Complete");
  kube::testing::WatchRecorder watch(*client_, manifests::kFusionJobs, "", {});
  ASSERT_TRUE(watch.WaitForOpen());
  std::future<absl::Status> done = Begin({.how = StopMode::kDelete, .timeout = absl::Minutes(1)});
  watch.WaitForEvents(4);
  EXPECT_TRUE(Job("default", "a")["metadata"].contains("deletionTimestamp"));
  LetGo("default", "a");
  LetGo("default", "over");
  EXPECT_EQ(done.get(), absl::OkStatus());
  EXPECT_THAT(server_.objects(), Not(::testing::Contains(HasSubstr("fusionjobs"))));
}

TEST_F(StopJobsTest, OnlyTheNamespacesThatAreWatchedAreTouchedOrListed) {
  Submit("mine", "a", {{"spec", {{"suspend", true}}}});
  SetCondition("mine", "a", "Suspended");
  Submit("theirs", "b");
  server_.ForgetRequests();
  EXPECT_EQ(StopJobs(*client_, clock_, {.namespaces = {"mine"}, .timeout = absl::Minutes(1)}, {}), absl::OkStatus());
  EXPECT_FALSE(IsSuspended("theirs", "b"));
  for (const kube::testing::RecordedRequest& request : server_.requests()) {
    const bool mine = absl::StrContains(request.target, "/namespaces/mine/fusionjobs");
    EXPECT_TRUE(mine || absl::EndsWith(request.target, "/theirs/fusionjobs/b")) << request.verb << " " << request.target;
  }
}

TEST_F(StopJobsTest, AJobIsTriedWithoutBeingMade) {
  EXPECT_TRUE(absl::IsFailedPrecondition(DryRunJob(*client_, "default"))) << "no rule is checked in this server, which is to be noticed";
  EXPECT_THAT(server_.objects(), Not(::testing::Contains(HasSubstr("fusionjobs"))));
  const json refusal = {{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Failure"}, {"reason", "Invalid"}, {"code", 422}};
  server_.AddFault({.verb = "create", .target = "fusionjobs", .skip = 1, .code = 422, .body = refusal.dump()});
  EXPECT_EQ(DryRunJob(*client_, "default"), absl::OkStatus());
  server_.AddFault({.verb = "create", .target = "fusionjobs", .code = 422, .body = refusal.dump()});
  EXPECT_THAT(std::string(DryRunJob(*client_, "default").message()), HasSubstr("a FusionJob is refused"));
}

}  // namespace
}  // namespace fusionllm::op::manager
