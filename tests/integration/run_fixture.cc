#include "tests/integration/run_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;

constexpr char kJob[] = R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: trouble}
spec:
  model: {family: gpt2, preset: tiny, config: {nLayer: 4, nHead: 2, nEmbd: 16, vocabSize: 256, blockSize: 8}}
  data: {kind: text, path: [text.txt]}
  training:
    steps: 60
    globalBatchSize: 4
    microBatchSize: 2
    sequenceLength: 8
    optimizer: {name: adamw, learningRate: 1.0e-3}
    schedule: {name: constant}
  strategy: {stages: 3}
)";

// Runs of the tests keep no checkpoints by themselves.
bool NamesCheckpoints(const std::vector<std::string>& settings) {
  return std::any_of(settings.begin(), settings.end(), [](const std::string& setting) { return setting.starts_with("spec.checkpoint"); });
}

// Reproducible text with more windows than any test consumes in an epoch, so that order and cursor matter.
std::string Text() {
  std::string text;
  uint32_t state = 12345;
  for (int i = 0; i < 6000; ++i) {
    state = state * 1664525u + 1013904223u;
    text.push_back("etaoin shrdlu\n"[(state >> 24) % 14]);
  }
  return text;
}

// Every device has the profile that was measured for "local-0"; all links inside the site are one measured link.
json ProfilesFor(const json& measured, int devices, int spares) {
  json document = {{"devices", json::array()}, {"links", json::array()}};
  for (int i = 0; i < devices + spares; ++i) {
    json profile = measured["devices"][0];
    profile["name"] = i < devices ? absl::StrCat("a-", i) : absl::StrCat("spare-", i - devices);
    profile["site"] = "a";
    profile["spare"] = i >= devices;
    profile["memory_bytes"] = int64_t{1} << 30;
    document["devices"].push_back(profile);
  }
  if (devices + spares > 1) {
    document["links"].push_back({{"src", document["devices"][0]["name"]},
                                 {"dst", document["devices"][1]["name"]},
                                 {"rtt_seconds", 0.002},
                                 {"bandwidth_bytes_per_second", 1e8}});
  }
  return document;
}

const json& Measured(const base::TempFolder& folder) {
  static const json measured = [&] {
    FusionctlChild bench({"bench", "job.yaml", "--calibrate", "-o", "measured.json"}, folder.path());
    EXPECT_EQ(bench.Wait(kRunLimit), 0) << bench.Stderr();
    return json::parse(base::ReadWholeFile(folder / "measured.json"), nullptr, /*allow_exceptions=*/false);
  }();
  return measured;
}

}  // namespace

RunTest::RunTest() {
  folder_.Write("job.yaml", kJob);
  folder_.Write("text.txt", Text());
  WriteTopology(3, 0);
}

void RunTest::WriteTopology(int devices, int spares, const std::string& memory) {
  std::string text =
      "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: fast}\nspec:\n  sites:\n  - name: a\n"
      "    internal: {bandwidth: 1Gbit, latency: 1ms}\n    devices:\n";
  for (int i = 0; i < devices; ++i) absl::StrAppend(&text, "    - {name: a-", i, ", computeScale: 1, memory: ", memory, "}\n");
  for (int i = 0; i < spares; ++i) {
    absl::StrAppend(&text, "    - {name: spare-", i, ", computeScale: 1, memory: ", memory, ", role: spare}\n");
  }
  folder_.Write("topology.yaml", text);
  folder_.Write("profiles.json", ProfilesFor(Measured(folder_), devices, spares).dump());
}

std::unique_ptr<FusionctlChild> RunTest::Start(const std::vector<std::string>& settings, const std::vector<std::string>& flags,
                                               const std::string& output) {
  std::vector<std::string> arguments = {"run",           "job.yaml", "--topology", "topology.yaml", "--profiles",
                                        "profiles.json", "--format", "json",       "--output",      output};
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  if (!NamesCheckpoints(settings)) arguments.emplace_back("--no-checkpoint");
  return std::make_unique<FusionctlChild>(arguments, folder_.path());
}

std::unique_ptr<FusionctlChild> RunTest::RunToEnd(const std::vector<std::string>& settings, const std::vector<std::string>& flags,
                                                  const std::string& output) {
  auto run = Start(settings, flags, output);
  ExpectEnd(*run, 0);
  return run;
}

void RunTest::ExpectEnd(FusionctlChild& run, int code) {
  EXPECT_EQ(run.Wait(kRunLimit), code) << run.Stderr();
  if (HasFailure()) {
    for (const char* log : {"out/logs/broker.log", "out/broker.journal"}) {
      const std::string text = base::ReadWholeFile(Path(log));
      std::cerr << log << " ends:\n" << text.substr(text.size() - std::min<size_t>(text.size(), 1500)) << "\n";
    }
  }
  EXPECT_TRUE(run.AllProcessesExited(10));
}

const Bits& RunTest::Undisturbed() {
  static const Bits bits = [this] {
    const auto run = RunToEnd({"spec.strategy.stages=1"}, {}, "undisturbed");
    return BitsOf(*run);
  }();
  EXPECT_EQ(bits.size(), kUndisturbedSteps);
  return bits;
}

Bits BitsOf(const FusionctlChild& run) {
  Bits bits;
  for (const json& line : run.lines()) {
    if (line.value("type", "") == "step") bits[line["step"].get<int64_t>()] = line["loss_bits"].get<std::string>();
  }
  return bits;
}

void ExpectSameBits(const FusionctlChild& run, const Bits& expected, int64_t first, int64_t last) {
  for (const json& line : run.lines()) {
    if (line.value("type", "") != "step") continue;
    const auto found = expected.find(line["step"].get<int64_t>());
    ASSERT_NE(found, expected.end()) << line.dump();
    EXPECT_EQ(line["loss_bits"], found->second) << "step " << found->first << " of plan epoch " << line["epoch"];
  }
  const Bits bits = BitsOf(run);
  for (int64_t step = first; step <= last; ++step) EXPECT_TRUE(bits.contains(step)) << "step " << step << " is missing";
}

std::vector<std::string> Reasons(const FusionctlChild& run) {
  std::vector<std::string> reasons;
  for (const json& line : run.lines()) {
    if (line.value("type", "") == "event") reasons.push_back(line["reason"]);
  }
  return reasons;
}

json Event(const FusionctlChild& run, const std::string& reason) {
  for (const json& line : run.lines()) {
    if (line.value("reason", "") == reason) return line;
  }
  return {};
}

json Summary(const FusionctlChild& run) {
  for (const json& line : run.lines()) {
    if (line.value("type", "") == "summary") return line;
  }
  return json::object();
}

pid_t PidOfStage(const FusionctlChild& run, int stage) {
  for (const json& line : run.lines()) {
    if (line.value("reason", "") == "ExecutorJoined" && line.contains("stage") &&
        (line["stage"].is_null() ? -1 : line["stage"].get<int>()) == stage) {
      return line.value("pid", 0);
    }
  }
  return 0;
}

}  // namespace fusionllm::integration
