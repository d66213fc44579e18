#include "services/broker/broker_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/source_file.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/safetensors.h"
#include "lib/checkpoint/testing/sample.h"
#include "lib/objectstore/testing/fake_s3.h"
#include "services/broker/journal.h"
#include "services/checkpoint_directory.h"

namespace fusionllm::services {
namespace {

constexpr char kJob[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
    "  model: {family: mlp, config: {layers: [3072, 16, 10]}}\n  data: {kind: shapes}\n"
    "  training: {steps: 90, globalBatchSize: 4}\n  checkpoint: {path: checkpoints, everySteps: 10}\n";

class BrokerSetupTest : public ::testing::Test {
 protected:
  BrokerSetupTest() { folder_.Write("job.yaml", kJob); }
  absl::StatusOr<BrokerSetup> TakeOver() {
    return services::SetUp({.job_file = folder_ / "job.yaml",
                            .output_directory = folder_.path(),
                            .base_directory = folder_.path(),
                            .scheduler_address = "127.0.0.1:0",
                            .expected = {"a"},
                            .resume_journal = true},
                           registry_);
  }
  JournalState Journaled() {
    JournalState state;
    EXPECT_TRUE(Journal::Open(journal_, &state).ok());
    return state;
  }

  const base::TempFolder folder_;
  const std::string journal_ = folder_ / "broker.journal";
  metrics::Registry registry_{"test", "0"};
};

TEST_F(BrokerSetupTest, ACheckpointThatIsTakenUpIsNotedForTheNextBroker) {
  JournalState past;
  absl::StatusOr<Journal> journal = Journal::Open(journal_, &past);
  ASSERT_TRUE(journal.ok()) << journal.status();
  ASSERT_TRUE(journal->RecordEpoch(1, {.document = R"({"stages": [{"devices": ["a"]}]})", .devices = {"a"}}, {}, {}, "", {}).ok());
  const std::string checkpoints = folder_ / "checkpoints";
  absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::StageSample(checkpoints, /*step=*/50, /*stages=*/1);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->resolved_job = kJob;
  broker::ShardWritten shard{.epoch = 1, .step = 50, .stage = 0};
  for (const checkpoint::FileEntry& file : manifest->files) shard.files.push_back({file.name, file.bytes, file.sha256, file.tensors});
  ASSERT_TRUE(journal->RecordShard(shard).ok());
  ASSERT_TRUE(checkpoint::CommitCheckpoint(checkpoints, *manifest, 0).ok());  // and then the broker died

  const absl::StatusOr<BrokerSetup> setup = TakeOver();
  ASSERT_TRUE(setup.ok()) << setup.status();
  const JournalState now = Journaled();
  EXPECT_EQ(now.checkpoint_step, 50);
  EXPECT_EQ(now.checkpoint_path, absl::StrCat(checkpoints, "/step-000050"));
  EXPECT_TRUE(now.shards.empty());
}

// In a cluster, too, where every broker may take a run over: the next one would find the same.
TEST_F(BrokerSetupTest, LatestThatIsAFolderIsRefusedForGood) {
  std::filesystem::create_directories(folder_ / "checkpoints/latest");
  const absl::Status refused = TakeOver().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              ::testing::StartsWith(absl::StrCat("spec.checkpoint.path: ", folder_ / "checkpoints/latest")));
}

// Whatever the flag says of a run that may have begun: the next start would find the same.
TEST_F(BrokerSetupTest, DistinguishesSpecErrorsFromLossesDuringRun) {
  const std::string checkpoints = folder_ / "checkpoints";
  absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::StageSample(checkpoints, /*step=*/50, /*stages=*/1);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->resolved_job = kJob;
  ASSERT_TRUE(checkpoint::CommitCheckpoint(checkpoints, *manifest, 0).ok());
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) unsetenv(name);
  struct Case {
    std::string from, to, expected_text;
  };
  for (const Case& one :
       {Case{"steps: 90", "steps: 40", "has seen more than its 40 steps"},
        Case{"everySteps: 10", "resume: /nonexistent/step-1", "spec.checkpoint.resume: "},
        Case{"layers: [3072, 16, 10]", "layers: [3072, 8, 10]", "is of another model than the job's"},
        Case{"path: checkpoints", "path: s3://models/run", "AWS_ACCESS_KEY_ID is not set; in Kubernetes it is a key of"}}) {
    SCOPED_TRACE(one.to);
    std::string job = kJob;
    job.replace(job.find(one.from), one.from.size(), one.to);
    folder_.Write("job.yaml", job);
    const absl::Status refused = TakeOver().status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr(one.expected_text));
  }
}

