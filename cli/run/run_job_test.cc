// Whole runs and demos with stand-ins for the programs (testing/fake_service.cc).
#include "cli/run/run_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/run/demo.h"
#include "cli/run/folder_lock.h"
#include "cli/run/plan_drawing.h"
#include "cli/run/run_folder.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"
#include "lib/workload/workload.h"

namespace fusionllm::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

constexpr char kJob[] = R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: small}
spec:
  model: {family: mlp, config: {layers: [3072, 16, 10]}}
  data: {kind: shapes}
  training: {steps: 2, globalBatchSize: 4}
)";
constexpr char kStep1[] = R"(print {"type":"step","step":1,"loss":5.5,"step_seconds":0.5,"tokens_per_second":100})";
constexpr char kStep2[] = R"(print {"type":"step","step":2,"loss":5.25,"step_seconds":0.5,"tokens_per_second":100})";
constexpr char kSummary[] =
    R"(print {"type":"summary","steps":2,"final_loss":5.25,"median_step_seconds":0.5,"links":[{"src":"paris-0","dst":"tokyo-0",)"
    R"("bytes":4000,"codec":"fp32","ratio":1}],"stages":[]})";

mode_t ModeOf(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
}

class RunJobTest : public ::testing::Test {
 protected:
  RunJobTest() {
    for (const char* role : {"scheduler", "broker", "executor"}) {
      const std::string path = folder_.Write(absl::StrCat("bin/fusion-", role), absl::StrCat("#!/bin/sh\nexec ", FAKE_SERVICE, " ", role,
                                                                                             " ", folder_ / "script", " \"$@\"\n"));
      std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }
    auto job = job::ParseFusionJob(kJob, "job.yaml");
    EXPECT_TRUE(job.ok()) << job.status();
    options_.job = *job;
    options_.output = folder_ / "out/";
    options_.bin_folder = folder_ / "bin";
  }

  void Script(const std::vector<std::string>& lines) { folder_.Write("script", absl::StrJoin(lines, "\n") + "\n"); }

  absl::StatusOr<RunJobResult> Run() {
    SignalWatch signals;
    CaptureStdout();
    CaptureStderr();
    absl::StatusOr<RunJobResult> result = RunJob(options_, signals);
    stdout_ = GetCapturedStdout();
    stderr_ = GetCapturedStderr();
    return result;
  }

  base::TempFolder folder_;
  RunJobOptions options_;
  std::string stdout_, stderr_;
};

TEST_F(RunJobTest, TextProgressGoesToStderrAndTheTableToStdout) {
  Script({kStep1, kStep2, kSummary, "exit 0"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0) << stderr_;
  EXPECT_THAT(stderr_, HasSubstr("step 1/2 (50.0%) loss 5.5 "));
  EXPECT_THAT(stdout_, AllOf(HasSubstr("small: done after step 2"), HasSubstr("paris-0 > tokyo-0"),
                             HasSubstr("report: " + folder_ / "out/report.html")));
  EXPECT_THAT(base::ReadWholeFile(folder_ / "out/report.html"), HasSubstr("loss-by-step"));
  const auto written = job::ParseFusionJob(base::ReadWholeFile(folder_ / "out/job.yaml"), "job.yaml");
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(*written, options_.job);
}

TEST_F(RunJobTest, JsonLinesPassThroughTracesApartAndTheSummaryNamesTheReport) {
  Script({kStep1, R"(print {"type":"trace","device":"local-0","step":1,"spans":[[0,0,1,2]]})", kSummary, "exit 0"});
  options_.format = OutputFormat::kJson;
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(stdout_, HasSubstr(std::string(kStep1).substr(6) + "\n")) << "untouched";
  EXPECT_THAT(stdout_, HasSubstr(absl::StrCat("\"report\":\"", folder_ / "out/report.html\"")));
  EXPECT_EQ(stdout_.find("trace"), std::string::npos);
  EXPECT_EQ(stderr_, "");
  EXPECT_EQ(base::ReadWholeFile(folder_ / "out/events.jsonl"), stdout_);
  EXPECT_THAT(base::ReadWholeFile(folder_ / "out/trace.jsonl"), HasSubstr("\"spans\""));
  ASSERT_EQ(result->run.spans.size(), 1u);
}

TEST_F(RunJobTest, ARefusalForWantOfExecutorsSaysHowToHaveThem) {
  constexpr char kRefused[] = R"(print {"type":"error","code":"FAILED_PRECONDITION","reason":"TooFewExecutors","message":"too few"})";
  options_.job.spec.strategy.replicas = 2;
  Script({kRefused, "exit 3"});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, HasSubstr("fusionctl: no plan: TooFewExecutors: too few. To have enough executors, start them on this machine by "
                                 "--device cpu,cpu, or by --topology FILE"));
  options_.devices = {"cpu", "cpu"};
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, AllOf(HasSubstr("TooFewExecutors: too few\n"), Not(HasSubstr("--device cpu")))) << "they are enough";
}

