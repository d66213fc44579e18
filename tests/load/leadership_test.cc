// How the program ends its lead: by its own will, and by another's. On API servers in memory, behind TLS.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/load/federation.h"
#include "tests/load/operator_process.h"

namespace fusionllm::load {
namespace {

using nlohmann::json;

const kube::Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease", true};

bool IsOfLease(const kube::testing::RecordedRequest& request) { return absl::StrContains(request.target, "/leases"); }

TEST(LeadershipTest, WhoLosesTheLeaseToAnotherEndsWithOne) {
  Federation fleet(1);
  OperatorProcess process(fleet.Arguments(/*elect=*/true), fleet.log());
  process.WaitReady();
  Federation::Await("it leads", [&] { return fleet.Connected() == 1; });
  const json leases = json::parse(fleet.hub().admin().List(kLeases, "").value());
  ASSERT_EQ(leases["items"].size(), 1u);
  const json& metadata = leases["items"][0]["metadata"];
  const json other = {{"spec", {{"holderIdentity", "somebody-else"}}}};
  ASSERT_TRUE(fleet.hub().admin().Patch(kLeases, {metadata["namespace"], metadata["name"]}, kube::PatchType::kMerge, other.dump()).ok());
  EXPECT_EQ(process.Wait(), 1) << "Kubernetes starts it again, as a standby";
}

TEST(LeadershipTest, WhoStopsIsNotReadyWhileItDrains) {
  Federation fleet(2);
  OperatorProcess process(fleet.Arguments(/*elect=*/true), fleet.log());
  process.WaitReady();
  EXPECT_EQ(process.CodeOf("/healthz"), 200);
  Federation::Await("all are connected", [&] { return fleet.Connected() == 2; });
  // A worker waits for an answer of the hub, so that there is something to drain.
  fleet.hub().server().AddFault({.verb = "create", .target = "/secrets", .times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  fleet.Submit("job", 2);
  Federation::Await("it makes a Secret", [&] {
    const auto requests = fleet.OperatorRequests(fleet.hub());
    return std::any_of(requests.begin(), requests.end(), [](const auto& request) { return absl::StrContains(request.target, "/secrets"); });
  });
  process.Signal(SIGTERM);
  Federation::Await(
      "it is not ready any more", [&] { return process.CodeOf("/readyz") == 503; }, absl::Seconds(10));
  EXPECT_EQ(process.Wait(), 0);
}

TEST(LeadershipTest, TheLeaseIsTheLastThingThatIsWritten) {
  Federation fleet(2);
  OperatorProcess process(fleet.Arguments(/*elect=*/true), fleet.log());
  process.WaitReady();
  Federation::Await("all are connected", [&] { return fleet.Connected() == 2; });
  for (int i = 0; i < 30; ++i) fleet.Submit(absl::StrCat("job-", i), 4);
  Federation::Await("it is at work", [&] { return fleet.JobsIn("Starting") + fleet.JobsIn("Running") > 3; });
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  const auto of_hub = fleet.OperatorRequests(fleet.hub());
  const auto release = std::find_if(of_hub.rbegin(), of_hub.rend(), [](const auto& r) { return IsOfLease(r) && r.verb == "update"; });
  ASSERT_NE(release, of_hub.rend());
  const json leases = json::parse(fleet.hub().admin().List(kLeases, "").value());
  ASSERT_EQ(leases["items"][0]["spec"].value("holderIdentity", ""), "") << "that update was the release";
  for (SimCluster* cluster : {&fleet.hub(), fleet.members()[0].get(), fleet.members()[1].get()}) {
    for (const auto& request : fleet.OperatorRequests(*cluster)) {
      if (IsOfLease(request)) continue;
      EXPECT_LE(request.at, release->at) << request.verb << " " << request.target;
    }
  }
}

}  // namespace
}  // namespace fusionllm::load
