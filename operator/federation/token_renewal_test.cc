#include "operator/federation/token_renewal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/testing/fake_token.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLife = absl::Hours(24 * 30);
const kube::ObjectKey kSecret = {"fusionllm", "paris"};

class TokenRenewalTest : public ::testing::Test {
 protected:
  TokenRenewalTest() {
    Create(hub_, manifests::kNamespaces, "", {{"metadata", {{"name", "fusionllm"}}}});
    Create(member_, manifests::kNamespaces, "", {{"metadata", {{"name", "hubs"}}}});
    Create(member_, {"", "v1", "serviceaccounts", "ServiceAccount", true}, "hubs", {{"metadata", {{"name", "north"}}}});
    const json bound = Create(member_, manifests::kSecrets, "hubs", {{"metadata", {{"name", "north-token"}}}});
    claims_ = {.account = {"hubs", "north"},
               .secret = "north-token",
               .secret_uid = bound["metadata"]["uid"],
               .issued_at = clock_.Now(),
               .expires_at = clock_.Now() + kLife};
  }

  static json Create(kube::ApiClient& client, const kube::Resource& resource, const std::string& ns, json object) {
    object["apiVersion"] = resource.ApiVersion();
    object["kind"] = resource.kind;
    const auto created = client.Create(resource, ns, object.dump());
    EXPECT_TRUE(created.ok()) << created.status();
    return json::parse(created.value_or("{}"));
  }
  // As `fusionctl cluster add` writes it.
  static json Kubeconfig(const std::string& token) {
    return {{"apiVersion", "v1"}, {"kind", "Config"}, {"users", json::array({{{"name", "north"}, {"user", {{"token", token}}}}})}};
  }
  void Register(const std::string& kubeconfig, const json& labels = {{"fusionllm.io/renew-token", "true"}}) {
    kubeconfig_ = kubeconfig;
    const json secret = {{"apiVersion", "v1"},
                         {"kind", "Secret"},
                         {"metadata", {{"name", kSecret.name}, {"labels", labels}}},
                         {"data", {{"kubeconfig", absl::Base64Escape(kubeconfig)}}}};
    ASSERT_TRUE(hub_.Apply(manifests::kSecrets, kSecret, secret.dump(), {.field_manager = "fusionctl"}).ok());
    hub_server_.ForgetRequests();
  }
  void RegisterToken() { Register(Kubeconfig(kube::testing::FakeToken(claims_)).dump(2)); }

  absl::Duration Look() { return Look(renewal_); }
  absl::Duration Look(TokenRenewal& renewal) {
    const kube::ReconcileResult result = renewal.Reconcile("paris", {.location = kSecret.name}, kubeconfig_, member_, {});
    EXPECT_TRUE(result.status.ok()) << result.status;
    return result.after;
  }
  std::string OnHub() {
    std::string text;
    EXPECT_TRUE(absl::Base64Unescape(json::parse(*hub_.Get(manifests::kSecrets, kSecret))["data"]["kubeconfig"].get<std::string>(), &text));
    return text;
  }
  kube::ServiceAccountToken TokenOnHub() {
    return *kube::ReadServiceAccountToken(json::parse(OnHub())["users"][0]["user"]["token"].get<std::string>());
  }
  static int Count(const kube::testing::FakeApiServer& server, const std::string& verb) {
    int count = 0;
    for (const auto& request : server.requests()) count += request.verb == verb ? 1 : 0;
    return count;
  }
  int TokensAsked() const { return Count(member_server_, "create") - created_; }
  TokenFinding Finding() { return renewal_.Of("paris").value_or(TokenFinding{.reason = "none"}); }

  kube::testing::FakeClock clock_;
  kube::testing::FakeApiServer hub_server_{clock_}, member_server_{clock_};
  kube::RestClient hub_client_{{hub_server_.NewTransport(), kube::StaticCredentials({}), "hub", "default"}, {}, clock_};
  kube::RestClient member_client_{{member_server_.NewTransport(), kube::StaticCredentials({}), "member", "default"}, {}, clock_};
  kube::ApiClient &hub_ = hub_client_, &member_ = member_client_;
  kube::testing::FakeTokenClaims claims_;
  std::string kubeconfig_;  // of the connection
  absl::Status may_write_ = absl::OkStatus();
  int changes_ = 0;
  const int created_ = 3;  // above
  TokenRenewal renewal_{"fusionllm", hub_, clock_, [this] { return may_write_; }, [this](const std::string&) { ++changes_; }};
};

