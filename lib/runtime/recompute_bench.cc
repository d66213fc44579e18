// Steps of GPT-2 on one stage in turns, without recomputation and with it, and what activations take of memory
// (docs/results/memory.md#recomputation-by-blocks).
#include <vector>

#include "benchmark/benchmark.h"
#include "lib/models/gpt2/graph.h"
#include "lib/runtime/testing/one_stage.h"

namespace fusionllm::runtime {
namespace {

constexpr int64_t kClasses = 256, kMicroBatch = 4;
constexpr double kMiB = 1 << 20;

using testing::ExitUnlessOk;
using testing::Median;
using testing::OneStage;

// What activations take with so many micro-batches in flight.
double ActivationMiB(const autodiff::TrainingGraph& training, Recompute recompute, int slots) {
  const auto program = BuildStageProgram(training, std::vector<int>(training.graph.ops().size(), 0), 0, 1, recompute);
  ExitUnlessOk(program.status());
  return static_cast<double>(program->stash_bytes_per_slot * slots + program->scratch_bytes) / kMiB;
}

void Gpt2InTurns(benchmark::State& state) {
  auto graph = models::BuildGpt2(
      {.layers = state.range(0), .heads = 6, .embd = 384, .vocab = kClasses, .positions = 256, .sequence = 256, .tied = true});
  ExitUnlessOk(graph.status());
  ExitUnlessOk(opdag::InferTypes(*graph, kMicroBatch));
  const auto training = autodiff::Differentiate(*graph);
  ExitUnlessOk(training.status());
  const auto config = [](Recompute recompute) {
    return StageConfig{.recompute = recompute, .optimizer = {.learning_rate = 1e-4}, .micro_batch_size = kMicroBatch};
  };
  OneStage none(*training, config(Recompute::kNone), kClasses), full(*training, config(Recompute::kFull), kClasses);
  none.StepSeconds();  // memory is new, libraries make themselves ready
  full.StepSeconds();
  std::vector<double> of_none, of_full, ratios;
  bool full_first = false;
  for (auto _ : state) {
    full_first = !full_first;
    const double first_s = (full_first ? full : none).StepSeconds(), second_s = (full_first ? none : full).StepSeconds();
    of_none.push_back(full_first ? second_s : first_s);
    of_full.push_back(full_first ? first_s : second_s);
    ratios.push_back(of_full.back() / of_none.back());
    state.SetIterationTime(of_full.back());
  }
  state.counters["none_ms"] = 1e3 * Median(of_none);
  state.counters["full_ms"] = 1e3 * Median(of_full);
  state.counters["median_ratio"] = Median(ratios);
  for (const int slots : {1, 4}) {
    state.counters["none_mib_" + std::to_string(slots)] = ActivationMiB(*training, Recompute::kNone, slots);
    state.counters["full_mib_" + std::to_string(slots)] = ActivationMiB(*training, Recompute::kFull, slots);
  }
}

BENCHMARK(Gpt2InTurns)->Arg(6)->Arg(12)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(10);

}  // namespace
}  // namespace fusionllm::runtime
