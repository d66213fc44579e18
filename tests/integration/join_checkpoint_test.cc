// Checkpoints of runs with machines that join: these have neither the run's folder nor what it starts from.
#include <csignal>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/export.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/safetensors.h"
#include "tests/integration/join_fixture.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
namespace fs = std::filesystem;

class JoinCheckpointTest : public JoinTest {
 protected:
  void SetUp() override {
    if (const std::string why = CannotHide(); !why.empty()) GTEST_SKIP() << why;
  }

  void ExpectWhole(const std::string& checkpoint) {
    Fusionctl verify(folder_, "verify", {"checkpoint", "verify", checkpoint});
    EXPECT_EQ(verify.Wait(), 0) << verify.words();
  }

  // Parameters and optimizer state: the same names with the same bits.
  static void ExpectSameTensors(const std::string& a, const std::string& b) {
    const auto one = checkpoint::CheckpointReader::Open(a), other = checkpoint::CheckpointReader::Open(b);
    ASSERT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
    ASSERT_EQ(one->tensors().size(), other->tensors().size());
    for (const auto& [name, stored] : one->tensors()) {
      tensor::Tensor mine({*stored.entry->dtype, stored.entry->shape}), theirs({*stored.entry->dtype, stored.entry->shape});
      ASSERT_TRUE(one->Read(name, mine.view()).ok()) << name;
      ASSERT_TRUE(other->Read(name, theirs.view()).ok()) << name;
      EXPECT_EQ(std::memcmp(mine.bytes().data(), theirs.bytes().data(), mine.bytes().size()), 0) << name;
    }
  }
};

TEST_F(JoinCheckpointTest, WhatMachinesWithoutTheFolderSendIsTheCheckpointOfALocalRun) {
  const Settings settings = {"spec.training.steps=20", kEveryTen};
  const auto alone = Alone(settings);
  ASSERT_EQ(alone->Wait(), 0) << alone->words();

  const auto run = Listen(3, settings);
  const auto blind = Hidden("blind");
  const auto seeing = Join("seeing", {"--name", "seeing"});
  ASSERT_EQ(run->Wait(), 0) << run->words() << blind->words();
  EXPECT_EQ(blind->Wait(), 0) << blind->words();
  EXPECT_EQ(seeing->Wait(), 0) << seeing->words();
  EXPECT_EQ(run->LossBits(), alone->LossBits());
  for (const char* step : {"step-000010", "step-000020"}) {
    const std::string whole = Out("run") + "/checkpoints/" + step;
    EXPECT_TRUE(fs::exists(whole + "/model-00003-of-00003.safetensors")) << "three stages, one of them unable to write here";
    ExpectWhole(whole);
    ExpectSameTensors(whole, Out("alone") + "/checkpoints/" + step);
  }
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(Out("run") + "/checkpoints")) left.push_back(entry.path().filename().string());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("step-000010", "step-000020", "latest")) << "nothing half written, no mark";
}

TEST_F(JoinCheckpointTest, AJoinerThatIsKilledCostsTheStepsSinceTheLastCheckpoint) {
  const Settings settings = {"spec.training.steps=120", kEveryTen};
  const auto alone = Alone(settings);
  ASSERT_EQ(alone->Wait(), 0) << alone->words();

  const auto run = Listen(3, settings);
  const auto doomed = Hidden("doomed");
  const auto other = Hidden("other");
  ASSERT_TRUE(run->WaitForEvent("CheckpointSaved")) << run->words() << doomed->words() << other->words();
  doomed->Kill();
  ASSERT_EQ(run->Wait(), 0) << run->words() << other->words();
  EXPECT_EQ(other->Wait(), 0) << other->words();
  ExpectSameLosses(*run, *alone, 1, 120);
  EXPECT_THAT(run->Event("ExecutorLost").value("message", ""), HasSubstr("doomed"));
  const json restored = run->Event("Restored");
  EXPECT_GE(restored.value("step", 0), 10) << restored;
  EXPECT_THAT(restored.value("message", ""), HasSubstr("/checkpoints/step-0000"));
  EXPECT_THAT(run->Event("Replanned").value("message", ""), AllOf(HasSubstr("2 stages"), HasSubstr("other")));
  ExpectWhole(Out("run") + "/checkpoints/latest");
  ExpectSameTensors(Out("run") + "/checkpoints/step-000120", Out("alone") + "/checkpoints/step-000120");
}