TEST_F(TokenRenewalTest, ATokenIsRenewedWhenHalfOfItsLifeIsOver) {
  RegisterToken();
  clock_.Advance(kLife / 2 - absl::Minutes(7));
  EXPECT_EQ(Look(), absl::Minutes(7)) << "to the minute";
  EXPECT_EQ(TokensAsked(), 0);
  EXPECT_EQ(OnHub(), kubeconfig_);
  EXPECT_TRUE(Finding().renewed);
  EXPECT_EQ(changes_, 1);
  clock_.Advance(absl::Minutes(7));
  Look();
  EXPECT_EQ(TokensAsked(), 1);
  const kube::ServiceAccountToken token = TokenOnHub();
  EXPECT_EQ(*token.expires_at, clock_.Now() + kLife) << "as long as before";
  EXPECT_EQ(token.account, claims_.account);
  EXPECT_EQ(token.secret_uid, claims_.secret_uid) << "whose deletion ends it";
  EXPECT_EQ(json::parse(OnHub())["kind"], "Config");
  EXPECT_THAT(Finding().message, HasSubstr("until 20"));
  EXPECT_EQ(changes_, 2);
  kubeconfig_ = OnHub();
  Look();
  EXPECT_EQ(TokensAsked(), 1) << "the new one is young";
}

TEST_F(TokenRenewalTest, RejectedRenewalBacksOff) {
  RegisterToken();
  clock_.Advance(kLife * 0.9);
  member_server_.AddFault({.verb = "create",
                           .target = "/token",
                           .times = 20,
                           .code = 403,
                           .body = R"({"kind":"Status","code":403,"reason":"Forbidden","message":"north may not"})"});
  EXPECT_EQ(Look(), TokenRenewal::kMinRetry);
  EXPECT_EQ(Finding().reason, "RenewalFailed");
  EXPECT_THAT(Finding().message, AllOf(HasSubstr("cannot be renewed: "), HasSubstr("north may not")));
  EXPECT_EQ(Look(), 2 * TokenRenewal::kMinRetry);
  for (int i = 2; i < 20; ++i) EXPECT_LE(Look(), TokenRenewal::kMaxRetry);
  EXPECT_EQ(changes_, 1) << "what stays as it is is told once";
  EXPECT_EQ(OnHub(), kubeconfig_);
  EXPECT_EQ(Count(hub_server_, "patch"), 0);
  Look();
  EXPECT_TRUE(Finding().renewed) << "as soon as the member takes it";
  EXPECT_NE(OnHub(), kubeconfig_);
}

TEST_F(TokenRenewalTest, OfTwoOperatorsOneWrites) {
  RegisterToken();
  clock_.Advance(kLife * 0.6);
  TokenRenewal other(
      "fusionllm", hub_, clock_, [] { return absl::OkStatus(); }, [](const std::string&) {});
  Look(other);
  const std::string first = OnHub();
  ASSERT_NE(first, kubeconfig_);
  Look();
  EXPECT_EQ(OnHub(), first) << "the connection is still that of the old kubeconfig";
  EXPECT_EQ(TokensAsked(), 1);
}

TEST_F(TokenRenewalTest, WhatWasWrittenMeanwhileIsNotWrittenOver) {
  RegisterToken();
  clock_.Advance(kLife * 0.6);
  // While the member is asked somebody replaces the Secret.
  member_server_.OnRequest([this](const kube::testing::RecordedRequest& request) {
    if (request.target.find("/token") == std::string::npos) return;
    const json secret = {{"metadata", {{"annotations", {{"touched", "1"}}}}}};
    EXPECT_TRUE(hub_.Patch(manifests::kSecrets, kSecret, kube::PatchType::kMerge, secret.dump()).ok());
  });
  EXPECT_EQ(Look(), TokenRenewal::kMinRetry);
  EXPECT_EQ(OnHub(), kubeconfig_);
  EXPECT_EQ(renewal_.Of("paris"), std::nullopt) << "that is no failure";
}

TEST_F(TokenRenewalTest, AMemberThatTheSecretNamesNoMoreIsAskedForNothing) {
  RegisterToken();
  clock_.Advance(kLife * 0.9);
  kubeconfig_ = "that of a member before";
  EXPECT_EQ(Look(), TokenRenewal::kMinRetry);
  EXPECT_EQ(TokensAsked(), 0);
}

TEST_F(TokenRenewalTest, AStandbyDoesNothing) {
  RegisterToken();
  clock_.Advance(kLife * 0.9);
  may_write_ = absl::FailedPreconditionError("this process does not lead");
  EXPECT_EQ(Look(), TokenRenewal::kStandbyRecheck);
  EXPECT_EQ(TokensAsked(), 0);
  EXPECT_EQ(Count(hub_server_, "get"), 0);
}

