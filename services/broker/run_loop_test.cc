#include "services/broker/run_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <future>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/log.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/checkpoint/testing/sample.h"
#include "lib/wire/profile_json.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/testing/file_size_limit.h"
#include "services/broker/testing/plan_on_a.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RunLoopTest : public ::testing::Test {
 protected:
  std::unique_ptr<RunLoop> Loop(PlanFunction plan) {
    JournalState past;
    return std::make_unique<RunLoop>(RunLoopOptions{.profiles_file = folder_ / "profiles.json"},
                                     broker::RunState({.expected = {"a"}, .total_steps = 1}), *Journal::Open(folder_ / "journal", &past),
                                     RunLog(out_, 1, 1), std::move(plan), run_metrics_);
  }
  ~RunLoopTest() override {
    std::fclose(out_);
    std::free(text_);
  }
  // What the run has printed.
  std::string Printed() {
    std::fflush(out_);
    return std::string(text_, size_);
  }

  static void JoinAndCalibrate(RunLoop& loop) {
    v1::Hello hello;
    hello.set_name("a");
    hello.set_incarnation(1);
    loop.OnJoined(hello);
    v1::ExecutorMessage calibration;
    calibration.mutable_calibration()->set_profile_document(
        wire::PrintProfile({.name = "a", .site = "x", .backend = "cpu", .memory_bytes = 1}));
    loop.OnMessage("a", 1, calibration);
  }

  base::TempFolder folder_;
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* out_ = open_memstream(&text_, &size_);
  ExecutorSessions executor_sessions_{{}, {}};
  metrics::Registry registry_{"test", "0"};
  RunMetrics run_metrics_{registry_, {}};
};

TEST_F(RunLoopTest, AStopWhilePlanningDoesNotWaitForThePlan) {
  std::promise<void> asked, hung_up;
  auto loop = Loop([&](const std::string&, const broker::RequestPlan&, std::stop_token stop) -> absl::StatusOr<std::string> {
    const std::stop_callback hang_up(stop, [&] { hung_up.set_value(); });
    asked.set_value();
    hung_up.get_future().wait();
    return absl::CancelledError("hung up");
  });
  JoinAndCalibrate(*loop);
  std::thread user([&] {
    asked.get_future().wait();
    loop->Stop();
  });
  const RunOutcome outcome = loop->Run(executor_sessions_);
  user.join();
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(outcome.interrupted);
  loop.reset();  // joins the thread that asked
}

// In a cluster the record and the log are one stream: with --log-format json an event is in the record alone (main.cc).
TEST_F(RunLoopTest, AnEventIsInTheRecordOnceAndInTheLogWhereThatIsAnotherStream) {
  for (const bool in_log : {false, true}) {
    const std::string message = in_log ? "told to both" : "told to the record";
    JournalState past;
    RunLoop loop(RunLoopOptions{.events_in_log = in_log}, broker::RunState({.expected = {"a"}, .total_steps = 1}),
                 *Journal::Open(folder_ / absl::StrCat("journal-", in_log), &past), RunLog(out_, 1, 1), nullptr, run_metrics_);
    const base::LogLevel level = base::IsLogged(base::LogLevel::kInfo) ? base::LogLevel::kInfo : base::LogLevel::kWarning;
    base::SetLogLevel(base::LogLevel::kInfo);
    ::testing::internal::CaptureStderr();
    loop.LogEvent({.reason = "CopyingCheckpoints", .message = message});
    loop.Stop();
    EXPECT_TRUE(loop.Run(executor_sessions_).interrupted);
    const std::string log = ::testing::internal::GetCapturedStderr(), record = Printed();
    base::SetLogLevel(level);
    EXPECT_EQ(std::vector<std::string>(absl::StrSplit(record, message)).size(), 2u) << record;
    EXPECT_EQ(std::vector<std::string>(absl::StrSplit(log, message)).size(), in_log ? 2u : 1u) << log;
  }
}

// No executor is left to say anything: only the loop's own beginning can start the wait that finds this out.
TEST_F(RunLoopTest, ABrokerThatTakesOverARunWithoutExecutorsCanBeStopped) {
  broker::RunState state({.expected = {"a"}, .total_steps = 9, .last_epoch = 1, .lost_executors = {"a"}});
  state.Adopt(1, broker::testing::PlanOn({"a"}, {}, /*memory_bytes=*/1), {{"a", "{}"}}, {}, 4);
  JournalState past;
  std::FILE* const out = std::tmpfile();
  RunLoop loop(RunLoopOptions{}, std::move(state), *Journal::Open(folder_ / "journal", &past), RunLog(out, 1, 1), nullptr, run_metrics_);
  long bytes_before_news = 0;
  loop.Post([&] { bytes_before_news = std::ftell(out); });
  loop.Stop();
  const RunOutcome outcome = loop.Run(executor_sessions_);
  std::fclose(out);
  EXPECT_GT(bytes_before_news, 0) << "that a was lost";
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(outcome.interrupted);
}

