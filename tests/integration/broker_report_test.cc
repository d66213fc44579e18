// What the real broker tells of its checkpoints, on its page and in the report that a container leaves behind, against what a store (here
// one in memory) and a folder have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/run/child_process.h"
#include "lib/base/exit_code.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/daemon/testing/http_get.h"
#include "lib/objectstore/testing/fake_s3.h"
#include "tests/integration/program.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;
using objectstore::testing::FakeRequest;
using objectstore::testing::FakeS3;

class BrokerReportTest : public ::testing::Test {
 protected:
  BrokerReportTest() {
    store_.SetEnvironment();
    std::string text;
    for (int i = 0; i < 6000; ++i) text.push_back(static_cast<char>('a' + i * i % 23));
    folder_.Write("text.txt", text);
  }
  ~BrokerReportTest() override {
    if (!HasFailure()) return;
    for (const char* log : {"broker.log", "executor.log"}) ADD_FAILURE() << log << ":\n" << cli::TailOfFile(folder_ / log, 20);
  }

  void Start(const std::string& checkpoint, int64_t steps = 1'000'000) {
    folder_.Write("job.yaml", absl::StrCat(R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: told}
spec:
  model: {family: gpt2, preset: tiny, config: {nLayer: 1, nHead: 2, nEmbd: 16, vocabSize: 256, blockSize: 8}}
  data: {kind: text, path: [text.txt]}
  training: {globalBatchSize: 4, microBatchSize: 2, sequenceLength: 8, steps: )",
                                           steps, "}\n  checkpoint: ", checkpoint, "\n"));
    scheduler_.emplace("fusion-scheduler", std::vector<std::string>{"--listen", "127.0.0.1:0", "--insecure"}, folder_ / "scheduler.log");
    std::filesystem::create_directories(folder_ / "out");
    broker_.emplace("fusion-broker",
                    std::vector<std::string>{"--job", folder_ / "job.yaml", "--output", folder_ / "out", "--base", folder_.path(),
                                             "--listen", "127.0.0.1:0", "--scheduler", scheduler_->Address(), "--expected-executors", "a",
                                             "--final-report", folder_ / "report.json", "--metrics-address", "127.0.0.1:0"},
                    folder_ / "broker.log");
    executor_.emplace("fusion-executor", std::vector<std::string>{"--broker", broker_->Address(), "--name", "a"}, folder_ / "executor.log");
  }
  bool WaitForStep(int64_t step) {
    return !broker_
                ->WaitForJson([&](const json& line) { return line.value("type", "") == "step" && line.value("step", int64_t{0}) >= step; })
                .is_null();
  }
  bool WaitForEvent(const std::string& reason, int64_t step) {
    return !broker_
                ->WaitForJson(
                    [&](const json& line) { return line.value("reason", "") == reason && line.value("step", int64_t{0}) >= step; })
                .is_null();
  }
  json Page() {
    std::string log = base::ReadWholeFile(folder_ / "broker.log");
    const std::string before = "metrics on http://";
    const size_t at = log.find(before);
    if (at == std::string::npos) return nullptr;
    log = log.substr(at + before.size());
    return json::parse(daemon::HttpGet(log.substr(0, log.find('/')), "/progress").body, nullptr, /*allow_exceptions=*/false);
  }
  json Report() { return json::parse(base::ReadWholeFile(folder_ / "report.json"), nullptr, /*allow_exceptions=*/false); }
  // By `latest`; -1: there is none.
  int64_t StepOfStore() {
    const auto latest = store_.Get("models", "run/latest");
    return latest.has_value() ? std::stoll(latest->substr(5)) : -1;
  }

  FakeS3 store_;
  base::TempFolder folder_;
  std::optional<Program> scheduler_, broker_, executor_;
};

