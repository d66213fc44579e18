// An executor that is lost without a spare and started again: whether the run that goes on without it takes it back, with real processes.
#include <sys/types.h>

#include <algorithm>
#include <csignal>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/run/child_process.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

using cli::ChildProcess;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class NewcomerTest : public RunTest {
 protected:
  // One device for each scale, a-0 and so on, with latency_ms between any two.
  void WriteDevices(const std::vector<double>& scales, int latency_ms) {
    WriteTopology(static_cast<int>(scales.size()), 0);
    std::string text = absl::StrCat(
        "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: slow}\nspec:\n  sites:\n  - name: a\n"
        "    internal: {bandwidth: 1Gbit, latency: ",
        latency_ms, "ms}\n    devices:\n");
    for (size_t i = 0; i < scales.size(); ++i) {
      absl::StrAppend(&text, "    - {name: a-", i, ", computeScale: ", scales[i], ", memory: 1Gi}\n");
    }
    folder_.Write("topology.yaml", text);
    auto profiles = json::parse(base::ReadWholeFile(Path("profiles.json")));
    for (json& link : profiles["links"]) link["rtt_seconds"] = 2e-3 * latency_ms;
    folder_.Write("profiles.json", profiles.dump());
  }

  // Kills a device's executor when a checkpoint has been saved, and starts the same program again when the run goes on without it.
  void LoseAndStartAgain(FusionctlChild& run, const std::string& device) {
    ASSERT_TRUE(run.WaitForEvent("CheckpointSaved", kStartLimit)) << run.Stderr();
    pid_t pid = 0;
    for (const json& line : run.lines()) {
      if (line.value("reason", "") == "ExecutorJoined" && line.value("device", "") == device) pid = line.value("pid", 0);
    }
    ASSERT_GT(pid, 1) << "no event told of " << device;
    // The environment is that of this process: fusionctl gives it on as it is.
    std::vector<std::string> command = absl::StrSplit(base::ReadWholeFile(absl::StrCat("/proc/", pid, "/cmdline")), '\0');
    ASSERT_GT(command.size(), 2u);
    command.pop_back();  // every argument ends in 0
    KillProcess(pid);
    const auto replanned = run.WaitForEvent("Replanned", kRunLimit);
    ASSERT_TRUE(replanned) << run.Stderr();
    EXPECT_THAT((*replanned)["message"].get<std::string>(), HasSubstr("2 stages"));
    auto started =
        ChildProcess::Start({device, std::move(command), Path(absl::StrCat("out/logs/", device, ".log")), /*pipe_stdout=*/false});
    ASSERT_TRUE(started.ok()) << started.status();
    again_.emplace(*std::move(started));
    const auto joined = run.WaitForEvent("ExecutorJoined", kRunLimit);
    ASSERT_TRUE(joined) << run.Stderr();
    EXPECT_EQ((*joined)["device"], device);
    EXPECT_EQ((*joined)["pid"], again_->pid());
    EXPECT_THAT((*joined)["message"].get<std::string>(), HasSubstr("the plan was made over 2 of 3 executors"));
  }

  // The run ends well, and so does, by itself, what was started beside it.
  void ExpectGoodEnd(FusionctlChild& run) {
    EXPECT_EQ(run.Wait(kRunLimit), 0) << run.Stderr();
    EXPECT_EQ(EndOf(*again_), 0) << "of the executor that was started again; its log ends:\n" << cli::TailOfFile(again_->log_path(), 10);
    ExpectEnd(run, 0);
  }

  // Exit code; -1 where a signal ended it, or nothing did in time. FusionctlChild blocks SIGCHLD, so that none is missed.
  static int EndOf(ChildProcess& child) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    const timespec timeout = {static_cast<time_t>(kStartLimit), 0};
    while (!child.Poll().has_value() && sigtimedwait(&ends, nullptr, &timeout) > 0) {
    }
    return child.Poll().has_value() ? child.Poll()->exit_code.value_or(-1) : -1;
  }

  static std::vector<size_t> StagesOfPlans(const FusionctlChild& run) {
    std::vector<size_t> stages;
    for (const json& line : run.lines()) {
      if (line.value("type", "") == "plan") stages.push_back(line["stages"].size());
    }
    return stages;
  }

  // For whoever reads of a failure.
  static std::string EventsText(const FusionctlChild& run) {
    std::string text;
    for (const json& line : run.lines()) {
      if (line.value("type", "") != "event" || line["reason"] == "CheckpointSaved") continue;
      absl::StrAppend(&text, "\nstep ", line["step"].get<int64_t>(), " ", line["reason"].get<std::string>(), ": ",
                      line["message"].get<std::string>());
    }
    return text;
  }

  std::optional<ChildProcess> again_;
};

