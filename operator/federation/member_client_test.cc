#include "operator/federation/member_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::op::federation {
namespace {

using ::testing::HasSubstr;

constexpr char kWithProgram[] = R"(
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://paris.example.org"}}]
users:
- name: u
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, args: [eks, get-token], interactiveMode: Never}
)";

TEST(MemberClientTest, OnlyProgramsThatAreAllowedMayBeRunForCredentials) {
  kube::Clock& clock = kube::RealClock();
  const auto refused = ConnectMember(kWithProgram, {}, {.user_agent = "test"}, clock, nullptr);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("ExecNotAllowed"));
  EXPECT_FALSE(ConnectMember(kWithProgram, {}, {.user_agent = "test", .exec_rules = {.calls = {{"gcloud", {}}}}}, clock, nullptr).ok());
  const auto allowed = ConnectMember(
      kWithProgram, {}, {.user_agent = "test", .exec_rules = {.calls = {{"gcloud", {}}, {"aws", {"eks", "get-token"}}}}}, clock, nullptr);
  EXPECT_TRUE(allowed.ok()) << allowed.status();
  EXPECT_FALSE(ConnectMember(kWithProgram, {}, {.user_agent = "test", .exec_rules = {.calls = {{"aws", {}}}}}, clock, nullptr).ok())
      << "with other arguments";
}

TEST(MemberClientTest, ProgramsOfAccessProvidersAreForClusterProfilesAlone) {
  kube::Clock& clock = kube::RealClock();
  kubeapi::FusionClusterSpec by_secret, by_profile;
  by_secret.kube_config.emplace().location = "paris";
  by_profile.cluster_profile_ref.emplace().name = "paris";
  const MemberClientOptions providers{.user_agent = "test", .profile_exec_allowed = {"aws"}};
  EXPECT_TRUE(ConnectMember(kWithProgram, by_profile, providers, clock, nullptr).ok());
  EXPECT_FALSE(ConnectMember(kWithProgram, by_secret, providers, clock, nullptr).ok());
  const MemberClientOptions listed{.user_agent = "test", .exec_rules = {.calls = {{"aws", {"eks", "get-token"}}}}};
  EXPECT_FALSE(ConnectMember(kWithProgram, by_profile, listed, clock, nullptr).ok());
}

TEST(MemberClientTest, AMemberIsAskedAsItsFusionClusterAndTheOperatorsLimitsSay) {
  kubeapi::FusionClusterSpec spec;
  spec.qps = 7;
  spec.burst = 11;
  spec.max_concurrent_requests = 3;
  const kube::RestClientOptions rest = RestOptionsOf(spec, {.user_agent = "test", .limits = {.answer_bytes = 1234, .list_bytes = 56789}});
  EXPECT_EQ(rest.user_agent, "test");
  EXPECT_EQ(rest.requests_per_second, 7);
  EXPECT_EQ(rest.burst, 11);
  EXPECT_EQ(rest.max_concurrent_requests, 3);
  EXPECT_EQ(rest.max_response_bytes, 1234u);
  EXPECT_EQ(rest.max_list_bytes, 56789u);
}

}  // namespace
}  // namespace fusionllm::op::federation
