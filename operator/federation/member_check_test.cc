#include "operator/federation/member_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::op::federation {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MemberCheckTest : public ::testing::Test {
 protected:
  void Answer(const std::string& verb, const std::string& target, int code, const std::string& body, int times = 1'000'000) {
    server_.AddFault({.verb = verb, .target = target, .times = times, .code = code, .body = body});
  }
  // Whether we may do what is asked for, by the order of the questions.
  void Allow(bool allowed, int times) {
    Answer("create", "selfsubjectaccessreviews", 201, allowed ? R"({"status":{"allowed":true}})" : R"({"status":{"allowed":false}})",
           times);
  }
  int Asked(const std::string& target) const {
    const auto requests = server_.requests();
    return static_cast<int>(
        std::count_if(requests.begin(), requests.end(), [&](const auto& r) { return r.target.find(target) != std::string::npos; }));
  }

  kube::testing::FakeClock clock_;
  kube::testing::FakeApiServer server_{clock_};
  kube::RestClient client_{
      kube::ClusterAccess{.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"},
      kube::RestClientOptions{}, clock_};
  std::set<std::string> namespaces_;
  MemberCheck check_{client_, clock_, [this] { return namespaces_; }};
};

TEST_F(MemberCheckTest, AClusterSaysWhoAndWhatItIs) {
  Answer("path", "/version", 200, R"({"gitVersion":"v1.31.2"})");
  Answer("path", "/apis", 200,
         R"({"groups":[{"name":"apps","preferredVersion":{"groupVersion":"apps/v1"}},)"
         R"({"name":"kueue.x-k8s.io","preferredVersion":{"groupVersion":"kueue.x-k8s.io/v1beta1"}}]})");
  Answer("path", "/readyz", 200, "ok", 1);
  Answer("path", "/readyz", 500, "[-]etcd failed", 1);
  Answer("path", "/readyz", 403, "no");
  EXPECT_EQ(check_.Facts(), nullptr);
  EXPECT_FALSE(check_.LastStatus().ok());
  ASSERT_TRUE(check_.Run({}).ok());
  EXPECT_FALSE(check_.Facts()->uid.empty());
  EXPECT_EQ(check_.Facts()->version, "v1.31.2");
  EXPECT_THAT(check_.Facts()->apis, ElementsAre("kueue.x-k8s.io/v1beta1"));
  EXPECT_EQ(check_.Facts()->healthy, true);
  ASSERT_TRUE(check_.Run({}).ok());
  EXPECT_EQ(check_.Facts()->healthy, false);
  ASSERT_TRUE(check_.Run({}).ok());
  EXPECT_EQ(check_.Facts()->healthy, std::nullopt) << "we may not ask";
  EXPECT_EQ(Asked("/version"), 1);
  clock_.Advance(MemberCheck::kVersionEvery);
  ASSERT_TRUE(check_.Run({}).ok());
  EXPECT_EQ(Asked("/version"), 2);
}

TEST_F(MemberCheckTest, WhatItDoesNotSayAnyMoreIsStillKnown) {
  ASSERT_TRUE(check_.Run({}).ok());
  const std::string uid = check_.Facts()->uid;
  Answer("get", "/namespaces/kube-system", 401, R"({"kind":"Status","code":401,"reason":"Unauthorized","message":"who are you"})");
  EXPECT_TRUE(absl::IsUnauthenticated(check_.Run({})));
  EXPECT_TRUE(absl::IsUnauthenticated(check_.LastStatus()));
  EXPECT_EQ(check_.Facts()->uid, uid);
}

TEST_F(MemberCheckTest, ReportsClockSkewWithHysteresis) {
  const auto date = [&](absl::Duration ahead) {
    server_.AddFault({.verb = "path",
                      .target = "/readyz",
                      .times = 1,
                      .code = 200,
                      .body = "ok",
                      .headers = {{"Date", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", clock_.Now() + ahead, absl::UTCTimeZone())}}});
  };
  ASSERT_TRUE(check_.Run({}).ok());
  EXPECT_EQ(check_.Facts()->synced, std::nullopt) << "it does not say";
  struct Case {
    absl::Duration ahead;
    bool synced;
    const char* reported;
  };
  for (const Case& one : {Case{absl::ZeroDuration(), true, ""}, Case{absl::Seconds(4), true, ""},
                          Case{absl::Seconds(20), false, "its API server's clock is some seconds ahead of the operator's"},
                          Case{absl::Seconds(4), false, "its API server's clock is some seconds ahead of the operator's"},
                          Case{-absl::Minutes(11), false, "its API server's clock is more than ten minutes behind the operator's"},
                          Case{-absl::Minutes(9), false, "its API server's clock is more than ten minutes behind the operator's"},
                          Case{-absl::Minutes(4), false, "its API server's clock is more than a minute behind the operator's"},
                          Case{-absl::Minutes(9), false, "its API server's clock is more than a minute behind the operator's"},
                          Case{-absl::Minutes(12), false, "its API server's clock is more than ten minutes behind the operator's"},
                          Case{absl::Seconds(2), true, ""}}) {
    date(one.ahead);
    ASSERT_TRUE(check_.Run({}).ok());
    EXPECT_EQ(check_.Facts()->synced, one.synced) << one.ahead;
    EXPECT_EQ(check_.Facts()->clock, one.reported);
  }
}

TEST_F(MemberCheckTest, RightsThatAreMissingWhereJobsAreAreNamed) {
  Allow(false, 15);  // everywhere
  ASSERT_TRUE(check_.Run({}).ok());
  EXPECT_EQ(Asked("selfsubjectaccessreviews"), 15)
      << "two for pods, four for config maps, three for secrets, four for services, one for claims, one for events";
  EXPECT_THAT(check_.Facts()->missing, IsEmpty()) << "there is no job that would need them";
  namespaces_ = {"team"};
  Allow(false, 15 + 1);  // everywhere, and the first of those in the namespace
  Allow(true, 14);
  ASSERT_TRUE(check_.Run({}).ok());
  EXPECT_THAT(check_.Facts()->missing, ElementsAre("create pods in namespace team"));
  ASSERT_TRUE(check_.Run({}).ok());
  EXPECT_EQ(Asked("selfsubjectaccessreviews"), 15 + 30) << "not all the time";
  clock_.Advance(MemberCheck::kPermissionRecheckPeriod);
  Allow(true, 15);
  ASSERT_TRUE(check_.Run({}).ok());
  EXPECT_THAT(check_.Facts()->missing, IsEmpty());
  clock_.Advance(absl::Hours(1));
  ASSERT_TRUE(check_.Run({}).ok());
  EXPECT_EQ(Asked("selfsubjectaccessreviews"), 15 + 30 + 15) << "at rest nothing is asked by a write";
}

}  // namespace
}  // namespace fusionllm::op::federation
