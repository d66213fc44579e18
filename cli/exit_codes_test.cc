// Whose fault an error is (lib/base/exit_code.h), by the code with which the commands end: damaged files, full disks, places that cannot be
// written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/testing/fusionctl.h"

namespace fusionllm::cli {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr char kTextJob[] = R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: test}
spec:
  model: {family: gpt2, preset: tiny, config: {nLayer: 2, nHead: 2, nEmbd: 32, vocabSize: 256, blockSize: 32}}
  data: {kind: text, path: [text.txt]}
  training: {steps: 1, globalBatchSize: 4, microBatchSize: 2, sequenceLength: 16}
)";

class ExitCodesTest : public ::testing::Test {
 protected:
  ExitCodesTest() {
    fusionctl_.Write("job.yaml", kTextJob);
    fusionctl_.Write("text.txt", std::string(400, 'x'));
  }

  // A copy of a checkpoint in which one file is another, or, without a text, gone.
  void Damage(const std::string& whole, const std::string& copy, const std::string& file, const std::string& text) {
    fs::copy(fusionctl_.Path(whole), fusionctl_.Path(copy), fs::copy_options::recursive);
    fs::remove(fusionctl_.Path(absl::StrCat(copy, "/", file)));
    if (!text.empty()) fusionctl_.Write(absl::StrCat(copy, "/", file), text);
  }

  Fusionctl fusionctl_;
};

TEST_F(ExitCodesTest, ADamagedCheckpointIsBadInputToAllButVerifyWhichWasAskedAboutIt) {
  ASSERT_EQ(fusionctl_.Run("run job.yaml --output out --set 'spec.checkpoint={path: kept, everySteps: 1}'").code, 0);
  const std::string whole = "out/kept/step-000001";
  const std::string model = base::ReadWholeFile(fusionctl_.Path(absl::StrCat(whole, "/model.safetensors")));
  Damage(whole, "cut", "model.safetensors", model.substr(0, model.size() / 2));
  Damage(whole, "lost", "model.safetensors", "");
  Damage(whole, "odd", "manifest.json", "{\"format_version\": 1");
  Damage(whole, "step-000009", "manifest.json", "");
  for (const std::string damaged : {"cut", "lost", "odd", "step-000009"}) {
    for (const std::string& reads :
         {absl::StrCat("eval ", damaged, " --data text.txt"), absl::StrCat("checkpoint export ", damaged, " out.safetensors"),
          absl::StrCat("checkpoint inspect ", damaged), absl::StrCat("run job.yaml --output new --set spec.model.init.from=", damaged),
          absl::StrCat("run job.yaml --output other --set 'spec.checkpoint={path: c, resume: ", damaged, "}'")}) {
      const Outcome outcome = fusionctl_.Run(reads);
      EXPECT_EQ(outcome.code, 2) << reads << "\n" << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(damaged)) << reads;
    }
    EXPECT_EQ(fusionctl_.Run(absl::StrCat("checkpoint verify ", damaged)).code, 1) << damaged;
  }
  EXPECT_FALSE(fs::exists(fusionctl_.Path("new"))) << "nothing was started";
  fs::create_directory(fusionctl_.Path("hub"));
  fusionctl_.Write("hub/model.safetensors", model.substr(0, 40));  // as downloaded, and not to its end
  for (const char* model_alone : {"cut/model.safetensors", "hub"}) {
    const Outcome outcome = fusionctl_.Run(absl::StrCat("checkpoint verify ", model_alone));
    EXPECT_EQ(outcome.code, 1) << model_alone << "\n" << outcome.err;
  }
  EXPECT_EQ(fusionctl_.Run("checkpoint verify job.yaml").code, 2) << "no model at all";
  EXPECT_EQ(fusionctl_.Run("checkpoint verify out/kept/step-000099").code, 2) << "not there";
}

TEST_F(ExitCodesTest, AFullDiskIsAFailureAndAPlaceThatCannotBeWrittenIsBadInput) {
  fusionctl_.Write("file", "");
  fs::create_symlink("/dev/full", fusionctl_.Path("full.svg"));
  const Outcome full = fusionctl_.Run("graph job.yaml -o full.svg");
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.err, HasSubstr("cannot write full.svg: No space left"));
  EXPECT_EQ(fusionctl_.Run("--help > /dev/full").code, 1);
  EXPECT_EQ(fusionctl_.Run("run --help > /dev/full").code, 1);
  for (const std::string place : {"/proc/out", "file/out", "nowhere/out"}) {  // in /proc not even root makes files
    const Outcome outcome = fusionctl_.Run(absl::StrCat("graph job.yaml -o ", place, ".svg"));
    EXPECT_EQ(outcome.code, 2) << place;
    EXPECT_THAT(outcome.err, HasSubstr(absl::StrCat(place, ".svg")));
  }
  for (const std::string place : {"/proc/out", "file/out"}) {
    const Outcome outcome = fusionctl_.Run(absl::StrCat("run job.yaml --output ", place));
    EXPECT_EQ(outcome.code, 2) << place;
    EXPECT_THAT(outcome.err, HasSubstr(place));
  }
}

TEST_F(ExitCodesTest, AFileThatWouldBeLargerThanTheLimitFailsTheCommandInWords) {
  ASSERT_EQ(fusionctl_.Run("run job.yaml --output whole").code, 0);
  const std::string limit = "ulimit -f 40;";  // 20 or 40 KiB, by the shell
  for (const char* writes : {"run job.yaml --output out", "checkpoint export whole/checkpoints/latest out.safetensors"}) {
    const Outcome outcome = fusionctl_.Run(writes, limit);
    EXPECT_EQ(outcome.code, 1) << writes << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("File too large")) << writes;
  }
}

}  // namespace
}  // namespace fusionllm::cli
