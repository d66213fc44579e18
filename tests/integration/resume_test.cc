// Runs that end early and go on later: from a checkpoint, after Ctrl-C, after the death of fusionctl itself.
#include <csignal>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class ResumeTest : public RunTest {
 protected:
  std::string Checkpoints(int every) const { return absl::StrCat("spec.checkpoint={path: ", Path("kept"), ", everySteps: ", every, "}"); }
  static std::string Steps(int n) { return absl::StrCat("spec.training.steps=", n); }
  static int64_t FirstStep(const FusionctlChild& run) {
    const Bits bits = BitsOf(run);
    return bits.empty() ? 0 : bits.begin()->first;
  }
};

TEST_F(ResumeTest, GoesOnInAnotherNumberOfStagesWithTheSameBits) {
  const auto first = RunToEnd({Steps(10), Checkpoints(5), "spec.strategy.stages=3"}, {}, "first");
  ExpectSameBits(*first, Undisturbed(), 1, 10);
  const auto second = RunToEnd({Steps(20), Checkpoints(5), "spec.strategy.stages=2"}, {}, "second");
  EXPECT_EQ(FirstStep(*second), 11);
  ExpectSameBits(*second, Undisturbed(), 11, 20);
  EXPECT_EQ(Event(*second, "Restored")["step"], 10);

  const auto fresh = RunToEnd({Steps(10), Checkpoints(5)}, {"--fresh"}, "third");
  EXPECT_EQ(FirstStep(*fresh), 1);
  EXPECT_THAT(Reasons(*fresh), Not(Contains("Restored")));
  EXPECT_THAT(Event(*fresh, "CheckpointMovedAside").dump(), HasSubstr("step-000010.earlier-1"));
  EXPECT_TRUE(std::filesystem::exists(Path("kept/step-000010.earlier-1/manifest.json"))) << "the first run's is not lost";
}

TEST_F(ResumeTest, DataThatHaveGrownSinceTheCheckpointAreReported) {
  const auto first = RunToEnd({Steps(4), Checkpoints(2)}, {}, "first");
  EXPECT_TRUE(Event(*first, "DataChanged").is_null());
  const auto same = RunToEnd({Steps(6), Checkpoints(2)}, {}, "same");
  EXPECT_TRUE(Event(*same, "DataChanged").is_null());
  const std::string text = base::ReadWholeFile(Path("text.txt"));
  folder_.Write("text.txt", text + text + text);
  const auto grown = RunToEnd({Steps(8), Checkpoints(2)}, {}, "grown");
  EXPECT_EQ(FirstStep(*grown), 7);
  EXPECT_THAT(Event(*grown, "DataChanged").dump(),
              AllOf(HasSubstr("spec.data.path"), HasSubstr("in 18000 bytes"), HasSubstr("instead of"), HasSubstr("in 6000 bytes")));
}

TEST_F(ResumeTest, ChangedValidationDataIsReported) {
  folder_.Write("held.txt", std::string(600, 'a'));
  const std::string validation = "spec.data.validation={path: " + Path("held.txt") + "}";
  RunToEnd({Steps(2), Checkpoints(2), validation, "spec.training.evaluation={everySteps: 2, batches: 1}"}, {}, "first");
  folder_.Write("held.txt", std::string(900, 'b'));
  const auto other = RunToEnd({Steps(4), Checkpoints(2), validation, "spec.training.evaluation={everySteps: 2, batches: 1}"}, {}, "other");
  EXPECT_THAT(Event(*other, "DataChanged").dump(),
              AllOf(HasSubstr("spec.data.validation.path"),
                    HasSubstr("validation losses from here on are not comparable with those before"), Not(HasSubstr("seen twice"))));
}

// Checkpoints hold parameters and state in fp32, whatever the passes compute in.
TEST_F(ResumeTest, GoesOnInTheOtherPrecision) {
  const auto in = [](const std::string& precision) { return "spec.training.precision=" + precision; };
  const auto first = RunToEnd({Steps(10), Checkpoints(5), in("bf16")}, {}, "first");
  EXPECT_NE(BitsOf(*first).at(10), Undisturbed().at(10)) << "it computed in fp32";
  const auto second = RunToEnd({Steps(15), Checkpoints(5), in("fp32")}, {}, "second");
  EXPECT_EQ(FirstStep(*second), 11);
  EXPECT_EQ(Event(*second, "Restored")["step"], 10);
  const auto third = RunToEnd({Steps(20), Checkpoints(5), in("bf16")}, {}, "third");
  EXPECT_EQ(FirstStep(*third), 16);
  EXPECT_EQ(Event(*third, "Restored")["step"], 15);
}

