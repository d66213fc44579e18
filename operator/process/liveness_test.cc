#include "operator/process/liveness.h"

#include <gtest/gtest.h>

#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::op {
namespace {

TEST(LivenessTest, AWorkerThatIsStuckIsNamed) {
  kube::testing::FakeClock clock;
  kube::WorkQueue idle("idle", clock, nullptr), busy("busy", clock, nullptr);
  busy.Add({"", "ns", "job"});
  clock.Advance(2 * kStuckAfter);
  EXPECT_TRUE(CheckAtWork({&idle, &busy}).ok()) << "what waits is not stuck: there may be no leader to work";
  const auto key = busy.Get();
  EXPECT_TRUE(CheckAtWork({&idle, &busy}).ok());
  clock.Advance(kStuckAfter);
  EXPECT_EQ(CheckAtWork({&idle, &busy}).message(), "a worker of queue busy has been at one key for 10m");
  busy.Done(*key);
  EXPECT_TRUE(CheckAtWork({&idle, &busy}).ok());
}

}  // namespace
}  // namespace fusionllm::op
