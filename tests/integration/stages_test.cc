// Any number of stages gives the same loss, bit by bit; evaluation and compression work between real processes.
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::SizeIs;

std::string Stages(int n) { return absl::StrCat("spec.strategy.stages=", n); }

class StagesTest : public RunTest {
 protected:
  void ExpectPlannedBytes(const std::string& precision);
};

TEST_F(StagesTest, Gpt2HasTheSameLossBitsInOneTwoFourAndSixStages) {
  WriteTopology(6, 0);
  const std::string steps = "spec.training.steps=6";
  for (const int stages : {2, 4, 6}) {
    const auto run = RunToEnd({steps, Stages(stages)}, {}, absl::StrCat("out", stages));
    ExpectSameBits(*run, Undisturbed(), 1, 6);
    EXPECT_THAT(Summary(*run)["stages"], SizeIs(stages));
  }
}

TEST_F(StagesTest, ResNetHasTheSameLossBitsInOneTwoFourAndSixStages) {
  WriteTopology(6, 0);
  const std::vector<std::string> resnet = {
      "spec.model={family: resnet, preset: 18, config: {stem: cifar, numClasses: 4}}",
      "spec.data={kind: shapes, shapes: {samples: 64, imageSize: 8, numClasses: 4, seed: 1}}",
      "spec.training={steps: 3, globalBatchSize: 4, microBatchSize: 2, optimizer: {name: sgd, learningRate: 0.01, momentum: 0.9}}"};
  Bits one;
  for (const int stages : {1, 2, 4, 6}) {
    std::vector<std::string> settings = resnet;
    settings.push_back(Stages(stages));
    const auto run = RunToEnd(settings, {}, absl::StrCat("out", stages));
    if (stages == 1) one = BitsOf(*run);
    ASSERT_EQ(one.size(), 3);
    ExpectSameBits(*run, one, 1, 3);
  }
}

TEST_F(StagesTest, EvaluationsDoNotChangeTraining) {
  const auto run =
      RunToEnd({"spec.training.steps=6", "spec.data.validation={fraction: 0.1}", "spec.training.evaluation={everySteps: 3, batches: 2}"});
  std::vector<int> at;
  for (const json& line : run->lines()) {
    if (line.value("type", "") != "eval") continue;
    at.push_back(line["step"]);
    EXPECT_GT(line["loss"].get<double>(), 1);
    EXPECT_LT(line["loss"].get<double>(), 10);
  }
  EXPECT_THAT(at, ::testing::ElementsAre(3, 6));
}

// Activations, labels, gradients and those of the tied embedding, of which the plan counts a row for each token that a text may have, and
// the run sends those that occur. What is left over is frames and the steps' reports.
void StagesTest::ExpectPlannedBytes(const std::string& precision) {
  constexpr int kSteps = 6;
  const auto run = RunToEnd({"spec.model.config={nLayer: 4, nHead: 2, nEmbd: 64, vocabSize: 256, blockSize: 32}",
                             absl::StrCat("spec.training={steps: ", kSteps, ", globalBatchSize: 16, microBatchSize: 8, sequenceLength: 32",
                                          ", precision: ", precision, "}")});
  std::map<std::pair<std::string, std::string>, double> planned, embedding;
  for (const json& line : run->lines()) {
    if (line.value("type", "") != "plan") continue;
    for (const json& link : line["links"]) {
      planned[{link["src"], link["dst"]}] += link["bytes"].get<double>();
      if (link["direction"] == "forward") embedding[{link["src"], link["dst"]}] += link["tied_bytes"].get<double>();
    }
  }
  ASSERT_THAT(planned, SizeIs(6)) << "each of three stages with each other: neighbours, labels and the tied embedding's two ends";
  const json links = Summary(*run)["links"];
  EXPECT_GE(links.size(), planned.size());
  for (const json& link : links) {
    const double a_step = link["bytes"].get<double>() / kSteps;
    const double expected = planned[{link["src"], link["dst"]}];
    const double of_embedding = embedding[{link["src"], link["dst"]}];
    EXPECT_GE(a_step, expected - of_embedding) << link.dump();
    EXPECT_LE(a_step, 1.05 * expected + 4096) << link.dump();
  }
}

TEST_F(StagesTest, EveryLinkCarriesTheBytesThatThePlanSays) { ExpectPlannedBytes("fp32"); }
TEST_F(StagesTest, EveryLinkCarriesTheBytesThatThePlanSaysInBf16) { ExpectPlannedBytes("bf16"); }

// It begins when the last step was reported, and its messages are still in queues when the stages that sent them end.
TEST_F(StagesTest, TheBytesOfAnEvaluationAfterTheLastStepAreCounted) {
  constexpr int kBatches = 6;
  const auto run_with = [&](const std::string& evaluation) {
    return RunToEnd({"spec.training.steps=4", "spec.data.validation={fraction: 0.1}", "spec.training.evaluation=" + evaluation}, {},
                    "out" + std::to_string(evaluation.size()));
  };
  const auto with = run_with(absl::StrCat("{everySteps: 4, batches: ", kBatches, "}")), without = run_with("{everySteps: 0}");
  double forward = 0;  // of a global batch
  for (const json& line : with->lines()) {
    if (line.value("type", "") != "plan") continue;
    for (const json& link : line["links"]) {
      const bool ahead = link["src_stage"].get<int>() < link["dst_stage"].get<int>();
      if (ahead) forward += link["bytes"].get<double>() - link.value("tied_bytes", 0.0);
    }
  }
  ASSERT_GT(forward, 0);
  const double more = Summary(*with)["wire_bytes"].get<double>() - Summary(*without)["wire_bytes"].get<double>();
  EXPECT_GE(more, kBatches * forward - 4096) << "acknowledgements of the two runs differ";
  EXPECT_LE(more, 1.2 * kBatches * forward + 4096);
}

TEST_F(StagesTest, CompressionShrinksWhatCrossesTheLinks) {
  const auto wire_bytes = [&](const std::string& codec, const std::string& ratio) {
    const auto run = RunToEnd(
        {"spec.model.config.tieWeights=false", "spec.training.steps=8", "spec.training.globalBatchSize=16",
         "spec.training.microBatchSize=16", "spec.strategy={planner: equal-ops, stages: 3}",  // op-fence may cut at logits: fp16, no loss
         absl::StrCat("spec.compression={policy: uniform, codec: ", codec, ", ratio: ", ratio, "}")},
        {}, "out-" + codec);
    EXPECT_THAT(BitsOf(*run), SizeIs(8));
    const json summary = Summary(*run);
    std::map<std::string, int> stage_of;
    for (const json& stage : summary["stages"]) stage_of[stage["device"]] = stage["index"];
    int compressed = 0;
    for (const json& link : summary["links"]) {
      // Between neighbours go activations and gradients; labels alone, from the first stage to the last.
      if (std::abs(stage_of.at(link["src"]) - stage_of.at(link["dst"])) != 1) continue;
      ++compressed;
      EXPECT_EQ(link["codec"].get<std::string>().substr(0, 4), codec.substr(0, 4)) << link.dump();
    }
    EXPECT_EQ(compressed, 4);
    return summary["wire_bytes"].get<double>();
  };
  const double exact = wire_bytes("fp32", "1");
  EXPECT_LT(wire_bytes("int8", "1"), 0.5 * exact);
  EXPECT_LT(wire_bytes("topk", "20"), 0.4 * exact);
}

}  // namespace
}  // namespace fusionllm::integration
