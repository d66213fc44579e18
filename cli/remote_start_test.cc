// Sizes of a model that lies in an object store (here one in memory) are taken from there when a job is loaded.
#include "cli/commands/remote_start.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"
#include "lib/objectstore/testing/fake_s3.h"

namespace fusionllm::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kConfig[] = R"({"model_type": "gpt2", "n_layer": 3, "n_head": 2, "n_embd": 32, "vocab_size": 300, "n_positions": 64})";

class RemoteStartTest : public ::testing::Test {
 protected:
  RemoteStartTest() { server_.SetEnvironment(); }

  // A job that starts from `uri` and says nothing of its model but this.
  absl::StatusOr<job::FusionJob> Load(const std::string& uri, const std::string& config = "") const {
    std::ofstream(folder_ / "job.yaml") << "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: t}\nspec:\n"
                                        << "  model: {family: gpt2, init: {from: \"" << uri << "\"}" << config << "}\n"
                                        << "  data: {kind: text, path: [a]}\n"
                                        << "  training: {sequenceLength: 16}\n";
    return job::LoadFusionJob(folder_ / "job.yaml", {}, nullptr, ReadRemoteStart);
  }

  objectstore::testing::FakeS3 server_;
  const base::TempFolder folder_;
};

TEST_F(RemoteStartTest, AConfigJsonFillsInTheSizes) {
  server_.Put("models", "hf/config.json", kConfig);
  for (const char* uri : {"s3://models/hf", "s3://models/hf/", "s3://models/hf/model.safetensors"}) {
    const auto job = Load(uri);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->spec.model.config.n_layer, 3) << uri;
    EXPECT_EQ(job->spec.model.config.vocab_size, 300) << uri;
    EXPECT_EQ(job->spec.model.config.block_size, 64) << uri;
  }
}

TEST_F(RemoteStartTest, ASizeThatContradictsItIsRefusedWithItsLine) {
  server_.Put("models", "other/config.json", kConfig);
  EXPECT_THAT(Load("s3://models/other", ", config: {nHead: 4}").status().message(),
              AllOf(HasSubstr("job.yaml:5: spec.model.config.nHead: is 4, and n_head is 2 in s3://models/other/config.json")));
}

TEST_F(RemoteStartTest, ALatestThatLeadsElsewhereIsRefused) {
  server_.Put("models", "stray/latest", "../secret\n");
  EXPECT_THAT(Load("s3://models/stray").status().message(), HasSubstr("s3://models/stray/latest names no checkpoint"));
}

TEST_F(RemoteStartTest, TheNewestCheckpointOfAFolderSaysItsSizes) {
  const auto job = job::ParseFusionJob(
      "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: t}\nspec:\n"
      "  model: {family: gpt2, config: {nLayer: 5, nHead: 2, nEmbd: 32, vocabSize: 256}}\n  data: {kind: text, path: [a]}\n"
      "  training: {sequenceLength: 16}\n",
      "made.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  std::string yaml;
  for (const char c : job::ToYaml(*job)) yaml += c == '\n' ? "\\n" : c == '"' ? "\\\"" : std::string(1, c);
  server_.Put("models", "run/latest", "step-000005\n");
  server_.Put("models", "run/step-000005/manifest.json", absl::StrCat("{\"resolved_job\": \"", yaml, "\"}"));
  const auto loaded = Load("s3://models/run");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->spec.model.config.n_layer, 5);
}

TEST_F(RemoteStartTest, WhereNothingDescribesItTheJobsOwnSizesHold) {
  server_.Put("models", "bare/model.safetensors", "x");
  const auto job = Load("s3://models/bare");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->spec.model.config.n_layer.has_value());
}

TEST_F(RemoteStartTest, AStoreThatCannotBeAskedIsNoErrorOfTheJob) {
  unsetenv("AWS_SECRET_ACCESS_KEY");
  EXPECT_TRUE(Load("s3://models/keyless").ok());
}

TEST_F(RemoteStartTest, AConfigOfAnotherModelIsRefused) {
  server_.Put("models", "bad/config.json", R"({"model_type": "gpt2", "n_layer": "three"})");
  EXPECT_THAT(Load("s3://models/bad").status().message(),
              AllOf(HasSubstr("spec.model.init.from: "), HasSubstr("s3://models/bad/config.json")));
}

}  // namespace
}  // namespace fusionllm::cli