TEST_F(ResumeTest, WithErrorFeedbackOnTheSameCutsTheBitsAreThoseOfAnUndisturbedRun) {
  const std::string lossy = "spec.compression={policy: uniform, codec: int4, errorFeedback: true}";
  // Cut by count, so that measured links have no say in where the cuts are.
  const std::string three = "spec.strategy={planner: equal-ops, stages: 3}";
  const auto whole = RunToEnd({Steps(20), lossy, three}, {}, "whole");
  RunToEnd({Steps(10), lossy, Checkpoints(0), three}, {}, "first");
  EXPECT_TRUE(std::filesystem::exists(Path("kept/step-000010/residuals-00001-of-00003.safetensors")));
  FusionctlChild verify({"checkpoint", "verify", "kept/step-000010"}, folder_.path());
  EXPECT_EQ(verify.Wait(kRunLimit), 0) << verify.Stderr();
  const auto second = RunToEnd({Steps(20), lossy, Checkpoints(0), three}, {}, "second");
  EXPECT_EQ(FirstStep(*second), 11);
  ExpectSameBits(*second, BitsOf(*whole), 11, 20);
  EXPECT_THAT(Reasons(*second), Not(Contains("ResidualsDropped")));

  const auto other_cuts = RunToEnd({Steps(22), lossy, Checkpoints(0), "spec.strategy.stages=2"}, {}, "third");
  EXPECT_EQ(FirstStep(*other_cuts), 21);
  EXPECT_THAT(Event(*other_cuts, "ResidualsDropped").dump(), HasSubstr("residual:"));
}

TEST_F(ResumeTest, WithCompressedTiedGradientsTheBitsAreThoseOfAnUndisturbedRun) {
  const std::string lossy = "spec.compression={policy: uniform, codec: fp32, tiedGradients: int4}";
  const std::string three = "spec.strategy={planner: equal-ops, stages: 3}";
  const auto whole = RunToEnd({Steps(20), lossy, three}, {}, "whole");
  for (const json& line : whole->lines()) {
    if (line.value("type", "") == "plan") {
      EXPECT_EQ(line["tied"][0]["codec"], "int4");
    }
  }
  EXPECT_NE(BitsOf(*whole).at(20), Undisturbed().at(20)) << "nothing was lost: this test says nothing";
  RunToEnd({Steps(10), lossy, Checkpoints(0), three}, {}, "first");
  const auto second = RunToEnd({Steps(20), lossy, Checkpoints(0), three}, {}, "second");
  EXPECT_EQ(FirstStep(*second), 11);
  ExpectSameBits(*second, BitsOf(*whole), 11, 20);
  EXPECT_THAT(Reasons(*second), Not(Contains("ResidualsDropped")));

  const auto alone = RunToEnd({Steps(22), lossy, Checkpoints(0), "spec.strategy.stages=1"}, {}, "third");
  EXPECT_EQ(FirstStep(*alone), 21);
  EXPECT_THAT(Event(*alone, "ResidualsDropped").dump(), HasSubstr("residual:transformer.wte.weight@lm_head"));
}

TEST_F(ResumeTest, ARunThatHasAllItsStepsEndsAtOnce) {
  RunToEnd({Steps(4), Checkpoints(0)}, {}, "first");
  const auto again = RunToEnd({Steps(4), Checkpoints(0)}, {}, "second");
  EXPECT_TRUE(BitsOf(*again).empty());
}

TEST_F(ResumeTest, FewerStepsThanTheCheckpointHasSeenAreRefusedInWords) {
  RunToEnd({Steps(6), Checkpoints(0)}, {}, "first");
  auto again = Start({Steps(4), Checkpoints(0)}, {}, "second");
  ExpectEnd(*again, 2);
  EXPECT_THAT(again->Stderr(), AllOf(HasSubstr("cannot start: --set spec.training.steps is 4"), HasSubstr("step-000006 has seen 6 steps"),
                                     Not(HasSubstr("fusion-broker ended"))))
      << "a refusal, and no crash";
}

