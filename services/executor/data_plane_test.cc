#include "services/executor/data_plane.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"
#include "lib/transport/shared_buckets.h"
#include "services/grpc_server.h"

namespace fusionllm::services {
namespace {

TEST(DataPlaneTest, AnswersHealthChecks) {
  const auto credentials = LoadCredentials("", "a");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  auto data_plane = DataPlane::Create({.name = "a", .incarnation = 1}, *credentials);
  ASSERT_TRUE(data_plane.ok()) << data_plane.status();
  const auto channel = grpc::CreateChannel((*data_plane)->address(), grpc::InsecureChannelCredentials());
  const absl::Status health = CheckHealth(*channel, absl::Seconds(60));
  EXPECT_TRUE(health.ok()) << health;
  (*data_plane)->Close();
  EXPECT_FALSE(CheckHealth(*channel, absl::Seconds(60)).ok());
}

// The worker sets the emulation up; the network is in use by then.
TEST(DataPlaneTest, EmulationComesOrFailsWhileTheNetworkIsInUse) {
  const auto credentials = LoadCredentials("", "a");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  const auto a = DataPlane::Create({.name = "a", .incarnation = 1}, *credentials);
  const auto b = DataPlane::Create({.name = "b", .incarnation = 1}, *credentials);
  ASSERT_TRUE(a.ok() && b.ok());
  const auto topology = job::ParseTopology(R"(
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: pair}
spec:
  sites:
  - name: here
    devices: [{name: a, memory: 1Gi}, {name: b, memory: 1Gi}]
    internal: {bandwidth: 10Gbit, latency: 1us}
)",
                                           "topology.yaml");
  ASSERT_TRUE(topology.ok()) << topology.status();
  const auto links = job::LinkTable::Create(*topology);
  ASSERT_TRUE(links.ok()) << links.status();
  (*a)->SetPeer("b", (*b)->address());

  base::TempFolder folder;
  ASSERT_TRUE(transport::SharedBuckets::Create(folder / "empty", std::vector<transport::BucketSpec>{{"else", 1e6}}).ok());
  EXPECT_FALSE((*a)->Emulate(*links, folder / "empty").ok());
  EXPECT_TRUE((*a)->Probe("b").ok()) << "as before";

  std::vector<transport::BucketSpec> buckets;
  for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "a")}) {
    const auto link = links->Between(from, to);
    ASSERT_TRUE(link.ok()) << link.status();
    for (const job::LinkResource& resource : link->path) {
      const auto same = [&](const transport::BucketSpec& bucket) { return bucket.name == resource.name; };
      if (std::none_of(buckets.begin(), buckets.end(), same)) buckets.push_back({.name = resource.name, .bytes_per_s = 1e9});
    }
  }
  ASSERT_TRUE(transport::SharedBuckets::Create(folder / "links", buckets).ok());
  {
    std::atomic<bool> over = false;
    const std::jthread session([&] {
      for (uint32_t epoch = 1; !over; ++epoch) (*a)->Detach(epoch % 100);
    });
    EXPECT_TRUE((*a)->Emulate(*links, folder / "links").ok());
    EXPECT_TRUE((*b)->Emulate(*links, folder / "links").ok());
    EXPECT_TRUE((*a)->Probe("b").ok());
    over = true;
  }
}

}  // namespace
}  // namespace fusionllm::services
