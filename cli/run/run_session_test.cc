// Sessions with a stand-in for the programs (testing/fake_service.cc). The test adopts orphans (PR_SET_CHILD_SUBREAPER), so "no process is
// left" is exact: waitpid says that there is no child any more.
#include "cli/run/run_session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/run/testing/session_fixture.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(RunSessionTest, ExitsWithBrokersCodeAndNoProcessesLeft) {
  Script({kStep1, kStep2, kSummary, "exit 0"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_THAT(collector_.types, ElementsAre(LineType::kStep, LineType::kStep, LineType::kSummary));
  ASSERT_EQ(run_.steps.size(), 2u);
  EXPECT_EQ(run_.steps[1].loss, 5.25);
  EXPECT_EQ(collector_.address, "127.0.0.1:4711");  // tidy-allow: port because the stand-in only says so
  EXPECT_THAT(collector_.notices, IsEmpty());
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, LevelAndMetricsAddressReachThoseTheyAreFor) {
  Script({"wait " + folder_ / "go", "exit 0"});
  options_.log_level = "debug";
  options_.metrics_address = "127.0.0.1:0";
  StartHelper("both executors were called", [&] { return Calls("executor").size() >= 2; });
  const auto result = Run();
  ExpectHelperSucceeded();
  ASSERT_TRUE(result.ok()) << result.status();
  for (const char* role : {"scheduler", "broker", "executor"}) {
    EXPECT_THAT(Calls(role), ::testing::Each(HasSubstr("--log-level debug"))) << role;
  }
  EXPECT_THAT(Calls("broker"), ElementsAre(HasSubstr("--metrics-address 127.0.0.1:0")));
  EXPECT_THAT(Calls("scheduler"), ElementsAre(Not(HasSubstr("--metrics-address"))));
  EXPECT_THAT(collector_.logged, Contains(HasSubstr("info started fusion-broker, process ")));
  EXPECT_THAT(collector_.logged, Contains(::testing::AllOf(HasSubstr("debug "), HasSubstr("--listen 127.0.0.1:0"))));
}

TEST_F(RunSessionTest, ABrokerThatTakesOverIsWatchedWhereTheOneBeforeWas) {
  Script({"print metrics on http://host:port/metrics", "die-once 1", kStep1, "exit 0"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);
  EXPECT_THAT(Calls("broker"), ElementsAre(Not(HasSubstr("--metrics-address")), HasSubstr("--metrics-address host:port")));
  EXPECT_THAT(collector_.logged, Contains("info fusion-broker: metrics on http://host:port/metrics"));
  EXPECT_THAT(collector_.types, ElementsAre(LineType::kStep)) << "where it is watched is no part of the run";
}

TEST_F(RunSessionTest, EveryProgramGetsTheArgumentsOfTheProtocol) {
  // The broker waits until both executors have noted how they were called.
  Script({"wait " + folder_ / "go", "exit 0"});
  options_.topology = true;
  options_.fresh = true;
  options_.join_timeout_seconds = 7;
  options_.profiles = "p.json";
  collector_.on_line = [](LineType, const report::Run&) { return true; };
  StartHelper("both executors were called", [&] { return Calls("executor").size() >= 2; });
  const auto result = Run();
  ExpectHelperSucceeded();
  ASSERT_TRUE(result.ok()) << result.status();
  const std::string out = folder_.path();
  EXPECT_THAT(Calls("scheduler"), ElementsAre(absl::StrCat("--listen 127.0.0.1:0 --tls ", out, "/security")));
  const std::string scheduler = absl::StrCat("127.0.0.1:", 4712);
  const std::string broker = absl::StrCat("127.0.0.1:", 4711);
  EXPECT_THAT(Calls("broker"),
              ElementsAre(absl::StrCat("--job ", out, "/job.yaml --topology ", out, "/topology.yaml --output ", out,
                                       " --base / --listen 127.0.0.1:0 --scheduler ", scheduler, " --tls ", out,
                                       "/security --expected-executors a,b --closed --fresh --join-timeout-seconds 7 --profiles p.json")));
  EXPECT_THAT(Calls("executor"),
              ::testing::UnorderedElementsAre(absl::StrCat("--broker ", broker, " --name a --tls ", out, "/security"),
                                              absl::StrCat("--broker ", broker, " --name b --tls ", out, "/security --spare")));
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, AFailureIsReportedByTheBrokersErrorLine) {
  Script({R"(print {"type":"error","code":"INTERNAL","reason":"","message":"stage 1 could not be built"})", "exit 1"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_EQ(result->error, "stage 1 could not be built");
}

TEST_F(RunSessionTest, ARefusedPlanKeepsItsReasonAndItsCode) {
  Script({R"(print {"type":"error","code":"FAILED_PRECONDITION","reason":"InsufficientMemory","message":"too little"})", "exit 3"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitInfeasible);
  EXPECT_EQ(result->error, "InsufficientMemory: too little");
}

TEST_F(RunSessionTest, ASilentFailureShowsTheEndOfTheLog) {
  Script({"exit 1"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->error, HasSubstr("exit code 1"));
  EXPECT_THAT(result->error, HasSubstr("the fake broker goes"));
}

TEST_F(RunSessionTest, AKilledBrokerComesBackInItsPlaceWithItsJournal) {
  Script({kStep1, "die-once 2", kStep1, kStep2, kSummary, "exit 0"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);
  const std::vector<std::string> calls = Calls("broker");
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_THAT(calls[0], Not(HasSubstr("--resume-journal")));
  for (const int again : {1, 2}) {
    EXPECT_THAT(calls[again], HasSubstr(absl::StrCat("--listen 127.0.0.1:", 4711, " ")));
    EXPECT_THAT(calls[again], HasSubstr("--resume-journal"));
  }
  EXPECT_THAT(collector_.notices, ElementsAre(HasSubstr("(1 of 10)"), HasSubstr("(2 of 10)")));
  EXPECT_EQ(run_.steps.size(), 2u) << "steps that are told again replace the first telling";
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, RestartedBrokerLearnsWhichExecutorsEnded) {
  Script(
      {R"(print {"type":"plan","strategy":"op-fence","stages":[],"links":[]})", kStep1, "wait " + folder_ / "go", "die-once 1", "exit 0"});
  collector_.on_line = [&](LineType type, const report::Run&) {
    if (type != LineType::kStep || std::filesystem::exists(folder_ / "go")) return true;  // or step 1 of the second broker
    StartHelper(
        "scheduler, broker and both executors have started", [&] { return Pids().size() >= 4; },
        [&] {
          int pid = 0;
          if (absl::SimpleAtoi(Pids()[3], &pid)) kill(pid, SIGKILL);
        });
    return true;
  };
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);
  ExpectHelperSucceeded();
  const std::vector<std::string> calls = Calls("broker");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_THAT(calls[0], Not(HasSubstr("--lost-executors")));
  EXPECT_THAT(calls[1], ::testing::AnyOf(::testing::EndsWith("--lost-executors a"), ::testing::EndsWith("--lost-executors b")));
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, ABrokerThatIsAlwaysKilledIsGivenUp) {
  Script({"die-once 1000"});
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitFailed);
  EXPECT_EQ(Calls("broker").size(), 1u + kMaxRestarts);
  EXPECT_THAT(result->error, HasSubstr("killed by signal 9"));
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, AKilledSchedulerIsStartedAgainAndAKilledExecutorIsNot) {
  Script({kStep1, "wait " + folder_ / "go", "exit 0"});
  collector_.on_line = [&](LineType, const report::Run&) {
    // Step 1: both executors may still be starting, so only the scheduler, the first to write its pid, is sure to be there.
    int pid = 0;
    const std::vector<std::string> pids = Pids();
    EXPECT_TRUE(!pids.empty() && absl::SimpleAtoi(pids[0], &pid));
    EXPECT_TRUE(pid > 0 && kill(pid, SIGKILL) == 0);
    StartHelper("the scheduler was called again", [&] { return Calls("scheduler").size() >= 2; });
    return true;
  };
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 0);
  ExpectHelperSucceeded();
  EXPECT_THAT(Calls("scheduler"), ElementsAre(HasSubstr("--listen 127.0.0.1:0"), HasSubstr(absl::StrCat("--listen 127.0.0.1:", 4712))));
  EXPECT_THAT(collector_.notices, ElementsAre(HasSubstr("the scheduler was killed by signal 9")));
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, AnExecutorThatFailsBeforeTheFirstPlanEndsTheRunWithTheEndOfItsLog) {
  Script({"wait-term", "exit 130"});
  options_.executor = {"/bin/sh", "-c", "echo no such device >&2; exit 4", "sh"};
  options_.executors = {{"a", false}};
  options_.stop_after_s.reset();
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitFailed);
  EXPECT_THAT(result->error, HasSubstr("executor a ended: exit code 4"));
  EXPECT_THAT(result->error, HasSubstr("no such device"));
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, WaitsForDataExecutorInOpenRun) {
  Script({"wait-term", "exit 130"});
  options_.executor = {"/bin/sh", "-c", "echo the relay cannot be reached >&2; exit 1", "sh"};
  options_.executors = {{"local-0", false}};
  options_.listen = "127.0.0.1:0";
  options_.join_timeout_seconds = 60;
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitFailed);
  EXPECT_THAT(result->error, HasSubstr("executor local-0 ended: exit code 1"));
  EXPECT_THAT(result->error, HasSubstr("the relay cannot be reached"));
  ExpectNoChildLeft();
}

class KilledExecutorTest : public RunSessionTest, public ::testing::WithParamInterface<bool> {};

TEST_P(KilledExecutorTest, BeforeTheFirstPlanItIsStartedAgain) {
  Script({"wait " + folder_ / "go", "exit 0"});
  if (GetParam()) options_.listen = "127.0.0.1:0";
  const std::string once = absl::StrCat("case \"$*\" in *\"--name a\"*) mkdir ", folder_ / "once", " 2>/dev/null && kill -9 $$;; esac; ",
                                        "exec ", FAKE_SERVICE, " executor ", script_, " \"$@\"");
  options_.executor = {"/bin/sh", "-c", once, "sh"};
  StartHelper("both executors", [&] { return Calls("executor").size() == 2; });
  const auto result = Run();
  ExpectHelperSucceeded();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitDone) << result->error;
  EXPECT_THAT(collector_.notices, ElementsAre(HasSubstr("executor a was killed by signal 9 (Killed); starting it again (1 of")));
  ExpectNoChildLeft();
}

INSTANTIATE_TEST_SUITE_P(RunSession, KilledExecutorTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "WhereOthersMayJoin" : "WhereAllAreKnown"; });