TEST_F(BrokerSetupTest, StoreThatRefusesTheKeyHasAnotherCodeThanOneThatIsAway) {
  objectstore::testing::FakeS3 store;
  store.SetEnvironment();
  store.SetHook([](const objectstore::testing::FakeRequest&, kube::testing::RawConnection& connection) {
    connection.Answer(403, objectstore::testing::FakeS3::Error("InvalidAccessKeyId", "there is no such key"));
    return true;
  });
  std::string job = kJob;
  const std::string here = "path: checkpoints";
  job.replace(job.find(here), here.size(), "path: s3://models/run");
  folder_.Write("job.yaml", job);
  const absl::Status refused = TakeOver().status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("HTTP 403 InvalidAccessKeyId"));
}

// A run whose start lies in an object store and does not fit the model.
class RemoteStartSetupTest : public BrokerSetupTest {
 protected:
  RemoteStartSetupTest() {
    server_.SetEnvironment();
    std::string job = kJob;
    job.replace(job.find("config:"), 0, "init: {from: s3://models/start}, ");
    folder_.Write("job.yaml", job);
    checkpoint::SampleTensors tensors;
    EXPECT_TRUE(checkpoint::WriteSafetensors(folder_ / "other", tensors.Make({"of.another.model"}, 1, tensor::Shape{7, 3})).ok());
    server_.Put("models", "start/model.safetensors", base::ReadWholeFile(folder_ / "other"));
    server_.SetHook([this](const objectstore::testing::FakeRequest& request, kube::testing::RawConnection&) {
      const std::lock_guard lock(mutex_);
      const auto range = request.headers.find("range");
      if (request.method == "GET" && request.key == "start/model.safetensors" && range != request.headers.end()) {
        ranges_.push_back(range->second);
      }
      return false;
    });
  }
  // A comparison by headers asks for the length of the header first.
  bool HeadersWereRead() {
    const std::lock_guard lock(mutex_);
    return std::find(ranges_.begin(), ranges_.end(), "bytes=0-7") != ranges_.end();
  }
  bool WasFetched() const { return std::filesystem::exists(folder_ / kFetchedObjects); }

  std::mutex mutex_;
  std::vector<std::string> ranges_;  // guarded by mutex_
  objectstore::testing::FakeS3 server_;
};

TEST_F(RemoteStartSetupTest, StartThatDoesNotFitIsRefusedBeforeItIsFetched) {
  const absl::Status refused = TakeOver().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), ::testing::StartsWith("spec.model.init.from: "));
  EXPECT_TRUE(HeadersWereRead());
  EXPECT_FALSE(WasFetched());
}

TEST_F(RemoteStartSetupTest, BrokerThatTakesOverFetchesTheStartWithoutComparingItAgain) {
  JournalState past;
  absl::StatusOr<Journal> journal = Journal::Open(journal_, &past);
  ASSERT_TRUE(journal.ok()) << journal.status();
  ASSERT_TRUE(journal->RecordEpoch(1, {.document = R"({"stages": [{"devices": ["a"]}]})", .devices = {"a"}}, {}, {}, "", {}).ok());
  const absl::StatusOr<BrokerSetup> setup = TakeOver();
  EXPECT_TRUE(setup.ok()) << setup.status();
  EXPECT_FALSE(HeadersWereRead());
  EXPECT_TRUE(WasFetched());
}

}  // namespace
}  // namespace fusionllm::services
