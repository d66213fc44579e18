#include "operator/lifecycle/pod_trouble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::op {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PodTroubleTest : public ::testing::Test {
 protected:
  std::string Of(const std::string& reason, const std::string& message = "") {
    pod_.reason = reason;
    pod_.message = message;
    const std::optional<PodTrouble> trouble = TroubleOf(pod_, spec_, "team");
    return trouble.has_value() ? absl::StrCat(trouble->reason, "| ", trouble->sentence) : "none";
  }

  PodView pod_{.name = "train-east-0-r0", .role = kExecutorRole, .cluster = "east"};
  job::Spec spec_;
};

TEST_F(PodTroubleTest, EachSaysWhereWhatAndWhatToDo) {
  EXPECT_EQ(Of(""), "none");
  EXPECT_EQ(Of("ImagePullBackOff", "Back-off pulling image \"x\""),
            "ImageNotAvailable| train-east-0-r0 in east: ImagePullBackOff: Back-off pulling image \"x\". Name an image that east can pull "
            "(spec.executors.template, spec.broker.template), or give its namespace team the pull secret.");
  EXPECT_THAT(
      Of("CreateContainerConfigError", "secret \"s\" not found"),
      AllOf(HasSubstr("ContainerConfigError| "), HasSubstr("secret \"s\" not found. Make what it names in namespace team of east")));
  EXPECT_THAT(Of("OOMKilled"), AllOf(HasSubstr("OutOfMemory| train-east-0-r0 in east: OOMKilled. Raise limits.memory")));
  EXPECT_EQ(Of("Evicted", "low on memory"), "ExecutorsNotReady| train-east-0-r0 in east: Evicted: low on memory");
  pod_.role = kBrokerRole;
  pod_.name = "train-broker-r0";
  EXPECT_EQ(Of("CrashLoopBackOff"), "BrokerNotReady| train-broker-r0 on the hub: CrashLoopBackOff");
  EXPECT_THAT(Of("ErrImagePull"), HasSubstr("an image that the hub can pull"));
}

TEST_F(PodTroubleTest, ClaimsAreNamedWhereTheyAreTheCause) {
  constexpr char kUnbound[] = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found";
  EXPECT_THAT(Of("Unschedulable", kUnbound), HasSubstr("Unschedulable| ")) << "it has none that are known";
  spec_.data.volume.json = R"({"persistentVolumeClaim":{"claimName":"corpus"}})";
  spec_.executors.pod_template.json =
      R"({"spec":{"volumes":[{"name":"a","persistentVolumeClaim":{"claimName":"scratch"}},{"name":"b","emptyDir":{}}]}})";
  spec_.broker.volume.json = R"({"persistentVolumeClaim":{"claimName":"journal"}})";
  EXPECT_THAT(Of("Unschedulable", kUnbound), AllOf(HasSubstr("ClaimNotBound| "), HasSubstr("corpus, scratch, in namespace team of east")));
  EXPECT_THAT(Of("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu."), Not(HasSubstr("corpus")));
  pod_.role = kBrokerRole;
  EXPECT_THAT(Of("Unschedulable", kUnbound), HasSubstr("corpus, journal, in namespace team of the hub"));
}

TEST_F(PodTroubleTest, ANodeThatIsAwayIsNamedWhateverThePodSaid) {
  pod_.node_away_since = absl::FromUnixSeconds(1'700'000'000);
  pod_.node = "east-1";
  spec_.force_delete_after_seconds = 600;
  EXPECT_EQ(Of(""),
            "NodeNotReady| train-east-0-r0 in east: its node east-1 is not ready; it counts as lost after "
            "spec.forceDeleteAfterSeconds, 600 s");
  spec_.force_delete_after_seconds = 0;
  EXPECT_THAT(Of("Unschedulable"), HasSubstr("it stays until the node is back or gone"));
}

// A cluster may say what it likes.
TEST_F(PodTroubleTest, WhatToDoIsThereHoweverLongTheWordsAre) {
  const std::string told = Of("ErrImagePull", std::string(100000, 'x'));
  EXPECT_LT(told.size(), 1000u);
  EXPECT_THAT(told, HasSubstr("pull secret"));
}

}  // namespace
}  // namespace fusionllm::op
