// Runs whose data, checkpoints and replicas lie elsewhere: in an object store (here one in memory), in a second folder.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/checkpoint/safetensors.h"
#include "lib/objectstore/testing/fake_s3.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;
using objectstore::testing::FakeRequest;
using objectstore::testing::FakeS3;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class StoresTest : public RunTest {
 protected:
  StoresTest() {
    server_.SetEnvironment();
    server_.Put("models", "data/text.txt", base::ReadWholeFile(Path("text.txt")));
  }

  static std::string Steps(int n) { return absl::StrCat("spec.training.steps=", n); }
  static std::string Checkpoints(const std::string& path, const std::string& more = "") {
    return absl::StrCat("spec.checkpoint={path: \"", path, "\", everySteps: 5, keep: 2", more, "}");
  }
  static int64_t FirstStep(const FusionctlChild& run) {
    const Bits bits = BitsOf(run);
    return bits.empty() ? 0 : bits.begin()->first;
  }
  const std::string data_ = "spec.data.path=s3://models/data/text.txt";

  FakeS3 server_;
};

TEST_F(StoresTest, DataAndCheckpointsInAStoreGiveTheSameBitsAndAnotherMachineGoesOn) {
  const auto first = RunToEnd({Steps(15), Checkpoints("s3://models/runs/a"), data_}, {}, "first");
  ExpectSameBits(*first, Undisturbed(), 1, 15);
  EXPECT_EQ(server_.Get("models", "runs/a/latest"), "step-000015\n");
  EXPECT_EQ(Event(*first, "CheckpointCopied")["message"], "s3://models/runs/a/step-000005");
  EXPECT_FALSE(server_.Get("models", "runs/a/step-000005/manifest.json").has_value()) << "keep: 2";
  EXPECT_TRUE(server_.Get("models", "runs/a/step-000010/manifest.json").has_value());

  // Another folder: nothing of the run is here.
  const auto second = RunToEnd({Steps(20), Checkpoints("s3://models/runs/a"), data_, "spec.strategy.stages=2"}, {}, "second");
  EXPECT_EQ(FirstStep(*second), 16);
  ExpectSameBits(*second, Undisturbed(), 16, 20);
  EXPECT_THAT(Event(*second, "CheckpointFetched").dump(), HasSubstr("s3://models/runs/a"));
  EXPECT_EQ(server_.Get("models", "runs/a/latest"), "step-000020\n");

  // Parameters alone, by the prefix, and by the checkpoint's own URI.
  for (const char* from : {"s3://models/runs/a", "s3://models/runs/a/step-000020"}) {
    const auto from_store =
        RunToEnd({Steps(3), data_, absl::StrCat("spec.model.init.from=", from)}, {}, absl::StrCat("init", std::string(from).size()));
    const auto from_folder = RunToEnd({Steps(3), absl::StrCat("spec.model.init.from=", Path("second/checkpoints/step-000020"))}, {},
                                      absl::StrCat("folder", std::string(from).size()));
    ExpectSameBits(*from_store, BitsOf(*from_folder), 1, 3);
  }

  // Who begins anew removes nothing that others have made there.
  const auto fresh = RunToEnd({Steps(20), Checkpoints("s3://models/runs/a"), data_}, {"--fresh"}, "third");
  EXPECT_EQ(FirstStep(*fresh), 1);
  EXPECT_TRUE(server_.Get("models", "runs/a/step-000020/manifest.json").has_value());
  EXPECT_TRUE(server_.Get("models", "runs/a/step-000020.2/manifest.json").has_value());
  EXPECT_EQ(server_.Get("models", "runs/a/latest"), "step-000020.2\n");
}

TEST_F(StoresTest, AStoreThatIsAwayDoesNotStopTrainingAndIsCaughtUpWith) {
  std::atomic<bool> away = true;
  server_.SetHook([&](const FakeRequest& request, kube::testing::RawConnection& connection) {
    return away && request.method == "PUT" && connection.Answer(503, FakeS3::Error("SlowDown", "Later."));
  });
  auto run = Start({Steps(20), Checkpoints("s3://models/runs/a", ", resume: never")}, {}, "out");
  // It has made all its steps, and waits for the store.
  std::set<std::string> reasons;
  const auto both = [&](const json& line) {
    reasons.insert(line.value("reason", ""));
    return reasons.contains("CheckpointCopyFailed") && reasons.contains("CopyingCheckpoints");
  };
  ASSERT_TRUE(run->WaitFor(both, kStartLimit)) << run->Stderr();
  EXPECT_TRUE(server_.Keys("models") == std::vector<std::string>{"data/text.txt"});
  away = false;
  ExpectEnd(*run, 0);
  ExpectSameBits(*run, Undisturbed(), 1, 20);
  EXPECT_THAT(Event(*run, "StoreRetried").dump(),
              AllOf(HasSubstr("503 SlowDown: Later.; it is tried again"), HasSubstr("PUT s3://models/runs/a")));
  EXPECT_THAT(Event(*run, "CheckpointCopyFailed").dump(), AllOf(HasSubstr("503 SlowDown: Later."), HasSubstr("s3://models/runs/a")));
  EXPECT_EQ(server_.Get("models", "runs/a/latest"), "step-000020\n");
}

