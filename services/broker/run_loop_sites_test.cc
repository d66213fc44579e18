// What executors that keep shards in their site hear from a run, over a real stream.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <future>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/site_store.h"
#include "lib/checkpoint/testing/sample.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/run_loop.h"
#include "services/broker/testing/plan_on_a.h"

namespace fusionllm::services {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr auto kTimeout = std::chrono::seconds(20);
constexpr int64_t kSteps = 9;

// A run of one stage, on executor a of site paris, that a broker has taken over in the middle.
class RunLoopSitesTest : public ::testing::Test {
 protected:
  RunLoopSitesTest() {
    std::filesystem::create_directories(checkpoints_);  // as its id has it
    broker::RunState state({.expected = {"a"}, .total_steps = kSteps, .checkpoints = true, .last_epoch = 1});
    state.Adopt(1, broker::testing::PlanOn({"a"}, {}, /*memory_bytes=*/1), {{"a", "{}"}}, {}, 1);
    RunLoopOptions options{.checkpoint_directory = checkpoints_, .shard_fetcher = &fetcher_};
    options.find_fallback = [this](const checkpoint::CheckpointFilter& eligible) { return another_(eligible); };
    options.job.spec.checkpoint.emplace();
    JournalState past;
    loop_ = std::make_unique<RunLoop>(std::move(options), std::move(state), *Journal::Open(folder_ / "journal", &past), RunLog(out_, 1, 1),
                                      PlanOnA, run_metrics_);
    grpc::ServerBuilder builder;
    builder.RegisterService(&executor_sessions_);
    server_ = builder.BuildAndStart();
    stub_ = v1::Broker::NewStub(server_->InProcessChannel({}));
    context_.set_deadline(std::chrono::system_clock::now() + kTimeout);
    stream_ = stub_->Attend(&context_);
    running_ = std::async(std::launch::async, [this] { return loop_->Run(executor_sessions_); });
    v1::ExecutorMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_name("a");
    hello.set_protocol_version(kProtocolVersion);
    hello.set_incarnation(2);
    hello.set_site("paris");
    hello.set_holds_shards(true);
    hello.set_epoch(1);
    EXPECT_TRUE(stream_->Write(message));
  }
  ~RunLoopSitesTest() override {
    End(absl::StatusCode::kOk);
    EXPECT_EQ(running_.wait_for(kTimeout), std::future_status::ready);
    context_.TryCancel();
    (void)stream_->Finish();
    executor_sessions_.Shutdown("the test is over", false);
    server_->Shutdown(std::chrono::system_clock::now());
    loop_.reset();
    std::fclose(out_);
    std::free(text_);
  }

