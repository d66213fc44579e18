// Steps of GPT-2 on one stage in turns, without recomputation and with it, and what each takes of memory. CPU time
// of the stage's thread, which other work of the machine lengthens by little.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "lib/opdag/models/gpt2.h"
#include "lib/runtime/stage_executor.h"
#include "lib/runtime/testing/local_pipeline.h"

namespace fusionllm::runtime {
namespace {

constexpr int64_t kClasses = 256, kMicroBatch = 4;
constexpr double kMiB = 1 << 20;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

class NoPeers final : public MessagePort {
 public:
  absl::Status Send(int, const MessageKey&, Payload) override { return absl::InternalError("one stage has no peers"); }
};

class OneStage {
 public:
  OneStage(const autodiff::TrainingGraph& training, Recompute recompute) : backend_(*kernels::CreateBackend("cpu", {.threads = 1})) {
    const StageConfig config{.recompute = recompute, .optimizer = {.learning_rate = 1e-4}, .micro_batch_size = kMicroBatch};
    auto executor = StageExecutor::Create(training, std::vector<int>(training.graph.ops().size(), 0), 0, 1, config, ExactEdgeCodec(),
                                          *backend_, port_, inbox_, *source_, pacer_, {});
    Check(executor.status());
    executor_ = *std::move(executor);
    Check(executor_->store().InitializeAll(/*seed=*/1));
  }

  double StepSeconds() {
    const int64_t begin = ThreadCpuNanoseconds();
    ++step_;
    const auto result = executor_->Run(step_, step_);
    Check(result.status());
    return 1e-9 * static_cast<double>(ThreadCpuNanoseconds() - begin);
  }

 private:
  const std::unique_ptr<kernels::Backend> backend_;
  NoPeers port_;
  Inbox inbox_;
  DevicePacer pacer_;
  const std::unique_ptr<BatchSource> source_ = testing::SyntheticSource(1, kClasses);
  std::unique_ptr<StageExecutor> executor_;
  int64_t step_ = 0;
};

double Median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2), numbers.end());
  return numbers[numbers.size() / 2];
}

// What activations take with so many micro-batches in flight.
double ActivationMiB(const autodiff::TrainingGraph& training, Recompute recompute, int slots) {
  const auto program = BuildStageProgram(training, std::vector<int>(training.graph.ops().size(), 0), 0, 1, recompute);
  Check(program.status());
  return static_cast<double>(program->stash_bytes_per_slot * slots + program->scratch_bytes) / kMiB;
}

void Gpt2InTurns(benchmark::State& state) {
  auto graph = opdag::BuildGpt2(
      {.layers = state.range(0), .heads = 6, .embd = 384, .vocab = kClasses, .positions = 256, .sequence = 256, .tied = true});
  Check(graph.status());
  Check(opdag::InferTypes(*graph, kMicroBatch));
  const auto training = autodiff::Differentiate(*graph);
  Check(training.status());
  OneStage none(*training, Recompute::kNone), full(*training, Recompute::kFull);
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
