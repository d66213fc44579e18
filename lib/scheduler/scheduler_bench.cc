// What planning costs: the simulator alone, and whole plans from scratch at the sizes of the design's table.
#include <memory>

#include "benchmark/benchmark.h"
#include "lib/scheduler/pipeline_model.h"
#include "lib/scheduler/strategy.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler {
namespace {

void SimulateStep(benchmark::State& state) {
  const int stages = static_cast<int>(state.range(0)), micro_batches = static_cast<int>(state.range(1));
  PipelineInput input;
  input.micro_batches = micro_batches;
  for (int s = 0; s < stages; ++s) input.stages.push_back({.forward_s = 1 + 0.01 * s, .backward_s = 2, .in_flight = 2 * (stages - s)});
  for (int s = 0; s + 1 < stages; ++s) {
    const int wire = input.wires;
    input.wires += 2;
    input.links.push_back({s, s + 1, {true, 0.1, {{wire, 0.5}}}, {true, 0.1, {{wire + 1, 0.5}}}});
  }
  PipelineSimulator simulator;
  for (auto _ : state) benchmark::DoNotOptimize(simulator.Run(input).step_s);
}
BENCHMARK(SimulateStep)->Args({6, 16})->Args({8, 32})->Args({48, 64})->Unit(benchmark::kMicrosecond);

// `devices` in sites of four, of three speeds, on a chain of `ops`.
PlanRequest Cluster(int ops, int devices) {
  PlanRequest request = testing::Chain({.ops = ops, .op_s = 0.002, .cut_bytes = 400'000}, 16);
  for (int d = 0; d < devices; ++d) testing::AddDevice(request, "site" + std::to_string(d / 4), 1 + d % 3);
  testing::LinkSites(request, 125e6, 1e-3, 2.5e6, 0.04);
  return request;
}

void PlanFromScratch(benchmark::State& state, const char* strategy) {
  const PlanRequest request = Cluster(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  double step_s = 0, gap = 0;
  for (auto _ : state) {
    const auto outcome = MakePlan(strategy, request);
    step_s = std::get<Plan>(*outcome).predicted_step_s;
    gap = std::get<Plan>(*outcome).gap;
  }
  state.counters["step_s"] = step_s;
  state.counters["gap"] = gap;
}
BENCHMARK_CAPTURE(PlanFromScratch, equal_ops, "equal-ops")->Args({60, 6})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanFromScratch, op_fence, "op-fence")
    ->Args({60, 6})
    ->Args({120, 12})
    ->Args({400, 48})
    ->Args({1000, 64})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fusionllm::scheduler
