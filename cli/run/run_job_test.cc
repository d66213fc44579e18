// Whole runs with stand-ins for the programs (testing/fake_service.cc): what is reported, and what is refused.
#include "cli/run/run_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/run/run_folder.h"
#include "cli/run/testing/run_job_fixture.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/credential_files.h"
#include "lib/security/renewal.h"

namespace fusionllm::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(RunJobTest, TextProgressGoesToStderrAndTheTableToStdout) {
  Script({kStep1, kStep2, kLinkSummary, "exit 0"});
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
  Script({kStep1, R"(print {"type":"trace","device":"local-0","step":1,"spans":[[0,0,1,2]]})", kLinkSummary, "exit 0"});
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

TEST_F(RunJobTest, LatestThatIsAFolderIsRefusedBeforeAnythingIsMade) {
  options_.job.spec.checkpoint = job::Checkpoint{.path = folder_ / "kept"};
  options_.job.spec.checkpoint->replica = job::Replica{.path = folder_ / "copies"};
  Script({"exit 0"});
  for (const char* of : {"kept", "copies"}) {
    const std::string latest = absl::StrCat(folder_ / of, "/latest");
    std::filesystem::create_directories(latest);
    const absl::Status dry_run = CheckRunFolders(options_), run = Run().status();
    EXPECT_EQ(run, dry_run);
    EXPECT_EQ(run.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(run.message()), AllOf(HasSubstr(absl::StrCat("path: ", latest, " is a folder")), HasSubstr("move it away")));
    std::filesystem::remove(latest);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  EXPECT_TRUE(CheckRunFolders(options_).ok());
}

TEST_F(RunJobTest, FolderOfCheckpointsThatCannotBeMadeIsRefusedBeforeAnythingIsMade) {
  Script({"exit 0"});
  folder_.Write("file", "x");
  std::filesystem::create_symlink("nowhere", folder_ / "link");
  for (const std::string& path :
       {std::string("/proc"), std::string("/proc/kept"), folder_ / "file", folder_ / "file/kept", folder_ / "link"}) {
    job::Checkpoint checkpoint{.path = path}, copies{.path = folder_ / "kept"};
    copies.replica = job::Replica{.path = path};
    for (const auto& [field, asked] :
         {std::pair("spec.checkpoint.path: cannot ", checkpoint), {"spec.checkpoint.replica.path: cannot ", copies}}) {
      options_.job.spec.checkpoint = asked;
      const absl::Status dry_run = CheckRunFolders(options_), run = Run().status();
      EXPECT_EQ(run, dry_run) << path;
      EXPECT_EQ(run.code(), absl::StatusCode::kInvalidArgument) << path;
      EXPECT_THAT(std::string(run.message()), AllOf(::testing::StartsWith(field), HasSubstr(path)));
      EXPECT_FALSE(std::filesystem::exists(folder_ / "out")) << path;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "kept"));
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
  Script({kStep1, kLinkSummary, "exit 0"});
  options_.devices.assign(std::max(1u, std::thread::hardware_concurrency()) + 1, "cpu");
  options_.line_prefix = "row 1: ";
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, HasSubstr(absl::StrCat("fusionctl: row 1: warning: --device: ", options_.devices.size(), " executors compute on")));
  options_.devices = {"cpu"};
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, Not(HasSubstr("warning: --device")));
}

TEST_F(RunJobTest, AFailureWithoutABrokersErrorLineIsPrintedBeforeTheSummary) {
  options_.format = OutputFormat::kJson;
  Script({kStep1, kLinkSummary, "exit 7"});
  ASSERT_TRUE(Run().ok());
  const std::vector<std::string> lines = absl::StrSplit(stdout_, '\n', absl::SkipEmpty());
  ASSERT_GE(lines.size(), 3u);
  EXPECT_THAT(lines[lines.size() - 2], AllOf(HasSubstr(R"("type":"error")"), HasSubstr("fusion-broker ended: exit code 7")));
  EXPECT_THAT(lines.back(), HasSubstr(R"("type":"summary")"));
}

