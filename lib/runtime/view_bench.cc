// Steps of one stage in turns, with reshapes as copies and as views (docs/results/cpu-training.md#reshapes-as-views). CPU time of the
// stage's thread, which other work of the machine lengthens by little. The argument 1 has copies on both sides: what the ratio of like and
// like comes to.
#include <vector>

#include "benchmark/benchmark.h"
#include "lib/models/resnet/graph.h"
#include "lib/runtime/testing/one_stage.h"

namespace fusionllm::runtime {
namespace {

constexpr int64_t kClasses = 10;

using testing::ExitUnlessOk;
using testing::Median;
using testing::OneStage;

StageConfig ConfigOf(const autodiff::TrainingGraph& training, Reshapes reshapes) {
  return {.reshapes = reshapes, .optimizer = {.learning_rate = 1e-3}, .micro_batch_size = training.graph.batch()};
}

// Of all reshapes of a micro-batch, where they are copies.
double SecondsOfCopies(const autodiff::TrainingGraph& training) {
  OneStage copies(training, ConfigOf(training, Reshapes::kCopies), kClasses);
  const std::vector<bool> views = autodiff::ViewsOf(training);
  double seconds = 0;
  for (const OpTime& time : copies.MeasureOps()) seconds += views[time.op] ? time.seconds : 0;
  return seconds;
}

// Both are made again in each round, in turns, since where memory falls tells for as long as it is kept.
void StepsInTurns(benchmark::State& state, const models::ResNetOptions& network, int64_t micro_batch) {
  constexpr int kPairs = 4;
  auto graph = models::BuildResNet(network);
  ExitUnlessOk(graph.status());
  ExitUnlessOk(opdag::InferTypes(*graph, micro_batch));
  const auto training = autodiff::Differentiate(*graph);
  ExitUnlessOk(training.status());
  const Reshapes other = state.range(0) == 1 ? Reshapes::kCopies : Reshapes::kViews;
  std::vector<double> of_copies, of_other, ratios;
  bool other_first = false;
  for (auto _ : state) {
    other_first = !other_first;
    OneStage one(*training, ConfigOf(*training, other_first ? other : Reshapes::kCopies), kClasses);
    OneStage two(*training, ConfigOf(*training, other_first ? Reshapes::kCopies : other), kClasses);
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
                  models::ResNetOptions{.depth = 18, .stem = "cifar", .num_classes = 10, .image_size = 32}, 16)
    ->Arg(0)
    ->Arg(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(10);
BENCHMARK_CAPTURE(StepsInTurns, resnet50_64x64_batch_8, models::ResNetOptions{.depth = 50, .num_classes = 1000, .image_size = 64}, 8)
    ->Arg(0)
    ->Arg(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(10);

}  // namespace
}  // namespace fusionllm::runtime