TEST_F(BrokerReportTest, OfARunThatIsStoppedItHasTheCheckpointThatTheStoreHas) {
  Start("{path: \"s3://models/run\", everySteps: 20, keep: 2}");
  ASSERT_TRUE(WaitForStep(23));
  broker_->Signal(SIGTERM);
  EXPECT_EQ(broker_->Wait(), base::kExitInterrupted);
  const json report = Report();
  EXPECT_GE(report["step"], 23);
  EXPECT_EQ(report["checkpoint_step"], report["step"]) << report;
  EXPECT_EQ(report["checkpoint_step"], StepOfStore()) << report;
  EXPECT_EQ(report["exit_code"], base::kExitInterrupted);
}

TEST_F(BrokerReportTest, OfARunThatIsCompleteItHasTheLastStep) {
  Start("{path: \"s3://models/run\", everySteps: 0, replica: {path: \"s3://models/replica\"}}", 12);
  EXPECT_EQ(broker_->Wait(), 0);
  EXPECT_EQ(Report()["checkpoint_step"], 12);
  EXPECT_EQ(StepOfStore(), 12);
  EXPECT_EQ(store_.Get("models", "replica/latest"), "step-000012\n");
}

TEST_F(BrokerReportTest, OfARunWithAReplicaItHasWhatIsInItsFolder) {
  Start("{path: kept, everySteps: 20, replica: {path: \"s3://models/run\"}}");
  ASSERT_TRUE(WaitForStep(23));
  broker_->Signal(SIGTERM);
  EXPECT_EQ(broker_->Wait(), base::kExitInterrupted);
  EXPECT_EQ(Report()["checkpoint_step"], Report()["step"]);
  EXPECT_EQ(StepOfStore(), Report()["step"]);
}

// Whoever reads there is told what is there, not what is on its way.
TEST_F(BrokerReportTest, ACheckpointCountsWhenTheStoreHasIt) {
  std::atomic<bool> away = true;
  store_.SetHook([&](const FakeRequest& request, kube::testing::RawConnection& connection) {
    return away && request.method == "PUT" && connection.Answer(503, FakeS3::Error("SlowDown", "Later."));
  });
  Start("{path: \"s3://models/run\", everySteps: 5}");
  ASSERT_TRUE(WaitForEvent("CheckpointSaved", 10));
  EXPECT_FALSE(Page().contains("checkpoint_step")) << Page();
  EXPECT_EQ(StepOfStore(), -1);
  away = false;
  ASSERT_TRUE(WaitForEvent("CheckpointCopied", 10));
  EXPECT_GE(Page()["checkpoint_step"], 10);
  broker_->Signal(SIGTERM);
  EXPECT_EQ(broker_->Wait(), base::kExitInterrupted);
  EXPECT_EQ(Report()["checkpoint_step"], StepOfStore());
}

// What happens before the run's loop begins is on its page, too.
TEST_F(BrokerReportTest, ACheckpointThatCannotBeReadIsAnEventOnThePage) {
  Start("{path: kept, everySteps: 5}", 10);
  ASSERT_EQ(broker_->Wait(), 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "out/kept/step-000010")) {
    if (entry.path().extension() == ".safetensors") std::filesystem::resize_file(entry.path(), 100);
  }
  std::filesystem::remove(folder_ / "broker.log");  // it has the address of a page that is gone
  Start("{path: kept, everySteps: 5}");
  ASSERT_TRUE(WaitForStep(6));
  const json page = Page();
  ASSERT_TRUE(page.contains("events")) << page;
  std::vector<std::string> reasons;
  for (const json& event : page["events"]) reasons.push_back(event["reason"]);
  EXPECT_THAT(reasons, ::testing::IsSupersetOf({"CheckpointSkipped", "Restored"}));
  broker_->Signal(SIGTERM);
  EXPECT_EQ(broker_->Wait(), base::kExitInterrupted);
  EXPECT_FALSE(Report().contains("events")) << "of what fits there";
}

}  // namespace
}  // namespace fusionllm::integration
