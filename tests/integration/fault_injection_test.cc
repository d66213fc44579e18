// What a user can get wrong and what a machine can run out of: clear words, the promised exit code, nobody left behind.
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/checkpoint/reader.h"
#include "lib/tensor/tensor.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class FaultInjectionTest : public RunTest {
 protected:
  // A run that must end by itself with this exit code, soon.
  std::string Failing(int code, const std::vector<std::string>& settings, const std::vector<std::string>& flags = {}) {
    const auto begin = std::chrono::steady_clock::now();
    auto run = Start(settings, flags);
    ExpectEnd(*run, code);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(45));
    return run->Stderr();
  }

  // Checksums alone tell nothing of what was saved.
  void ExpectFiniteNumbers(const std::string& path) const {
    const absl::StatusOr<checkpoint::CheckpointReader> reader = checkpoint::CheckpointReader::Open(Path(path));
    ASSERT_TRUE(reader.ok()) << reader.status();
    int64_t numbers = 0;
    for (const auto& [name, stored] : reader->tensors()) {
      if (stored.entry->dtype != tensor::DType::kF32) continue;
      tensor::Tensor values(tensor::TensorType{tensor::DType::kF32, stored.entry->shape});
      ASSERT_TRUE(reader->Read(name, values.view()).ok()) << name;
      for (int64_t i = 0; i < stored.entry->shape.elements(); ++i) ASSERT_TRUE(std::isfinite(values.f32()[i])) << name << "[" << i << "]";
      numbers += stored.entry->shape.elements();
    }
    EXPECT_GT(numbers, 0);
  }
};

TEST_F(FaultInjectionTest, AnUnknownFieldIsBadInputWithFileAndLine) {
  std::string job = base::ReadWholeFile(Path("job.yaml"));
  job.replace(job.find("microBatchSize"), 14, "microBatchSzie");
  folder_.Write("job.yaml", job);
  EXPECT_THAT(Failing(2, {}), AllOf(HasSubstr("job.yaml:"), HasSubstr("microBatchSzie")));
}

TEST_F(FaultInjectionTest, MissingDataIsNamedAtOnce) {
  EXPECT_THAT(Failing(2, {"spec.data.path=[nowhere.txt]"}), HasSubstr("nowhere.txt"));
}

TEST_F(FaultInjectionTest, ATruncatedTokenFileIsNamed) {
  folder_.Write("tokens.bin", std::string(4001, '\1'));
  EXPECT_THAT(Failing(2, {"spec.data={kind: tokens, path: [tokens.bin]}"}), HasSubstr("tokens.bin"));
}

TEST_F(FaultInjectionTest, ALossThatIsNoNumberNamesItsOpAndWhereItBegins) {
  RunToEnd({"spec.training.steps=0", "spec.strategy.stages=1", "spec.checkpoint={path: checkpoints}"}, {}, "start");
  std::string file = base::ReadWholeFile(Path("start/checkpoints/step-000000/model.safetensors"));
  ASSERT_GT(file.size(), 4);
  file.replace(file.size() - 4, 4, "\xff\xff\xff\x7f");  // a number of the last tensor: the token embedding, which is the tied head too
  folder_.Write("poisoned.safetensors", file);
  const std::string words = Failing(1, {"spec.model.init={from: poisoned.safetensors}"});
  // Which of the equal devices has the last stage is the planner's to say.
  EXPECT_THAT(words, ContainsRegex("stage 2 on a-[0-2]: the loss of op 'loss' is nan at step 1, micro-batch 0; it begins at op 'lm_head', "
                                   "whose parameter 'transformer.wte.weight' is not finite"));
}

TEST_F(FaultInjectionTest, AGradientThatIsNoNumberNamesParameterAndOpAndKeepsEarlierCheckpoints) {
  // Whether gradients or outputs leave the range first is a matter of the last bits, which differ between processors on the fast back end.
  const std::vector<std::string> settings = {"spec.strategy.backend=ref",
                                             "spec.training.optimizer={name: sgd, learningRate: 1000, weightDecay: 1000}",
                                             "spec.training.gradientClipNorm=0", "spec.checkpoint={path: checkpoints, everySteps: 1}"};
  // In a run of its own: a checkpoint is written while the run goes on, and one that fails soon enough ends before it is whole.
  std::vector<std::string> one_step = settings;
  one_step.push_back("spec.training.steps=1");
  RunToEnd(one_step, {}, "out");
  const std::string words = Failing(1, settings);
  EXPECT_THAT(words, ContainsRegex("stage [0-2] on a-[0-2]: the gradient norm is (nan|inf) at step [0-9]+, where the loss is [0-9.e+]+: "
                                   "the gradient of parameter 'transformer[^']*' of op '[^']*' is not finite"));
  EXPECT_THAT(words, HasSubstr("lower spec.training.optimizer.learningRate"));
  EXPECT_TRUE(std::filesystem::exists(Path("out/checkpoints/step-000001/manifest.json")));
  FusionctlChild verify({"checkpoint", "verify", "out/checkpoints/latest"}, folder_.path());
  EXPECT_EQ(verify.Wait(kRunLimit), 0) << verify.Stderr();
  ExpectFiniteNumbers("out/checkpoints/latest");
}

