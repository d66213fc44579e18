#include "cli/cluster/add_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/cluster/member_objects.h"
#include "cli/cluster/testing/hub_and_member.h"
#include "lib/kube/auth/cluster_access.h"
#include "lib/kube/auth/kubeconfig.h"
#include "lib/kubeapi/rights.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

using AddClusterTest = ::fusionllm::cli::testing::HubAndMember;

TEST_F(AddClusterTest, MakesAnAccountASecretAndTheCluster) {
  const auto added = Add();
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_TRUE(added->ready);
  EXPECT_EQ(added->message, "connected");
  EXPECT_EQ(added->server, "https://paris.example:6443");
  EXPECT_THAT(
      member_server_.objects(),
      UnorderedElementsAre(
          "namespaces default", "namespaces kube-system", "namespaces fusionllm", "serviceaccounts fusionllm/fusion-hub",
          "validatingadmissionpolicies.admissionregistration.k8s.io fusion-hub-pods",
          "validatingadmissionpolicybindings.admissionregistration.k8s.io fusion-hub-pods",
          "validatingadmissionpolicies.admissionregistration.k8s.io fusion-hub-places",
          "validatingadmissionpolicybindings.admissionregistration.k8s.io fusion-hub-places",
          "validatingadmissionpolicies.admissionregistration.k8s.io fusion-hub-changes",
          "validatingadmissionpolicybindings.admissionregistration.k8s.io fusion-hub-changes",
          "validatingadmissionpolicies.admissionregistration.k8s.io fusion-hub-tokens",
          "validatingadmissionpolicybindings.admissionregistration.k8s.io fusion-hub-tokens",
          "roles.rbac.authorization.k8s.io fusionllm/fusion-hub-renew", "rolebindings.rbac.authorization.k8s.io fusionllm/fusion-hub-renew",
          "clusterroles.rbac.authorization.k8s.io fusion-hub-watch", "clusterroles.rbac.authorization.k8s.io fusion-hub-work",
          "clusterrolebindings.rbac.authorization.k8s.io fusion-hub-watch", "clusterrolebindings.rbac.authorization.k8s.io fusion-hub-work",
          "secrets fusionllm/fusion-hub-token"));
  const kube::Resource roles = {"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false};
  EXPECT_EQ(Get(member_, roles, {"", "fusion-hub-work"})["rules"], json(kubeapi::MemberWorkRules()));
  EXPECT_EQ(Get(member_, roles, {"", "fusion-hub-watch"})["rules"], json(kubeapi::MemberWatchRules()));
  const json cluster = Get(hub_, kFusionClusterResource, {"", "paris"});
  EXPECT_EQ(cluster["spec"]["kubeConfig"]["location"], "paris");
  EXPECT_THAT(output_, AllOf(Contains("member: ServiceAccount fusionllm/fusion-hub"), Contains("hub: FusionCluster paris")));
}

TEST_F(AddClusterTest, WhereOwnersAreGuardedTheRightToTheirFinalizersIsGiven) {
  options_.owner_references_enforced = true;
  ASSERT_TRUE(Add().ok());
  const kube::Resource roles = {"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false};
  json rules = kubeapi::MemberWorkRules();
  rules.push_back({{"apiGroups", {""}}, {"resources", {"configmaps/finalizers"}}, {"verbs", {"update"}}});
  EXPECT_EQ(Get(member_, roles, {"", "fusion-hub-work"})["rules"], rules);
  EXPECT_EQ(Get(member_, roles, {"", "fusion-hub-watch"})["rules"], json(kubeapi::MemberWatchRules()));
}

TEST_F(AddClusterTest, TheKubeconfigHoldsTheAccountAndNothingOfTheUsers) {
  config_.tls_server_name = "kubernetes";
  ASSERT_TRUE(Add().ok());
  const kube::ClientConfig config = KubeconfigOnHub();
  EXPECT_EQ(config.server, "https://paris.example:6443");
  EXPECT_EQ(config.tls_server_name, "kubernetes");
  EXPECT_EQ(config.ca.data, "authority");
  EXPECT_THAT(kube::CheckUntrustedConfig(config), IsEmpty()) << "what the operator accepts of a Secret";
  for (const std::string& line : output_) EXPECT_THAT(line, Not(HasSubstr(config.token)));
}

TEST_F(AddClusterTest, APasswordInAnAddressIsNotRepeated) {
  for (const char* server :
       {"http://alice:hunter2@paris.example", "https://alice:hunter2@paris.example", "https://alice:hunter2@paris:x"}) {
    options_.server = server;
    const absl::Status refused = Add().status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), Not(HasSubstr("hunter2")));
  }
  for (const std::string& line : output_) EXPECT_THAT(line, Not(HasSubstr("hunter2")));
}