TEST_F(JoinCheckpointTest, AnInterruptedRunGoesOnWithOthersAndThenAlone) {
  const Settings settings = {"spec.training.steps=600", "spec.checkpoint={path: checkpoints, everySteps: 100}"};
  const auto undisturbed = Alone(settings, "undisturbed");
  ASSERT_EQ(undisturbed->Wait(), 0) << undisturbed->words();

  int64_t done = 0;
  for (const std::string name : {"first", "second"}) {
    const auto run = Listen(2, settings);
    const auto joiner = Hidden(name);
    ASSERT_TRUE(run->WaitForStep(done + 12)) << run->words() << joiner->words();
    run->Interrupt();
    ASSERT_EQ(run->Wait(), 130) << run->words();
    EXPECT_NE(joiner->Wait(), -1) << joiner->words();
    ASSERT_FALSE(run->LossBits().empty());
    const int64_t last = run->LossBits().back().first;
    ASSERT_LT(last, 600) << "it was not interrupted in the middle";
    ExpectSameLosses(*run, *undisturbed, done + 1, last);
    EXPECT_EQ(run->Event("CheckpointSaved").empty(), false) << "the step it was stopped at";
    ExpectWhole(absl::StrFormat("%s/checkpoints/step-%06d", Out("run"), last));
    done = last;
  }
  const auto rest = Alone(settings, "run");
  ASSERT_EQ(rest->Wait(), 0) << rest->words();
  ASSERT_FALSE(rest->LossBits().empty());
  EXPECT_EQ(rest->LossBits().front().first, done + 1);
  ExpectSameLosses(*rest, *undisturbed, done + 1, 600);
  ExpectSameTensors(Out("run") + "/checkpoints/step-000600", Out("undisturbed") + "/checkpoints/step-000600");
}

TEST_F(JoinCheckpointTest, TheMachineWithTheDataMayDieAndTheRunBeStartedAgain) {
  const Settings settings = {"spec.training.steps=120", kEveryTen};
  const auto undisturbed = Alone(settings, "undisturbed");
  ASSERT_EQ(undisturbed->Wait(), 0) << undisturbed->words();
  const auto run = Listen(2, settings);
  const auto joiner = Hidden("joiner");
  ASSERT_TRUE(run->WaitForEvent("CheckpointSaved")) << run->words() << joiner->words();
  for (const json& line : run->lines()) {
    if (line.value("reason", "") == "ExecutorJoined" && line.value("device", "") == "local-0") kill(line.value("pid", 0), SIGKILL);
  }
  EXPECT_EQ(run->Wait(), 1) << run->words();
  EXPECT_THAT(run->words(), AllOf(HasSubstr("local-0, which alone has the training data, was lost after step"),
                                  HasSubstr("started again, the run goes on after step")));
  EXPECT_NE(joiner->Wait(), -1) << joiner->words();

  const auto again = Listen(2, settings);
  const auto next = Hidden("next");
  ASSERT_EQ(again->Wait(), 0) << again->words() << next->words();
  EXPECT_EQ(next->Wait(), 0) << next->words();
  EXPECT_GE(again->Event("Restored").value("step", 0), 10);
  ExpectSameLosses(*again, *undisturbed, again->Event("Restored").value("step", 0) + 1, 120);
}

TEST_F(JoinCheckpointTest, WhatARunStartsFromReachesMachinesThatDoNotHaveIt) {
  const auto earlier = Listen(2, {"spec.training.steps=3", "spec.checkpoint={path: checkpoints}"}, "earlier");
  const auto helper = Join("helper", {});
  ASSERT_EQ(earlier->Wait(), 0) << earlier->words();
  ASSERT_EQ(helper->Wait(), 0) << helper->words();
  const std::string folder = Out("earlier") + "/checkpoints/step-000003", file = folder_ / "mine/one.safetensors";
  ASSERT_TRUE(fs::exists(folder + "/model.safetensors.index.json")) << "shards, as Hugging Face has them";
  ASSERT_TRUE(checkpoint::ExportModel(folder, file).ok());
  for (const std::string& from : {folder, file}) {
    const Settings settings = {absl::StrCat("spec.model.init.from=", from)};
    const auto alone = Alone(settings, "alone");
    ASSERT_EQ(alone->Wait(), 0) << alone->words();
    const auto run = Listen(2, settings);
    const auto blind = Hidden("blind");
    ASSERT_EQ(run->Wait(), 0) << run->words() << blind->words();
    EXPECT_EQ(blind->Wait(), 0) << blind->words();
    EXPECT_EQ(run->LossBits(), alone->LossBits());
    EXPECT_THAT(run->LossBits(), SizeIs(4));
  }
  const auto fresh = Alone({}, "fresh");
  ASSERT_EQ(fresh->Wait(), 0) << fresh->words();
  const auto run = Alone({absl::StrCat("spec.model.init.from=", folder)}, "again");
  ASSERT_EQ(run->Wait(), 0) << run->words();
  EXPECT_NE(run->LossBits(), fresh->LossBits()) << "what it starts from makes a difference";
}

TEST_F(JoinCheckpointTest, ModelsThatDoNotFitAreRefusedBeforeAnythingStarts) {
  const tensor::Tensor other({tensor::DType::kF32, {2}});
  const std::string file = folder_ / "mine/other.safetensors";
  ASSERT_TRUE(checkpoint::WriteSafetensors(file, std::vector<checkpoint::NamedTensor>{{"of.another.model", other.view()}}).ok());
  const auto run = Alone({"spec.model.init.from=" + file}, "run");
  EXPECT_EQ(run->Wait(), 2) << run->words();
  EXPECT_THAT(run->words(), AllOf(HasSubstr("other.safetensors"), HasSubstr("has no tensor"), HasSubstr("of.another.model")));
}

}  // namespace
}  // namespace fusionllm::cli