TEST_F(TokenRenewalTest, SecretsWithoutTheLabelAreNeverWritten) {
  RegisterToken();
  clock_.Advance(kLife * 0.9);
  for (const json& labels :
       {json::object(), json{{"fusionllm.io/renew-token", "false"}}, json{{"app.kubernetes.io/managed-by", "somebody"}}}) {
    Register(kubeconfig_, labels);
    EXPECT_EQ(Look(), TokenRenewal::kRecheck) << labels;
    EXPECT_EQ(Finding(), TokenFinding()) << "nothing is said of it";
  }
  Register(kubeconfig_, {{"app.kubernetes.io/managed-by", "fusionctl"}});
  EXPECT_EQ(Look(), TokenRenewal::kRecheck);
  EXPECT_EQ(Finding().reason, "NotRenewable");
  EXPECT_THAT(Finding().message, AllOf(HasSubstr("earlier release"), HasSubstr("fusionctl cluster add")));
  EXPECT_EQ(TokensAsked(), 0);
  EXPECT_EQ(Count(hub_server_, "patch"), 0);
}

TEST_F(TokenRenewalTest, ReportsUnmanagedKubeconfigs) {
  const std::string token = kube::testing::FakeToken(claims_);
  clock_.Advance(kLife * 0.9);
  json with_certificate = Kubeconfig(token), of_two = Kubeconfig(token);
  with_certificate["users"][0]["user"]["client-key-data"] = "eA==";
  of_two["users"].push_back(of_two["users"][0]);
  const std::string in_yaml = "kind: Config\nusers: [{name: north, user: {token: x}}]\n";
  for (const std::string& kubeconfig : {with_certificate.dump(), of_two.dump(), in_yaml, std::string(5000, '['), std::string()}) {
    Register(kubeconfig);
    EXPECT_EQ(Look(), TokenRenewal::kRecheck) << kubeconfig.substr(0, 100);
    EXPECT_EQ(Finding().reason, "NotRenewable") << kubeconfig.substr(0, 100);
    EXPECT_THAT(Finding().message, HasSubstr("not JSON with one user, of a token alone"));
    EXPECT_EQ(TokensAsked(), 0);
    EXPECT_EQ(Count(hub_server_, "patch"), 0);
  }
}

TEST_F(TokenRenewalTest, ReportsTokenWithoutExpiry) {
  claims_.expires_at.reset();
  claims_.secret.clear();
  RegisterToken();
  EXPECT_EQ(Look(), TokenRenewal::kRecheck);
  EXPECT_EQ(Finding().reason, "NotRenewable");
  EXPECT_THAT(Finding().message, AllOf(HasSubstr("never ends"), HasSubstr("fusionctl cluster add")));
  claims_.expires_at = clock_.Now() + kLife;
  RegisterToken();
  Look();
  EXPECT_THAT(Finding().message, HasSubstr("bound to no Secret"));
  Register(Kubeconfig("opaque").dump(2));
  Look();
  EXPECT_THAT(Finding().message, AllOf(HasSubstr("is no token of a service account"), Not(HasSubstr("opaque"))));
  EXPECT_EQ(TokensAsked(), 0);
  EXPECT_EQ(Count(hub_server_, "patch"), 0);
}

TEST_F(TokenRenewalTest, AMemberThatGivesShortLivesDoesNotMakeTheHubWriteWithoutEnd) {
  RegisterToken();
  clock_.Advance(kLife - absl::Seconds(2));
  for (int i = 0; i < 40; ++i) {
    kube::testing::FakeTokenClaims brief = claims_;
    brief.issued_at = clock_.Now() - absl::Hours(1);
    brief.expires_at = *claims_.expires_at + absl::Seconds(i + 1);
    member_server_.AddFault(
        {.verb = "create", .target = "/token", .code = 201, .body = json{{"status", {{"token", FakeToken(brief)}}}}.dump()});
    Look();
    kubeconfig_ = OnHub();
    clock_.Advance(absl::Seconds(30));
  }
  EXPECT_LE(Count(hub_server_, "patch"), 5) << "in twenty minutes";
}

TEST_F(TokenRenewalTest, ATokenThatEndsNoLaterIsNotTaken) {
  RegisterToken();
  clock_.Advance(kLife * 0.6);
  kube::testing::FakeTokenClaims brief = claims_;
  brief.expires_at = *claims_.expires_at - absl::Hours(1);
  member_server_.AddFault(
      {.verb = "create", .target = "/token", .code = 201, .body = json{{"status", {{"token", FakeToken(brief)}}}}.dump()});
  Look();
  EXPECT_THAT(Finding().message, HasSubstr("no later than the one at hand"));
  EXPECT_EQ(OnHub(), kubeconfig_);
}

}  // namespace
}  // namespace fusionllm::op::federation