// The run is over before the turn of the event that tells of it has come.
TEST_F(RunLoopTest, ACheckpointThatIsWholeWhenTheRunStopsIsOnThePage) {
  const std::string checkpoints = folder_ / "checkpoints";
  const auto staged = checkpoint::StageSample(checkpoints, /*step=*/4, /*stages=*/1);
  ASSERT_TRUE(staged.ok()) << staged.status();
  broker::ShardWritten shard{.epoch = 1, .step = 4, .stage = 0};
  for (const checkpoint::FileEntry& file : staged->files) shard.files.push_back({file.name, file.bytes, file.sha256, file.tensors});
  broker::RunState state({.expected = {"a"}, .total_steps = 9, .checkpoints = true, .last_epoch = 1, .lost_executors = {"a"}});
  state.Adopt(1, broker::testing::PlanOn({"a"}, {}, /*memory_bytes=*/1), {{"a", "{}"}}, {}, 4, {shard});
  JournalState past;
  RunLoopOptions options{.checkpoint_directory = checkpoints};
  options.job.spec.checkpoint.emplace();
  RunLoop loop(std::move(options), std::move(state), *Journal::Open(folder_ / "journal", &past), RunLog(out_, 1, 1), nullptr, run_metrics_);
  loop.Stop();
  const RunOutcome outcome = loop.Run(executor_sessions_);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  ASSERT_TRUE(std::filesystem::exists(checkpoints + "/step-000004/manifest.json"));
  EXPECT_THAT(run_metrics_.ProgressJson(), HasSubstr(R"("checkpoint_step":4)"));
}

TEST_F(RunLoopTest, WhatTheJournalCannotTellDoesNotHappen) {
  auto loop = Loop(PlanOnA);
  JoinAndCalibrate(*loop);
  const FileSizeLimit full(0);
  const RunOutcome outcome = loop->Run(executor_sessions_);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << outcome.status;
  EXPECT_THAT(Printed(), HasSubstr("JournalFailed"));
  EXPECT_THAT(Printed(), Not(HasSubstr(R"("type":"plan")")));
}

TEST_F(RunLoopTest, ARunWhoseEndCannotBeRecordedHasNoSummary) {
  auto loop = Loop(PlanOnA);
  loop->Stop();  // before anybody has joined
  const FileSizeLimit full(0);
  EXPECT_EQ(loop->Run(executor_sessions_).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Printed(), HasSubstr("JournalFailed"));
  EXPECT_THAT(Printed(), Not(HasSubstr(R"("type":"summary")")));
}