TEST_F(RunSessionTest, ABrokerWhoseExecutorsHaveAllEndedIsNotWaitedForForEver) {
  Script({"wait-term", "exit 130"});
  options_.executor = {"/bin/sh", "-c", "exit 0", "sh"};
  options_.broker_exit_timeout_s = 0.02;
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, kExitFailed);
  EXPECT_THAT(result->error, HasSubstr("all executors have ended"));
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, AProgramThatIsNotThereIsNamed) {
  options_.scheduler = {"/nonexistent/fusion-scheduler"};
  const auto result = Run();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("cannot start /nonexistent/fusion-scheduler: No such file"));
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, AProgramThatNeverListensIsGivenUp) {
  options_.scheduler = {"/bin/sh", "-c", "exec tail -f /dev/null", "sh"};
  options_.start_limit_s = 0.05;
  const auto result = Run();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("fusion-scheduler did not say where it listens"));
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, ASchedulerThatFailsAtTheStartEndsTheRun) {
  options_.scheduler = {"/bin/sh", "-c", "echo bad certificate >&2; exit 2", "sh"};
  const auto result = Run();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("bad certificate"));
  ExpectNoChildLeft();
}

TEST_F(RunSessionTest, NoProcessOutlivesAKilledFusionctl) {
  Script({kStep1, "wait /nonexistent/never"});
  const std::string ready = folder_ / "ready";
  const pid_t session = fork();
  if (session == 0) {
    collector_.on_line = [&](LineType, const report::Run&) {
      folder_.Write("ready", "");
      return true;
    };
    (void)Run();
    _exit(0);
  }
  const bool started =
      ComesTrue("the run told of a step and all had started", [&] { return access(ready.c_str(), F_OK) == 0 && Pids().size() >= 4; });
  ASSERT_EQ(kill(session, SIGKILL), 0);
  // The orphans come to this process; waitpid returns for each, and then there is none.
  int reaped = 0;
  const bool ended = ComesTrue("all have ended", [&] {
    pid_t pid = 0;
    while ((pid = waitpid(-1, nullptr, WNOHANG)) > 0) ++reaped;
    return pid < 0 && errno == ECHILD;
  });
  for (const std::string& line : Pids()) {
    int pid = 0;
    if (!ended && absl::SimpleAtoi(line, &pid)) kill(pid, SIGKILL);
  }
  EXPECT_TRUE(started);
  EXPECT_TRUE(ended) << "a process outlived fusionctl";
  EXPECT_EQ(reaped, 5) << "fusionctl, scheduler, broker and two executors";
}

