// A job that leaves the size of micro-batches to the planner: what is chosen for the first plan is kept for the whole run, whatever plans
// and processes follow, so that the bits are those of a job that names the size.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::Each;

class MicroBatchTest : public RunTest {
 protected:
  // Profiles by which a micro-batch of two samples takes so many times as long as one of one sample.
  void PriceTwo(double times) {
    json document = json::parse(base::ReadWholeFile(Path("profiles.json")));
    for (json& device : document["devices"]) {
      device["threads"] = 1;  // as the topology's devices have, or they are measured once more
      for (const auto& [signature, op] : device["ops"].items()) {
        device["ops"][signature]["seconds"] = absl::StrContains(signature, "[2, ") ? 1e-3 * times : 1e-3;
      }
    }
    folder_.Write("profiles.json", document.dump());
  }
  static std::vector<int64_t> SizesPlanned(const FusionctlChild& run) {
    std::vector<int64_t> sizes;
    for (const json& line : run.lines()) {
      if (line.value("type", "") == "plan") sizes.push_back(line["micro_batch_size"]);
    }
    return sizes;
  }

  const std::string auto_ = "spec.training.microBatchSize=auto";
  const std::string checkpoints_ = absl::StrCat("spec.checkpoint={path: ", Path("kept"), ", everySteps: 10}");
};

TEST_F(MicroBatchTest, TheSizeThatThePlannerChoseIsKeptThroughALossAndByARunThatGoesOn) {
  PriceTwo(1);
  auto first = Start({auto_, checkpoints_, "spec.training.steps=40"});
  ASSERT_TRUE(first->WaitForEvent("CheckpointSaved", kStartLimit)) << first->Stderr();
  KillProcess(PidOfStage(*first, 1));
  ExpectEnd(*first, 0);
  EXPECT_THAT(Reasons(*first), Contains("Replanned"));
  EXPECT_THAT(SizesPlanned(*first), Each(2)) << "and not 1, the default of so small a batch";
  ExpectSameBits(*first, Undisturbed(), 1, 40);  // which names the size of two

  PriceTwo(10);  // now the planner would rather have one
  const auto second = RunToEnd({auto_, checkpoints_}, {}, "second");
  EXPECT_THAT(SizesPlanned(*second), Each(2));
  ExpectSameBits(*second, Undisturbed(), 41, 60);
  const auto fresh = RunToEnd({auto_, "spec.training.steps=3"}, {}, "fresh");
  EXPECT_THAT(SizesPlanned(*fresh), Each(1)) << "a run that begins has its own choice";
}

}  // namespace
}  // namespace fusionllm::integration
