// What a played cluster knows of its Pods, and when.
#include "tests/load/sim_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "operator/manifests/resources.h"
#include "tests/load/federation.h"

namespace fusionllm::load {
namespace {

using kube::testing::RecordedRequest;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::Pair;

json ExecutorPod(const std::string& name) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}, {"namespace", kNamespace}}},
          {"spec", {{"containers", {{{"name", "executor"}, {"image", "executor"}}}}}}};
}

bool IsStatus(const RecordedRequest& request) { return absl::StrContains(request.target, "/status"); }

class SimClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Federation::Await("the kubelet watches", [&] { return cluster_.server().open_watches() == 1; });
  }
  void TearDown() override { cluster_.server().OnRequest({}); }

  // Those of the kubelet, which is the only one here that patches.
  void OnPatch(const std::function<void(const RecordedRequest&)>& on_patch) {
    cluster_.server().OnRequest([on_patch](const RecordedRequest& request) {
      if (request.verb == "patch") on_patch(request);
    });
  }
  void Create(const json& pod) { ASSERT_TRUE(cluster_.admin().Create(op::manifests::kPods, kNamespace, pod.dump()).ok()); }
  void AwaitStarts(int starts) {
    Federation::Await(
        "Pods are started", [&] { return cluster_.Starts() == starts; }, absl::Minutes(1));
  }

  const security::CertificateAuthority authority_ = *security::CertificateAuthority::Create({.common_name = "played"});
  SimCluster cluster_{"m0", authority_};
};

TEST_F(SimClusterTest, RunningPodCountsBeforeItsEvent) {
  std::vector<std::pair<int, int>> seen;  // starts and what runs, with the kubelet about to have called the next one Running
  OnPatch([&](const RecordedRequest& request) {
    if (IsStatus(request)) seen.emplace_back(cluster_.Starts(), cluster_.RunningPods());
  });
  // The watch goes on with both, so the kubelet comes to the second before it can know that the first one runs.
  cluster_.server().BreakWatches();
  Create(ExecutorPod("first"));
  Create(ExecutorPod("second"));
  AwaitStarts(2);
  EXPECT_EQ(cluster_.RunningPods(), 2);
  cluster_.server().OnRequest({});
  EXPECT_THAT(seen, ElementsAre(Pair(0, 0), Pair(1, 1)));
}

TEST_F(SimClusterTest, LateEventIgnoresPodOfSameName) {
  std::vector<std::string> done;
  OnPatch([&](const RecordedRequest& request) {
    if (request.code == 200) done.emplace_back(IsStatus(request) ? "running" : "on a node");
  });
  json gone = ExecutorPod("same");
  gone["metadata"].update({{"uid", "gone"}, {"resourceVersion", "1"}});
  gone["spec"]["nodeName"] = "m0-node";
  gone["status"]["phase"] = "Pending";
  const std::string line = json{{"type", "ADDED"}, {"object", gone}}.dump() + "\n";
  cluster_.server().AddFault({.verb = "watch", .kind = kube::testing::Fault::Kind::kRaw, .body = line});
  cluster_.server().BreakWatches();
  Create(ExecutorPod("same"));
  AwaitStarts(1);
  cluster_.server().OnRequest({});
  EXPECT_THAT(done, ElementsAre("on a node", "running"));
}

}  // namespace
}  // namespace fusionllm::load