TEST_F(RunSessionTest, ChildrenHaveTheirOwnGroupNoStrangeFilesAndDefaultSignals) {
  // What the shell prints goes to the log of the executor.
  Script({"wait-term", "exit 130"});
  options_.executor = {"/bin/sh", "-c", "ls /proc/self/fd >&2; grep SigBlk /proc/self/status >&2; exit 4", "sh"};
  options_.executors = {{"a", false}};
  const int leak = open("/dev/null", O_RDONLY);  // survives exec unless somebody takes care
  class Stopper : public Collector {
    void OnNotice(absl::string_view) override { kill(getpid(), SIGTERM); }
  } stopper;
  SignalWatch signals;
  ASSERT_TRUE(RunSession(options_, signals, stopper, run_).ok());
  close(leak);
  const std::string log = base::ReadWholeFile(folder_ / "logs/a.log");
  EXPECT_THAT(log, HasSubstr("0\n1\n2\n3\nSigBlk:\t0000000000000000")) << "3 is the folder that ls reads";
}

TEST_F(RunSessionTest, ABusyMachineIsReportedBeforeTheFirstPlanAndInTheSummary) {
  Script({R"(print {"type":"plan"})", R"(print {"type":"plan"})", kStep1, kStep2, kSummary, "exit 0"});
  options_.wanted_cores = 2;
  base::CpuUsage use{.others = 1.6, .cores = 2, .load = 7.2};
  options_.cpu_usage = [&use] { return use; };
  report::Run run;
  Collector collector;
  SignalWatch signals;
  ASSERT_TRUE(RunSession(options_, signals, collector, run).ok());
  EXPECT_THAT(collector.notices, ::testing::ElementsAre("this machine is busy: other programs use 1.6 of its 2 cores (load 7.2); times "
                                                        "measured now are longer than on an idle machine"));
  EXPECT_TRUE(run.machine_was_busy);
  ASSERT_TRUE(run.processors.has_value());
  EXPECT_EQ(run.processors->others, 1.6);
  use.others = 0.1;
  report::Run quiet;
  Collector quiet_collector;
  ASSERT_TRUE(RunSession(options_, signals, quiet_collector, quiet).ok());
  EXPECT_THAT(quiet_collector.notices, ::testing::IsEmpty());
  EXPECT_FALSE(quiet.machine_was_busy);
}

}  // namespace
}  // namespace fusionllm::cli
