#include "tests/monitoring/exporters.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "lib/nvml/nvml.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/executor/gpu_metrics.h"

namespace fusionllm::monitoring {
namespace {

constexpr auto kExporterTimeout = std::chrono::minutes(1);
constexpr const char* kDevices[] = {"paris-0", "paris-1"};
constexpr int kStages = 2;
// Of a card that the Pod of the executor has, as dcgm-exporter 3 and 4 write it.
constexpr char kDcgmPage[] =
    "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
    "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-1\",namespace=\"ml\",pod=\"train-paris-0-r0\",container=\"executor\"} 87\n"
    "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).\n# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
    "DCGM_FI_DEV_SM_CLOCK{gpu=\"0\",UUID=\"GPU-1\",namespace=\"ml\",pod=\"train-paris-0-r0\",container=\"executor\"} 1410\n"
    "# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.\n# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n"
    "DCGM_FI_DEV_XID_ERRORS{gpu=\"0\",UUID=\"GPU-1\",namespace=\"ml\",pod=\"train-paris-0-r0\",container=\"executor\"} 79\n";

v1::StageTimes Times(int64_t step, int stage) {
  v1::StageTimes times;
  times.set_step(step);
  times.set_busy_seconds(0.3);
  times.set_forward_seconds(0.1);
  times.set_backward_seconds(stage == 0 ? 0.2 : 0.25);
  v1::LinkBytes& link = *times.add_links();
  link.set_peer(kDevices[1 - stage]);
  for (const int64_t bytes : {100, 1'000'000, 10'000, 5'000}) link.add_wire_bytes_sent_by_class(bytes * step);
  link.set_rtt_seconds(0.02);
  link.set_bandwidth_bytes_per_second(6e6);
  link.set_ratio(12);
  link.set_compared_messages(1);
  link.set_relative_error(0.05);
  return times;
}

std::unique_ptr<daemon::MonitoringServer> Serve(std::function<std::string()> metrics) {
  const auto fine = [] { return absl::OkStatus(); };
  auto server = daemon::MonitoringServer::Start("127.0.0.1:0", {.metrics = std::move(metrics), .alive = fine, .ready = fine});
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

}  // namespace

Exporters::Exporters() {
  auto card = nvml::Gpu::Open("0000:3b:00.0", {FUSIONLLM_FAKE_NVML});
  EXPECT_TRUE(card.ok()) << card.status();
  setenv("FAKE_NVML_XIDS", "79", 1);
  if (card.ok()) services::AddGpuMetrics(executor_registry_, *std::move(card));
  broker::RunPlan plan{.document = "{}", .devices = {kDevices[0], kDevices[1]}};
  plan.plan.predicted_step_seconds = 0.4;
  run_.Plan(plan);
  run_.State(broker::RunState({.expected = {kDevices[0], kDevices[1]}, .total_steps = 1'000'000}));
  stage_.MemoryLimit(int64_t{8} << 30);
  stage_.NewStage(int64_t{2} << 30);
  GoOn();
  broker_server_ = Serve([this] {
    GoOn();
    return broker_registry_.Text();
  });
  executor_server_ = Serve([this] { return executor_registry_.Text(); });
  dcgm_server_ = Serve([] { return std::string(kDcgmPage); });
}

void Exporters::GoOn() {
  const base::MutexLock lock(mutex_);
  const int64_t step = ++steps_;
  run_.Event({.reason = "ExecutorLost", .stage = 1});
  run_.Event({.reason = "Replanned"});
  run_.Step({.step = step, .loss = 2.5F, .gradient_norm = 0.5F, .learning_rate = 1e-3F, .step_seconds = 0.5});
  for (int stage = 0; stage < kStages; ++stage) {
    run_.StageTimes(kDevices[stage], Times(step, stage));
    run_.RecordHeartbeat(kDevices[stage]);
  }
  stage_.Step(0, Times(step, 0), 0.01);
  run_.ShardWritten(step, 0.2);
  run_.CheckpointCommitted(step, 1 << 20);
  scraped_.notify_all();
}

bool Exporters::WaitForScrape() {
  base::UniqueLock lock(mutex_);
  const int64_t before = steps_;
  return scraped_.wait_for(lock, kExporterTimeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return steps_ > before; });
}

}  // namespace fusionllm::monitoring