TEST_F(RunLoopTest, WhoReportsMoreThanTheLoopCanTakeWaits) {
  auto loop = Loop(PlanOnA);
  std::atomic<size_t> taken = 0;
  auto flood = std::async(std::launch::async, [&] {
    v1::ExecutorMessage message;
    message.mutable_heartbeat();
    for (; taken < RunLoop::kReportsMaxOfOne + 1; ++taken) loop->OnMessage("a", 1, message);
  });
  // The loop does not run yet.
  EXPECT_EQ(flood.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  EXPECT_LE(taken, RunLoop::kReportsMaxOfOne);
  loop->OnMessage("b", 1, v1::ExecutorMessage());  // another one's word finds room
  loop->Stop();
  EXPECT_TRUE(loop->Run(executor_sessions_).status.ok());
  flood.get();  // room was made, or the run has ended: nothing is held for ever
  EXPECT_EQ(taken, RunLoop::kReportsMaxOfOne + 1);
}

TEST_F(RunLoopTest, LargeReportsOfOneExecutorLeaveRoomForThoseOfTheOthers) {
  auto loop = Loop(PlanOnA);
  v1::ExecutorMessage large;
  large.mutable_data_opened()->set_summary(std::string(RunLoop::kReportBytesMaxOfOne / 2 + 1, ' '));
  constexpr int kReports = static_cast<int>(2 * RunLoop::kReportBytesMax / RunLoop::kReportBytesMaxOfOne);
  std::atomic<int> taken = 0;
  auto flood = std::async(std::launch::async, [&] {
    for (; taken < kReports; ++taken) loop->OnMessage("a", 1, large);
  });
  // The loop does not run yet.
  EXPECT_EQ(flood.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
  EXPECT_LE(taken, 1);
  auto other = std::async(std::launch::async, [&] { loop->OnMessage("b", 1, large); });
  EXPECT_EQ(other.wait_for(std::chrono::seconds(60)), std::future_status::ready) << "another one's word finds room";
  loop->Stop();
  EXPECT_TRUE(loop->Run(executor_sessions_).status.ok());
  flood.get();
  EXPECT_EQ(taken, kReports);
}

TEST_F(RunLoopTest, StoreRetriesAreReportedOnceAndForPlannedExecutorsOnly) {
  broker::RunState state({.expected = {"a"}, .total_steps = 99, .last_epoch = 1, .lost_executors = {"a"}});
  state.Adopt(1, broker::testing::PlanOn({"a"}, {}, /*memory_bytes=*/1), {}, {}, 15);
  JournalState past;
  RunLoop loop(RunLoopOptions{}, std::move(state), *Journal::Open(folder_ / "journal", &past), RunLog(out_, 1, 1), nullptr, run_metrics_);
  v1::ExecutorMessage message;
  message.mutable_fetching()->set_epoch(1);
  message.mutable_fetching()->set_retried("GET s3://m/d: HTTP 503\x1b[2J; it is tried again");
  for (int i = 0; i < 5; ++i) loop.OnMessage("a", 1, message);
  message.mutable_fetching()->set_retried("of a stranger");
  loop.OnMessage("outsider", 1, message);
  message.mutable_fetching()->set_epoch(7);
  loop.OnMessage("a", 1, message);
  loop.Stop();
  EXPECT_TRUE(loop.Run(executor_sessions_).status.ok());
  const std::string output = Printed();
  EXPECT_THAT(output, HasSubstr("StoreRetried"));
  EXPECT_EQ(output.find("StoreRetried"), output.rfind("StoreRetried"));
  EXPECT_THAT(output, HasSubstr("a: GET s3://m/d: HTTP 503"));
  EXPECT_THAT(output, Not(HasSubstr("stranger")));
}

TEST_F(RunLoopTest, DataAreReportedByPlannedExecutorsOnlyAndOnceForEachStart) {
  broker::RunState state({.expected = {"a"}, .total_steps = 99, .last_epoch = 1, .lost_executors = {"a"}});
  state.Adopt(1, broker::testing::PlanOn({"a"}, {}, /*memory_bytes=*/1), {}, {}, 15);
  JournalState past;
  RunLoop loop(RunLoopOptions{}, std::move(state), *Journal::Open(folder_ / "journal", &past), RunLog(out_, 1, 1), nullptr, run_metrics_);
  v1::ExecutorMessage message;
  v1::DataOpened& opened = *message.mutable_data_opened();
  opened.set_summary("of a stranger");
  opened.set_contents("1 sample, digest 0000");
  loop.OnMessage("outsider", 1, message);
  opened.set_summary("2 files\nfusionctl: forged");
  opened.set_contents("249 samples, digest a101");
  opened.add_files()->set_path("a.txt\x1b[2J");
  loop.OnMessage("a", 1, message);
  opened.set_summary("another of the same start");
  loop.OnMessage("a", 1, message);
  opened.set_summary("of the next start");
  loop.OnMessage("a", 2, message);
  loop.Stop();
  EXPECT_TRUE(loop.Run(executor_sessions_).status.ok());
  const std::string output = Printed();
  EXPECT_THAT(output, AllOf(HasSubstr(R"("message":"2 files\\nfusionctl: forged")"), HasSubstr(R"(a.txt\\x1b[2J)"),
                            HasSubstr("of the next start")));
  EXPECT_THAT(output, AllOf(Not(HasSubstr("stranger")), Not(HasSubstr("another of the same start")), Not(HasSubstr("DataChanged"))));
}

TEST_F(RunLoopTest, AnEvaluationCountsOnceAStepAndFromThePlansOwnStagesAlone) {
  broker::RunState state({.expected = {"a"}, .total_steps = 99, .last_epoch = 1, .lost_executors = {"a"}});
  state.Adopt(1, broker::testing::PlanOn({"a"}, {}, /*memory_bytes=*/1), {}, {}, 15);
  JournalState past;
  RunLoop loop(RunLoopOptions{}, std::move(state), *Journal::Open(folder_ / "journal", &past), RunLog(out_, 1, 1), nullptr, run_metrics_);
  v1::ExecutorMessage message;
  v1::EvaluationReport& report = *message.mutable_evaluation();
  report.set_epoch(1);
  report.set_step(16);
  report.set_loss(0.125);
  loop.OnMessage("outsider", 1, message);
  report.set_loss(2.5);
  loop.OnMessage("a", 1, message);
  report.set_loss(0.5625);
  loop.OnMessage("a", 1, message);  // of the same step once more
  report.set_step(100);
  loop.OnMessage("a", 1, message);  // of a step that the run has not
  report.set_step(17);
  report.set_accuracy(1.5);
  loop.OnMessage("a", 1, message);
  report.clear_accuracy();
  report.set_epoch(7);
  report.set_loss(0.25);
  loop.OnMessage("a", 1, message);
  loop.Stop();
  EXPECT_TRUE(loop.Run(executor_sessions_).status.ok());
  EXPECT_THAT(Printed(), AllOf(HasSubstr("2.5"), Not(HasSubstr("0.125")), Not(HasSubstr("0.25")), Not(HasSubstr("0.5625"))));
}

TEST_F(RunLoopTest, WhoIsNotInThePlanGetsIntoNoJournalAndNoMetric) {
  broker::RunState state({.expected = {"a"}, .total_steps = 99, .last_epoch = 1, .lost_executors = {"a", "b"}});
  state.Adopt(1, broker::testing::PlanOn({"a", "b"}, {}, /*memory_bytes=*/1), {}, {}, 15);
  JournalState past;
  RunLoop loop(RunLoopOptions{}, std::move(state), *Journal::Open(folder_ / "journal", &past), RunLog(out_, 1, 1), nullptr, run_metrics_);
  v1::ExecutorMessage message;
  v1::StageTimes& times = *message.mutable_times();
  times.set_epoch(1);
  times.set_step(16);
  for (const char* peer : {"b", "stranger"}) {
    v1::LinkBytes& link = *times.add_links();
    link.set_peer(peer);
    link.set_wire_bytes_sent(100);
    link.set_bandwidth_bytes_per_second(1e6);
  }
  loop.OnMessage("a", 1, message);
  loop.OnMessage("outsider", 1, message);
  loop.Stop();
  EXPECT_TRUE(loop.Run(executor_sessions_).status.ok());
  const std::string output = base::ReadWholeFile(folder_ / "journal") + registry_.Text();
  EXPECT_THAT(output, HasSubstr(R"("bytes":{"b":100})"));
  EXPECT_THAT(output, HasSubstr(R"(dst="b")"));
  for (const char* name : {R"("stranger")", R"("bytes":{"b":100},"device":"outsider")"}) EXPECT_THAT(output, Not(HasSubstr(name)));
}

TEST_F(RunLoopTest, TracesOfADeviceAreBoundedInNumberAndLength) {
  broker::RunState state({.expected = {"a"}, .total_steps = 99, .last_epoch = 1, .lost_executors = {"a"}});
  broker::RunPlan plan = broker::testing::PlanOn({"a"}, {}, /*memory_bytes=*/1);
  plan.plan.micro_batches = 2;
  state.Adopt(1, plan, {}, {}, 15);
  JournalState past;
  RunLoop loop(RunLoopOptions{}, std::move(state), *Journal::Open(folder_ / "journal", &past), RunLog(out_, 1, 1), nullptr, run_metrics_);
  v1::ExecutorMessage message;
  v1::StageTimes& times = *message.mutable_times();
  times.set_epoch(1);
  for (int i = 0; i < 81; ++i) times.add_spans()->set_micro_batch(77);
  loop.OnMessage("a", 1, message);  // more than two micro-batches have
  times.mutable_spans()->DeleteSubrange(1, 80);
  times.mutable_spans(0)->set_micro_batch(1);
  for (int i = 0; i < 200; ++i) loop.OnMessage("a", 1, message);
  loop.Stop();
  EXPECT_TRUE(loop.Run(executor_sessions_).status.ok());
  const std::vector<std::string> output = absl::StrSplit(Printed(), R"("type":"trace")");
  EXPECT_EQ(output.size() - 1, 99u) << "of a hundred the first was too long";
  EXPECT_THAT(Printed(), Not(HasSubstr("[0,77,")));
}

TEST_F(RunLoopTest, ProfilesAreSavedWholeOrNotAtAll) {
  const auto refuse = [](const std::string&, const broker::RequestPlan&, std::stop_token) -> absl::StatusOr<std::string> {
    return absl::InvalidArgumentError("no");
  };
  folder_.Write("profiles.json", "of an earlier plan");
  {
    const FileSizeLimit full(40);
    auto loop = Loop(refuse);
    JoinAndCalibrate(*loop);
    EXPECT_FALSE(loop->Run(executor_sessions_).status.ok());
  }
  EXPECT_EQ(base::ReadWholeFile(folder_ / "profiles.json"), "of an earlier plan");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "profiles.json.new"));
  auto loop = Loop(refuse);
  JoinAndCalibrate(*loop);
  EXPECT_FALSE(loop->Run(executor_sessions_).status.ok());
  const auto profiles = wire::ParseProfiles(base::ReadWholeFile(folder_ / "profiles.json"));
  ASSERT_TRUE(profiles.ok()) << profiles.status();
  EXPECT_EQ(profiles->devices.size(), 1u);
}

}  // namespace
}  // namespace fusionllm::services
