#include "lib/kube/client/service_account_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/testing/fake_token.h"

namespace fusionllm::kube {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string TokenOf(const std::string& claims) {
  return absl::StrCat(absl::WebSafeBase64Escape("{}"), ".", absl::WebSafeBase64Escape(claims), ".c2ln");
}

TEST(ServiceAccountTokenTest, SaysWhoseItIsWhatItIsBoundToAndWhenItEnds) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const auto read = ReadServiceAccountToken(testing::FakeToken(
      {.account = {"hubs", "north"}, .secret = "s", .secret_uid = "u", .issued_at = now, .expires_at = now + absl::Hours(1)}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, (ServiceAccountToken{{"hubs", "north"}, "s", "u", now, now + absl::Hours(1)}));
}

TEST(ServiceAccountTokenTest, OneOfASecretOfTheAccountNeverEnds) {
  const auto read = ReadServiceAccountToken(TokenOf(
      R"({"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:hubs:north","kubernetes.io/serviceaccount/namespace":"hubs"})"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->expires_at, std::nullopt);
  EXPECT_EQ(read->secret, "");
}

TEST(ServiceAccountTokenTest, WhatIsNoneIsRefusedWithoutAWordOfIt) {
  const std::string good = R"("sub":"system:serviceaccount:a:b")";
  const std::string deep = absl::StrCat("{", good, ",\"x\":", std::string(5000, '['), std::string(5000, ']'), "}");
  for (const std::string& token :
       {std::string(), std::string("secret"), std::string("secret.secret.secret"), TokenOf("{}"), TokenOf("[]"), TokenOf("secret"),
        TokenOf(R"({"sub":"secret"})"), TokenOf(R"({"sub":"system:serviceaccount:a"})"),
        TokenOf(R"({"sub":"system:serviceaccount:a:b:c"})"), TokenOf(R"({"sub":["system:serviceaccount:a:b"]})"),
        TokenOf(absl::StrCat("{", good, R"(,"exp":"soon"})")), TokenOf(absl::StrCat("{", good, R"(,"exp":9223372036854775807,"iat":0})")),
        TokenOf(absl::StrCat("{", good, R"(,"exp":-1,"iat":-2})")), TokenOf(absl::StrCat("{", good, R"(,"exp":5,"iat":5})")),
        TokenOf(absl::StrCat("{", good, R"(,"exp":5})")), TokenOf(deep), TokenOf(absl::StrCat("{", good, "}")) + "\r\nX-Header: secret",
        TokenOf(absl::StrCat("{", good, "}")) + std::string(20'000, 'a')}) {
    const absl::Status status = ReadServiceAccountToken(token).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << token.substr(0, 200);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("is no token of a service account"), Not(HasSubstr("secret"))));
  }
}

class RequestTokenTest : public ::testing::Test {
 protected:
  RequestTokenTest() {
    Create("serviceaccounts", "ServiceAccount", "north");
    const json secret = json::parse(Create("secrets", "Secret", "s"));
    of_ = {.account = {"default", "north"}, .secret = "s", .secret_uid = secret["metadata"]["uid"]};
  }
  std::string Create(const std::string& plural, const std::string& kind, const std::string& name) {
    const json object = {{"apiVersion", "v1"}, {"kind", kind}, {"metadata", {{"name", name}}}};
    return client_.Create({"", "v1", plural, kind, true}, "default", object.dump(), {}, {}).value_or("{}");
  }

  testing::SelfAdvancingClock clock_;
  testing::FakeApiServer server_{clock_};
  RestClient client_{{server_.NewTransport(), StaticCredentials({}), "fake", "default"}, {}, clock_};
  ServiceAccountToken of_;
};

TEST_F(RequestTokenTest, IsBoundAndEnds) {
  const auto token = RequestToken(client_, of_, absl::Hours(48));
  ASSERT_TRUE(token.ok()) << token.status();
  const auto read = ReadServiceAccountToken(*token);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->account, of_.account);
  EXPECT_EQ(read->secret_uid, of_.secret_uid);
  EXPECT_EQ(*read->expires_at - read->issued_at, absl::Hours(48));
  EXPECT_EQ(server_.requests().back().target, "/api/v1/namespaces/default/serviceaccounts/north/token");
  EXPECT_TRUE(RequestToken(client_, of_, absl::ZeroDuration()).ok()) << "a life below the least is the least";
}

TEST_F(RequestTokenTest, WithoutItsSecretOrWithAnotherOfTheNameThereIsNone) {
  of_.secret_uid = "another";
  EXPECT_FALSE(RequestToken(client_, of_, absl::Hours(1)).ok());
  of_.secret = "none";
  EXPECT_FALSE(RequestToken(client_, of_, absl::Hours(1)).ok());
  of_.account.name = "";
  EXPECT_TRUE(absl::IsInvalidArgument(RequestToken(client_, of_, absl::Hours(1)).status()));
}

TEST_F(RequestTokenTest, AnAnswerWithAnotherTokenIsNone) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const testing::FakeTokenClaims good{
      .account = of_.account, .secret = "s", .secret_uid = of_.secret_uid, .issued_at = now, .expires_at = now + absl::Hours(1)};
  testing::FakeTokenClaims endless = good, unbound = good, foreign = good;
  endless.expires_at.reset();
  unbound.secret.clear();
  foreign.account.name = "admin";
  std::vector<std::string> bodies = {
      "", "[]", "{}", R"({"status":{"token":7}})", R"({"status":{"token":"opaque"}})", std::string(50'000, '[')};
  for (const auto& claims : {endless, unbound, foreign}) bodies.push_back(json{{"status", {{"token", testing::FakeToken(claims)}}}}.dump());
  for (const std::string& body : bodies) {
    server_.AddFault({.verb = "create", .target = "/token", .code = 201, .body = body});
    EXPECT_EQ(RequestToken(client_, of_, absl::Hours(1)).status().code(), absl::StatusCode::kInternal) << body.substr(0, 100);
  }
}

}  // namespace
}  // namespace fusionllm::kube
