// What a run leaves in its folder, what it finds there, and folders that cannot be written; with stand-ins for the programs.
#include "cli/run/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/run/folder_lock.h"
#include "cli/run/testing/run_job_fixture.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"

namespace fusionllm::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

mode_t ModeOf(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
}

class RunRecordTest : public RunJobTest {};

TEST_F(RunRecordTest, AFolderWithTheRunOfAnotherJobIsWarnedOf) {
  Script({kStep1, kLinkSummary, "exit 0"});
  ASSERT_TRUE(Run().ok());
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, Not(HasSubstr("has a run of the job")));
  const std::string before = std::exchange(options_.job.metadata.name, "another");
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, HasSubstr(absl::StrCat("/out has a run of the job ", before, ": its job.yaml")));
}

TEST_F(RunRecordTest, TheMarkOfAKilledBrokerGoesWithTheRun) {
  Script({"exit 1"});
  const std::string of_run = folder_.Write("out/.shared-folder", "x"), of_checkpoints = folder_.Write("out/kept/.shared-folder", "x");
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(std::filesystem::exists(of_run));
  options_.job.spec.checkpoint.emplace().path = "kept/";
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(std::filesystem::exists(of_checkpoints));
}

TEST_F(RunRecordTest, CredentialsAreForTheOwnerAlone) {
  Script({"exit 0"});
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(ModeOf(folder_ / "out/security"), 0700u);
  for (const char* name : {"ca.pem", "broker.pem", "broker.key", "scheduler.key", "client.key", "local-0.pem", "local-0.key", "token"}) {
    EXPECT_EQ(ModeOf(folder_ / "out/security/" + name), 0600u) << name;
  }
}

TEST_F(RunRecordTest, AStartThatIsRefusedHalfwayPutsBackWhatItHasWritten) {
  folder_.Write("out/job.yaml", "of the run before");
  // No file can hold it: what the parser refuses reaches the certificates, which are written after the job.
  job::Topology topology;
  topology.spec.sites = {{.name = "a", .devices = {{.name = "broker"}}}};
  options_.topology = topology;
  EXPECT_THAT(Run().status().message(), HasSubstr("the name 'broker' is taken"));
  EXPECT_EQ(base::ReadWholeFile(folder_ / "out/job.yaml"), "of the run before");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/topology.yaml"));
}

TEST_F(RunRecordTest, AResumedRunReportsItsEarlierStepsAndAFreshOneDoesNot) {
  Script({kStep1, "exit 130"});
  auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->run.outcome, "interrupted after step 1; nothing of it is kept: the run has no checkpoints");
  Script({kStep2, kLinkSummary, "exit 0"});
  result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->run.steps.size(), 2u);
  options_.fresh = true;
  result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->run.steps.size(), 1u);
}

TEST_F(RunRecordTest, AFolderInUseAndAFileInTheWayAreRefused) {
  Script({"exit 0"});
  {
    const auto held = RunFolder::Open(folder_ / "out");
    ASSERT_TRUE(held.ok());
    const auto result = Run();
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(base::ExitCodeFor(result.status()), kExitBadInput);
  }
  EXPECT_TRUE(Run().ok()) << "free again";
  options_.output = folder_.Write("file", "");
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RunRecordTest, AFolderOfCheckpointsBelongsToOneRunThatCanWriteThere) {
  Script({"exit 0"});
  const std::string shared = folder_ / "shared";
  options_.job.spec.checkpoint = job::Checkpoint{.path = shared};
  {
    const auto held = FolderLock::Acquire(shared, "go elsewhere");
    ASSERT_TRUE(held.ok()) << held.status();
    const absl::Status refused = Run().status();
    EXPECT_EQ(base::ExitCodeFor(refused), kExitBadInput);
    EXPECT_THAT(refused.message(), HasSubstr("spec.checkpoint.path: another run is using " + shared));
  }
  EXPECT_TRUE(Run().ok()) << "free again";
  options_.job.spec.checkpoint->path = folder_.Write("file", "") + "/inside";
  const absl::Status refused = Run().status();
  EXPECT_EQ(base::ExitCodeFor(refused), kExitBadInput);
  EXPECT_THAT(refused.message(), HasSubstr("spec.checkpoint.path: cannot make the folder " + options_.job.spec.checkpoint->path));
}

TEST_F(RunRecordTest, AFolderThatCannotBeWrittenIsBadInputWhateverThePart) {
  Script({"exit 0"});
  options_.output = "/proc/run";  // no one can write there, not even root
  const absl::Status read_only = Run().status();
  EXPECT_EQ(base::ExitCodeFor(read_only), kExitBadInput) << read_only;
  EXPECT_THAT(read_only.message(), HasSubstr("cannot make the folder /proc/run: "));
  for (const char* taken : {"logs", "job.yaml", "events.jsonl", "trace.jsonl"}) {
    options_.output = folder_ / absl::StrCat("with-", taken);
    if (absl::string_view(taken) == "logs") {
      folder_.Write(absl::StrCat("with-", taken, "/logs"), "a file");
    } else {
      std::filesystem::create_directories(absl::StrCat(options_.output, "/", taken));
    }
    const absl::Status refused = Run().status();
    EXPECT_EQ(base::ExitCodeFor(refused), kExitBadInput) << refused;
    EXPECT_THAT(refused.message(), HasSubstr(options_.output + "/" + taken));
  }
}

