// What is reported of attempts to reach members, by a registry that makes them.
#include "operator/federation/connect_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "operator/federation/testing/cluster_registry_fixture.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAttempts[] = "fusionllm_cluster_connect_attempts_total",
               kNextAttempt[] = "fusionllm_cluster_next_attempt_timestamp_seconds";

class ConnectAttemptsTest : public testing::ClusterRegistryTest {
 protected:
  // Nothing: there is no such series.
  std::optional<double> ValueOf(const char* metric, const std::string& cluster) {
    const std::string series = absl::StrCat(metric, "{cluster=\"", cluster, "\"} ");
    for (const absl::string_view line : absl::StrSplit(metrics_.Text(), '\n')) {
      double value = 0;
      if (absl::StartsWith(line, series) && absl::SimpleAtod(line.substr(series.size()), &value)) return value;
    }
    return std::nullopt;
  }
  bool TriedAtLeast(const std::string& cluster, double times) {
    return Eventually([&] { return ValueOf(kAttempts, cluster).value_or(0) >= times; });
  }
  void Add(const std::string& name, const std::string& kubeconfig) {
    WriteSecret(name, kubeconfig);
    AddCluster(name, {{"kubeConfig", {{"location", name}}}});
  }
};

TEST_F(ConnectAttemptsTest, AMemberThatDoesNotAnswerIsTriedAgainAndAgain) {
  paris_.AddFault({.verb = "get", .target = "/namespaces/kube-system", .times = 1'000'000, .code = 503});
  Add("paris", "to paris");
  registry_->Start();
  ASSERT_TRUE(TriedAtLeast("paris", 1));
  ASSERT_TRUE(Eventually([&] { return ValueOf(kNextAttempt, "paris").has_value(); }));
  const double first = *ValueOf(kNextAttempt, "paris");
  const double now = absl::ToDoubleSeconds(clock_.Now() - absl::UnixEpoch());
  EXPECT_LE(first, now + absl::ToDoubleSeconds(MemberConnection::kRecheckAfter));
  EXPECT_TRUE(TriedAtLeast("paris", 2));
  EXPECT_TRUE(Eventually([&] { return ValueOf(kNextAttempt, "paris").value_or(0) > first; }));
}

TEST_F(ConnectAttemptsTest, SoIsOneWhoseKubeconfigIsRefused) {
  Add("lima", "with a token file");
  registry_->Start();
  EXPECT_TRUE(TriedAtLeast("lima", 2));
  EXPECT_TRUE(Eventually([&] { return ValueOf(kNextAttempt, "lima").has_value(); }));
}

TEST_F(ConnectAttemptsTest, ExportsNextAttemptWhileDisconnected) {
  paris_.AddFault({.verb = "get", .target = "/namespaces/kube-system", .times = 1, .code = 503});
  Add("paris", "to paris");
  AddCluster("home", {{"local", json::object()}});
  registry_->Start();
  ASSERT_TRUE(Eventually([&] { return Holds("paris", "Connected"); }));
  EXPECT_TRUE(Eventually([&] { return ValueOf(kNextAttempt, "paris") == std::nullopt; }));
  EXPECT_GE(ValueOf(kAttempts, "paris"), 2) << "once in vain";
  EXPECT_EQ(ValueOf(kAttempts, "home"), std::nullopt) << "to the hub there is a connection already";
}

TEST_F(ConnectAttemptsTest, SeriesGoWithTheirCluster) {
  tokyo_.AddFault({.verb = "get", .target = "/namespaces/kube-system", .times = 1'000'000, .code = 503});
  for (const char* name : {"paris", "tokyo"}) Add(name, absl::StrCat("to ", name));
  registry_->Start();
  ASSERT_TRUE(TriedAtLeast("paris", 1) && TriedAtLeast("tokyo", 1));
  for (const char* name : {"paris", "tokyo"}) ASSERT_TRUE(hub_->Delete(manifests::kFusionClusters, {"", name}, {}).ok());
  EXPECT_TRUE(Eventually([&] { return !absl::StrContains(metrics_.Text(), "{cluster="); })) << metrics_.Text();
}

TEST(ConnectMetricsTest, WhatALateWorkerSaysOfAClusterThatIsGoneIsNotHeard) {
  metrics::Registry registry("test", "1");
  ConnectMetrics metrics(registry);
  metrics.Register("paris");
  EXPECT_THAT(registry.Text(), HasSubstr(absl::StrCat(kAttempts, "{cluster=\"paris\"} 0\n")));
  metrics.Forget("paris");
  metrics.Tried("paris");
  metrics.NextAt("paris", absl::FromUnixSeconds(1'700'000'000));
  EXPECT_THAT(registry.Text(), Not(HasSubstr("paris")));
}

}  // namespace
}  // namespace fusionllm::op::federation
