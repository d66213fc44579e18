// What cannot be planned: every degenerate job, graph, topology and profile ends `fusionctl plan` with exit code 2 (bad input) or 3 (no
// plan) and a sentence that says where the trouble is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/testing/fusionctl.h"

namespace fusionllm::cli {
namespace {

using ::testing::HasSubstr;

constexpr char kGraphFileJob[] =
    "apiVersion: fusionllm.io/v1alpha1\n"
    "kind: FusionJob\n"
    "metadata: {name: test}\n"
    "spec:\n"
    "  model: {graph: {file: model.dag}}\n"
    "  data: {kind: shapes, shapes: {samples: 10, imageSize: 8, numClasses: 8}}\n"
    "  training: {steps: 2, globalBatchSize: 4, microBatchSize: 2}\n";

constexpr char kGraph[] =
    "graph \"mlp\" {\n"
    "  images = placeholder() {dtype=\"f32\", role=\"images\", shape=[b, 192]}\n"
    "  labels = placeholder() {dtype=\"i32\", role=\"labels\", shape=[b]}\n"
    "  fc1 = linear(images) {bias=true, layout=\"oi\", out=32}\n"
    "  act = relu(fc1)\n"
    "  fc2 = linear(act) {bias=true, layout=\"oi\", out=8}\n"
    "  loss = cross_entropy(fc2, labels)\n"
    "  return loss\n"
    "}\n";

constexpr char kTwoSites[] =
    "apiVersion: fusionllm.io/v1alpha1\n"
    "kind: Topology\n"
    "metadata: {name: two}\n"
    "spec:\n"
    "  sites:\n"
    "  - {name: a, devices: [{name: a-0, memory: 64Mi}, {name: a-1, memory: 64Mi}]}\n"
    "  - {name: b, devices: [{name: b-0, memory: 64Mi}]}\n"
    "  links:\n"
    "  - {from: a, to: b, bandwidth: 100Mbit, latency: 5ms, symmetric: true}\n";

// Two machines, priced by rates alone, so that nothing is measured.
constexpr char kProfiles[] =
    R"({"devices": [)"
    R"({"name": "m", "site": "s", "backend": "cpu", "threads": 1, "memory_bytes": 1073741824, "compute_scale": 1, "ops": {}, "rates": )"
    R"({"matmul": {"overhead_seconds": 1e-6, "seconds_per_flop": 1e-11, "seconds_per_byte": 1e-10, "relative_error": 0.1, "samples": 9}}, )"
    R"("update_seconds_per_element": 1e-9, "codecs": {}},)"
    R"({"name": "n", "site": "t", "backend": "cpu", "threads": 1, "memory_bytes": 1073741824, "compute_scale": 1, "ops": {}, "rates": )"
    R"({"matmul": {"overhead_seconds": 1e-6, "seconds_per_flop": 1e-11, "seconds_per_byte": 1e-10, "relative_error": 0.1, "samples": 9}}, )"
    R"("update_seconds_per_element": 1e-9, "codecs": {}}],)"
    R"("links": [{"src": "m", "dst": "n", "rtt_seconds": 0.1, "bandwidth_bytes_per_second": 1000000}]})";

struct RefusedPlan {
  std::string name;
  std::string file;        // job.yaml, model.dag, topology.yaml or profiles.json,
  std::string text, with;  // in which this text is replaced; nothing when empty
  std::string flags;       // beside the job and the profiles
  int code = 0;
  std::vector<std::string> says;  // on stderr
};

constexpr char kOnTopology[] = "--topology topology.yaml ";

void PrintTo(const RefusedPlan& c, std::ostream* out) { *out << c.name; }

std::vector<RefusedPlan> Cases() {
  return {
      // Links.
      {"LinkWithoutBandwidth", "topology.yaml", "100Mbit", "0Mbit", kOnTopology, 2, {"topology.yaml:9: spec.links[0].bandwidth", "0Mbit"}},
      {"NegativeBandwidth", "topology.yaml", "100Mbit", "-5Mbit", kOnTopology, 2, {"topology.yaml:9: spec.links[0].bandwidth", "negative"}},
      {"BandwidthThatIsNoNumber", "topology.yaml", "100Mbit", "nan", kOnTopology, 2, {"topology.yaml:9: spec.links[0].bandwidth", "nan"}},
      {"EndlessBandwidth", "topology.yaml", "100Mbit", "inf", kOnTopology, 2, {"topology.yaml:9: spec.links[0].bandwidth", "inf"}},
      {"BandwidthBeyondNumbers", "topology.yaml", "100Mbit", "1e400Mbit", kOnTopology, 2, {"topology.yaml:9: spec.links[0].bandwidth"}},
      {"NegativeLatency", "topology.yaml", "5ms", "-5ms", kOnTopology, 2, {"topology.yaml:9: spec.links[0].latency", "negative"}},
      {"LinkThatLosesEverything", "topology.yaml", "5ms", "5ms, loss: 1", kOnTopology, 2, {"topology.yaml:9: spec.links[0].loss"}},
      {"UplinkWithoutBandwidth",
       "topology.yaml",
       "  links:",
       "  sharedUplinks: [{site: a, egress: 0bit}]\n  links:",
       kOnTopology,
       2,
       {"topology.yaml:8: spec.sharedUplinks[0].egress"}},
      {"SiteThatNoLinkReaches",
       "topology.yaml",
       "symmetric: true",
       "symmetric: false",
       kOnTopology,
       2,
       {"topology.yaml:8: spec.links", "from b-0 to a-0"}},
      {"LinkToNowhere", "topology.yaml", "to: b", "to: c", kOnTopology, 2, {"topology.yaml:9: spec.links[0].to", "named c"}},
      {"MeasuredLinkWithoutBandwidth",
       "profiles.json",
       "_per_second\": 1000000",
       "_per_second\": 0",
       "",
       2,
       {"profiles.json: profiles.links[0].bandwidth_bytes_per_second: 0 is not"}},
      {"MeasuredLinkOfNegativeBandwidth",
       "profiles.json",
       "_per_second\": 1000000",
       "_per_second\": -1",
       "",
       2,
       {"profiles.json: profiles.links[0].bandwidth_bytes_per_second: -1 is not"}},
      {"MeasuredLinkThatIsNoNumber", "profiles.json", "_per_second\": 1000000", "_per_second\": NaN", "", 2, {"profiles.json", "not JSON"}},
      {"NothingJoinsTwoMachines",
       "profiles.json",
       R"({"src": "m", "dst": "n", "rtt_seconds": 0.1, "bandwidth_bytes_per_second": 1000000})",
       "",
       "--set spec.strategy.stages=2",
       3,
       {"DisconnectedDevices", "m and n"}},
      // Graphs.
      {"CycleOfOps", "model.dag", "linear(images)", "linear(fc2)", "", 2, {"model.dag:4:3", "cycle: 'act' -> 'fc2' -> 'fc1'"}},
      {"OpThatReadsItself", "model.dag", "relu(fc1)", "relu(act)", "", 2, {"model.dag:5:3", "cycle: 'act'"}},
      {"ShapesThatDoNotFit", "model.dag", "relu(fc1)", "add(fc1, images)", "", 2, {"model.dag:5:3: op 'act' (add)", "[1, 192]"}},
      {"UnknownOp", "model.dag", "relu(fc1)", "swish(fc1)", "", 2, {"model.dag:5:9", "'swish'"}},
      {"OpWithTooFewInputs", "model.dag", "(fc2, labels)", "(fc2)", "", 2, {"model.dag:7:10: op 'loss' (cross_entropy)"}},
      {"LayerWithoutUnits", "model.dag", "out=32", "out=0", "", 2, {"model.dag:4:3: op 'fc1' (linear)", "'out' is 0"}},
      {"GraphWithoutALoss", "model.dag", "  return loss\n", "", "", 2, {"model.dag: graph 'mlp' returns no loss"}},
      // Devices.
      {"OpLargerThanAnyDevice",
       "model.dag",
       "out=32",
       "out=90000",
       kOnTopology,
       3,
       {"OpTooLarge", "op 'fc1' alone needs", "largest free device, a-0, has", "for it (of 64.0 MiB, less what each process takes"}},
      {"DevicesTooSmallForAProcess",
       "topology.yaml",
       "64Mi",
       "1Mi",
       kOnTopology,
       3,
       {"InsufficientMemory", "before its first op", "a-0", "has 1.0 MiB; give executors more memory (memory of a topology's devices; "}},
      {"StagesOnADeviceTooSmallForAProcess",
       "topology.yaml",
       "b-0, memory: 64Mi",
       "b-0, memory: 5Mi",
       "--topology topology.yaml --set spec.strategy.stages=3",
       3,
       {"an executor takes 9.0 MiB before its first op, and b-0 has 5.0 MiB; spec.strategy.stages asks for 3 stages, and 2 of 3 may run "
        "one"}},
      {"ExecutorsOnADeviceTooSmallForAProcess",
       "topology.yaml",
       "b-0, memory: 64Mi",
       "b-0, memory: 5Mi",
       "--topology topology.yaml --set spec.executors.min=3 --set spec.training.microBatchSize=auto",
       3,
       {"an executor takes 9.0 MiB before its first op, and b-0 has 5.0 MiB; spec.executors.min asks for 3 stages"}},
      {"APlannerThatUsesADeviceTooSmallForAProcess",
       "topology.yaml",
       "b-0, memory: 64Mi",
       "b-0, memory: 5Mi",
       "--topology topology.yaml --strategy equal-ops --set spec.training.microBatchSize=auto",
       3,
       {"an executor takes 9.0 MiB before its first op, and b-0 has 5.0 MiB"}},
      {"PinsToADeviceTooSmallForAProcess",
       "topology.yaml",
       "b-0, memory: 64Mi",
       "b-0, memory: 5Mi",
       "--topology topology.yaml --set 'spec.strategy.pins=[{ops: \"fc2\", device: b-0}]'",
       3,
       {"PinConflict", "an executor takes 9.0 MiB before its first op, and b-0 has 5.0 MiB: ops from 'fc2' to 'fc2' are pinned to it"}},
      {"DeviceWithoutSpeed",
       "topology.yaml",
       "{name: a-1,",
       "{name: a-1, computeScale: 0,",
       kOnTopology,
       2,
       {"topology.yaml:6: spec.sites[0].devices[1].computeScale"}},
      {"DevicesOfOneName", "topology.yaml", "name: a-1", "name: a-0", kOnTopology, 2, {"topology.yaml:6: spec.sites[0].devices[1].name"}},
      {"RateBelowZero", "profiles.json", "1e-11", "-1", "", 2, {"profiles.json: profiles.devices[0].rates[\"matmul\"].seconds_per_flop"}},
      {"MachineThatWasNotMeasured", "profiles.json", "\"rates\"", "\"unknown\"", "", 2, {"device 'm' has no op times"}},
      // Constraints.
      {"MoreStagesThanDevices",
       "",
       "",
       "",
       "--topology topology.yaml --set spec.strategy.stages=9",
       3,
       {"TooFewExecutors", "spec.strategy.stages asks for 9 executors, 3 are usable"}},
      {"MoreStagesThanOps",
       "topology.yaml",
       "{name: b-0, memory: 64Mi}",
       "{name: b-0}, {name: b-1}, {name: b-2}, {name: b-3}, {name: b-4}",
       "--topology topology.yaml --set spec.strategy.stages=6",
       3,
       {"TooManyStages", "spec.strategy.stages asks for 6 stages, the model has only 4 ops"}},
      {"MoreExecutorsThanDevices",
       "",
       "",
       "",
       "--topology topology.yaml --set spec.executors.min=7",
       3,
       {"spec.executors.min asks for 7 executors, 3 are usable"}},
      {"MoreMemoryThanAnyDeviceHas",
       "topology.yaml",
       "{name: a-1, memory: 64Mi}",
       "{name: a-1, memory: 96Mi}",
       "--topology topology.yaml --set spec.placement.minMemory=2Gi",
       3,
       {"NoExecutors",
        "spec.placement.minMemory asks for 2.0 GiB of each, and 3 of 3 devices have less, a-1 the most of these with 96.0 MiB"}},
      {"MoreMemoryThanMostDevicesHave",
       "topology.yaml",
       "{name: a-1, memory: 64Mi}",
       "{name: a-1, memory: 96Mi}",
       "--topology topology.yaml --set spec.placement.minMemory=96Mi --set spec.executors.min=2",
       3,
       {"TooFewExecutors", "spec.executors.min asks for 2 executors, 1 is usable; spec.placement.minMemory asks for 96.0 MiB",
        "a-0 the most"}},
      {"EverybodyExcluded", "", "", "", "--topology topology.yaml --set 'spec.strategy.exclude=[a-0, a-1, b-0]'", 3, {"NoExecutors"}},
      {"PinToNobody",
       "",
       "",
       "",
       "--topology topology.yaml --set 'spec.strategy.pins=[{ops: \"fc*\", device: c-0}]'",
       2,
       {"--set spec.strategy.pins: spec.strategy.pins[0].device: no device of topology ", "is named c-0; did you mean a-0?"}},
      {"PinOfNothing",
       "",
       "",
       "",
       "--topology topology.yaml --set 'spec.strategy.pins=[{ops: \"block.*\", device: a-0}]'",
       2,
       {"spec.strategy.pins[0].ops: no op of the model matches 'block.*'; the ops are "}},
      {"BatchThatDoesNotDivide", "", "", "", "--set spec.training.microBatchSize=3", 2, {"spec.training.microBatchSize"}},
  };
}

class PlanRefusals : public ::testing::TestWithParam<RefusedPlan> {
 protected:
  // Writes the four files, one of them changed, and plans.
  Outcome Plan(const RefusedPlan& c) {
    std::map<std::string, std::string> files = {
        {"job.yaml", kGraphFileJob}, {"model.dag", kGraph}, {"topology.yaml", kTwoSites}, {"profiles.json", kProfiles}};
    if (!c.file.empty()) {
      std::string& text = files.at(c.file);
      EXPECT_THAT(text, HasSubstr(c.text)) << "the case changes nothing";
      text = absl::StrReplaceAll(text, {{c.text, c.with}});
    }
    for (const auto& [name, text] : files) program_.Write(name, text);
    return program_.Run(absl::StrCat("plan job.yaml --profiles profiles.json ", c.flags));
  }