TEST_F(AddClusterTest, TheTokenEndsAndIsBoundToASecretOfTheMember) {
  ASSERT_TRUE(Add().ok());
  const kube::ServiceAccountToken token = TokenOnHub();
  EXPECT_EQ(token.account, (kube::ObjectKey{"fusionllm", "fusion-hub"}));
  ASSERT_TRUE(token.expires_at.has_value());
  EXPECT_EQ(*token.expires_at - token.issued_at, absl::Hours(24 * 30));
  const json secret = Get(member_, kSecretResource, {"fusionllm", "fusion-hub-token"});
  EXPECT_EQ(token.secret, "fusion-hub-token");
  EXPECT_EQ(token.secret_uid, secret["metadata"]["uid"]);
  EXPECT_EQ(secret["type"], "Opaque");
  EXPECT_FALSE(secret.contains("data")) << "the member keeps no token";
}

TEST_F(AddClusterTest, TheAccountMayRenewItsOwnTokenAndAskForNoOther) {
  options_.account = "north";
  options_.member_namespace = "hubs";
  ASSERT_TRUE(Add().ok());
  const kube::Resource roles = {"rbac.authorization.k8s.io", "v1", "roles", "Role", true};
  const json rules = Get(member_, roles, {"hubs", "north-renew"})["rules"];
  EXPECT_EQ(rules,
            json::parse(R"([{"apiGroups":[""],"resources":["serviceaccounts/token"],"resourceNames":["north"],"verbs":["create"]}])"));
  const json binding = Get(member_, kRoleBindingResource, {"hubs", "north-renew"});
  EXPECT_EQ(binding["roleRef"]["kind"], "Role");
  EXPECT_EQ(binding["roleRef"]["name"], "north-renew");
  const std::string policy = Get(member_, kAdmissionPolicyResource, {"", "north-tokens"})["spec"].dump();
  EXPECT_THAT(policy, AllOf(HasSubstr("object.spec.boundObjectRef.name == 'north-token'"), HasSubstr("expirationSeconds <= 2592000")));
}

TEST_F(AddClusterTest, ATokenThatNeverEndsIsReplacedAndItsSecretDeleted) {
  CreateNamespace(member_, "fusionllm");
  const json old = {{"apiVersion", "v1"},
                    {"kind", "Secret"},
                    {"type", "kubernetes.io/service-account-token"},
                    {"metadata", {{"name", "fusion-hub-token"}, {"labels", {{kubeapi::kManagedByLabel, kFieldManager}}}}},
                    {"data", {{"token", "b2xk"}}}};
  Create(member_, "secrets", old, "fusionllm");
  const std::string uid = Get(member_, kSecretResource, {"fusionllm", "fusion-hub-token"})["metadata"]["uid"];
  member_server_.AddFault(
      {.verb = "create", .target = "/token", .code = 403, .body = R"({"kind":"Status","code":403,"message":"no tokens"})"});
  const absl::Status refused = Add().status();
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("member: a token of ServiceAccount fusionllm/fusion-hub"), HasSubstr("no tokens")));
  EXPECT_EQ(Get(member_, kSecretResource, {"fusionllm", "fusion-hub-token"})["metadata"]["uid"], uid) << "the hub has no other";
  ASSERT_TRUE(Add().ok());
  EXPECT_THAT(output_, Contains("member: deleted Secret fusionllm/fusion-hub-token"));
  EXPECT_NE(TokenOnHub().secret_uid, uid);
  EXPECT_EQ(Get(member_, kSecretResource, {"fusionllm", "fusion-hub-token"})["type"], "Opaque");
}

TEST_F(AddClusterTest, AServerThatIsNotCheckedHereIsCheckedByTheHub) {
  config_.insecure = true;
  config_.ca = {};
  options_.server = "https://10.0.0.7:6443";
  ASSERT_TRUE(Add().ok());
  const kube::ClientConfig config = KubeconfigOnHub();
  EXPECT_FALSE(config.insecure);
  EXPECT_EQ(config.ca.data, "member's own");
  EXPECT_EQ(config.server, "https://10.0.0.7:6443");
}

