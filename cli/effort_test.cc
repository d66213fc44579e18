// --effort as users give it: it counts in every command that makes a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/testing/fusionctl.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;

constexpr char kManyStageJob[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
    "  model: {family: gpt2, preset: small}\n"
    "  data: {kind: tokens, path: [x.bin]}\n"
    "  training: {steps: 1000000, globalBatchSize: 64, microBatchSize: 4, sequenceLength: 256}\n"
    "  strategy: {stages: 16}\n";

// GPUs by name, each a site of its own, over links as uneven as they come: hard enough that a longer search finds a better plan.
std::string ManySites() {
  constexpr int kSites = 30;
  std::string text = "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: many}\nspec:\n  sites:\n";
  for (int i = 0; i < kSites; ++i) {
    absl::StrAppend(&text, "  - {name: s", i, ", devices: [{name: d", i, ", profile: nvidia-", i * 5 % 7 < 4 ? "t4" : "l4", "}]}\n");
  }
  absl::StrAppend(&text, "  links:\n");
  for (int i = 0; i < kSites; ++i) {
    for (int j = i + 1; j < kSites; ++j) {
      const int megabits = 1 + (i * i * 37 + j * 91 + i * j * 53) % 997, milliseconds = 1 + (i * 29 + j * j * 17) % 80;
      absl::StrAppend(&text, "  - {from: s", i, ", to: s", j, ", bandwidth: ", megabits, "Mbit, latency: ", milliseconds,
                      "ms, symmetric: true}\n");
    }
  }
  return text;
}

TEST(Effort, CountsWhereverAPlanIsMade) {
  Fusionctl program;
  program.Write("job.yaml", kManyStageJob);
  program.Write("t.yaml", ManySites());
  const auto ask = [&](const std::string& command, const std::string& effort) {
    const Outcome outcome = program.Run(absl::StrCat("--format json ", command, " --effort ", effort));
    EXPECT_EQ(outcome.code, 0) << command << "\n" << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out) : json::object();
  };
  const json quick = ask("plan job.yaml --topology t.yaml", "quick"), full = ask("plan job.yaml --topology t.yaml", "full");
  ASSERT_LT(full["predicted_step_seconds"].get<double>(), quick["predicted_step_seconds"].get<double>());
  EXPECT_EQ(ask("simulate job.yaml --topology t.yaml", "quick")["step_seconds"], quick["predicted_step_seconds"]);
  EXPECT_EQ(ask("simulate job.yaml --topology t.yaml", "full")["step_seconds"], full["predicted_step_seconds"]);
  program.Write("running.json", quick.dump());
  const std::string running = "plan job.yaml --topology t.yaml --running running.json";
  EXPECT_LT(ask(running, "full")["plan"]["predicted_step_seconds"].get<double>(),
            ask(running, "quick")["plan"]["predicted_step_seconds"].get<double>());
}

}  // namespace
}  // namespace fusionllm::cli