TEST_F(RunRecordTest, ARunWhoseRecordCannotBeWrittenSaysSoAtOnceAndFails) {
  std::filesystem::create_directories(options_.output);
  std::filesystem::create_symlink("/dev/full", folder_ / "out/trace.jsonl");
  Script({kStep1, R"(print {"type":"trace","device":"local-0","step":1,"spans":[[0,0,1,2]]})", kStep2, kLinkSummary, "exit 0"});
  const auto full = Run();
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->exit_code, kExitFailed);
  const std::string why = absl::StrCat("cannot write ", folder_ / "out/trace.jsonl", ": No space left on device");
  EXPECT_THAT(stderr_, AllOf(HasSubstr(why + "; the run goes on"), HasSubstr(absl::StrCat("fusionctl: failed after step 2: ", why))));
  EXPECT_LT(stderr_.find(why), stderr_.find("step 2/2")) << "told when it happens";
}

TEST_F(RunRecordTest, ARunWhoseFolderIsTakenAwayFails) {
  Script({kStep1, "wait " + folder_ / "gone", kLinkSummary, "exit 0"});
  const std::jthread remover([&](const std::stop_token& stop) {
    const auto has_step = [&] { return base::ReadWholeFile(folder_ / "out/events.jsonl").find("\"step\"") != std::string::npos; };
    while (!has_step() && !stop.stop_requested()) std::this_thread::yield();
    // At once: what is written into a folder that is being removed keeps it.
    std::error_code ignored;
    std::filesystem::rename(folder_ / "out", folder_ / "taken", ignored);
    std::filesystem::remove_all(folder_ / "taken", ignored);
    folder_.Write("gone", "");
  });
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitFailed);
  // Its events, or the log of a process that was about to start: whatever was to be written first.
  EXPECT_THAT(stderr_, ::testing::ContainsRegex(absl::StrCat("cannot write ", folder_ / "out/", "[a-z0-9./-]+: No such file")));
  EXPECT_THAT(stdout_, Not(HasSubstr("report: "))) << "there is none";
}

TEST_F(RunRecordTest, AReportThatCannotBeWrittenIsAFailure) {
  std::filesystem::create_directories(folder_ / "out/report.html");
  Script({kStep1, kLinkSummary, "exit 0"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitFailed);
  EXPECT_THAT(stderr_, HasSubstr(folder_ / "out/report.html"));
}

TEST_F(RunRecordTest, ATraceThatIsRemovedIsReported) {
  Script({kStep1, "wait " + folder_ / "gone", kLinkSummary, "exit 0"});
  const std::jthread remover([&](const std::stop_token& stop) {
    const auto has_step = [&] { return base::ReadWholeFile(folder_ / "out/events.jsonl").find("\"step\"") != std::string::npos; };
    while (!has_step() && !stop.stop_requested()) std::this_thread::yield();
    std::error_code ignored;
    std::filesystem::remove(folder_ / "out/trace.jsonl", ignored);
    folder_.Write("gone", "");
  });
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitFailed);
  EXPECT_THAT(stderr_, HasSubstr(absl::StrCat("cannot write ", folder_ / "out/trace.jsonl", ": No such file")));
}

TEST_F(RunRecordTest, ARefusedStartLeavesTheReportOfTheRunAndSaysWhyOnce) {
  Script({kStep1, kStep2, kLinkSummary, "exit 0"});
  ASSERT_TRUE(Run().ok());
  const std::string report = base::ReadWholeFile(folder_ / "out/report.html");
  const std::string events = base::ReadWholeFile(folder_ / "out/events.jsonl");
  const std::string job = base::ReadWholeFile(folder_ / "out/job.yaml");
  folder_.Write("out/profiles.json", "of the run");
  options_.job.spec.training.seed = 77;
  Script({R"(print {"type":"error","code":"FAILED_PRECONDITION","reason":"NoDevices","message":"none is left"})", "exit 3"});
  for (const bool fresh : {false, true, true}) {  // the second fresh one must not find less than the first did
    options_.fresh = fresh;
    const auto refused = Run();
    ASSERT_TRUE(refused.ok()) << refused.status();
    EXPECT_EQ(refused->exit_code, kExitInfeasible);
    const std::vector<absl::string_view> around = absl::StrSplit(stderr_, "no plan: NoDevices: none is left");
    EXPECT_EQ(around.size(), 2u) << stderr_;
    EXPECT_THAT(stderr_, ::testing::EndsWith("\nfusionctl: no plan: NoDevices: none is left\n"));
    EXPECT_THAT(stdout_, AllOf(HasSubstr("small: no plan\n"), Not(HasSubstr("none is left")), Not(HasSubstr("report: "))));
    EXPECT_EQ(base::ReadWholeFile(folder_ / "out/report.html"), report);
    EXPECT_EQ(base::ReadWholeFile(folder_ / "out/events.jsonl"), events);
    EXPECT_EQ(base::ReadWholeFile(folder_ / "out/job.yaml"), job);
    EXPECT_EQ(base::ReadWholeFile(folder_ / "out/profiles.json"), "of the run");
  }
}