TEST_F(AddClusterTest, NothingIsMadeBeforeItIsSaidWhereJobsAre) {
  struct Case {
    std::vector<std::string> namespaces;
    bool all;
    const char* said;
  };
  const std::vector<std::string> before = member_server_.objects();
  for (const Case& wrong : {Case{{}, false, "name the namespaces of jobs by --job-namespace"},
                            Case{{"training"}, true, "--job-namespace and --all-namespaces contradict"},
                            Case{{"training", "kube-system"}, false, "--job-namespace kube-system: it is Kubernetes' own"},
                            Case{{"kube-public"}, false, "kube-public"}, Case{{"kube-node-lease"}, false, "kube-node-lease"},
                            Case{{"fusionllm"}, false, "--job-namespace fusionllm: it is that of the hub's account"}}) {
    options_.job_namespaces = wrong.namespaces;
    options_.all_namespaces = wrong.all;
    const absl::Status status = Add().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.said));
    EXPECT_EQ(member_server_.objects(), before);
  }
}

TEST_F(AddClusterTest, AServerThatLeadsTheHubToItselfIsRefusedBeforeAnythingIsMade) {
  const std::vector<std::string> hub = hub_server_.objects(), member = member_server_.objects();
  for (const char* server : {"https://127.0.0.1", "https://127.3.2.1", "https://[::1]", "https://localhost", "https://LOCALHOST",
                             "https://kind.localhost/path"}) {
    config_.server = server;
    const absl::Status status = Add().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(server), HasSubstr("--server https://HOST:PORT")));
    EXPECT_EQ(hub_server_.objects(), hub);
    EXPECT_EQ(member_server_.objects(), member);
  }
  options_.server = "https://10.0.0.9:6443";
  EXPECT_TRUE(Add().ok());
  for (const std::string& line : output_) EXPECT_THAT(line, Not(HasSubstr("warning"))) << line;
  options_.server = "https://127.0.0.1";
  EXPECT_TRUE(Add().ok()) << "who says so himself may know why";
  EXPECT_THAT(output_, Contains(AllOf(HasSubstr("warning"), HasSubstr("https://127.0.0.1 leads each machine to itself"))));
}

TEST_F(AddClusterTest, WhatTheAccountMayMakeIsBoundByPolicies) {
  options_.account = "north";
  options_.member_namespace = "hubs";
  options_.job_service_accounts = {"s3-reader"};
  ASSERT_TRUE(Add().ok());
  const json pods = Get(member_, kAdmissionPolicyResource, {"", "north-pods"})["spec"];
  EXPECT_EQ(pods["matchConditions"][0]["expression"], "request.userInfo.username == 'system:serviceaccount:hubs:north'");
  EXPECT_THAT(pods.dump(), HasSubstr("['', 'default', 's3-reader']"));
  EXPECT_THAT(Get(member_, kAdmissionPolicyResource, {"", "north-places"})["spec"].dump(), HasSubstr("request.namespace != 'hubs'"));
  for (const char* name : {"north-pods", "north-places", "north-changes", "north-tokens"}) {
    const json binding = Get(member_, kAdmissionPolicyBindingResource, {"", name})["spec"];
    EXPECT_EQ(binding["policyName"], name);
    EXPECT_EQ(binding["validationActions"], json::array({"Deny"}));
  }
}

TEST_F(AddClusterTest, AServerWithoutPoliciesIsNoMember) {
  member_server_.AddFault(
      {.verb = "apply",
       .target = "validatingadmissionpolicies",
       .times = 9,
       .code = 404,
       .body = R"({"kind":"Status","code":404,"reason":"NotFound","message":"the server could not find the requested resource"})"});
  const absl::Status status = Add().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("Kubernetes 1.30"));
  EXPECT_THAT(member_server_.objects(), Not(Contains(HasSubstr("clusterrole")))) << "no rights without bounds";
}

TEST_F(AddClusterTest, JobNamespacesAloneGiveRightsForPods) {
  CreateNamespace(member_, "training");
  options_.all_namespaces = false;
  options_.job_namespaces = {"training"};
  ASSERT_TRUE(Add().ok());
  EXPECT_THAT(member_server_.objects(), AllOf(Contains("rolebindings.rbac.authorization.k8s.io training/fusion-hub-work"),
                                              Not(Contains("clusterrolebindings.rbac.authorization.k8s.io fusion-hub-work"))));
}

