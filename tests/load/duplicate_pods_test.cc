// What the played clusters take for two Pods that could be at work for one thing at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "operator/manifests/identity.h"
#include "operator/manifests/resources.h"
#include "tests/load/federation.h"

namespace fusionllm::load {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kMaxExecutors = 2;

class DuplicatePodsTest : public ::testing::Test {
 protected:
  SimCluster& member(size_t index) { return *fleet_.members()[index]; }

  static void Make(SimCluster& cluster, const std::string& name, int attempt = 0) {
    const json pod = {{"apiVersion", "v1"},
                      {"kind", "Pod"},
                      {"metadata",
                       {{"name", name},
                        {"labels",
                         {{op::manifests::kRoleLabel, op::manifests::kExecutorRole},
                          {op::manifests::kJobLabel, "job"},
                          {op::manifests::kAttemptLabel, absl::StrCat(attempt)}}}}},
                      {"spec", {{"containers", {{{"name", "executor"}, {"image", "executor"}}}}}}};
    const int starts = cluster.Starts();
    ASSERT_TRUE(cluster.admin().Create(op::manifests::kPods, kNamespace, pod.dump()).ok()) << name;
    Federation::Await(
        "the Pod runs", [&] { return cluster.Starts() == starts + 1 && Runs(cluster, name); }, absl::Minutes(1));
  }
  static void Delete(SimCluster& cluster, const std::string& name, const kube::DeleteOptions& options = {}) {
    const int running = cluster.RunningPods();
    ASSERT_TRUE(cluster.admin().Delete(op::manifests::kPods, {kNamespace, name}, options).ok()) << name;
    Federation::Await(
        "the Pod is gone", [&] { return cluster.RunningPods() == running - 1 && !Exists(cluster, name); }, absl::Minutes(1));
  }
  static bool Exists(SimCluster& cluster, const std::string& name) {
    return cluster.admin().Get(op::manifests::kPods, {kNamespace, name}).ok();
  }
  static bool Runs(SimCluster& cluster, const std::string& name) {
    const auto pod = cluster.admin().Get(op::manifests::kPods, {kNamespace, name});
    return pod.ok() && json::parse(*pod)["status"].value("phase", "") == "Running";
  }

  Federation fleet_{2};
};

TEST_F(DuplicatePodsTest, OneOfEachDeviceIsNone) {
  Make(member(0), "job-m0-0-r0");
  Make(member(1), "job-m1-0-r0");
  EXPECT_THAT(fleet_.DuplicatePods(kMaxExecutors), IsEmpty());
}

TEST_F(DuplicatePodsTest, OneThatFailedOrWasEndedByItsKubeletHasNoneInItsSuccessor) {
  Make(member(0), "job-m0-0-r0");
  ASSERT_TRUE(member(0).EndPod("job-m0-0-r0", "executor", 1, "killed").ok());
  Federation::Await(
      "it has ended", [&] { return member(0).RunningPods() == 0; }, absl::Minutes(1));
  ASSERT_TRUE(member(0).admin().Delete(op::manifests::kPods, {kNamespace, "job-m0-0-r0"}, {.grace_period_seconds = 0}).ok());
  Make(member(0), "job-m0-0-r0");
  Delete(member(0), "job-m0-0-r0");
  Make(member(0), "job-m0-0-r0");
  EXPECT_THAT(fleet_.DuplicatePods(kMaxExecutors), IsEmpty());
}

TEST_F(DuplicatePodsTest, OneThatWasDeletedByForceRunsOnBesideItsSuccessor) {
  Make(member(0), "job-m0-0-r0");
  Delete(member(0), "job-m0-0-r0", {.grace_period_seconds = 0});
  EXPECT_THAT(fleet_.DuplicatePods(kMaxExecutors), IsEmpty());
  Make(member(0), "job-m0-0-r0");
  EXPECT_THAT(fleet_.DuplicatePods(kMaxExecutors), ElementsAre("m0: job-m0-0-r0 beside job-m0-0-r0"));
}

TEST_F(DuplicatePodsTest, AnotherAttemptBesideTheOneBeforeIsOneInItsClusterAlone) {
  Make(member(0), "job-m0-0-r0", 0);
  Make(member(1), "job-m1-0-r1", 1);
  Make(member(1), "job-m1-1-r1", 1);
  EXPECT_THAT(fleet_.DuplicatePods(kMaxExecutors), IsEmpty()) << "the first member may be away";
  Make(member(1), "job-m1-0-r2", 2);
  EXPECT_THAT(fleet_.DuplicatePods(kMaxExecutors), ElementsAre("m1: job-m1-0-r2 beside job-m1-0-r1"));
}

TEST_F(DuplicatePodsTest, OneExecutorInTwoClustersIsFound) {
  Make(member(0), "job-m0-0-r0");
  Make(member(1), "job-m0-0-r0");
  EXPECT_THAT(fleet_.DuplicatePods(kMaxExecutors), ElementsAre("job-m0-0-r0 in m0 and m1"));
}

TEST_F(DuplicatePodsTest, MoreExecutorsThanAnAttemptWantsAreFound) {
  Make(member(0), "job-m0-0-r0");
  Make(member(0), "job-m0-1-r0");
  Make(member(1), "job-m1-0-r0");
  EXPECT_THAT(fleet_.DuplicatePods(kMaxExecutors), ElementsAre("more than 2: job-m0-0-r0 job-m0-1-r0 job-m1-0-r0"));
}

}  // namespace
}  // namespace fusionllm::load
