#include "cli/cluster/remove_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/cluster/member_objects.h"
#include "cli/cluster/testing/hub_and_member.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class RemoveClusterTest : public testing::HubAndMember {
 protected:
  RemoveClusterTest() : hub_before_(hub_server_.objects()) {}

  absl::Status Remove(bool with_member = true) {
    return RemoveCluster(remove_, hub_, with_member ? &member_ : nullptr, clock_,
                         [this](const std::string& line) { output_.push_back(line); });
  }

  RemoveClusterOptions remove_{.name = "paris"};
  std::vector<std::string> hub_before_;
};

TEST_F(RemoveClusterTest, NothingIsLeftOfWhatAddMadeButNamespaces) {
  ASSERT_TRUE(Add().ok());
  ASSERT_TRUE(Remove().ok());
  EXPECT_EQ(hub_server_.objects(), hub_before_);
  EXPECT_THAT(member_server_.objects(), UnorderedElementsAre("namespaces default", "namespaces kube-system", "namespaces fusionllm"));
  EXPECT_THAT(output_, Contains("hub: deleted FusionCluster paris"));
  EXPECT_TRUE(absl::IsNotFound(Remove())) << "once more there is nothing";
}

TEST_F(RemoveClusterTest, WithTheSecretToWhichTheyAreBoundTokensEnd) {
  ASSERT_TRUE(Add().ok());
  const kube::ServiceAccountToken token = TokenOnHub();
  ASSERT_TRUE(Remove().ok());
  EXPECT_THAT(output_, AllOf(Contains("member: deleted Secret fusionllm/" + token.secret),
                             Contains("member: deleted ServiceAccount fusionllm/fusion-hub")));
  EXPECT_FALSE(member_.Get(kSecretResource, {"fusionllm", token.secret}).ok());
}

TEST_F(RemoveClusterTest, BindingsInNamespacesOfJobsGoToo) {
  CreateNamespace(member_, "training");
  options_.all_namespaces = false;
  options_.job_namespaces = {"default", "training"};
  ASSERT_TRUE(Add().ok());
  ASSERT_THAT(member_server_.objects(), Contains(HasSubstr("rolebindings.rbac.authorization.k8s.io default/fusion-hub-work")));
  ASSERT_TRUE(Remove().ok());
  EXPECT_THAT(member_server_.objects(), Not(Contains(HasSubstr("fusion-hub"))));
}

TEST_F(RemoveClusterTest, WithoutTheMemberOnlyTheHubForgets) {
  ASSERT_TRUE(Add().ok());
  const std::vector<std::string> member_before = member_server_.objects();
  ASSERT_TRUE(Remove(/*with_member=*/false).ok());
  EXPECT_EQ(hub_server_.objects(), hub_before_);
  EXPECT_EQ(member_server_.objects(), member_before);
  // The member can be cleaned later, and says itself that the hub had nothing.
  EXPECT_TRUE(absl::IsNotFound(Remove()));
  EXPECT_THAT(member_server_.objects(), Not(Contains(HasSubstr("fusion-hub"))));
}

TEST_F(RemoveClusterTest, JobsThatHaveObjectsThereAreNamedAndNothingIsChanged) {
  ASSERT_TRUE(Add().ok());
  for (int i = 0; i < 7; ++i) AddJob(absl::StrCat("llm-", i), "paris");
  AddJob("elsewhere", "oslo");
  const std::vector<std::string> hub = hub_server_.objects(), member = member_server_.objects();
  const absl::Status refused = Remove();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("objects of 7 jobs: default/llm-0"), HasSubstr(", ...;"), Not(HasSubstr("elsewhere"))));
  EXPECT_EQ(hub_server_.objects(), hub);
  EXPECT_EQ(member_server_.objects(), member);
  remove_.force = true;
  EXPECT_TRUE(Remove().ok());
  EXPECT_THAT(hub_server_.objects(), Not(Contains(HasSubstr("paris"))));
}

TEST_F(RemoveClusterTest, ObjectsOfOthersAreLeftAndReported) {
  const json secret = {{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", {{"name", "paris"}, {"namespace", "fusionllm"}}}};
  Create(hub_, "secrets", secret, "fusionllm");
  const json cluster = {{"apiVersion", "fusionllm.io/v1alpha1"},
                        {"kind", "FusionCluster"},
                        {"metadata", {{"name", "paris"}}},
                        {"spec", {{"kubeConfig", {{"location", "paris"}}}}}};
  ASSERT_TRUE(hub_.Create(kFusionClusterResource, "", cluster.dump()).ok());
  ASSERT_TRUE(Remove().ok());
  EXPECT_THAT(hub_server_.objects(), Contains("secrets fusionllm/paris"));
  EXPECT_THAT(hub_server_.objects(), Not(Contains(HasSubstr("fusionclusters"))));
  EXPECT_THAT(output_, Contains(HasSubstr("left Secret fusionllm/paris, which something else made")));
}

TEST_F(RemoveClusterTest, AClusterThatIsHeldIsReportedWithWhatHoldsIt) {
  ASSERT_TRUE(Add().ok());
  const std::string held = R"({"metadata":{"finalizers":["example.com/hold"]}})";
  ASSERT_TRUE(hub_.Patch(kFusionClusterResource, {"", "paris"}, kube::PatchType::kMerge, held).ok());
  const absl::Status status = Remove();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("example.com/hold"));
  EXPECT_THAT(hub_server_.objects(), Contains("secrets fusionllm/paris")) << "the operator may still need it to clean up";
}

}  // namespace
}  // namespace fusionllm::cli
