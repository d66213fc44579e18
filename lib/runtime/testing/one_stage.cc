#include "lib/runtime/testing/one_stage.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "lib/runtime/testing/local_pipeline.h"

namespace fusionllm::runtime::testing {

void ExitUnlessOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

class OneStage::NoPeers final : public MessagePort {
 public:
  absl::Status Send(int, const MessageKey&, Payload) override { return absl::InternalError("one stage has no peers"); }
};

OneStage::OneStage(const autodiff::TrainingGraph& training, const StageConfig& config, int64_t classes)
    : backend_(*kernels::CreateBackend("cpu", {.threads = 1})), port_(std::make_unique<NoPeers>()), source_(SyntheticSource(1, classes)) {
  auto executor = StageExecutor::Create(training, std::vector<int>(training.graph.ops().size(), 0), 0, 1, config, ExactEdgeCodec(),
                                        *backend_, *port_, inbox_, *source_, throttle_, {});
  ExitUnlessOk(executor.status());
  executor_ = *std::move(executor);
  ExitUnlessOk(executor_->store().InitializeAll(/*seed=*/1));
}

OneStage::~OneStage() = default;

double OneStage::StepSeconds() {
  const int64_t begin_ns = ThreadCpuNanoseconds();
  ++step_;
  ExitUnlessOk(executor_->Run(step_, step_).status());
  return 1e-9 * static_cast<double>(ThreadCpuNanoseconds() - begin_ns);
}

std::vector<OpTime> OneStage::MeasureOps() {
  auto times = executor_->MeasureOps({.min_micro_batches = 10, .thread_cpu = true});
  ExitUnlessOk(times.status());
  return *std::move(times);
}

double Median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2), numbers.end());
  return numbers[numbers.size() / 2];
}

}  // namespace fusionllm::runtime::testing
