// The real programs where not every executor has the training data, as in Kubernetes: `fusionctl` knows no such runs. Each executor looks
// for the data in a folder of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/run/child_process.h"
#include "lib/base/exit_code.h"
#include "lib/base/testing/temp_folder.h"
#include "tests/integration/program.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class DataDevicesTest : public ::testing::Test {
 protected:
  using Names = std::vector<std::string>;

  ~DataDevicesTest() override {
    if (!HasFailure()) return;
    for (const char* log : {"broker", "scheduler", "a", "b", "c"}) ADD_FAILURE() << log << ":\n" << cli::TailOfFile(LogOf(log), 10);
  }

  std::string LogOf(const std::string& name) const { return folder_ / (name + ".log"); }

  // A run of so many stages as there are executors; `data` have the data, and the broker is told so.
  void Start(const Names& executors, const Names& data, int64_t steps = 1'000'000, const Names& flags = {}, const std::string& pins = "",
             const std::set<std::string>& late = {}) {
    executors_.clear();
    std::string text;
    for (int i = 0; i < 6000; ++i) text.push_back(static_cast<char>('a' + i * i % 23));
    for (const std::string& name : executors) std::filesystem::create_directories(folder_ / name);
    for (const std::string& name : data) folder_.Write(name + "/text.txt", text);
    folder_.Write("job.yaml", absl::StrCat(R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: scarce}
spec:
  model: {family: gpt2, preset: tiny, config: {nLayer: 3, nHead: 2, nEmbd: 16, vocabSize: 256, blockSize: 8}}
  data: {kind: text, path: [text.txt]}
  training: {globalBatchSize: 4, microBatchSize: 2, sequenceLength: 8, schedule: {name: constant}, steps: )",
                                           steps, "}\n  strategy: {stages: ", executors.size(), ", pins: [", pins,
                                           "]}\n  checkpoint: {path: kept, everySteps: 10}\n"));
    const std::string output = folder_ / absl::StrCat("out-", ++runs_);
    std::filesystem::create_directories(output);
    scheduler_.emplace("fusion-scheduler", Names{"--listen", "127.0.0.1:0", "--insecure"}, LogOf("scheduler"));
    Names arguments = {"--job",
                       folder_ / "job.yaml",
                       "--output",
                       output,
                       "--base",
                       ".",
                       "--listen",
                       "127.0.0.1:0",
                       "--scheduler",
                       scheduler_->Address(),
                       "--expected-executors",
                       absl::StrJoin(executors, ","),
                       "--data-device",
                       absl::StrJoin(data, ",")};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    broker_.emplace("fusion-broker", arguments, LogOf("broker"), folder_.path());
    address_ = broker_->Address();
    for (const std::string& name : executors) {
      if (!late.contains(name)) StartExecutor(name);
    }
  }
  void StartExecutor(const std::string& name) {
    executors_.try_emplace(name, "fusion-executor", Names{"--broker", address_, "--name", name}, LogOf(name), folder_ / name);
  }

  json WaitForEvent(const std::string& reason) {
    return broker_->WaitForJson([&](const json& parsed) { return parsed.value("reason", "") == reason; });
  }
  // When a checkpoint has been saved. By SIGKILL.
  void Kill(const std::string& name) {
    ASSERT_FALSE(WaitForEvent("CheckpointSaved").is_null());
    executors_.erase(name);
    ASSERT_EQ(WaitForEvent("ExecutorLost").value("device", ""), name);
  }
  // Some steps after its restart the run is stopped. Everybody ends well, and what was made is what one executor makes.
  void ExpectItGoesOn() {
    const json restored = WaitForEvent("Restored");
    ASSERT_FALSE(restored.is_null());
    EXPECT_GE(restored["step"], 10);
    const int64_t enough = restored["step"].get<int64_t>() + 20;
    ASSERT_FALSE(
        broker_->WaitForJson([&](const json& parsed) { return parsed.value("type", "") == "step" && parsed["step"] == enough; }).is_null());
    broker_->Signal(SIGTERM);
    EXPECT_EQ(broker_->Wait(), base::kExitInterrupted);
    for (auto& [name, executor] : executors_) EXPECT_EQ(executor.Wait(), base::kExitDone) << name;
    const std::map<int64_t, std::string> bits = Bits();
    ASSERT_GE(bits.size(), static_cast<size_t>(enough));
    Start({"a"}, {"a"}, bits.rbegin()->first);
    EXPECT_EQ(broker_->Wait(), base::kExitDone);
    EXPECT_EQ(bits, Bits());
  }

  json Lines(const std::string& type) const {
    json found = json::array();
    for (const std::string& line : broker_->lines()) {
      const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (parsed.is_object() && parsed.value("type", "") == type) found.push_back(parsed);
    }
    return found;
  }
  // Of steps that were made twice it fails where the two differ.
  std::map<int64_t, std::string> Bits() const {
    std::map<int64_t, std::string> bits;
    for (const json& line : Lines("step")) {
      const auto [known, is_new] = bits.emplace(line["step"].get<int64_t>(), line["loss_bits"].get<std::string>());
      EXPECT_EQ(known->second, line["loss_bits"]) << "step " << known->first;
    }
    return bits;
  }
  static Names DevicesOf(const json& plan) {
    Names names;
    for (const json& stage : plan["stages"]) names.push_back(stage["devices"][0]);
    return names;
  }

  const base::TempFolder folder_;
  int runs_ = 0;
  std::string address_;  // of the broker
  std::optional<Program> scheduler_, broker_;
  std::map<std::string, Program> executors_;
};