  void End(absl::StatusCode code) {
    v1::ExecutorMessage message;
    message.mutable_ended()->set_epoch(epoch_);
    message.mutable_ended()->set_last_step(kSteps);
    message.mutable_ended()->set_code(static_cast<int>(code));
    EXPECT_TRUE(stream_->Write(message));
  }
  // The executor's next order of this kind.
  v1::BrokerMessage Hear(v1::BrokerMessage::KindCase kind) {
    v1::BrokerMessage message;
    while (stream_->Read(&message)) {
      if (message.kind_case() == kind) return message;
    }
    ADD_FAILURE() << "the stream has ended";
    return {};
  }
  // The executor keeps a shard in its site and says so, as `tell` has it.
  std::vector<checkpoint::FileEntry> Save(int64_t step, const std::function<void(v1::ShardReport&)>& tell = {}) {
    checkpoint::SampleTensors tensors;
    auto files = site_.Write(1, step, 0, 1, checkpoint::SampleShard(tensors, step, 0));
    EXPECT_TRUE(files.ok()) << files.status();
    v1::ExecutorMessage message;
    message.set_sequence(static_cast<uint64_t>(step));
    v1::ShardReport& report = *message.mutable_shard();
    report.set_epoch(1);
    report.set_step(step);
    report.set_site("paris");
    for (const checkpoint::FileEntry& file : *files) {
      v1::ShardFile& out = *report.add_files();
      out.set_name(file.name);
      out.set_bytes(file.bytes);
      out.set_sha256(file.sha256);
      for (const std::string& tensor : file.tensors) out.add_tensors(tensor);
      out.set_site_folder(file.site_folder);
      out.set_tensor_bytes(file.tensor_bytes);
    }
    if (tell) tell(report);
    EXPECT_TRUE(stream_->Write(message));
    return *files;
  }
  // How many orders to keep shards come before the loop is done with the save of this step.
  int KeptUntilAcknowledged(int64_t step) {
    int kept = 0;
    v1::BrokerMessage message;
    while (stream_->Read(&message)) {
      if (message.has_keep_shards()) ++kept;
      if (message.has_ack() && message.ack().sequence() == static_cast<uint64_t>(step)) return kept;
    }
    ADD_FAILURE() << "the stream has ended";
    return kept;
  }
  // What the run has printed.
  std::string Printed() {
    std::promise<std::string> printed;
    loop_->Post([&] {
      std::fflush(out_);
      printed.set_value(std::string(text_, size_));
    });
    return printed.get_future().get();
  }
  // The next order to keep shards.
  v1::KeepShards Kept() { return Hear(v1::BrokerMessage::kKeepShards).keep_shards(); }