TEST_F(AddClusterTest, OnceMoreWithFewerRightsTakesTheOthersAway) {
  for (const char* ns : {"training", "research"}) CreateNamespace(member_, ns);
  options_.owner_references_enforced = true;
  ASSERT_TRUE(Add().ok());
  options_.owner_references_enforced = false;
  options_.all_namespaces = false;
  options_.job_namespaces = {"training", "research"};
  ASSERT_TRUE(Add().ok());
  const kube::Resource roles = {"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false};
  EXPECT_EQ(Get(member_, roles, {"", "fusion-hub-work"})["rules"], json(kubeapi::MemberWorkRules()));
  EXPECT_THAT(member_server_.objects(), AllOf(Contains("clusterrolebindings.rbac.authorization.k8s.io fusion-hub-watch"),
                                              Not(Contains("clusterrolebindings.rbac.authorization.k8s.io fusion-hub-work")),
                                              Contains("rolebindings.rbac.authorization.k8s.io research/fusion-hub-work")));
  EXPECT_THAT(output_, Contains("member: deleted ClusterRoleBinding fusion-hub-work"));
  options_.all_namespaces = false;
  options_.job_namespaces = {"training"};
  ASSERT_TRUE(Add().ok());
  EXPECT_THAT(member_server_.objects(), AllOf(Contains("rolebindings.rbac.authorization.k8s.io training/fusion-hub-work"),
                                              Not(Contains("rolebindings.rbac.authorization.k8s.io research/fusion-hub-work"))));
}

TEST_F(AddClusterTest, RightsThatJobsNeedAreNotTakenAway) {
  for (const char* ns : {"training", "research", "idle"}) {
    CreateNamespace(hub_, ns);
    CreateNamespace(member_, ns);
  }
  ASSERT_TRUE(Add().ok());
  AddJob("kept", "paris", "training");
  AddJob("elsewhere", "oslo", "research");
  AddJob("llm", "paris", "research");
  const auto refused = [this](const std::vector<std::string>& job_namespaces) {
    options_.all_namespaces = false;
    options_.job_namespaces = job_namespaces;
    output_.clear();
    const std::vector<std::string> hub = hub_server_.objects(), member = member_server_.objects();
    const absl::Status status = Add().status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_EQ(hub_server_.objects(), hub);
    EXPECT_EQ(member_server_.objects(), member);
    EXPECT_THAT(output_, IsEmpty());
    return std::string(status.message());
  };
  EXPECT_THAT(refused({"training"}), HasSubstr("cluster paris has objects of 1 job: research/llm; in namespaces that are not named"))
      << "rights in all namespaces would go";
  options_.all_namespaces = false;
  options_.job_namespaces = {"training", "research", "idle"};
  ASSERT_TRUE(Add().ok());
  EXPECT_THAT(refused({"training"}), HasSubstr("1 job: research/llm;")) << "those in some would go";
  options_.all_namespaces = false;
  options_.job_namespaces = {"training", "research"};
  EXPECT_TRUE(Add().ok()) << "no job is in the other";
  ASSERT_TRUE(hub_.Delete(testing::kFusionJobs, {"research", "llm"}).ok());
  options_.all_namespaces = false;
  options_.job_namespaces = {"training"};
  EXPECT_TRUE(Add().ok());
  AddJob("late", "paris", "research");
  EXPECT_TRUE(Add().ok()) << "where there were no rights none go";
  options_.all_namespaces = true;
  options_.job_namespaces = {};
  EXPECT_TRUE(Add().ok()) << "in all namespaces are more";
}

TEST_F(AddClusterTest, RightsThatSomebodyElseGrantedStay) {
  CreateNamespace(member_, "training");
  const auto bind = [&](const kube::Resource& resource, const std::string& ns) {
    const json binding = {{"apiVersion", resource.ApiVersion()},
                          {"kind", resource.kind},
                          {"metadata", {{"name", "fusion-hub-work"}}},
                          {"roleRef", {{"kind", "ClusterRole"}, {"name", "fusion-hub-work"}}}};
    EXPECT_TRUE(member_.Create(resource, ns, binding.dump()).ok());
  };
  bind(kRoleBindingResource, "default");
  bind(kClusterRoleBindingResource, "");
  options_.all_namespaces = false;
  options_.job_namespaces = {"training"};
  ASSERT_TRUE(Add().ok());
  EXPECT_THAT(member_server_.objects(), AllOf(Contains("rolebindings.rbac.authorization.k8s.io default/fusion-hub-work"),
                                              Contains("clusterrolebindings.rbac.authorization.k8s.io fusion-hub-work")));
  EXPECT_THAT(output_, Contains("member: left ClusterRoleBinding fusion-hub-work, which something else made"));
}

// As its schema and admission policies would.
TEST_F(AddClusterTest, AHubThatRefusesItIsReportedBeforeAnythingIsMade) {
  hub_server_.AddFault({.verb = "apply",
                        .target = "fusionclusters",
                        .code = 422,
                        .body = R"({"kind":"Status","code":422,"reason":"Invalid","message":"metadata.name: too long"})"});
  const auto before = hub_server_.objects();
  const auto added = Add();
  EXPECT_EQ(added.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(added.status().message()), AllOf(HasSubstr("hub: FusionCluster paris"), HasSubstr("too long")));
  EXPECT_EQ(hub_server_.objects(), before);
  EXPECT_THAT(member_server_.requests(), IsEmpty());
  options_.hub_namespace = "nowhere";
  EXPECT_THAT(std::string(Add().status().message()), HasSubstr("hub: Secret nowhere/paris"));
  EXPECT_THAT(member_server_.requests(), IsEmpty());
}

TEST_F(AddClusterTest, OnceMoreChangesNothingButTheToken) {
  ASSERT_TRUE(Add().ok());
  const kube::ServiceAccountToken token = TokenOnHub();
  const json bound = Get(member_, kSecretResource, {"fusionllm", "fusion-hub-token"}),
             cluster = Get(hub_, kFusionClusterResource, {"", "paris"});
  clock_.Advance(absl::Hours(1));
  const auto again = Add();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Get(member_, kSecretResource, {"fusionllm", "fusion-hub-token"}), bound) << "with which the token of before would end";
  EXPECT_EQ(TokenOnHub().secret_uid, token.secret_uid);
  EXPECT_GT(*TokenOnHub().expires_at, *token.expires_at);
  EXPECT_EQ(Get(hub_, kFusionClusterResource, {"", "paris"}), cluster);
}