TEST_F(DataDevicesTest, TheOneThatReadsTheDataIsLostAndAnotherThatHasThemReadsOn) {
  Start({"a", "b", "c"}, {"a", "c"});
  ASSERT_FALSE(WaitForEvent("DataStageSelected").is_null()) << "the planner was asked about both";
  ASSERT_FALSE(WaitForEvent("CheckpointSaved").is_null());
  const json plans = Lines("plan");
  ASSERT_FALSE(plans.empty());
  EXPECT_THAT(DevicesOf(plans[0]), SizeIs(3));
  const std::string reader = DevicesOf(plans[0])[0], other = reader == "a" ? "c" : "a";  // as they measured themselves
  Kill(reader);
  if (HasFatalFailure()) return;
  const json replanned = WaitForEvent("Replanned");
  ASSERT_FALSE(replanned.is_null());
  EXPECT_THAT(replanned["message"].get<std::string>(), HasSubstr(absl::StrCat("2 stages on ", other, ", b")));
  ExpectItGoesOn();
}

TEST_F(DataDevicesTest, WhereThePlannerRefusesTheFirstOfThemAnotherReads) {
  Start({"a", "b", "c"}, {"a", "c"}, /*steps=*/3, {}, "{ops: embed, device: c}");
  EXPECT_EQ(broker_->Wait(), base::kExitDone);
  const json plans = Lines("plan");
  ASSERT_THAT(plans, SizeIs(1));
  EXPECT_EQ(DevicesOf(plans[0])[0], "c");
  const json events = Lines("event");
  const auto chosen =
      std::find_if(events.begin(), events.end(), [](const json& parsed) { return parsed["reason"] == "DataStageSelected"; });
  ASSERT_NE(chosen, events.end());
  EXPECT_EQ((*chosen)["device"], "c");
  EXPECT_THAT((*chosen)["message"].get<std::string>(), HasSubstr("not a: PinConflict: "));
}

TEST_F(DataDevicesTest, WhenOnlyTheExecutorWithTheDataIsMissingThatIsReported) {
  Start({"a", "b"}, {"a"}, /*steps=*/3, {}, "", /*late=*/{"a"});
  const json awaited = WaitForEvent("WaitingForData");
  ASSERT_FALSE(awaited.is_null());
  EXPECT_EQ(awaited["message"], "no device that has the training data is here: a is waited for, 110 s without news at most");
  StartExecutor("a");
  EXPECT_EQ(broker_->Wait(), base::kExitDone);
}

TEST_F(DataDevicesTest, TheOnlyOneThatHasThemIsAwaitedAndGoesOnWithItsStage) {
  Start({"a", "b", "c"}, {"b"}, 1'000'000, {"--data-timeout-seconds", "300"});
  Kill("b");
  if (HasFatalFailure()) return;
  const json awaited = WaitForEvent("WaitingForData");
  ASSERT_FALSE(awaited.is_null());
  EXPECT_THAT(awaited["message"].get<std::string>(), HasSubstr("b is waited for"));
  StartExecutor("b");
  ExpectItGoesOn();
}

}  // namespace
}  // namespace fusionllm::integration
