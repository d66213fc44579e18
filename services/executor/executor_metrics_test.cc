#include "services/executor/executor_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/fusionllm/v1/broker.pb.h"
#include "services/executor/process_memory.h"

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::StageTimes Times(double forward, int64_t tensor_bytes) {
  v1::StageTimes times;
  times.set_forward_seconds(forward);
  v1::LinkBytes& link = *times.add_links();
  link.set_peer("b");
  for (const int64_t bytes : {int64_t{0}, tensor_bytes}) link.add_wire_bytes_sent_by_class(bytes);
  return times;
}

TEST(ExecutorMetricsTest, TellsOfTheStageAndItsMemory) {
  metrics::Registry registry("test", "0");
  ExecutorMetrics executor_metrics(registry, "a");
  EXPECT_THAT(registry.Text(), Not(HasSubstr("fusionllm_stage")));
  executor_metrics.MemoryLimit(1'000);
  executor_metrics.NewStage(600);
  executor_metrics.Step(2, Times(0.25, 4'096), 0.5);
  const std::string text = registry.Text();
  for (const char* line : {"fusionllm_device_memory_bytes{kind=\"limit\"} 1000\n", "fusionllm_device_memory_bytes{kind=\"planned\"} 600\n",
                           "fusionllm_stage_compute_seconds{dir=\"forward\",stage=\"2\"} 0.25\n", "fusionllm_data_wait_seconds 0.5\n",
                           "fusionllm_link_bytes_total{class=\"tensor\",dst=\"b\",src=\"a\"} 4096\n",
                           "fusionllm_device_memory_bytes{kind=\"resident\"} ", "fusionllm_device_memory_bytes{kind=\"peak\"} "}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(ExecutorMetricsTest, ANewStageLeavesNothingOfTheOldOneButItsBytes) {
  metrics::Registry registry("test", "0");
  ExecutorMetrics executor_metrics(registry, "a");
  executor_metrics.NewStage(600);
  executor_metrics.Step(0, Times(0.25, 4'096), 0.5);
  executor_metrics.NewStage(700);
  executor_metrics.Step(1, Times(0.5, 100), -1);
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("fusionllm_stage_compute_seconds{dir=\"forward\",stage=\"1\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("fusionllm_link_bytes_total{class=\"tensor\",dst=\"b\",src=\"a\"} 4196\n"));
  EXPECT_THAT(text, Not(HasSubstr("stage=\"0\"")));
  EXPECT_THAT(text, Not(HasSubstr("data_wait_seconds"))) << "this stage reads no data";
}

}  // namespace
}  // namespace fusionllm::services
