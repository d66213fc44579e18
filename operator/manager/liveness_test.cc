#include "operator/manager/liveness.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/kube/queue/work_queue.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "operator/federation/member_connection.h"

namespace fusionllm::op::manager {
namespace {

class LivenessTest : public ::testing::Test {
 protected:
  kube::testing::FakeClock clock_;
  metrics::Registry registry_{"test", "1"};
  kube::QueueMetrics queues_{registry_};
};

TEST_F(LivenessTest, AWorkerThatIsStuckIsNamed) {
  kube::WorkQueue idle("idle", clock_, &queues_), busy("fusioncluster", clock_, &queues_);
  busy.Add({"", "", "paris"});
  clock_.Advance(2 * kStuckAfter);
  EXPECT_TRUE(CheckWorkers(queues_).ok()) << "what waits is not stuck: there may be no leader to work";
  const auto key = busy.Get();
  EXPECT_TRUE(CheckWorkers(queues_).ok());
  clock_.Advance(kStuckAfter);
  EXPECT_EQ(CheckWorkers(queues_).message(), "a worker of queue fusioncluster has been at one key for 10m");
  busy.Done(*key);
  EXPECT_TRUE(CheckWorkers(queues_).ok());
}

TEST_F(LivenessTest, StuckMemberQueueKeepsLiveness) {
  kube::testing::FakeApiServer server(kube::RealClock());
  server.AddFault({.times = 1'000'000, .kind = kube::testing::Fault::Kind::kHang});
  federation::MemberContext context{.origin = "hub", .clock = &clock_, .queue_metrics = &queues_};
  context.changed = [](const kube::ObjectKey&, bool) {};
  federation::MemberConnection connection(
      "paris",
      std::make_unique<kube::RestClient>(
          kube::ClusterAccess{.transport = server.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"},
          kube::RestClientOptions{}, kube::RealClock()),
      context, [] {});
  const std::string queue = absl::StrCat(federation::kMemberQueue, "paris");
  // A worker asks who the member is.
  for (int i = 0; i < 60'000 && server.requests().empty(); ++i) kube::RealClock().WaitFor(absl::Milliseconds(1), {});
  clock_.Advance(kStuckAfter);
  ASSERT_GE(queues_.UnfinishedWork()[queue].longest, kStuckAfter);
  EXPECT_TRUE(CheckWorkers(queues_).ok());
  // It waits for that worker by the test's clock.
  std::atomic<bool> stopped = false;
  const std::jthread stopping([&] {
    connection.Stop();
    stopped = true;
  });
  while (!stopped) {
    clock_.Advance(absl::Seconds(1));
    kube::RealClock().WaitFor(absl::Milliseconds(1), {});
  }
}

}  // namespace
}  // namespace fusionllm::op::manager