TEST_F(AddClusterTest, WhatSomebodyElseMadeIsNotTakenOver) {
  Create(hub_, "secrets", {{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", {{"name", "paris"}}}}, "fusionllm");
  const auto added = Add();
  EXPECT_EQ(added.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(added.status().message()), HasSubstr("Secret fusionllm/paris"));
  EXPECT_THAT(member_server_.objects(), UnorderedElementsAre("namespaces default", "namespaces kube-system"))
      << "nothing is begun that cannot be finished";

  options_.name = "lyon";
  const json other = {{"apiVersion", "fusionllm.io/v1alpha1"},
                      {"kind", "FusionCluster"},
                      {"metadata", {{"name", "lyon"}}},
                      {"spec", {{"local", json::object()}}}};
  ASSERT_TRUE(hub_.Create(kFusionClusterResource, "", other.dump()).ok());
  EXPECT_THAT(std::string(Add().status().message()), HasSubstr("FusionCluster lyon already"));
}

TEST_F(AddClusterTest, AHubWithoutTheChartIsReported) {
  hub_server_.AddFault({.verb = "list", .target = "fusionclusters", .code = 404, .body = "404 page not found"});
  const auto added = Add();
  EXPECT_EQ(added.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(added.status().message()), HasSubstr("is the chart installed"));
}

TEST_F(AddClusterTest, AMemberWithoutAnAuthorityIsReportedInTime) {
  clock_.work = nullptr;
  config_.insecure = true;
  const absl::Duration begin = clock_.Monotonic();
  const auto added = Add();
  EXPECT_EQ(added.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(added.status().message()), HasSubstr("fusionllm/kube-root-ca.crt"));
  EXPECT_NEAR(absl::ToDoubleSeconds(clock_.Monotonic() - begin), 60, 1);
  EXPECT_THAT(hub_server_.objects(), Not(Contains("secrets fusionllm/paris")));
}

TEST_F(AddClusterTest, AHubThatCannotConnectIsReported) {
  clock_.work = nullptr;
  const auto added = Add();
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_FALSE(added->ready);
  EXPECT_THAT(added->message, HasSubstr("has not looked at it"));
}

TEST_F(AddClusterTest, ARefusalNamesClusterAndObject) {
  member_server_.AddFault(
      {.verb = "apply",
       .target = "clusterroles",
       .code = 403,
       .body = R"({"kind":"Status","code":403,"reason":"Forbidden","message":"attempting to grant RBAC permissions not currently held"})"});
  const auto added = Add();
  EXPECT_EQ(added.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(added.status().message()),
              AllOf(HasSubstr("member: ClusterRole fusion-hub-watch"), HasSubstr("not currently held")));
}

TEST_F(AddClusterTest, AServerWithoutTlsIsRefused) {
  config_.server = "http://paris.example";
  EXPECT_EQ(Add().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(member_server_.requests(), IsEmpty());
}

}  // namespace
}  // namespace fusionllm::cli