TEST_F(RunJobTest, ADeviceCannotTakeTheNameOfAService) {
  const auto folder = RunFolder::Open(folder_ / "out");
  ASSERT_TRUE(folder.ok());
  EXPECT_TRUE(folder->WriteSecurity("j", {"paris-0"}).ok());
  EXPECT_EQ(folder->WriteSecurity("j", {"paris-0", "broker"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RunJobTest, CertificatesOfARunThatAreNearTheirEndAreRenewedInItsFolder) {
  const auto folder = RunFolder::Open(folder_ / "out");
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(folder->WriteSecurity("j", {"paris-0", "paris-1"}).ok());
  const std::string tls = *folder / "security";
  const auto authority = security::CertificateAuthority::Load(tls);
  ASSERT_TRUE(authority.ok()) << authority.status();
  ASSERT_TRUE(
      security::WriteCredentials(tls, "paris-0", *security::IssueCredentials(*authority, "paris-0", {.validity = absl::Minutes(5)})).ok());
  const std::string others = base::ReadWholeFile(tls + "/paris-1.pem");
  ASSERT_TRUE(folder->RenewCertificates().ok());
  EXPECT_TRUE(security::ReadCredentials(tls, "paris-0", absl::Now() + absl::Hours(24)).ok());
  EXPECT_EQ(base::ReadWholeFile(tls + "/paris-1.pem"), others);
}

// As a run does that goes on until its certificates are old: one of them is replaced by one that is.
TEST_F(RunJobTest, CertificateThatNearsItsEndIsRenewedWhileTheRunGoesOn) {
  Script({kStep1, "wait " + folder_ / "renewed", kLinkSummary, "exit 0"});
  options_.renewal_interval = absl::Milliseconds(5);
  // A process beside the run, as in RunSessionTest::StartHelper: RunJob wants the signals of this one for itself.
  const pid_t helper = fork();
  if (helper == 0) {
    const std::string tls = folder_ / "out/security", certificate = tls + "/local-0.pem";
    bool renewed = false;
    if (ComesTrue("the broker was started", [&] { return !base::ReadWholeFile(folder_ / "script.broker.calls").empty(); })) {
      const auto authority = security::CertificateAuthority::Load(tls);
      const auto old = security::IssueCredentials(*authority, "local-0", {.validity = absl::Minutes(5)});
      renewed = security::WriteCredentials(tls, "local-0", *old).ok() && ComesTrue("the certificate was renewed", [&] {
                  const std::string now = base::ReadWholeFile(certificate);
                  return security::HaveSameKey(now, old->certificate_pem) && !security::NeedsRenewal(now, absl::Now()).value_or(true);
                });
    }
    folder_.Write("renewed", "");
    _exit(renewed ? 0 : 1);
  }
  const auto result = Run();
  int status = -1;
  ASSERT_EQ(waitpid(helper, &status, 0), helper);
  EXPECT_EQ(status, 0) << "the helper waited in vain, see stderr: " << stderr_;
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0) << stderr_;
}

TEST_F(RunJobTest, AFailureIsASentenceOnStderrAndItsCode) {
  Script({kStep1, R"(print {"type":"error","code":"INTERNAL","reason":"","message":"the disk is full"})", "exit 1"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_THAT(stderr_, HasSubstr("fusionctl: failed after step 1: the disk is full\n"));
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

TEST_F(RunJobTest, BadMetricsAddressIsRefusedBeforeAnythingStarts) {
  for (const char* bad : {"localhost:0", "lab.example:0", "*:0", "[::1%lo]:0", "[localhost]:0"}) {
    options_.metrics_address = bad;
    const absl::Status refused = Run().status();
    EXPECT_EQ(base::ExitCodeFor(refused), kExitBadInput) << bad << ": " << refused;
    EXPECT_THAT(refused.message(), AllOf(HasSubstr("--metrics-address: "), HasSubstr(bad)));
    EXPECT_FALSE(std::filesystem::exists(options_.output)) << bad;
  }
}

TEST_F(RunJobTest, AnEndWithoutStepsOfItsOwnSaysSo) {
  Script({kStep1, "exit 0"});
  ASSERT_TRUE(Run().ok());
  Script({R"(print {"type":"error","code":"INTERNAL","reason":"","message":"the disk is full"})", "exit 1"});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, HasSubstr("fusionctl: failed before its first step: the disk is full\n"));
  Script({R"(print {"type":"error","code":"INVALID_ARGUMENT","reason":"","message":"no such key"})", "exit 2"});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(stderr_, HasSubstr("fusionctl: cannot start: no such key\n"));
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

}  // namespace
}  // namespace fusionllm::cli