TEST_F(RunJobTest, ReplicasAndMachinesThatJoinAreRefusedBeforeAnythingStarts) {
  options_.job.spec.strategy.replicas = 2;
  options_.listen = "127.0.0.1:0";
  Script({"exit 0"});
  const auto result = Run();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << "bad input: nobody need join to know";
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("spec.strategy.replicas: 2 cannot be combined with --listen"), HasSubstr("--set spec.strategy.replicas=1")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "script.pids")) << "a process was started";
  EXPECT_FALSE(std::filesystem::exists(options_.output));
  options_.job.spec.strategy.replicas = 0;  // auto: one pipeline
  EXPECT_TRUE(Run().ok());
}

TEST_F(RunJobTest, ExecutorsThatShareCoresAreWarnedOf) {
  Script({kStep1, kSummary, "exit 0"});
  options_.devices.assign(std::max(1u, std::thread::hardware_concurrency()) + 1, "cpu");
  options_.line_prefix = "row 1: ";
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, HasSubstr(absl::StrCat("fusionctl: row 1: warning: --device: ", options_.devices.size(), " executors compute on")));
  options_.devices = {"cpu"};
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, Not(HasSubstr("warning: --device")));
}

TEST_F(RunJobTest, AFolderWithTheRunOfAnotherJobIsWarnedOf) {
  Script({kStep1, kSummary, "exit 0"});
  ASSERT_TRUE(Run().ok());
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, Not(HasSubstr("has a run of the job")));
  const std::string before = std::exchange(options_.job.metadata.name, "another");
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, HasSubstr(absl::StrCat("/out has a run of the job ", before, ": its job.yaml")));
}

TEST_F(RunJobTest, AFailureThatNoBrokerToldIsTheLineBeforeTheSummary) {
  options_.format = OutputFormat::kJson;
  Script({kStep1, kSummary, "exit 7"});
  ASSERT_TRUE(Run().ok());
  const std::vector<std::string> lines = absl::StrSplit(stdout_, '\n', absl::SkipEmpty());
  ASSERT_GE(lines.size(), 3u);
  EXPECT_THAT(lines[lines.size() - 2], AllOf(HasSubstr(R"("type":"error")"), HasSubstr("fusion-broker ended: exit code 7")));
  EXPECT_THAT(lines.back(), HasSubstr(R"("type":"summary")"));
}

TEST_F(RunJobTest, TheMarkOfAKilledBrokerGoesWithTheRun) {
  Script({"exit 1"});
  const std::string of_run = folder_.Write("out/.shared-folder", "x"), of_checkpoints = folder_.Write("out/kept/.shared-folder", "x");
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(std::filesystem::exists(of_run));
  options_.job.spec.checkpoint.emplace().path = "kept/";
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(std::filesystem::exists(of_checkpoints));
}

TEST_F(RunJobTest, CredentialsAreForTheOwnerAlone) {
  Script({"exit 0"});
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(ModeOf(folder_ / "out/security"), 0700u);
  for (const char* name : {"ca.pem", "broker.pem", "broker.key", "scheduler.key", "client.key", "local-0.pem", "local-0.key", "token"}) {
    EXPECT_EQ(ModeOf(folder_ / "out/security/" + name), 0600u) << name;
  }
}