TEST_F(StoresTest, ReportsObjectStoreThatDelaysDataStage) {
  std::atomic<int> left = 3;
  server_.SetHook([&](const FakeRequest& request, kube::testing::RawConnection& connection) {
    const bool whole = request.method == "GET" && request.key == "data/text.txt" && !request.headers.contains("range");
    return whole && left.fetch_sub(1) > 0 && connection.Answer(503, FakeS3::Error("SlowDown", "Later."));
  });
  const auto run = RunToEnd({Steps(2), data_}, {}, "out");
  ExpectSameBits(*run, Undisturbed(), 1, 2);
  const json retried = Event(*run, "StoreRetried");
  // Which of the devices has the stage is the plan's to say.
  EXPECT_THAT(retried.value("message", ""), AllOf(StartsWith(retried.value("device", "none") + ": "),
                                                  HasSubstr("GET s3://models/data/text.txt"), HasSubstr("HTTP 503 SlowDown: Later.")));
}

TEST_F(StoresTest, AReplicaIsFallenBackUponWhereTheFirstPlaceIsLostOrDamaged) {
  const std::string replica = absl::StrCat(", replica: {path: \"", Path("replica"), "\", everySteps: 10}");
  const auto first = RunToEnd({Steps(15), Checkpoints(Path("kept"), replica)}, {}, "first");
  EXPECT_FALSE(std::filesystem::exists(Path("replica/step-000005")));
  EXPECT_TRUE(std::filesystem::exists(Path("replica/step-000010/manifest.json")));
  EXPECT_TRUE(std::filesystem::exists(Path("replica/step-000015/manifest.json"))) << "the last, in any case";

  for (const auto& entry : std::filesystem::recursive_directory_iterator(Path("kept"))) {
    if (!absl::StartsWith(entry.path().filename().string(), "optimizer")) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end).put('?');
  }
  const auto second = RunToEnd({Steps(20), Checkpoints(Path("kept"), replica)}, {}, "second");
  EXPECT_EQ(FirstStep(*second), 16);
  ExpectSameBits(*second, Undisturbed(), 16, 20);
  EXPECT_THAT(Event(*second, "CheckpointSkipped").dump(), HasSubstr("kept/step-000015"));
  EXPECT_THAT(Event(*second, "CheckpointFetched").dump(), HasSubstr(Path("replica")));
}

TEST_F(StoresTest, AStoreErrorIsReportedBeforeAnythingIsStarted) {
  auto missing = Start({"spec.data.path=s3://models/nothing"}, {}, "a");
  ExpectEnd(*missing, 2);
  EXPECT_THAT(missing->Stderr(), AllOf(HasSubstr("spec.data.path"), HasSubstr("s3://models/nothing")));
  auto bucket = Start({Checkpoints("s3://elsewhere/runs")}, {}, "b");
  ExpectEnd(*bucket, 2);
  EXPECT_THAT(bucket->Stderr(), AllOf(HasSubstr("s3://elsewhere"), HasSubstr("404 NoSuchBucket")));
  unsetenv("AWS_SECRET_ACCESS_KEY");
  auto keyless = Start({Checkpoints("s3://models/runs")}, {}, "c");
  ExpectEnd(*keyless, 2);
  EXPECT_THAT(keyless->Stderr(), HasSubstr("AWS_SECRET_ACCESS_KEY"));
}

TEST_F(StoresTest, AStartOfAnotherModelIsRefusedByItsHeadersBeforeAnythingIsStarted) {
  const std::vector<float> values(12);
  const std::vector<checkpoint::NamedTensor> tensors = {{"transformer.wte.weight", {{tensor::DType::kF32, {3, 4}}, values.data()}},
                                                        {"other", {{tensor::DType::kF32, {12}}, values.data()}}};
  ASSERT_TRUE(checkpoint::WriteSafetensors(Path("f"), tensors).ok());
  server_.Put("models", "small/model.safetensors", base::ReadWholeFile(Path("f")));
  for (const bool dry : {false, true}) {
    auto run =
        Start({"spec.model.init.from=s3://models/small"}, dry ? std::vector<std::string>{"--dry-run"} : std::vector<std::string>(), "d");
    ExpectEnd(*run, 2);
    EXPECT_THAT(run->Stderr(),
                AllOf(HasSubstr("spec.model.init.from"), HasSubstr("s3://models/small"), HasSubstr("transformer.wte.weight is [3, 4]"),
                      HasSubstr("transformer.wpe.weight"), HasSubstr("other")));
    EXPECT_FALSE(std::filesystem::exists(Path("d/logs"))) << "something was started";
  }
}

}  // namespace
}  // namespace fusionllm::integration
