// The program as Kubernetes runs it: begun, asked, stopped. On API servers in memory, behind TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "operator/load/federation.h"
#include "operator/load/operator_process.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::load {
namespace {

using nlohmann::json;

// terminationGracePeriodSeconds of the chart is 30.
constexpr absl::Duration kGrace = absl::Seconds(25);

std::string Holder(Federation& fleet) {
  const kube::Resource leases{"coordination.k8s.io", "v1", "leases", "Lease", true};
  const auto answer = fleet.hub().admin().List(leases, "");
  const json list = answer.ok() ? json::parse(*answer)["items"] : json::array();
  return list.empty() ? "" : list[0]["spec"].value("holderIdentity", "");
}

absl::Duration Now() { return kube::RealClock().Monotonic(); }

TEST(OperatorProcessTest, ItStopsInTimeAndGivesTheLeaseUpThoughItsMembersHang) {
  Federation fleet(8);
  OperatorProcess process(fleet.Arguments(/*elect=*/true), fleet.log());
  process.WaitReady();
  Federation::Await("all are connected", [&] { return fleet.Connected() == 8; });
  for (const auto& request : fleet.OperatorRequests(fleet.hub())) {
    EXPECT_THAT(request.user_agent, ::testing::MatchesRegex("fusion-operator/[0-9.]+ .linux/[a-z0-9]+. [0-9a-f]+ .+"))
        << "whose audit log tells";
    break;
  }
  for (const auto& member : fleet.members()) member->front().Freeze(true);
  for (int i = 0; i < 16; ++i) fleet.Submit(absl::StrCat("job-", i), 8);  // so that workers are at it
  Federation::Await("members are waited for", [&] { return fleet.JobsIn("Starting") > 0; });
  const absl::Duration begin = Now();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_LT(Now() - begin, kGrace);
  EXPECT_EQ(Holder(fleet), "") << "the next one need not wait for the Lease to expire";
  for (const auto& member : fleet.members()) member->front().Freeze(false);
}

TEST(OperatorProcessTest, LinesOfJsonTellWhichJobAndClusterTheyAreOf) {
  Federation fleet(1);
  std::vector<std::string> arguments = fleet.Arguments(/*elect=*/false);
  arguments.insert(arguments.end(), {"--log-format", "json", "--log-level", "debug"});
  {
    OperatorProcess process(arguments, fleet.log());
    process.WaitReady();
    fleet.Submit("job", 2);
    Federation::Await("the job runs", [&] { return fleet.Job("job").state == "Running"; });
    process.Signal(SIGTERM);
    EXPECT_EQ(process.Wait(), 0);
  }
  std::ifstream log(fleet.log());
  json of_job, of_cluster;
  for (std::string text; std::getline(log, text);) {
    const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(line.is_object()) << text;
    EXPECT_EQ(line["program"], "fusion-operator");
    if (line.contains("job")) of_job = line;
    if (line.contains("cluster") && !line.contains("job")) of_cluster = line;
  }
  EXPECT_EQ(of_job.value("job", ""), "training/job");
  EXPECT_NE(of_job.value("reconcileID", ""), "");
  EXPECT_NE(of_cluster.value("cluster", ""), "");
  EXPECT_NE(of_cluster.value("reconcileID", ""), of_job.value("reconcileID", ""));
}

TEST(OperatorProcessTest, ItStopsWhileTheHubIsStillBeingListed) {
  Federation fleet(1);
  fleet.hub().server().AddFault({.verb = "list", .target = "/fusionjobs", .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  OperatorProcess process(fleet.Arguments(/*elect=*/false), fleet.log());
  Federation::Await("it lists", [&] {
    for (const auto& request : fleet.OperatorRequests(fleet.hub())) {
      if (request.target.find("/configmaps") != std::string::npos) return true;
    }
    return false;
  });
  const absl::Duration begin = Now();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_LT(Now() - begin, absl::Seconds(10));
}

TEST(OperatorProcessTest, AStandbyHasItsMembersConnectedAndWritesNothing) {
  Federation fleet(2);
  auto leading = std::make_unique<OperatorProcess>(fleet.Arguments(/*elect=*/true), fleet.log());
  leading->WaitReady();
  Federation::Await("all are connected", [&] { return fleet.Connected() == 2; });
  fleet.Submit("job", 2);
  Federation::Await("the job runs", [&] { return fleet.Job("job").state == "Running"; });
  const auto watches = [&] { return fleet.members()[0]->server().open_watches(); };
  Federation::Await("the leader watches members", [&] { return watches() == 1 + 4; });  // the first is the kubelet's
  OperatorProcess standby(fleet.Arguments(/*elect=*/true), fleet.log());
  standby.WaitReady();
  Federation::Await("the standby watches members", [&] { return watches() == 1 + 2 * 4; });
  fleet.ForgetRequests();
  Federation::Await("the leader renews its lease twice more", [&] { return fleet.TrafficOf(fleet.hub()).writes >= 2; });
  for (const auto& member : fleet.members()) {
    Traffic traffic = fleet.TrafficOf(*member);
    // The leader's, for the namespace of the new job: a question that changes nothing.
    traffic.writes -= traffic.requests["create selfsubjectaccessreviews"];
    EXPECT_EQ(traffic.writes, 0) << traffic.Text();
  }
  const std::string first = Holder(fleet);
  leading->Signal(SIGTERM);
  EXPECT_EQ(leading->Wait(), 0);
  fleet.Submit("next", 2);
  Federation::Await("the standby goes on", [&] { return fleet.Job("next").state == "Running"; });
  EXPECT_NE(Holder(fleet), first);
  EXPECT_EQ(fleet.RunningPods(), 6);
}

}  // namespace
}  // namespace fusionllm::op::load
