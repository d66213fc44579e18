// What a job's life adds to the metrics, with an operator that looks at it.
#include "operator/controller/job_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/controller/testing/reconcile_fixture.h"

namespace fusionllm::op::controller::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class JobMetricsTest : public JobReconcilerTest {
 protected:
  JobMetricsTest() {
    metrics_ = &job_metrics_;
    Restart();
  }
  std::string Text() { return registry_.Text(); }
  // Of a histogram: how many, and what they add up to.
  void ExpectSeconds(const std::string& name, int count, int sum) {
    EXPECT_THAT(Text(), HasSubstr(absl::StrCat("fusionllm_", name, "_count ", count, "\n")));
    EXPECT_THAT(Text(), HasSubstr(absl::StrCat("fusionllm_", name, "_sum ", sum, "\n")));
  }
  void Suspend(bool suspend) { Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", suspend}}}}); }

  metrics::Registry registry_{"test", "0"};
  const JobMetrics job_metrics_{registry_};
};

TEST_F(JobMetricsTest, AStartIsMeasuredFromTheCreationAndCountsOnce) {
  Submit();
  EXPECT_TRUE(Reconcile().status.ok());
  clock_.Advance(absl::Seconds(40));  // images are pulled
  Settle();
  ExpectSeconds("job_start_latency_seconds", 1, 40);
  clock_.Advance(absl::Hours(1));
  Restart();
  Settle();
  ExpectSeconds("job_start_latency_seconds", 1, 40);
  EXPECT_THAT(Text(), HasSubstr("fusionllm_job_restarts_total{reason=\"BrokerFailed\"} 0\n"));
}

TEST_F(JobMetricsTest, AResumedJobStartsFromThenOn) {
  json job = JobObject();
  job["spec"]["suspend"] = true;
  Submit(job);
  Settle();
  clock_.Advance(absl::Hours(5));  // it waits in a queue
  Suspend(false);
  EXPECT_TRUE(Reconcile().status.ok());
  clock_.Advance(absl::Seconds(30));
  Settle();
  ExpectSeconds("job_start_latency_seconds", 1, 30);
  EXPECT_EQ(Condition("Suspended"), "False Resumed");
}

TEST_F(JobMetricsTest, ARestartIsMeasuredFromTheFailureUntilAStep) {
  Submit();
  Settle();
  EndBroker(0, 1, "{}");
  EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("Restarting"), "True BrokerFailed");
  EXPECT_THAT(Text(), HasSubstr("fusionllm_job_restarts_total{reason=\"BrokerFailed\"} 1\n"));
  clock_.Advance(absl::Seconds(20));
  Settle();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  ExpectSeconds("job_restart_latency_seconds", 0, 0);  // it has made no step yet
  Restart();                                           // which forgets nothing of it
  clock_.Advance(absl::Seconds(25));
  progress_.newest_ = lifecycle::Progress{.step = 0, .steps = 100};
  Settle();
  EXPECT_EQ(Condition("Restarting"), "True BrokerFailed");
  progress_.newest_ = lifecycle::Progress{.step = 61, .steps = 100};
  Settle();
  EXPECT_EQ(Condition("Restarting"), "False Progressing");
  ExpectSeconds("job_restart_latency_seconds", 1, 45);
  ExpectSeconds("job_start_latency_seconds", 1, 0);  // of the first attempt alone
}

TEST_F(JobMetricsTest, ABrokerThatFailsAgainAfterItsFirstStepsIsAnotherFailure) {
  Submit();
  Settle();
  EndBroker(0, 1, "{}");
  Settle();
  clock_.Advance(absl::Seconds(10));
  EndBroker(1, 1, R"({"step":7,"steps":100})");
  Settle();
  ExpectSeconds("job_restart_latency_seconds", 1, 10);
  clock_.Advance(absl::Seconds(5));
  progress_.newest_ = lifecycle::Progress{.step = 9, .steps = 100};
  Settle();
  ExpectSeconds("job_restart_latency_seconds", 2, 15);
  EXPECT_THAT(Text(), HasSubstr("fusionllm_job_restarts_total{reason=\"BrokerFailed\"} 2\n"));
}

TEST_F(JobMetricsTest, WritesOfStatusesAreCounted) {
  Submit();
  Settle();
  server_.ForgetRequests();
  Settle();
  const std::string at_rest = Text();
  EXPECT_THAT(at_rest, Not(HasSubstr("fusionllm_status_writes_total{resource=\"fusionjobs\"} 0\n")));
  Settle();
  EXPECT_EQ(Text(), at_rest);
  EXPECT_THAT(at_rest, HasSubstr("fusionllm_status_writes_total{resource=\"fusionclusters\"} 0\n"));
}

}  // namespace
}  // namespace fusionllm::op::controller::testing