TEST_F(RunRecordTest, FreshRunReplacesEarlierRecordAfterFirstStep) {
  Script({kStep1, kStep2, kLinkSummary, "exit 0"});
  ASSERT_TRUE(Run().ok());
  options_.fresh = true;
  options_.format = OutputFormat::kJson;
  Script({R"(print {"type":"event","reason":"ExecutorJoined","step":0,"message":"a joined"})", kStep1, "exit 130"});
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(base::ReadWholeFile(folder_ / "out/events.jsonl"), stdout_);
  EXPECT_THAT(stdout_, AllOf(HasSubstr("a joined"), HasSubstr(R"("step":1)"), Not(HasSubstr(R"("step":2)"))));
}

TEST_F(RunRecordTest, AResumedRunWithNothingLeftToDoIsPartOfTheHistory) {
  Script({kStep1, kStep2, kLinkSummary, "exit 0"});
  ASSERT_TRUE(Run().ok());
  const std::string before = base::ReadWholeFile(folder_ / "out/events.jsonl");
  options_.format = OutputFormat::kJson;
  Script({R"(print {"type":"event","reason":"Restored","step":2,"message":"restoring step 2"})", kLinkSummary, "exit 0"});
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(base::ReadWholeFile(folder_ / "out/events.jsonl"), before + stdout_);
}

TEST_F(RunRecordTest, AStartOfARunThatIsDoneTellsWhatTheRecordHas) {
  const std::string eval = R"(print {"type":"eval","step":2,"loss":4.5,"accuracy":0.25})";
  Script({kStep1, kStep2, eval, kLinkSummary, "exit 0"});
  ASSERT_TRUE(Run().ok());
  options_.format = OutputFormat::kJson;
  const std::string nothing =
      R"(print {"type":"summary","steps":0,"final_loss":null,"median_step_seconds":null,"predicted_step_seconds":0,"wire_bytes":0,)"
      R"("links":[],"stages":[]})";
  Script({nothing, "exit 0"});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stdout_, AllOf(HasSubstr(R"("already_done":true)"), HasSubstr(R"("steps":2)"), HasSubstr(R"("final_loss":5.25)"),
                             HasSubstr(R"("median_step_seconds":0.5)"), HasSubstr(R"("bytes":4000)"), HasSubstr(R"("validation_loss":4.5)"),
                             Not(HasSubstr("null"))));
  options_.format = OutputFormat::kText;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stdout_, AllOf(HasSubstr("small: done already: an earlier start made all 2 steps, and nothing was left to train"),
                             HasSubstr("5.2500"), HasSubstr("validation loss"), HasSubstr("0.50s"), HasSubstr("2.00 kB"),
                             Not(HasSubstr("by this start")), Not(HasSubstr("with start, evaluations"))));
}

TEST_F(RunRecordTest, AStartOfARunThatIsDoneWithoutARecordSaysSo) {
  Script({R"(print {"type":"summary","steps":0,"final_loss":null,"links":[],"stages":[]})", "exit 0"});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stdout_, HasSubstr("small: done already: an earlier start made all 2 steps"));
  options_.format = OutputFormat::kJson;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stdout_, AllOf(HasSubstr(R"("already_done":true)"), HasSubstr(R"("steps":2)")));
}

TEST_F(RunRecordTest, TheSummaryHasMeansValidationAndTimes) {
  const std::string eval = R"(print {"type":"eval","step":2,"loss":4.5,"accuracy":null})";
  options_.format = OutputFormat::kJson;
  Script({kStep1, kStep2, eval, kLinkSummary, "exit 0"});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stdout_, AllOf(HasSubstr(R"("mean_loss":5.25,"mean_loss_steps":1)"), HasSubstr(R"("validation_loss":4.5)"),
                             HasSubstr(R"("validation_step":2)"), HasSubstr(R"("training_seconds":1.0)"), HasSubstr(R"("steps_made":2)"),
                             HasSubstr(R"("started":"20)"), HasSubstr(R"("elapsed_seconds":)"), HasSubstr(R"("final_loss":5.25)"),
                             HasSubstr(R"("parameters":49338)"), Not(HasSubstr("already_done"))));
}

TEST_F(RunRecordTest, AFirstStartThatIsRefusedIsReported) {
  Script({R"(print {"type":"error","code":"FAILED_PRECONDITION","reason":"NoDevices","message":"none is left"})", "exit 3"});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(base::ReadWholeFile(folder_ / "out/report.html"), HasSubstr("no plan: NoDevices: none is left"));
}

TEST(DefaultRunFolderTest, NamesJobAndTime) {
  EXPECT_THAT(DefaultRunFolder("small"), ::testing::MatchesRegex("runs/small-[0-9]{8}-[0-9]{6}"));
}

}  // namespace
}  // namespace fusionllm::cli
