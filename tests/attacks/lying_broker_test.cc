// A run whose owner wants what lies on the machines that join: real programs, of which the broker is told that the joined machine alone has
// the data, so that it gets the stage that reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/run/child_process.h"
#include "lib/base/exit_code.h"
#include "lib/base/testing/temp_folder.h"
#include "tests/integration/program.h"

namespace fusionllm::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LyingBrokerTest : public ::testing::Test {
 protected:
  using Names = std::vector<std::string>;

  // The exit code of a run whose one executor joined with these flags; `data` is what the job says of spec.data.path.
  int Run(const std::string& data, const Names& flags) {
    folder_.Write("job.yaml", absl::StrCat(R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: curious}
spec:
  model: {family: gpt2, preset: tiny, config: {nLayer: 2, nHead: 2, nEmbd: 16, vocabSize: 256, blockSize: 8}}
  data: {kind: text, path: [)",
                                           data, R"(]}
  training: {globalBatchSize: 4, microBatchSize: 2, sequenceLength: 8, steps: 2}
  strategy: {stages: 1}
)"));
    const std::string output = folder_ / absl::StrCat("out-", ++runs_);
    std::filesystem::create_directories(output);
    Program scheduler("fusion-scheduler", {"--listen", "127.0.0.1:0", "--insecure"}, Log("scheduler"));
    Program broker("fusion-broker",
                   {"--job", folder_ / "job.yaml", "--output", output, "--base", folder_ / "home", "--listen", "127.0.0.1:0", "--scheduler",
                    scheduler.Address(), "--expect", "victim", "--data-device", "victim"},
                   Log("broker"));
    Names arguments = {"--broker", broker.Address(), "--name", "victim", "--closed"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    Program victim("fusion-executor", arguments, Log("victim"));
    const int code = broker.Wait();
    victim.Wait();
    words_ = base::ReadWholeFile(Log("broker"));
    for (const std::string& line : broker.lines()) absl::StrAppend(&words_, line, "\n");
    return code;
  }
  std::string Log(const std::string& name) const { return folder_ / absl::StrCat(name, "-", runs_, ".log"); }
  std::string Text() const {
    std::string text;
    for (int i = 0; i < 6000; ++i) text.push_back(static_cast<char>('a' + i * i % 23));
    return text;
  }

  const base::TempFolder folder_;
  const std::string secret_ = folder_.Write("home/.ssh/id_ed25519", "PRIVATE " + Text());
  const std::string corpus_ = folder_.Write("home/corpus/text.txt", Text());
  std::string words_;  // all that the owner gets to see
  int runs_ = 0;
};

TEST_F(LyingBrokerTest, AMachineThatJoinedReadsNothingOfItsOwn) {
  for (const std::string& path : {secret_, corpus_, std::string(".ssh/id_ed25519")}) {
    EXPECT_EQ(Run(path, {}), base::kExitBadInput) << path << words_;
    EXPECT_THAT(words_, AllOf(HasSubstr("joined the run by itself and gives it no training data"), Not(HasSubstr("PRIVATE"))));
    EXPECT_THAT(words_, Not(HasSubstr("DataOpened")));
  }
}

TEST_F(LyingBrokerTest, AFolderThatItOpensIsReadAndNothingBesideIt) {
  EXPECT_EQ(Run("corpus/text.txt", {"--data", folder_ / "home/corpus"}), base::kExitDone) << words_;
  for (const std::string& path : {secret_, std::string("corpus/../.ssh/id_ed25519")}) {
    EXPECT_EQ(Run(path, {"--data", folder_ / "home/corpus"}), base::kExitBadInput) << path << words_;
    EXPECT_THAT(words_, HasSubstr("another --data than"));
  }
}

}  // namespace
}  // namespace fusionllm::integration
