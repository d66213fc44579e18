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

  std::vector<OpTime> Measure() {
    const auto times = executor_->MeasureOps({.least = 10, .thread_cpu = true});
    Check(times.status());
    return *times;
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

// Of all reshapes of a micro-batch, where they are copies.
double SecondsOfCopies(const autodiff::TrainingGraph& training) {
  OneStage copies(training, Reshapes::kCopies);
  const std::vector<bool> views = autodiff::ViewsOf(training);
  double seconds = 0;
  for (const OpTime& time : copies.Measure()) seconds += views[time.op] ? time.seconds : 0;
  return seconds;
}

// Both are made anew in each round, in turns, since where memory falls tells for as long as it is kept.
void StepsInTurns(benchmark::State& state, const opdag::ResNetOptions& network, int64_t micro_batch) {
  constexpr int kPairs = 4;
  auto graph = opdag::BuildResNet(network);
  Check(graph.status());
  Check(opdag::InferTypes(*graph, micro_batch));
  const auto training = autodiff::Differentiate(*graph);
  Check(training.status());
  const Reshapes other = state.range(0) == 1 ? Reshapes::kCopies : Reshapes::kViews;
  std::vector<double> of_copies, of_other, ratios;
  bool other_first = false;
  for (auto _ : state) {
    other_first = !other_first;
    OneStage one(*training, other_first ? other : Reshapes::kCopies), two(*training, other_first ? Reshapes::kCopies : other);
    one.StepSeconds();  // memory is new, libraries make themselves ready
    two.StepSeconds();
    for (int pair = 0; pair < kPairs; ++pair) {
      const double first_s = one.StepSeconds(), second_s = two.StepSeconds();
      of_copies.push_back(other_first ? second_s : first_s);
      of_other.push_back(other_first ? first_s : second_s);
      ratios.push_back(of_other.back() / of_copies.back());
    }
    state.SetIterationTime(of_other.back());
  }
  state.counters["copies_ms"] = 1e3 * Median(of_copies);
  state.counters["other_ms"] = 1e3 * Median(of_other);
  state.counters["median_ratio"] = Median(ratios);
  state.counters["reshapes_ms"] = 1e3 * SecondsOfCopies(*training);
}

BENCHMARK_CAPTURE(StepsInTurns, resnet18_cifar_32x32_batch_16,
                  opdag::ResNetOptions{.depth = 18, .stem = "cifar", .num_classes = 10, .image_size = 32}, 16)
    ->Arg(0)
    ->Arg(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(10);
BENCHMARK_CAPTURE(StepsInTurns, resnet50_64x64_batch_8, opdag::ResNetOptions{.depth = 50, .num_classes = 1000, .image_size = 64}, 8)
    ->Arg(0)
    ->Arg(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(10);

}  // namespace
}  // namespace fusionllm::runtime
