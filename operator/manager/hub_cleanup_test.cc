#include "operator/manager/hub_cleanup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::manager {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class HubCleanupTest : public ::testing::Test {
 protected:
  HubCleanupTest() {
    server_.Serve(manifests::kFusionJobs);
    hub_.Start();
    jobs_.Start();
    EXPECT_TRUE(jobs_.WaitForSync(absl::Minutes(1)));
    for (int i = 0; i < 60'000 && !hub_.reachable(); ++i) real_.WaitFor(absl::Milliseconds(1), {});
    EXPECT_TRUE(hub_.reachable());
  }
  ~HubCleanupTest() override {
    jobs_.Stop();
    hub_.Stop();
  }
  // One round: the paths of what was listed as of the very version at which a cache stands.
  std::vector<std::string> Compared() {
    server_.ForgetRequests();
    const kube::ReconcileResult result = housekeeper_.RunPeriodicCleanup({});
    EXPECT_TRUE(result.status.ok()) << result.status;
    std::vector<std::string> paths;
    for (const auto& request : server_.requests()) {
      if (!absl::StrContains(request.target, "resourceVersionMatch=Exact")) continue;
      paths.push_back(request.target.substr(0, request.target.find('?')));
    }
    return paths;
  }

  kube::Clock& real_ = kube::RealClock();  // of the caches: the test moves the housekeeper's alone
  kube::testing::FakeClock clock_;
  kube::testing::FakeApiServer server_{real_};
  kube::RestClient client_{{.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"}, {}, real_};
  kube::HeartbeatClient reads_{client_, real_};
  cache::ClusterCache hub_{"local", "hub", reads_, client_, real_, nullptr, [](const kube::ObjectKey&, bool) {}};
  cache::JobCache jobs_{{}, "hub", "hub-uid", reads_, real_, nullptr, [](const kube::ObjectKey&, bool) {}};
  controller::Tombstones tombstones_{client_, "default", "hub", "hub-uid"};
  controller::OrphanCollector collector_{client_, "hub-uid", tombstones_, [](const kube::ObjectKey&, const std::string&) { return false; },
                                         nullptr};
  int tidied_ = 0;
  HubCleanup housekeeper_{[this] { ++tidied_; }, hub_, jobs_, collector_, clock_};
};

TEST_F(HubCleanupTest, AllCachesAreComparedWithTheServerEveryTenMinutes) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Compared(), IsEmpty());
    clock_.Advance(absl::Minutes(10) - absl::Seconds(1));
    EXPECT_THAT(Compared(), IsEmpty()) << "it costs the server a list of all";
    clock_.Advance(absl::Seconds(1));
    EXPECT_THAT(Compared(), UnorderedElementsAre("/api/v1/pods", "/api/v1/configmaps", "/apis/fusionllm.io/v1alpha1/fusionjobs"));
  }
}

TEST_F(HubCleanupTest, EachRoundTidiesAndCollects) {
  const kube::ReconcileResult result = housekeeper_.RunPeriodicCleanup({});
  EXPECT_EQ(tidied_, 1);
  EXPECT_EQ(result.after, controller::OrphanCollector::kEvery);
}

}  // namespace
}  // namespace fusionllm::op::manager