TEST_F(RunJobTest, ADeviceCannotTakeTheNameOfAService) {
  const auto folder = RunFolder::Open(folder_ / "out");
  ASSERT_TRUE(folder.ok());
  EXPECT_TRUE(folder->WriteSecurity("j", {"paris-0"}).ok());
  EXPECT_EQ(folder->WriteSecurity("j", {"paris-0", "broker"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RunJobTest, AStartThatIsRefusedHalfwayPutsBackWhatItHasWritten) {
  folder_.Write("out/job.yaml", "of the run before");
  const auto topology = job::ParseTopology(
      "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: t}\nspec: {sites: [{name: a, devices: [{name: broker}]}]}\n",
      "t.yaml");
  ASSERT_TRUE(topology.ok()) << topology.status();
  options_.topology = *topology;
  EXPECT_THAT(Run().status().message(), HasSubstr("a device cannot be called \"broker\""));
  EXPECT_EQ(base::ReadWholeFile(folder_ / "out/job.yaml"), "of the run before");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/topology.yaml"));
}

TEST_F(RunJobTest, AFailureIsASentenceOnStderrAndItsCode) {
  Script({kStep1, R"(print {"type":"error","code":"INTERNAL","reason":"","message":"the disk is full"})", "exit 1"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_THAT(stderr_, HasSubstr("fusionctl: failed after step 1: the disk is full\n"));
}

TEST_F(RunJobTest, AResumedRunReportsItsEarlierStepsAndAFreshOneDoesNot) {
  Script({kStep1, "exit 130"});
  auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->run.outcome, "interrupted after step 1; nothing of it is kept: the job has no spec.checkpoint");
  Script({kStep2, kSummary, "exit 0"});
  result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->run.steps.size(), 2u);
  options_.fresh = true;
  result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->run.steps.size(), 1u);
}

TEST_F(RunJobTest, AFolderInUseAndAFileInTheWayAreRefused) {
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

TEST_F(RunJobTest, AFolderOfCheckpointsBelongsToOneRunThatCanWriteThere) {
  Script({"exit 0"});
  const std::string shared = folder_ / "shared";
  options_.job.spec.checkpoint = job::Checkpoint{.path = shared};
  {
    const auto held = FolderLock::Take(shared, "go elsewhere");
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

TEST_F(RunJobTest, AFolderThatCannotBeWrittenIsBadInputWhateverThePart) {
  Script({"exit 0"});
  options_.output = "/proc/run";  // nobody writes there, not even root
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

TEST_F(RunJobTest, ARunWhoseRecordCannotBeWrittenSaysSoAtOnceAndFails) {
  std::filesystem::create_directories(options_.output);
  std::filesystem::create_symlink("/dev/full", folder_ / "out/trace.jsonl");
  Script({kStep1, R"(print {"type":"trace","device":"local-0","step":1,"spans":[[0,0,1,2]]})", kStep2, kSummary, "exit 0"});
  const auto full = Run();
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->exit_code, kExitFailed);
  const std::string why = absl::StrCat("cannot write ", folder_ / "out/trace.jsonl", ": No space left on device");
  EXPECT_THAT(stderr_, AllOf(HasSubstr(why + "; the run goes on"), HasSubstr(absl::StrCat("fusionctl: failed after step 2: ", why))));
  EXPECT_LT(stderr_.find(why), stderr_.find("step 2/2")) << "told when it happens";
}

TEST_F(RunJobTest, ARunWhoseFolderIsTakenAwayFails) {
  Script({kStep1, "wait " + folder_ / "gone", kSummary, "exit 0"});
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

TEST_F(RunJobTest, AReportThatCannotBeWrittenIsAFailure) {
  std::filesystem::create_directories(folder_ / "out/report.html");
  Script({kStep1, kSummary, "exit 0"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitFailed);
  EXPECT_THAT(stderr_, HasSubstr(folder_ / "out/report.html"));
}

TEST_F(RunJobTest, ATraceThatIsTakenAwayIsToldAsTheEventsAre) {
  Script({kStep1, "wait " + folder_ / "gone", kSummary, "exit 0"});
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

TEST_F(RunJobTest, AnAddressThatCannotBeListenedOnIsRefusedBeforeAnythingStarts) {
  Script({"exit 0"});
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string in_use = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  // 192.0.2.1 is for documentation (RFC 5737): no machine has it.
  for (const std::string& bad :
       {absl::StrCat("127.0.0.1:", 70000), std::string("7000"), std::string("192.0.2.1:0"), std::string("224.0.0.1:0"),
        std::string("255.255.255.255:0"), std::string("[ff02::1]:0"), std::string("127.1:0"), std::string("0:0"), in_use}) {
    options_.listen = bad;
    const absl::Status refused = Run().status();
    EXPECT_EQ(base::ExitCodeFor(refused), kExitBadInput) << bad << ": " << refused;
    EXPECT_THAT(refused.message(), AllOf(HasSubstr("--listen"), HasSubstr(bad)));
    options_.listen.reset();
    options_.metrics_address = bad;
    const absl::Status no_metrics = Run().status();
    EXPECT_EQ(base::ExitCodeFor(no_metrics), kExitBadInput) << bad << ": " << no_metrics;
    EXPECT_THAT(no_metrics.message(), AllOf(HasSubstr("--metrics-address"), HasSubstr(bad)));
    options_.metrics_address.reset();
    EXPECT_FALSE(std::filesystem::exists(options_.output)) << bad;
  }
  close(taken);
}

TEST_F(RunJobTest, AnEndWithoutStepsOfItsOwnSaysSo) {
  Script({kStep1, "exit 0"});
  ASSERT_TRUE(Run().ok());
  Script({R"(print {"type":"error","code":"INTERNAL","reason":"","message":"the disk is full"})", "exit 1"});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, HasSubstr("fusionctl: failed before its first step: the disk is full\n"));
}

TEST_F(RunJobTest, ARefusedStartLeavesTheReportOfTheRunAndSaysWhyOnce) {
  Script({kStep1, kStep2, kSummary, "exit 0"});
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
    EXPECT_EQ(stderr_, "fusionctl: no plan: NoDevices: none is left\n");
    EXPECT_THAT(stdout_, AllOf(HasSubstr("small: no plan\n"), Not(HasSubstr("none is left")), Not(HasSubstr("report: "))));
    EXPECT_EQ(base::ReadWholeFile(folder_ / "out/report.html"), report);
    EXPECT_EQ(base::ReadWholeFile(folder_ / "out/events.jsonl"), events);
    EXPECT_EQ(base::ReadWholeFile(folder_ / "out/job.yaml"), job);
    EXPECT_EQ(base::ReadWholeFile(folder_ / "out/profiles.json"), "of the run");
  }
}

TEST_F(RunJobTest, AFreshRunThatMakesAStepTakesThePlaceOfTheEarlierOneWithAllThatItTold) {
  Script({kStep1, kStep2, kSummary, "exit 0"});
  ASSERT_TRUE(Run().ok());
  options_.fresh = true;
  options_.format = OutputFormat::kJson;
  Script({R"(print {"type":"event","reason":"ExecutorJoined","step":0,"message":"a joined"})", kStep1, "exit 130"});
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(base::ReadWholeFile(folder_ / "out/events.jsonl"), stdout_);
  EXPECT_THAT(stdout_, AllOf(HasSubstr("a joined"), HasSubstr(R"("step":1)"), Not(HasSubstr(R"("step":2)"))));
}

TEST_F(RunJobTest, AResumedRunWithNothingLeftToDoIsPartOfTheHistory) {
  Script({kStep1, kStep2, kSummary, "exit 0"});
  ASSERT_TRUE(Run().ok());
  const std::string before = base::ReadWholeFile(folder_ / "out/events.jsonl");
  options_.format = OutputFormat::kJson;
  Script({R"(print {"type":"event","reason":"Restored","step":2,"message":"restoring step 2"})", kSummary, "exit 0"});
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(base::ReadWholeFile(folder_ / "out/events.jsonl"), before + stdout_);
}

TEST_F(RunJobTest, AFirstStartThatIsRefusedIsReported) {
  Script({R"(print {"type":"error","code":"FAILED_PRECONDITION","reason":"NoDevices","message":"none is left"})", "exit 3"});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(base::ReadWholeFile(folder_ / "out/report.html"), HasSubstr("no plan: NoDevices: none is left"));
}

TEST_F(RunJobTest, AMissingProgramIsNamed) {
  std::filesystem::remove(folder_ / "bin/fusion-scheduler");
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitFailed);
  EXPECT_THAT(stderr_, HasSubstr("fusion-scheduler: No such file"));
}

TEST_F(RunJobTest, ListeningPrintsHowToJoin) {
  Script({"exit 0"});
  options_.listen = "127.0.0.1:0";
  ASSERT_TRUE(Run().ok());
  const std::string token = base::ReadWholeFile(folder_ / "out/security/token");
  EXPECT_THAT(stderr_, HasSubstr(absl::StrCat("fusionctl join 127.0.0.1:", 4711, " --token ", token)));
}

TEST_F(RunJobTest, ADemoComparesItsRowsAfterTheSameSteps) {
  Script({kStep1, kStep2, kSummary, "exit 0"});
  DemoOptions demo;
  demo.steps = 2;
  demo.source = std::getenv("FUSIONLLM_SOURCE_DIR");
  demo.output = folder_ / "demo";
  demo.bin_folder = folder_ / "bin";
  for (const OutputFormat format : {OutputFormat::kText, OutputFormat::kJson}) {
    demo.format = format;
    SignalWatch signals;
    CaptureStdout();
    CaptureStderr();
    const absl::StatusOr<int> code = RunDemo(demo, signals);
    stdout_ = GetCapturedStdout();
    stderr_ = GetCapturedStderr();
    ASSERT_TRUE(code.ok()) << code.status();
    EXPECT_EQ(*code, 0) << stderr_;
    if (format == OutputFormat::kText) {
      EXPECT_THAT(stdout_, AllOf(HasSubstr("loss after 2"), HasSubstr("4.00 kB"), HasSubstr("1.00x"), HasSubstr("5.2500")));
    } else {
      EXPECT_THAT(stdout_, AllOf(HasSubstr(R"("run":"naive")"), HasSubstr(R"("run":"op-fence")"), HasSubstr(R"("type":"demo")")));
    }
  }
  const std::string html = base::ReadWholeFile(folder_ / "demo/report.html");
  for (const char* part : {"id=\"run-2\"", "id=\"comparison\"", "naive (equal ops"}) EXPECT_THAT(html, HasSubstr(part));
}

TEST(PlanDrawingTest, DrawsTheGraphOfThePlanAndNoOther) {
  const auto job = job::ParseFusionJob(kJob, "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  const auto graph = workload::BuildForwardGraph(*job, "/");
  ASSERT_TRUE(graph.ok()) << graph.status();
  report::Plan plan;
  plan.stages.resize(2);
  for (int stage : {0, 1}) plan.stages[stage] = {stage, {absl::StrCat("device-", stage)}, {}, 0, 0};
  for (size_t op = 0; op < graph->ops().size(); ++op) plan.stages[op < 3 ? 0 : 1].ops.push_back(graph->ops()[op].name);
  EXPECT_THAT(DrawPlanGraph(*job, plan), AllOf(HasSubstr("<svg"), HasSubstr("stage 1: device-1")));
  plan.stages[1].ops.pop_back();
  EXPECT_EQ(DrawPlanGraph(*job, plan), "") << "an op without a stage";
  plan.stages[1].ops.push_back("another.model");
  EXPECT_EQ(DrawPlanGraph(*job, plan), "");
}

TEST(DemoTest, RowsDifferInPlannerStagesAndCompressionAlone) {
  const std::string source = std::getenv("FUSIONLLM_SOURCE_DIR");
  const auto job = job::LoadFusionJob(source + "/examples/jobs/demo.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_GT(job->spec.strategy.in_flight, 0) << "the depth is the same in all rows";
  EXPECT_NE(job->spec.strategy.pipeline_schedule, job::PipelineSchedule::kAuto);
  EXPECT_NE(job->spec.training.micro_batch_size, 0);
  for (DemoRow row : DemoRows(*job, 6)) {
    row.job.spec.strategy.planner = job->spec.strategy.planner;
    row.job.spec.strategy.stages = job->spec.strategy.stages;
    row.job.spec.compression = job->spec.compression;
    EXPECT_EQ(row.job, *job) << row.title;
  }
}

TEST(DefaultRunFolderTest, NamesJobAndTime) {
  EXPECT_THAT(DefaultRunFolder("small"), ::testing::MatchesRegex("runs/small-[0-9]{8}-[0-9]{6}"));
}

}  // namespace
}  // namespace fusionllm::cli
