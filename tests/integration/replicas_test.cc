// Pipelines side by side in real processes: they learn what one pipeline learns, however they are cut, and whoever dies.
#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kFourMicroBatches[] = "spec.training.microBatchSize=1";
// Relative, of losses: the same fp32 terms in another order, over some steps.
constexpr double kTolerance = 1e-5;

std::string Grid(int replicas, int stages) { return absl::StrCat("spec.strategy={replicas: ", replicas, ", stages: ", stages, "}"); }

std::vector<json> LinesOf(const FusionctlChild& run, const std::string& type) {
  std::vector<json> found;
  for (const json& line : run.lines()) {
    if (line.value("type", "") == type) found.push_back(line);
  }
  return found;
}

void ExpectLosses(const FusionctlChild& got, const FusionctlChild& want) {
  const std::vector<json> a = LinesOf(got, "step"), b = LinesOf(want, "step");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), kTolerance * b[i]["loss"].get<double>()) << a[i].dump();
  }
}

// The process that runs a rank of the first plan.
pid_t PidOfRank(const FusionctlChild& run, int stage, int replica) {
  for (const json& line : run.lines()) {
    if (line.value("reason", "") == "ExecutorJoined" && line.value("stage", json()) == stage && line.value("replica", -1) == replica) {
      return line.value("pid", 0);
    }
  }
  return 0;
}

class ReplicasTest : public RunTest {};

TEST_F(ReplicasTest, TwoAndThreeReplicasLearnAsOne) {
  WriteTopology(4, 0);
  const std::string steps = "spec.training.steps=8";
  const auto one = RunToEnd({steps, kFourMicroBatches, Grid(1, 1)}, {}, "one");
  const auto two = RunToEnd({steps, kFourMicroBatches, Grid(2, 2)}, {}, "two");
  ExpectLosses(*two, *one);
  const json plan = LinesOf(*two, "plan")[0];
  EXPECT_EQ(plan["replicas"], 2);
  for (const json& stage : plan["stages"]) EXPECT_THAT(stage["devices"], SizeIs(2));
  std::set<std::pair<int, int>> ranks;
  const json stages = Summary(*two)["stages"];
  for (const json& stage : stages) ranks.emplace(stage["index"], stage["replica"]);
  EXPECT_EQ(ranks, (std::set<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));

  const auto three = RunToEnd({steps, kFourMicroBatches, Grid(3, 1)}, {}, "three");
  ExpectLosses(*three, *one);
  EXPECT_EQ(LinesOf(*three, "plan")[0]["micro_batches"], 4) << "shared out unevenly";
}

TEST_F(ReplicasTest, TheNumberOfStagesChangesNoBit) {
  WriteTopology(6, 0);
  const auto whole = RunToEnd({"spec.training.steps=6", kFourMicroBatches, Grid(2, 1)}, {}, "whole");
  for (const int stages : {2, 3}) {
    const auto cut = RunToEnd({"spec.training.steps=6", kFourMicroBatches, Grid(2, stages)}, {}, absl::StrCat("cut", stages));
    ExpectSameBits(*cut, BitsOf(*whole), 1, 6);
  }
}

// Each chain link carries the gradients of its stage once each way, besides what the plan puts on links of pipelines.
void ExpectThatLinksCarryWhatIsPlanned(const FusionctlChild& run, int steps) {
  const json plan = LinesOf(run, "plan")[0];
  std::map<std::pair<std::string, std::string>, double> planned, embedding;
  double in_all = 0;
  for (const json& link : plan["links"]) {
    planned[{link["src"], link["dst"]}] += link["bytes"].get<double>();
    // Of which the run sends the rows of tokens that occur.
    if (link["direction"] == "forward") embedding[{link["src"], link["dst"]}] += link["tied_bytes"].get<double>();
  }
  for (const json& stage : plan["stages"]) {
    const double bytes = stage["sync_bytes"].get<double>();
    planned[{stage["devices"][0], stage["devices"][1]}] += bytes;
    planned[{stage["devices"][1], stage["devices"][0]}] += bytes;
    in_all += 2 * bytes;
  }
  EXPECT_EQ(plan["sync_bytes"], in_all);
  int carried = 0;
  const json links = Summary(run)["links"];
  for (const json& link : links) {
    const auto expected = planned.find({link["src"], link["dst"]});
    if (expected == planned.end()) continue;
    ++carried;
    const double a_step = link["bytes"].get<double>() / steps;
    EXPECT_GE(a_step, expected->second - embedding[expected->first]) << link.dump();
    EXPECT_LE(a_step, 1.05 * expected->second + 8192) << link.dump();
  }
  EXPECT_EQ(carried, static_cast<int>(planned.size()));
}

