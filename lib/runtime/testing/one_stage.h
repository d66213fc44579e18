// A whole network as one stage on one thread of the CPU back end, for benchmarks that time its steps. An error ends the process, with its
// message on stderr: a benchmark has no caller to hand it to.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "lib/runtime/stage_executor.h"

namespace fusionllm::runtime::testing {

void ExitUnlessOk(const absl::Status& status);

class OneStage {
 public:
  // Parameters from seed 1, synthetic data of so many classes. `training` and its typed graph must outlive this.
  OneStage(const autodiff::TrainingGraph& training, const StageConfig& config, int64_t classes);
  ~OneStage();

  // Runs the next step. Returns the processor time of the calling thread, in seconds: other work of the machine lengthens it by little.
  double StepSeconds();
  std::vector<OpTime> MeasureOps();  // ten times each, by processor time

 private:
  class NoPeers;
  const std::unique_ptr<kernels::Backend> backend_;
  const std::unique_ptr<NoPeers> port_;
  Inbox inbox_;
  DeviceThrottle throttle_;
  const std::unique_ptr<BatchSource> source_;
  std::unique_ptr<StageExecutor> executor_;
  int64_t step_ = 0;
};

double Median(std::vector<double> numbers);  // not empty

}  // namespace fusionllm::runtime::testing
