// A broker's and an executor's pages of metrics, made by what makes them in the programs (RunMetrics, ExecutorMetrics) and fed with a run
// that goes on: every time that somebody reads the broker's page it has made a step, lost an executor and recovered, and saved a
// checkpoint. The executor has a card, by a library of ours in place of NVML, which has had errors; a page like that of NVIDIA's DCGM
// exporter tells of it.
#pragma once

#include <condition_variable>
#include <memory>
#include <string>

#include "lib/base/mutex.h"
#include "lib/broker/run_state.h"
#include "lib/daemon/monitoring_server.h"
#include "lib/metrics/registry.h"
#include "services/broker/run_metrics.h"
#include "services/executor/executor_metrics.h"

namespace fusionllm::monitoring {

class Exporters {
 public:
  Exporters();

  // HOST:PORT
  const std::string& broker() const { return broker_server_->address(); }
  const std::string& executor() const { return executor_server_->address(); }
  const std::string& dcgm() const { return dcgm_server_->address(); }
  // Blocks until the broker's page has been read once more. False after a minute.
  bool WaitForScrape();

 private:
  void GoOn();

  base::Mutex mutex_;
  std::condition_variable scraped_;
  int64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  metrics::Registry broker_registry_{"fusion-broker", "0"}, executor_registry_{"fusion-executor", "0"};
  services::RunMetrics run_{broker_registry_, {.targets_per_step = 1'000, .samples_per_step = 8, .total_steps = 1'000'000}};
  services::ExecutorMetrics stage_{executor_registry_, "paris-0"};
  std::unique_ptr<daemon::MonitoringServer> broker_server_, executor_server_, dcgm_server_;  // last: their threads use the rest
};

}  // namespace fusionllm::monitoring