TEST_F(ResumeTest, ZeroStepsWriteTheInitialParametersAndARunMayStartFromThem) {
  const auto zero = RunToEnd({Steps(0), Checkpoints(5)}, {}, "zero");
  EXPECT_TRUE(BitsOf(*zero).empty());
  EXPECT_TRUE(std::filesystem::exists(Path("kept/step-000000/manifest.json")));
  const auto run = RunToEnd({Steps(5), Checkpoints(5)}, {}, "five");
  ExpectSameBits(*run, Undisturbed(), 1, 5);
}

TEST_F(ResumeTest, AnInterruptWritesACheckpointFromWhichTheRunGoesOn) {
  auto run = Start({Checkpoints(0)}, {}, "first");
  ASSERT_TRUE(run->WaitForStep(7, kStartLimit)) << run->Stderr();
  run->Signal(SIGINT);
  ExpectEnd(*run, 130);
  const json saved = Event(*run, "CheckpointSaved");
  ASSERT_TRUE(saved.is_object()) << run->Stderr();
  EXPECT_EQ(saved["step"], BitsOf(*run).rbegin()->first);
  const auto rest = RunToEnd({Checkpoints(0)}, {}, "second");
  EXPECT_EQ(FirstStep(*rest), saved["step"].get<int64_t>() + 1);
  ExpectSameBits(*rest, Undisturbed(), FirstStep(*rest), kUndisturbedSteps);
}

TEST_F(ResumeTest, AnInterruptBeforeTheFirstStepEndsToo) {
  auto run = Start({Checkpoints(0)});
  ASSERT_TRUE(run->WaitFor([](const json& line) { return line.value("type", "") == "plan"; }, kStartLimit)) << run->Stderr();
  run->Signal(SIGINT);
  ExpectEnd(*run, 130);
}

TEST_F(ResumeTest, NothingOutlivesAFusionctlThatIsKilled) {
  auto run = Start({Checkpoints(5)}, {}, "first");
  ASSERT_TRUE(run->WaitForStep(12, kStartLimit)) << run->Stderr();
  run->Signal(SIGKILL);
  ExpectEnd(*run, 128 + SIGKILL);
  const auto rest = RunToEnd({Steps(20), Checkpoints(5)}, {}, "second");
  EXPECT_GE(FirstStep(*rest), 6);
  ExpectSameBits(*rest, Undisturbed(), FirstStep(*rest), 20);
}

TEST_F(ResumeTest, ACorruptCheckpointIsSkippedWithAWordForTheOneBefore) {
  RunToEnd({Steps(10), Checkpoints(5)}, {}, "first");
  const std::string shard = Path("kept/step-000010/model-00002-of-00003.safetensors");
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file.good());
    file.seekp(-3, std::ios::end);
    file.put('\x55');
  }
  const auto run = RunToEnd({Steps(12), Checkpoints(5)}, {}, "second");
  EXPECT_EQ(FirstStep(*run), 6);
  ExpectSameBits(*run, Undisturbed(), 6, 12);
  EXPECT_EQ(Event(*run, "Restored")["step"], 5);
  EXPECT_THAT(run->Stderr() + run->lines()[0].dump() + Event(*run, "CheckpointSkipped").dump(), HasSubstr("step-000010"));
}

TEST_F(ResumeTest, RunWithDamagedCheckpointsAloneIsRefusedUnlessFresh) {
  RunToEnd({Steps(10), Checkpoints(5)}, {}, "first");
  for (const char* const step : {"step-000005", "step-000010"}) {
    folder_.Write(absl::StrCat("kept/", step, "/model-00002-of-00003.safetensors"), "short");
  }
  const auto refused = Start({Steps(12), Checkpoints(5)}, {}, "second");
  ExpectEnd(*refused, base::kExitBadInput);
  EXPECT_THAT(refused->Stderr(), AllOf(HasSubstr("NoUsableCheckpoint: "),
                                       HasSubstr("kept/step-000010/model-00002-of-00003.safetensors has"), HasSubstr("--fresh")));
  EXPECT_EQ(FirstStep(*refused), 0);
  EXPECT_FALSE(std::filesystem::exists(Path("kept/step-000010.earlier-1")));
  const auto fresh = RunToEnd({Steps(10), Checkpoints(5)}, {"--fresh"}, "third");
  EXPECT_EQ(FirstStep(*fresh), 1);
}

}  // namespace
}  // namespace fusionllm::integration
