// The tokens of members: renewed in time, and reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "lib/kube/client/service_account_token.h"
#include "lib/kube/testing/fake_token.h"
#include "operator/federation/testing/cluster_registry_fixture.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ClusterTokenTest : public testing::ClusterRegistryTest {
 protected:
  ClusterTokenTest() {
    const auto member = Client(paris_);
    const auto make = [&](const char* plural, const char* kind, const char* name) {
      const json object = {{"apiVersion", "v1"}, {"kind", kind}, {"metadata", {{"name", name}}}};
      return json::parse(member->Create({"", "v1", plural, kind, true}, "default", object.dump(), {}, {}).value_or("{}"));
    };
    make("serviceaccounts", "ServiceAccount", "north");
    claims_ = {.account = {"default", "north"}, .secret = "north-token"};
    claims_.secret_uid = make("secrets", "Secret", "north-token")["metadata"]["uid"];
  }

  // With a token of 30 days that is so old.
  void Register(std::optional<absl::Duration> age) {
    if (age.has_value()) {
      claims_.issued_at = clock_.Now() - *age;
      claims_.expires_at = claims_.issued_at + absl::Hours(24 * 30);
    }
    const json kubeconfig = {{"kind", "Config"},
                             {"current-context", "to paris"},
                             {"users", json::array({{{"name", "north"}, {"user", {{"token", FakeToken(claims_)}}}}})}};
    const json secret = {{"apiVersion", "v1"},
                         {"kind", "Secret"},
                         {"metadata", {{"name", "s"}, {"labels", {{"fusionllm.io/renew-token", "true"}}}}},
                         {"data", {{"kubeconfig", absl::Base64Escape(kubeconfig.dump(2))}}}};
    ASSERT_TRUE(hub_->Apply(manifests::kSecrets, {testing::kNamespace, "s"}, secret.dump(), {.field_manager = "fusionctl"}).ok());
    AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  }
  absl::Time Expiry() {
    std::string text;
    const json secret = json::parse(*hub_->Get(manifests::kSecrets, {testing::kNamespace, "s"}));
    EXPECT_TRUE(absl::Base64Unescape(secret["data"]["kubeconfig"].get<std::string>(), &text));
    const auto token = kube::ReadServiceAccountToken(json::parse(text)["users"][0]["user"]["token"].get<std::string>());
    return token.ok() ? token->expires_at.value_or(absl::InfiniteFuture()) : absl::InfinitePast();
  }
  int Connections() {
    const base::MutexLock lock(mutex_);
    return static_cast<int>(limits_.size());
  }
  int TokensAsked() {
    const auto requests = paris_.requests();
    return static_cast<int>(std::count_if(requests.begin(), requests.end(), [](const auto& request) {
      return absl::EndsWith(request.target, "/serviceaccounts/north/token");
    }));
  }

  kube::testing::FakeTokenClaims claims_;
};

TEST_F(ClusterTokenTest, AnOldTokenIsReplacedAndTheMemberStaysConnectedByTheNewOne) {
  Register(absl::Hours(24 * 20));
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Expiry() > clock_.Now() + absl::Hours(24 * 29); }));
  EXPECT_TRUE(Eventually([&] { return absl::StartsWith(Condition("paris", "TokenRenewed"), "True until "); }))
      << Condition("paris", "TokenRenewed");
  EXPECT_TRUE(Eventually([&] { return Connections() == 2; })) << "one by each";
  EXPECT_TRUE(Eventually([&] { return Holds("paris", "Connected") && paris_.open_watches() == 4; }));
  EXPECT_EQ(TokensAsked(), 1);
}

TEST_F(ClusterTokenTest, UnrenewableTokenStaysInUse) {
  paris_.AddFault({.verb = "create",
                   .target = "/token",
                   .times = 1'000'000,
                   .code = 403,
                   .body = R"({"kind":"Status","code":403,"reason":"Forbidden","message":"may not"})"});
  Register(absl::Hours(24 * 20));
  const absl::Time expiry = Expiry();
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return absl::StartsWith(Condition("paris", "TokenRenewed"), "False its token, until "); }));
  EXPECT_THAT(Condition("paris", "TokenRenewed"), HasSubstr("cannot be renewed: "));
  EXPECT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  EXPECT_EQ(Expiry(), expiry);
  EXPECT_TRUE(Eventually([&] {
    const base::MutexLock lock(mutex_);
    return std::any_of(events_.begin(), events_.end(),
                       [](const auto& event) { return absl::StartsWith(event, "paris ! RenewalFailed: "); });
  }));
}

TEST_F(ClusterTokenTest, ATokenWithoutAnEndGoesOnAndSaysHowToReplaceIt) {
  claims_.secret.clear();
  Register(std::nullopt);
  registry_->Start();
  EXPECT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  EXPECT_TRUE(
      Eventually([&] { return absl::StartsWith(Condition("paris", "TokenRenewed"), "False its token never ends: run `fusionctl"); }));
  EXPECT_EQ(TokensAsked(), 0);
}

TEST_F(ClusterTokenTest, OfASecretThatSomebodyElseMadeNothingIsSaid) {
  WriteSecret("s", "to paris");
  AddCluster("paris", {{"kubeConfig", {{"location", "s"}}}});
  registry_->Start();
  EXPECT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  EXPECT_EQ(Condition("paris", "TokenRenewed"), "none");
}

}  // namespace
}  // namespace fusionllm::op::federation