// The second one has both uses of a tied parameter, which is most of its model, in one stage.
TEST_F(ReplicasTest, LinksCarryTheGradientsThatThePlanSays) {
  WriteTopology(4, 0);
  constexpr int kSteps = 6;
  for (const auto& [stages, vocabulary] : {std::pair(2, 256), std::pair(1, 4096)}) {
    const auto run = RunToEnd(
        {absl::StrCat("spec.training.steps=", kSteps), kFourMicroBatches, Grid(2, stages),
         absl::StrCat("spec.model.config={nLayer: 4, nHead: 2, nEmbd: 64, vocabSize: ", vocabulary, ", blockSize: 8, tieWeights: true}")},
        {}, absl::StrCat("out", stages));
    SCOPED_TRACE(absl::StrCat(stages, " stages"));
    ExpectThatLinksCarryWhatIsPlanned(*run, kSteps);
  }
}

TEST_F(ReplicasTest, ReplicaZeroEvaluatesAndItsCheckpointIsTheRuns) {
  WriteTopology(4, 0);
  const std::vector<std::string> job = {"spec.data.validation={fraction: 0.1}", "spec.training.evaluation={everySteps: 10, batches: 2}",
                                        kCheckpoints, kFourMicroBatches};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), job.begin(), job.end());
    return more;
  };
  const auto run = RunToEnd(with({Grid(2, 2), "spec.training.steps=20"}));
  EXPECT_THAT(LinesOf(*run, "eval"), SizeIs(2));
  EXPECT_TRUE(std::filesystem::exists(Path("out/checkpoints/step-000020/model-00002-of-00002.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(Path("out/checkpoints/step-000020/model-00003-of-00004.safetensors")));
  // Whoever goes on from there: one pipeline, or two.
  const auto two = RunToEnd(with({Grid(2, 1), "spec.training.steps=30"}));
  EXPECT_EQ(LinesOf(*two, "step").front()["step"], 21);
  std::filesystem::remove_all(Path("out/checkpoints/step-000030"));
  std::filesystem::remove(Path("out/checkpoints/latest"));
  const auto one = RunToEnd(with({Grid(1, 2), "spec.training.steps=30"}));
  ASSERT_EQ(LinesOf(*one, "step").front()["step"], 21);
  ExpectLosses(*two, *one);
}

TEST_F(ReplicasTest, SpareTakesRankOfLostReplica) {
  WriteTopology(4, 1);
  const std::vector<std::string> job = {kCheckpoints, Grid(2, 2), "spec.training.steps=40"};
  const auto undisturbed = RunToEnd(job, {}, "undisturbed");
  for (const int replica : {0, 1}) {
    auto run = Start(job, {}, absl::StrCat("out", replica));
    ASSERT_TRUE(run->WaitForEvent("CheckpointSaved", kStartLimit)) << run->Stderr();
    KillProcess(PidOfRank(*run, 1, replica));
    ExpectEnd(*run, 0);
    ExpectSameBits(*run, BitsOf(*undisturbed), 1, 40);
    EXPECT_EQ(Event(*run, "ExecutorLost")["replica"], replica);
    EXPECT_EQ(Event(*run, "SpareActivated")["replica"], replica);
    EXPECT_THAT(Reasons(*run), Not(Contains("Replanned")));
  }
}

TEST_F(ReplicasTest, WithoutASpareTheRestGoesOn) {
  WriteTopology(4, 0);
  auto run = Start({kCheckpoints, Grid(2, 2), "spec.training.steps=40"});
  ASSERT_TRUE(run->WaitForEvent("CheckpointSaved", kStartLimit)) << run->Stderr();
  KillProcess(PidOfRank(*run, 0, 0));
  ExpectEnd(*run, 0);
  EXPECT_THAT(Reasons(*run), Contains("Replanned"));
  EXPECT_EQ(Summary(*run)["steps"], 40);
  EXPECT_GE(Event(*run, "Restored")["step"], 10);
}

TEST_F(ReplicasTest, ABrokerThatIsKilledIsReplacedAndNoStepIsMissing) {
  WriteTopology(4, 0);
  const std::vector<std::string> job = {kCheckpoints, Grid(2, 2), "spec.training.steps=40"};
  const auto undisturbed = RunToEnd(job, {}, "undisturbed");
  auto run = Start(job);
  ASSERT_TRUE(run->WaitForStep(15, kStartLimit)) << run->Stderr();
  const std::vector<pid_t> brokers = run->Running("fusion-broker");
  ASSERT_THAT(brokers, SizeIs(1));
  KillProcess(brokers[0]);
  ExpectEnd(*run, 0);
  ExpectSameBits(*run, BitsOf(*undisturbed), 1, 40);
  EXPECT_THAT(Reasons(*run), Not(Contains("Restored")));
  EXPECT_THAT(Summary(*run)["stages"], SizeIs(4));
}

// No topology: executors of this machine, as many as devices are named.
TEST_F(ReplicasTest, DevicesOfThisMachineAreReplicas) {
  FusionctlChild run({"run", "job.yaml", "--device", "cpu,cpu", "--set", Grid(2, 1), "--set", "spec.training.steps=4", "--format", "json",
                      "--output", "out"},
                     Path("."));
  ExpectEnd(run, 0);
  EXPECT_THAT(BitsOf(run), SizeIs(4));
  const json stages = LinesOf(run, "plan")[0]["stages"];
  ASSERT_THAT(stages, SizeIs(1));
  EXPECT_THAT(stages[0]["devices"].get<std::vector<std::string>>(), ::testing::UnorderedElementsAre("local-0", "local-1"));
  EXPECT_THAT(base::ReadWholeFile(Path("out/logs/local-0.log")), HasSubstr("communicates by messages (replica 0: it computes on a CPU)"));
}

TEST_F(ReplicasTest, OneExecutorIsTooFewAndTheRefusalSaysWhatToType) {
  FusionctlChild run({"run", "job.yaml", "--set", Grid(2, 1), "--output", "out"}, Path("."));
  ExpectEnd(run, 3);
  EXPECT_THAT(run.Stderr(), HasSubstr("TooFewExecutors: 2 pipelines (spec.strategy.replicas)"));
  EXPECT_THAT(run.Stderr(), HasSubstr("--device cpu,cpu"));
}

// And whoever types it is not refused again, whatever else the job says of executors.
TEST_F(ReplicasTest, WhatTheRefusalSaysToTypeIsEnough) {
  struct Case {
    std::string executors;
    std::vector<std::string> advised;
  };
  const std::string steps = "spec.training.steps=2";
  for (const Case& c :
       {Case{"{spares: 1}", {"--device cpu,cpu,cpu"}}, Case{"{max: 1}", {"--device cpu,cpu", "--set spec.executors.max=2"}}}) {
    std::vector<std::string> flags = {"run", "job.yaml", "--set", Grid(2, 1), "--set", "spec.executors=" + c.executors, "--set", steps};
    const auto with_output = [&](const std::string& name) {
      std::vector<std::string> all = flags;
      all.insert(all.end(), {"--output", name + std::to_string(c.advised.size())});
      return all;
    };
    FusionctlChild refused(with_output("refused"), Path("."));
    ExpectEnd(refused, 3);
    for (const std::string& advice : c.advised) {
      EXPECT_THAT(refused.Stderr(), HasSubstr(advice));
      const std::vector<std::string> words = absl::StrSplit(advice, ' ');
      flags.insert(flags.end(), words.begin(), words.end());
    }
    FusionctlChild run(with_output("run"), Path("."));
    ExpectEnd(run, 0);
  }
}

TEST_F(ReplicasTest, WhatCannotBeHadIsRefusedBeforeAStep) {
  WriteTopology(4, 0);
  for (const auto& [settings, words] :
       std::vector<std::pair<std::string, std::string>>{{Grid(2, 3), "TooFewExecutors"}, {Grid(3, 1), "TooManyReplicas"}}) {
    auto run = Start({settings}, {}, absl::StrCat("out-", words));
    ExpectEnd(*run, 3);
    EXPECT_THAT(run->Stderr(), HasSubstr(words));
  }
}

}  // namespace
}  // namespace fusionllm::integration
