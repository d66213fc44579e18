// Predicted steps of GPT-2 XL on irregular networks of 64 unequal devices: op-fence against dt-fm's layout with equal layers and equal-ops.
// iteration_report [FIRST_SEED [COUNT]]; docs/results/planner.md has the figures.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "lib/scheduler/grid/rng.h"
#include "lib/scheduler/grid/testing/scenarios.h"
#include "lib/scheduler/planner.h"

namespace fusionllm::scheduler {
namespace {

// GPT-2 XL as published: 48 layers of width 1600, 25 heads, 1,024 tokens, 50,257 words; fp32, AdamW.
constexpr int kLayers = 48;
constexpr double kWidth = 1600, kTokens = 1024, kWords = 50257;
constexpr int kMicroBatches = 64;  // of one sequence each
constexpr double kRate = 1e12;     // FLOP/s of the class that times are given for

struct Builder {
  PlanRequest request;

  // Multiplications and additions count as two; backward takes twice the forward.
  void Add(const std::string& name, double forward_flops, double parameters, double bytes_out) {
    const int op = static_cast<int>(request.ops.size());
    const auto weights = static_cast<int64_t>(4 * parameters);
    request.ops.push_back({.name = name,
                           .flops = 3 * forward_flops,
                           .forward_s = {forward_flops / kRate},
                           .backward_s = {2 * forward_flops / kRate},
                           .update_s = {0},
                           .parameter_bytes = weights,
                           .gradient_bytes = weights,
                           .optimizer_bytes = 2 * weights});
    request.values.push_back({.name = name, .producer = op, .bytes = static_cast<int64_t>(bytes_out), .differentiable = true});
  }
  // `reader` reads the value of `producer` and keeps it for its backward.
  void Read(int reader, int producer) {
    for (ValueNode& value : request.values) {
      if (value.producer != producer) continue;
      value.consumers.push_back(reader);
      value.kept_by.push_back(reader);
    }
  }
};

PlanRequest Gpt2Xl() {
  constexpr double kWide = 4 * kTokens * kWidth;
  constexpr double kMatrix = 2 * kTokens * kWidth * kWidth;
  Builder b;
  b.request.micro_batches = kMicroBatches;
  b.request.ops.push_back({.name = "tokens", .placeholder = true});
  b.request.values.push_back({.name = "tokens", .producer = 0, .bytes = 8 * 1024, .lossless_only = true});
  const auto next = [&] { return static_cast<int>(b.request.ops.size()); };
  b.Add("embedding", kTokens * kWidth, (kWords + kTokens) * kWidth, kWide);
  b.Read(1, 0);
  for (int layer = 0, stream = 1; layer < kLayers; ++layer) {
    const std::string name = "h" + std::to_string(layer);
    const auto chain = [&](const char* op, double flops, double parameters, double bytes, int from) {
      b.Add(name + op, flops, parameters, bytes);
      b.Read(next() - 1, from);
      return next() - 1;
    };
    const int norm = chain(".ln1", 5 * kTokens * kWidth, 2 * kWidth, kWide, stream);
    const int qkv = chain(".qkv", 3 * kMatrix, 3 * kWidth * (kWidth + 1), 3 * kWide, norm);
    const int attention = chain(".attention", 4 * kTokens * kTokens * kWidth, 0, kWide, qkv);
    const int out = chain(".out", kMatrix, kWidth * (kWidth + 1), kWide, attention);
    const int added = chain(".add1", kTokens * kWidth, 0, kWide, out);
    b.Read(added, stream);
    const int norm2 = chain(".ln2", 5 * kTokens * kWidth, 2 * kWidth, kWide, added);
    const int up = chain(".up", 4 * kMatrix, 4 * kWidth * (kWidth + 1), 4 * kWide, norm2);
    const int gelu = chain(".gelu", 32 * kTokens * kWidth, 0, 4 * kWide, up);
    const int down = chain(".down", 4 * kMatrix, kWidth * (4 * kWidth + 1), kWide, gelu);
    stream = chain(".add2", kTokens * kWidth, 0, kWide, down);
    b.Read(stream, added);
  }
  b.Add("head", 2 * kTokens * kWidth * kWords, kWords * kWidth, 4 * kTokens * kWords);
  b.Read(next() - 1, next() - 2);
  b.Add("loss", 5 * kTokens * kWords, 0, 4);
  b.Read(next() - 1, next() - 2);
  b.request.values.pop_back();  // the loss is not read
  return b.request;
}

// The network's links each way; devices of 10 to 80 TFLOP/s that reach 40 % of it, with 16 to 80 GiB.
void AddNetwork(uint64_t seed, PlanRequest& request) {
  const grid::Network network = grid::IrregularNetwork(seed);
  grid::Rng rng(seed + 1000);
  constexpr int64_t kGib[] = {16, 24, 40, 80};
  const int n = static_cast<int>(network.delay_ms.size());
  for (int d = 0; d < n; ++d) {
    const double flops_per_s = 0.4 * 10e12 * std::pow(8.0, rng.Uniform());
    request.devices.push_back(
        {.name = "device-" + std::to_string(d), .time_scale = kRate / flops_per_s, .memory_bytes = kGib[rng.Below(4)] << 30});
    for (int e = 0; e < n; ++e) {
      if (e == d) continue;
      request.links.push_back(
          {.src = d, .dst = e, .latency_s = network.delay_ms[d][e] / 1e3, .bytes_per_s = network.bandwidth_gbps[d][e] * 1e9 / 8});
    }
  }
}

// Negative: refused.
double StepSeconds(const char* planner, const PlanRequest& request, std::string& note) {
  const absl::StatusOr<PlanOutcome> outcome = MakePlan(planner, request);
  if (!outcome.ok()) {
    std::fprintf(stderr, "%s: %s\n", planner, std::string(outcome.status().message()).c_str());
    std::exit(1);
  }
  if (const auto* refusal = std::get_if<PlanError>(&*outcome)) {
    note = refusal->message;
    return -1;
  }
  note = std::to_string(std::get<PlannedPipeline>(*outcome).stages.size());
  return std::get<PlannedPipeline>(*outcome).predicted_step_s;
}

// A rival cannot leave devices out by itself: with all 64, and with the best of some numbers of stages.
struct Rival {
  double all_s = 0, best_s = 0;
};
Rival RivalSeconds(const char* planner, PlanRequest& request) {
  Rival rival;
  std::string note;
  for (const int stages : {64, 48, 32, 24, 16, 12, 8, 6, 4, 2, 1}) {
    request.stages = stages;
    const double step_s = StepSeconds(planner, request, note);
    if (stages == 64) rival.all_s = rival.best_s = step_s;
    if (step_s > 0 && (rival.best_s < 0 || step_s < rival.best_s)) rival.best_s = step_s;
  }
  request.stages = 0;
  return rival;
}

void Table(const char* title, const LinkCodecPolicy* codecs, uint64_t first, uint64_t count) {
  std::printf(
      "%s\n\n| network | op-fence, s | stages | CPU s | dt-fm, 64 stages | times | its best number | times | equal-ops, 64 stages | times "
      "| its "
      "best number | times |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      title);
  double logs[4] = {};
  for (uint64_t seed = first; seed < first + count; ++seed) {
    PlanRequest request = Gpt2Xl();
    AddNetwork(seed, request);
    request.codec_policy = codecs;
    std::string stages;
    const std::clock_t begin = std::clock();
    const double fence_s = StepSeconds("op-fence", request, stages);
    const double cpu_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    const Rival dt_fm = RivalSeconds("dt-fm", request), equal = RivalSeconds("equal-ops", request);
    const double seconds[] = {dt_fm.all_s, dt_fm.best_s, equal.all_s, equal.best_s};
    std::printf("| %lu | %.2f | %s | %.2f |", seed, fence_s, stages.c_str(), cpu_s);
    for (int i = 0; i < 4; ++i) {
      std::printf(" %.2f | %.2f |", seconds[i], seconds[i] / fence_s);
      logs[i] += std::log(seconds[i] / fence_s);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("| geometric mean | | | |");
  for (const double log : logs) std::printf(" | %.2f |", std::exp(log / static_cast<double>(count)));
  std::printf("\n\n");
}

int Main(int argc, char** argv) {
  const uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 10;
  Table("Nothing compressed", nullptr, first, count);
  const CodecLevelPolicy ladder({{"fp32", 1, 1, 0}, {"fp16", 2, 2, 0}, {"int8", 4, 4, 0}, {"topk", 32, 32, 0}});
  Table("The same codecs for all, free of charge: 2, 4 or 32 times, the least that hides a link behind the slowest stage", &ladder, first,
        count);
  return 0;
}

}  // namespace
}  // namespace fusionllm::scheduler

int main(int argc, char** argv) { return fusionllm::scheduler::Main(argc, argv); }