TEST_F(FaultInjectionTest, DevicesThatAreTooSmallAreRefusedWithTheShortfall) {
  WriteTopology(3, 0, "64Ki");
  auto profiles = json::parse(base::ReadWholeFile(Path("profiles.json")));
  for (json& device : profiles["devices"]) device["memory_bytes"] = 65536;
  folder_.Write("profiles.json", profiles.dump());
  EXPECT_THAT(Failing(3, {}), AllOf(HasSubstr("InsufficientMemory"), HasSubstr("needs 66.0 KiB at least"),
                                    HasSubstr("the limit is 64.0 KiB (a-0 64.0 KiB")));
}

TEST_F(FaultInjectionTest, AnExecutorThatIsKilledBeforeTheFirstPlanIsStartedAgain) {
  auto run = Start({});
  std::vector<pid_t> executors;
  while (executors.empty() && !run->WaitFor([](const json&) { return true; }, 0.005)) executors = run->Running("fusion-executor");
  ASSERT_FALSE(executors.empty());
  KillProcess(executors[0]);
  ExpectEnd(*run, 0);
  EXPECT_THAT(run->Stderr(), AllOf(HasSubstr("killed by signal 9"), HasSubstr("starting it again")));
}

TEST_F(FaultInjectionTest, ACheckpointThatIsDeletedUnderTheRunIsAFailureAndNoBadInput) {
  const std::string kept = "spec.checkpoint={path: checkpoints, everySteps: 100000}";
  RunToEnd({"spec.training.steps=5", kept});
  auto run = Start({"spec.training.steps=100000", kept});
  ASSERT_TRUE(run->WaitForStep(7, kStartLimit)) << run->Stderr();
  std::filesystem::remove_all(Path("out/checkpoints"));
  KillProcess(PidOfStage(*run, 1));
  ExpectEnd(*run, 1);
  EXPECT_THAT(run->Stderr(), HasSubstr("step-000005 does not exist"));
}

TEST_F(FaultInjectionTest, AFullDiskAtTheStartIsAFailureAndNoBadInput) {
  const std::string small = Path("small");
  std::filesystem::create_directory(small);
  if (geteuid() != 0 || mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "NotAvailable: a small tmpfs cannot be mounted here";
  }
  folder_.Write("small/filling", std::string(64 << 10, 'x'));
  auto run = Start({}, {}, "small/out");
  ExpectEnd(*run, 1);
  EXPECT_THAT(run->Stderr(), AllOf(HasSubstr("No space left"), HasSubstr("small/out")));
  EXPECT_EQ(umount(small.c_str()), 0);
}

TEST_F(FaultInjectionTest, AFullDiskAtACheckpointIsReportedAndTrainingGoesOn) {
  const std::string small = Path("small");
  std::filesystem::create_directory(small);
  if (geteuid() != 0 || mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "NotAvailable: a small tmpfs cannot be mounted here";
  }
  auto run = Start({"spec.training.steps=12", absl::StrCat("spec.checkpoint={path: ", small, "/, everySteps: 5}"),
                    "spec.data.validation={fraction: 0.1}", "spec.training.evaluation={everySteps: 6, batches: 2}"});
  EXPECT_EQ(run->Wait(kRunLimit), 1);  // the last checkpoint is what the user wanted
  EXPECT_EQ(BitsOf(*run).size(), 12);
  std::vector<int> evaluated;
  for (const json& line : run->lines()) {
    if (line.value("type", "") == "eval") evaluated.push_back(line["step"]);
  }
  EXPECT_THAT(evaluated, ::testing::ElementsAre(6, 12)) << "the evaluation after the last step needs no disk";
  EXPECT_THAT(Event(*run, "CheckpointFailed").dump(), AllOf(HasSubstr("No space left"), HasSubstr("small/"), Not(HasSubstr("//"))));
  EXPECT_THAT(run->Stderr(), HasSubstr("No space left"));
  EXPECT_TRUE(run->AllProcessesExited(10));
  for (const auto& entry : std::filesystem::directory_iterator(small)) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".partial"))) << "half a checkpoint fills the disk";
  }
  EXPECT_EQ(umount(small.c_str()), 0);
}

}  // namespace
}  // namespace fusionllm::integration