TEST_F(NewcomerTest, AnExecutorThatIsStartedAgainIsPlannedInWithoutLosingAStepOrABit) {
  constexpr int kSteps = 150;
  const std::vector<std::string> job = {absl::StrCat("spec.training.steps=", kSteps), "spec.training.globalBatchSize=8",
                                        "spec.training.microBatchSize=1"};
  std::vector<std::string> alone = job, cut = job;
  alone.emplace_back("spec.strategy.stages=1");
  cut.emplace_back("spec.checkpoint={path: checkpoints, everySteps: 10}");
  const auto reference = RunToEnd(alone, {}, "reference");
  // Nearly all of a step is computing, and most of that is what a-1 is for.
  WriteDevices({0.01, 0.05, 0.01}, 1);
  auto run = Start(cut);
  LoseAndStartAgain(*run, "a-1");
  if (HasFatalFailure()) return;
  const auto back = run->WaitFor(
      [](const json& line) {
        return line.value("reason", "") == "Replanned" && line["message"].get<std::string>().find("with a-1") != std::string::npos;
      },
      kRunLimit);
  ASSERT_TRUE(back) << run->Stderr();
  EXPECT_THAT((*back)["message"].get<std::string>(), AllOf(HasSubstr("3 stages"), HasSubstr("s a step"), HasSubstr("instead of")));
  const auto restored = run->WaitForEvent("Restored", kRunLimit);
  ASSERT_TRUE(restored) << run->Stderr();
  EXPECT_EQ((*restored)["step"], (*back)["step"]) << "from where it stood";
  ExpectGoodEnd(*run);
  ExpectSameBits(*run, BitsOf(*reference), 1, kSteps);
  // Devices as slow as these differ from their plan on a busy machine, and the run may move once more for that, which it says.
  const std::vector<size_t> stages = StagesOfPlans(*run);
  const std::vector<std::string> reasons = Reasons(*run);
  EXPECT_EQ(static_cast<std::ptrdiff_t>(stages.size()), 1 + std::count(reasons.begin(), reasons.end(), "Replanned"))
      << "an epoch ended for no reason that was told:" << EventsText(*run);
  ASSERT_GE(stages.size(), 3u);
  EXPECT_THAT(std::vector<size_t>(stages.begin(), stages.begin() + 3), ElementsAre(3, 2, 3)) << EventsText(*run);
  EXPECT_THAT(Summary(*run)["stages"], SizeIs(3));
  EXPECT_TRUE(Event(*run, "ReplanDeclined").is_null());
}

TEST_F(NewcomerTest, WhereAnotherStageWouldOnlyAddLatencyTheRunKeepsItsPlanAndSaysWhy) {
  constexpr int kSteps = 100;
  const std::string steps = absl::StrCat("spec.training.steps=", kSteps);
  const auto reference = RunToEnd({steps, "spec.strategy.stages=1"}, {}, "reference");
  WriteDevices({1, 1, 1}, 50);
  auto run = Start({steps, "spec.checkpoint={path: checkpoints, everySteps: 10}"});
  LoseAndStartAgain(*run, "a-1");
  if (HasFatalFailure()) return;
  const auto kept = run->WaitForEvent("ReplanDeclined", kRunLimit);
  ASSERT_TRUE(kept) << run->Stderr();
  EXPECT_EQ((*kept)["device"], "a-1");
  EXPECT_THAT((*kept)["message"].get<std::string>(), ::testing::MatchesRegex("a-1 stays a spare: .+"));
  ExpectGoodEnd(*run);
  ExpectSameBits(*run, BitsOf(*reference), 1, kSteps);
  EXPECT_THAT(StagesOfPlans(*run), ElementsAre(3, 2)) << EventsText(*run);
  EXPECT_THAT(Summary(*run)["stages"], SizeIs(2));
}

}  // namespace
}  // namespace fusionllm::integration