  const base::TempFolder folder_;
  const std::string checkpoints_ = folder_ / "checkpoints";
  checkpoint::SiteStore site_{folder_ / "paris", "0123456789abcdef", "a"};
  uint32_t epoch_ = 1;
  FindFallbackFunction another_;
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* const out_ = open_memstream(&text_, &size_);
  metrics::Registry registry_{"test", "0"};
  RunMetrics run_metrics_{registry_, {}};
  ShardFetcher fetcher_{{.absence_timeout = std::chrono::hours(1)}};
  std::unique_ptr<RunLoop> loop_;
  ExecutorSessions executor_sessions_{
      {.require_certificate = false},
      {.on_joined = [this](const v1::Hello& hello) { loop_->OnJoined(hello); },
       .on_message = [this](const std::string& name, uint64_t incarnation,
                            const v1::ExecutorMessage& message) { loop_->OnMessage(name, incarnation, message); },
       .on_left = [this](const std::string& name, uint64_t incarnation,
                         const std::string& why) { loop_->OnLeft(name, incarnation, why); }}};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Broker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecutorMessage, v1::BrokerMessage>> stream_;
  std::future<RunOutcome> running_;
};

TEST_F(RunLoopSitesTest, ASiteKeepsWhatACheckpointHas) {
  const auto files = Save(2);
  const v1::KeepShards kept = Kept();
  EXPECT_EQ(kept.step(), 2);
  EXPECT_THAT(kept.site_folders(), ElementsAre(files[0].site_folder));
}

// Nothing else will ever name what the others have saved of it.
TEST_F(RunLoopSitesTest, ASiteHearsOfACheckpointThatWasAbandoned) {
  Save(2, [](v1::ShardReport& report) { report.set_error("No space left on device"); });
  const v1::KeepShards kept = Kept();
  EXPECT_EQ(kept.step(), 2);
  EXPECT_THAT(kept.site_folders(), IsEmpty());
}

TEST_F(RunLoopSitesTest, ASiteHearsOfACheckpointThatCouldNotBeCommitted) {
  folder_.Write(absl::StrCat("checkpoints/.", checkpoint::StepFolderName(2), ".partial"), "in the way");
  Save(2);
  const v1::KeepShards kept = Kept();
  EXPECT_EQ(kept.step(), 2);
  EXPECT_THAT(kept.site_folders(), IsEmpty());
}

TEST_F(RunLoopSitesTest, RemovesNothingWhileAManifestIsUnreadable) {
  folder_.Write("checkpoints/step-000001/manifest.json", "{");
  const auto files = Save(2), later = Save(3);
  EXPECT_EQ(KeptUntilAcknowledged(3), 0);
  EXPECT_THAT(std::vector<std::string>(absl::StrSplit(Printed(), "SiteCleanupSkipped")), SizeIs(2)) << Printed();
  EXPECT_THAT(Printed(), HasSubstr("step-000001"));
  std::filesystem::remove_all(checkpoints_ + "/step-000001");
  const auto last = Save(4);
  const v1::KeepShards kept = Kept();
  EXPECT_EQ(kept.step(), 4) << "the first order since";
  EXPECT_THAT(kept.site_folders(), UnorderedElementsAre(files[0].site_folder, later[0].site_folder, last[0].site_folder));
}

// As one of a job that is deleted does, a moment before its broker looks for the parts of the last checkpoint.
TEST_F(RunLoopSitesTest, OfASiteWhoseExecutorLeavesNothingIsAwaitedAtTheEnd) {
  const auto files = Save(2);
  Kept();
  loop_->Stop();
  v1::ExecutorMessage leaving;
  leaving.mutable_leaving();
  loop_->OnMessage("a", 2, leaving);
  loop_->OnLeft("a", 2, "it was asked to end");
  EXPECT_EQ(running_.wait_for(kTimeout), std::future_status::ready);
  fetcher_.SetShutdownTimeout(std::chrono::hours(1));
  const checkpoint::FileEntry file{.name = files[0].name, .site = "paris"};
  const absl::Status brought = fetcher_.FetchShard(checkpoints_ + "/step-000002", file, [] { return false; });
  EXPECT_TRUE(absl::IsUnavailable(brought)) << brought;
  EXPECT_THAT(brought.message(), HasSubstr("asked to end"));
}

// Its word comes later than its broker's end where its link is slow, and the broker collects parts then.
TEST_F(RunLoopSitesTest, AnExecutorThatSaysThatItLeavesIsHeardWhenTheRunIsOver) {
  Save(2);
  Kept();
  fetcher_.AddExecutor("b", "oslo");
  loop_->Stop();
  loop_->OnLeft("a", 2, "it was asked to end");
  EXPECT_EQ(running_.wait_for(kTimeout), std::future_status::ready);
  v1::ExecutorMessage leaving;
  leaving.mutable_leaving();
  loop_->OnMessage("b", 1, leaving);
  EXPECT_TRUE(fetcher_.AllShuttingDown({"oslo"}, std::chrono::milliseconds(0)));
}

TEST_F(RunLoopSitesTest, ReportsCheckpointsSkippedInFallbackSearch) {
  Save(2);
  Kept();
  another_ = [&](const checkpoint::CheckpointFilter& eligible) -> absl::StatusOr<CheckpointFound> {
    EXPECT_THAT(eligible.unusable, ElementsAre(checkpoints_ + "/step-000002"));
    return CheckpointFound{.step = 1, .path = "of another place", .skipped = {"step-000005 is passed over: it is damaged"}};
  };
  End(absl::StatusCode::kUnavailable);  // a peer was lost, say
  epoch_ = Hear(v1::BrokerMessage::kAssign).assign().epoch();
  loop_->OnCheckpointUnusable(epoch_, checkpoints_ + "/step-000002", absl::DataLossError("its file is damaged there"));
  Hear(v1::BrokerMessage::kAbort);
  End(absl::StatusCode::kCancelled);
  const v1::Assign assign = Hear(v1::BrokerMessage::kAssign).assign();
  epoch_ = assign.epoch();
  EXPECT_EQ(assign.restore_from(), "of another place");
  EXPECT_THAT(Printed(), ContainsRegex("step-000005 is passed over: it is damaged.*CheckpointSkipped"));
}

}  // namespace
}  // namespace fusionllm::services
