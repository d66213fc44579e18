// What planning costs: the simulator alone, and whole plans from scratch at the sizes of the design's table.
#include <sys/resource.h>

#include <memory>

#include "benchmark/benchmark.h"
#include "lib/scheduler/pipeline_model.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/requests.h"
#include "lib/scheduler/warm_start.h"

namespace fusionllm::scheduler {
namespace {

void SimulateStep(benchmark::State& state) {
  const int stages = static_cast<int>(state.range(0)), micro_batches = static_cast<int>(state.range(1));
  PipelineInput input;
  input.micro_batches = micro_batches;
  for (int s = 0; s < stages; ++s) input.stages.push_back({.forward_s = 1 + 0.01 * s, .backward_s = 2, .in_flight = 2 * (stages - s)});
  for (int s = 0; s + 1 < stages; ++s) {
    const int shared_link = input.shared_links;
    input.shared_links += 2;
    input.links.push_back({s, s + 1, {true, 0.1, {{shared_link, 0.5}}}, {true, 0.1, {{shared_link + 1, 0.5}}}});
  }
  PipelineSimulator simulator;
  for (auto _ : state) benchmark::DoNotOptimize(simulator.Run(input).step_s);
}
BENCHMARK(SimulateStep)->Args({6, 16})->Args({8, 32})->Args({48, 64})->Unit(benchmark::kMicrosecond);

// `devices` in sites of four, of three speeds, on a chain of `ops`.
PlanRequest Cluster(int ops, int devices) {
  PlanRequest request = testing::Chain({.ops = ops, .op_s = 0.002, .cut_bytes = 400'000}, 16);
  for (int d = 0; d < devices; ++d) testing::AddDevice(request, "site" + std::to_string(d / 4), 1 + d % 3);
  testing::JoinSites(request, 125e6, 1e-3, 2.5e6, 0.04);
  return request;
}

// A transformer of about `ops` ops over cities of sixteen devices, 32 micro-batches.
PlanRequest Cities(int ops, int devices) {
  PlanRequest request = testing::Transformer({.layers = ops / 8}, 32);
  testing::AddCities(request, 7, devices, 16, int64_t{16} << 30);
  return request;
}

// Memory for two layers at most: hundreds of stages, whether that is fast or not.
PlanRequest TightCities(int ops, int devices) {
  PlanRequest request = Cities(ops, devices);
  for (Device& device : request.devices) device.memory_bytes = int64_t{150} << 20;
  return request;
}

// Largest resident set of the process so far: run one row alone (--benchmark_filter) to read it.
double PeakMebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void PlanFromScratch(benchmark::State& state, const char* planner, PlanRequest (*make)(int, int), int64_t budget) {
  PlanRequest request = make(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  if (budget > 0) request.search_budget = budget;
  double step_s = 0, gap = 0, stages = 0;
  for (auto _ : state) {
    const auto outcome = MakePlan(planner, request);
    const PlannedPipeline* const plan = outcome.ok() ? std::get_if<PlannedPipeline>(&*outcome) : nullptr;
    if (plan == nullptr) return state.SkipWithError("no plan");
    step_s = plan->predicted_step_s;
    gap = plan->gap;
    stages = static_cast<double>(plan->stages.size());
  }
  state.counters["step_s"] = step_s;
  state.counters["gap"] = gap;
  state.counters["stages"] = stages;
  state.counters["peak_mib"] = PeakMebibytes();
}

BENCHMARK_CAPTURE(PlanFromScratch, equal_ops, "equal-ops", Cluster, 0)->Args({60, 6})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanFromScratch, cluster, "op-fence", Cluster, 0)
    ->Args({60, 6})
    ->Args({120, 12})
    ->Args({400, 48})
    ->Args({1000, 64})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanFromScratch, cluster_quick, "op-fence", Cluster, kQuickSearchBudget)
    ->Args({400, 48})
    ->Args({1000, 64})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanFromScratch, cities_quick, "op-fence", Cities, kQuickSearchBudget)
    ->Args({400, 48})
    ->Args({1000, 64})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanFromScratch, cities, "op-fence", Cities, 0)
    ->Args({400, 48})
    ->Args({1000, 64})
    ->Args({10'000, 1'000})
    ->Args({10'000, 10'000})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanFromScratch, tight_cities, "op-fence", TightCities, 0)
    ->Args({10'000, 1'000})
    ->Args({10'000, 10'000})
    ->Unit(benchmark::kMillisecond);

// After the loss of the device in the middle of the pipeline.
void PlanNearAKnownOne(benchmark::State& state) {
  PlanRequest request = Cities(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const auto before = MakePlan("op-fence", request);
  const PlannedPipeline* const plan = before.ok() ? std::get_if<PlannedPipeline>(&*before) : nullptr;
  if (plan == nullptr) return state.SkipWithError("no plan");
  const std::vector<NamedStage> stages = StagesOf(*plan);
  request.exclude = {stages[stages.size() / 2].device};
  double step_s = 0;
  for (auto _ : state) {
    const auto near = PlanFromWarmStart(request, stages);
    if (!near.ok() || std::holds_alternative<PlanError>(*near)) return state.SkipWithError("no plan near it");
    step_s = std::get<PlannedPipeline>(*near).predicted_step_s;
  }
  const auto fresh = MakePlan("op-fence", request);
  state.counters["step_s"] = step_s;
  state.counters["before_s"] = plan->predicted_step_s;
  if (fresh.ok() && std::holds_alternative<PlannedPipeline>(*fresh))
    state.counters["from_scratch_s"] = std::get<PlannedPipeline>(*fresh).predicted_step_s;
}
BENCHMARK(PlanNearAKnownOne)
    ->Args({400, 48})
    ->Args({1000, 64})
    ->Args({10'000, 1'000})
    ->Args({10'000, 10'000})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fusionllm::scheduler
