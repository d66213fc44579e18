// Steps of one stage in turns, with reshapes as copies and as views (docs/perf/views.md). CPU time of the stage's thread, which other work
// of the machine lengthens by little. The argument 1 has copies on both sides: what the ratio of like and like comes to.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "lib/opdag/models/resnet.h"
#include "lib/runtime/stage_executor.h"
#include "lib/runtime/testing/local_pipeline.h"

namespace fusionllm::runtime {
namespace {

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

class NoPeers final : public MessagePort {
 public:
  absl::Status Send(int, const MessageKey&, Payload) override { return absl::InternalError("one stage has no peers"); }
};

// The whole network on one thread, a micro-batch a step.
class OneStage {
 public:
  OneStage(const autodiff::TrainingGraph& training, Reshapes reshapes) : backend_(*kernels::CreateBackend("cpu", {.threads = 1})) {
    const StageConfig config{.reshapes = reshapes, .optimizer = {.learning_rate = 1e-3}, .micro_batch_size = training.graph.batch()};
    auto executor = StageExecutor::Create(training, std::vector<int>(training.graph.ops().size(), 0), 0, 1, config, ExactEdgeCodec(),
                                          *backend_, port_, inbox_, *source_, pacer_, {});
    Check(executor.status());
    executor_ = *std::move(executor);
    Check(executor_->store().InitializeAll(/*seed=*/1));
  }

  double StepSeconds() {
    const int64_t begin = ThreadCpuNanoseconds();
    ++step_;
    Check(executor_->Run(step_, step_).status());
    return 1e-9 * static_cast<double>(ThreadCpuNanoseconds() - begin);
  }

 private:
  const std::unique_ptr<kernels::Backend> backend_;
  NoPeers port_;
  Inbox inbox_;
  DevicePacer pacer_;
  const std::unique_ptr<BatchSource> source_ = testing::SyntheticSource(1, 10);
  std::unique_ptr<StageExecutor> executor_;
  int64_t step_ = 0;
};

double Median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2), numbers.end());
  return numbers[numbers.size() / 2];
}

void StepsInTurns(benchmark::State& state, const opdag::ResNetOptions& network, int64_t micro_batch) {
  auto graph = opdag::BuildResNet(network);
  Check(graph.status());
  Check(opdag::InferTypes(*graph, micro_batch));
  const auto training = autodiff::Differentiate(*graph);
  Check(training.status());
  OneStage first(*training, Reshapes::kCopies), second(*training, state.range(0) == 1 ? Reshapes::kCopies : Reshapes::kViews);
  first.StepSeconds();  // memory is new, libraries make themselves ready
  second.StepSeconds();
  std::vector<double> of_first, of_second, ratios;
  bool turn = false;
  for (auto _ : state) {
    if (turn) of_second.push_back(second.StepSeconds());
    of_first.push_back(first.StepSeconds());
    if (!turn) of_second.push_back(second.StepSeconds());
    turn = !turn;
    ratios.push_back(of_second.back() / of_first.back());
    state.SetIterationTime(of_second.back());
  }
  state.counters["first_ms"] = 1e3 * Median(of_first);
  state.counters["second_ms"] = 1e3 * Median(of_second);
  state.counters["median_ratio"] = Median(ratios);
}

BENCHMARK_CAPTURE(StepsInTurns, resnet18_cifar_32x32_batch_16,
                  opdag::ResNetOptions{.depth = 18, .stem = "cifar", .num_classes = 10, .image_size = 32}, 16)
    ->Arg(0)
    ->Arg(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(30);
BENCHMARK_CAPTURE(StepsInTurns, resnet50_64x64_batch_8, opdag::ResNetOptions{.depth = 50, .num_classes = 1000, .image_size = 64}, 8)
    ->Arg(0)
    ->Arg(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(30);

}  // namespace
}  // namespace fusionllm::runtime
