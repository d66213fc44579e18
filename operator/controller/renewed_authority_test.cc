// A job's CA lasts for years, and a job may stand still for longer; its certificates end sooner, under running pods.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/escaping.h"
#include "lib/security/credential_files.h"
#include "operator/controller/testing/two_clusters_fixture.h"
#include "operator/manifests/job_credentials.h"
#include "operator/manifests/renewal_schedule.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using testing::TwoClustersTest;

class RenewedAuthorityTest : public TwoClustersTest {
 protected:
  void Start() {
    Submit2();
    SettleBoth();
    ASSERT_EQ(Condition("Ready"), "True AllExecutorsReady");
  }
  static std::string File(kube::ApiClient& client, const std::string& secret, const std::string& file) {
    const json object = json::parse(client.Get(manifests::kSecrets, {"default", secret}).value_or("{}"));
    std::string plain;
    EXPECT_TRUE(absl::Base64Unescape(kube::TextAt(object, "data", file), &plain)) << secret << " " << file;
    return plain;
  }
  std::string Authority() { return File(*looking_, "train-authority", "ca.pem"); }
  // Whether what a Pod mounts is of the job's CA and valid now.
  void ExpectValid(kube::ApiClient& client, const std::string& secret, const std::string& name) {
    const std::string ca = File(client, secret, "ca.pem");
    EXPECT_EQ(ca, Authority()) << secret;
    const absl::Status valid =
        security::CheckCredentials({ca, File(client, secret, name + ".pem"), File(client, secret, name + ".key")}, name, clock_.Now());
    EXPECT_TRUE(valid.ok()) << secret << " " << name << ": " << valid;
  }
  void ExpectAllValid() {
    ExpectValid(*looking_, "train-broker", "broker");
    ExpectValid(*looking_, "train-broker", "scheduler");
    ExpectValid(*looking_, "train-executors", "local-0");
    ExpectValid(*tokyo_client_, "train-executors", "tokyo-0");
  }
  void Suspend(bool suspend) { Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", suspend}}}}); }
  void SuspendFor(absl::Duration time) {
    Suspend(true);
    EndBroker(Job()["status"]["attempt"], 0, "");
    SettleBoth();
    ASSERT_EQ(Condition("Suspended"), "True Suspended");
    clock_.Advance(time);
    Suspend(false);
    SettleBoth();
  }
};

TEST_F(RenewedAuthorityTest, ResumeAfterTheAuthorityExpiredIssuesNewCertificates) {
  Start();
  ExpectAllValid();
  const std::string before = Authority();
  SuspendFor(manifests::JobCredentials::kValidity + absl::Hours(24));
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_NE(Authority(), before);
  ExpectAllValid();
  EXPECT_EQ(File(*looking_, "train-broker", "token"), File(*looking_, "train-authority", "token"));
}

TEST_F(RenewedAuthorityTest, OneWithHalfItsLifeLeftStays) {
  Start();
  const std::string before = Authority();
  SuspendFor(manifests::JobCredentials::kValidity - manifests::JobCredentials::kMinRemaining - absl::Hours(24));
  EXPECT_EQ(Authority(), before);
  SuspendFor(absl::Hours(48));
  EXPECT_NE(Authority(), before);
  ExpectAllValid();
}

TEST_F(RenewedAuthorityTest, PodsThatRunKeepTheirsWhateverIsMadeAgain) {
  Start();
  const std::string before = Authority();
  clock_.Advance(manifests::JobCredentials::kValidity - absl::Hours(24 * 30));
  const json waits = {{"status", {{"conditions", {{{"type", "Ready"}, {"status", "False"}}}}}}};
  ASSERT_TRUE(
      tokyo_client_
          ->Patch(manifests::kPods, {"default", "train-tokyo-0-r0"}, kube::PatchType::kMerge, waits.dump(), {.subresource = "status"})
          .ok());
  SettleBoth();
  ASSERT_TRUE(looking_->Delete(manifests::kSecrets, {"default", "train-broker"}).ok());
  clock_.Advance(lifecycle::kObjectRecheckPeriod);
  SettleBoth();
  ExpectValid(*looking_, "train-broker", "broker");
  EXPECT_EQ(Authority(), before) << "another would shut out the executors that are there";
}

TEST_F(RenewedAuthorityTest, CertificatesOfAJobThatRunsForYearsNeverEndAndKeysStay) {
  Start();
  const std::string before = Authority(), key = File(*tokyo_client_, "train-executors", "tokyo-0.key");
  std::set<std::string> certificates;
  for (const absl::Time end = clock_.Now() + absl::Hours(24 * 365 * 2); clock_.Now() < end; clock_.Advance(absl::Hours(24 * 7))) {
    SettleBoth();
    ExpectAllValid();
    certificates.insert(File(*tokyo_client_, "train-executors", "tokyo-0.pem"));
  }
  EXPECT_EQ(Authority(), before);
  EXPECT_EQ(File(*tokyo_client_, "train-executors", "tokyo-0.key"), key);
  EXPECT_GE(certificates.size(), 10u);
  EXPECT_EQ(Job()["status"]["attempt"], 0);
}

// Nothing else happens to this job: the operator comes back to it by itself.
TEST_F(RenewedAuthorityTest, AQuietJobIsLookedAtAgainForItsCertificates) {
  Start();
  for (const kube::ReconcileResult& look : {Reconcile(), ReconcileTokyo()}) {
    ASSERT_TRUE(look.status.ok()) << look.status;
    EXPECT_GT(look.after, absl::ZeroDuration());
    EXPECT_LE(look.after, manifests::kRenewalEvery);
  }
}

TEST_F(RenewedAuthorityTest, AMemberThatWasAwayHasItsCertificatesRenewedWhenItIsBack) {
  Start();
  const std::string before = File(*tokyo_client_, "train-executors", "tokyo-0.pem");
  for (int week = 0; week < 11; ++week) {
    clock_.Advance(absl::Hours(24 * 7));
    (void)Reconcile();
    SimulateCluster();
  }
  EXPECT_EQ(File(*tokyo_client_, "train-executors", "tokyo-0.pem"), before);
  SettleBoth();
  clock_.Advance(absl::Hours(24 * 50));
  ExpectValid(*tokyo_client_, "train-executors", "tokyo-0");
}

TEST_F(RenewedAuthorityTest, AnOperatorThatDiesHalfWayGoesOnWithTheNewOne) {
  Start();
  const std::string before = Authority();
  Suspend(true);
  EndBroker(0, 0, "");
  SettleBoth();
  clock_.Advance(manifests::JobCredentials::kValidity);
  Suspend(false);
  // Its first write after the authority's.
  server_.AddFault({.verb = "apply", .target = "/secrets/train-broker", .code = 500, .body = "busy"});
  (void)Reconcile();
  const std::string renewed = Authority();
  EXPECT_NE(renewed, before);
  Restart();
  SettleBoth();
  EXPECT_EQ(Authority(), renewed);
  ExpectAllValid();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

TEST_F(RenewedAuthorityTest, ARestartRenewsItToo) {
  Start();
  const std::string before = Authority();
  clock_.Advance(manifests::JobCredentials::kValidity - absl::Hours(24 * 30));
  EndBroker(0, 1, R"({"error":"x"})");
  SettleBoth();
  clock_.Advance(absl::Minutes(10));
  SettleBoth();
  EXPECT_EQ(Job()["status"]["attempt"], 1);
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_NE(Authority(), before);
  ExpectAllValid();
}

}  // namespace
}  // namespace fusionllm::op::controller