  Fusionctl program_;
};

TEST_P(PlanRefusals, EndWithASentenceThatSaysWhere) {
  const Outcome outcome = Plan(GetParam());
  EXPECT_EQ(outcome.code, GetParam().code) << outcome.err << outcome.out;
  for (const std::string& words : GetParam().says) EXPECT_THAT(outcome.err, HasSubstr(words));
  EXPECT_EQ(outcome.out, "") << "no plan";
}

INSTANTIATE_TEST_SUITE_P(All, PlanRefusals, ::testing::ValuesIn(Cases()), [](const auto& info) { return info.param.name; });

// Sanitizers reserve more address space than any limit allows.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(PlanOfAModelLargerThanMemory, IsRefusedByTheNameOfItsOpBeforeItIsMeasured) {
  Fusionctl program;
  program.Write("job.yaml", kGraphFileJob);
  program.Write("model.dag", absl::StrReplaceAll(kGraph, {{"out=32", "out=1000000000"}}));
  for (const char* command : {"plan job.yaml", "run job.yaml --dry-run", "simulate job.yaml", "bench job.yaml"}) {
    const Outcome outcome = program.Run(command, "ulimit -v 4000000; ulimit -t 60;");
    EXPECT_EQ(outcome.code, 3) << command << ": " << outcome.err << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("op 'fc1' (linear) needs ")) << command;
    EXPECT_THAT(outcome.err, HasSubstr(" bytes), ")) << command;
  }
}
#endif

// Or the cases would prove nothing.
class PlanOfTheUnchanged : public PlanRefusals {};
TEST_P(PlanOfTheUnchanged, IsMade) {
  const Outcome outcome = Plan(GetParam());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("images .. loss (6)"));
}
INSTANTIATE_TEST_SUITE_P(All, PlanOfTheUnchanged,
                         ::testing::Values(RefusedPlan{.name = "OnProfiles"}, RefusedPlan{.name = "OnATopology", .flags = kOnTopology}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fusionllm::cli
