#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/initial_model.h"
#include "lib/job/model_config.h"
#include "lib/job/parse.h"

namespace fusionllm::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kConfig[] =
    R"({"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64, "vocab_size": 1000, "n_positions": 128, "n_inner": null,)"
    R"( "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "attn_pdrop": 0.1, "resid_pdrop": 0.0})";

class InitialModelTest : public ::testing::Test {
 protected:
  InitialModelTest() { folder_.Write("hf/config.json", kConfig); }

  // `model` without its braces; on line 5.
  absl::StatusOr<FusionJob> Load(const std::string& model, const std::string& rest = "") {
    return LoadFusionJob(folder_.Write(
        "job.yaml", absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: t}\n"
                                 "spec:\n  model: {family: gpt2, init: {from: hf}",
                                 model, "}\n  data: {kind: tokens, path: [a.bin]}\n", "  training: {sequenceLength: 32}\n", rest)));
  }
  std::string Refusal(const std::string& model) { return std::string(Load(model).status().message()); }

  const base::TempFolder folder_;
};

TEST_F(InitialModelTest, SizesThatTheJobLeavesOutAreThoseOfTheStart) {
  const auto job = Load("");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(static_cast<const models::Gpt2Settings&>(ResolveModel(job->spec)->sizes.settings),
            (models::Gpt2Settings{.n_layer = 2, .n_head = 4, .n_embd = 64, .vocab_size = 1000, .block_size = 128, .tie_weights = true}));
  EXPECT_TRUE(Load(", config: {nLayer: 2, vocabSize: 1000}").ok());
}

TEST_F(InitialModelTest, AFileWithItsConfigBesideIsAStartToo) {
  folder_.Write("hf/model.safetensors", "");
  folder_.Write("job.yaml", "");
  const auto start = ReadInitialModel(folder_ / "hf/model.safetensors");
  ASSERT_TRUE(start.ok() && start->has_value()) << start.status();
  EXPECT_EQ((*start)->sizes.settings.n_layer, 2);
  EXPECT_FALSE(ReadInitialModel(folder_ / "nowhere").value().has_value());
}

TEST_F(InitialModelTest, SizesThatContradictAreNamedWithBothValuesAndBothFiles) {
  EXPECT_THAT(Refusal(", config: {nHead: 8, tieWeights: false}"),
              AllOf(HasSubstr("job.yaml:5: spec.model.config.nHead: is 8, and n_head is 4 in "), HasSubstr("hf/config.json"),
                    HasSubstr("spec.model.config.tieWeights: is false, and tie_word_embeddings is true in ")));
}

TEST_F(InitialModelTest, ASizeMayDifferWhereAllThatItShapesBeginsFresh) {
  const auto load = [&](const std::string& skip, const std::string& config) {
    const std::string text = absl::StrCat(
        "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: t}\nspec:\n  model: {family: gpt2, init: {from: hf, skip: [",
        skip, "]}, config: {", config, "}}\n  data: {kind: tokens, path: [a.bin]}\n  training: {sequenceLength: 32}\n");
    return LoadFusionJob(folder_.Write("job.yaml", text)).status();
  };
  EXPECT_TRUE(load("transformer.wte.*", "vocabSize: 1024").ok());
  EXPECT_THAT(load("transformer.wte.*", "vocabSize: 1024, tieWeights: false").message(),
              HasSubstr("begin fresh there by spec.model.init.skip: ['transformer.wte.*', 'lm_head.*']"));
  EXPECT_TRUE(load("transformer.wte.*, lm_head.*", "vocabSize: 1024, tieWeights: false").ok());
  EXPECT_TRUE(load("transformer.wpe.*", "blockSize: 256").ok());
  EXPECT_TRUE(load("transformer.h.2.*, transformer.h.3.*", "nLayer: 4").ok());
  EXPECT_FALSE(load("transformer.h.2.*", "nLayer: 4").ok());
  EXPECT_TRUE(load("transformer.h.1.*", "nLayer: 1").ok()) << "left unread";
  EXPECT_FALSE(load("'*'", "nHead: 8").ok()) << "no shape shows it";
}

TEST_F(InitialModelTest, APresetCountsWhereItIsWritten) {
  EXPECT_THAT(Refusal(", preset: tiny"), AllOf(HasSubstr("job.yaml:5: spec.model.preset: has nLayer 4, and n_layer is 2 in "),
                                               HasSubstr("has nEmbd 128"), Not(HasSubstr("nHead"))));
  EXPECT_TRUE(Load(", preset: tiny, config: {nLayer: 2, nEmbd: 64, vocabSize: 1000}").ok());
}

TEST_F(InitialModelTest, SettingsThatTheFamilyDoesNotHaveAreRefusedByName) {
  folder_.Write("hf/config.json",
                R"({"model_type": "gpt2", "n_embd": 64, "n_inner": 100, "activation_function": "relu", "layer_norm_epsilon": 1e-6})");
  EXPECT_THAT(Refusal(""), AllOf(HasSubstr("spec.model.init.from: "), HasSubstr("hf/config.json: "),
                                 HasSubstr(R"(activation_function is "relu", and family gpt2 has gelu_new)"),
                                 HasSubstr("layer_norm_epsilon is 1e-06"), HasSubstr("n_inner is 100")));
  folder_.Write("hf/config.json", R"({"model_type": "llama", "hidden_size": 64})");
  EXPECT_THAT(Refusal(""), HasSubstr(R"(model_type is "llama", not that of a gpt2)"));
  folder_.Write("hf/config.json", R"({"model_type": "gpt2", "n_layer": "two"})");
  EXPECT_THAT(Refusal(""), HasSubstr(R"(n_layer is "two")"));
  folder_.Write("hf/config.json", R"({"model_type": "gpt2", "n_layer": 2)");
  EXPECT_THAT(Refusal(""), HasSubstr("hf/config.json: it is no JSON object"));
  folder_.Write("hf/config.json", R"({"port": 80})");
  EXPECT_TRUE(Load("").ok()) << "another program's";
}

TEST_F(InitialModelTest, DropoutThatTheFamilyDoesNotHaveIsAWarning) {
  const auto start = ReadInitialModel(folder_ / "hf");
  ASSERT_TRUE(start.ok() && start->has_value()) << start.status();
  EXPECT_THAT((*start)->warnings, ::testing::ElementsAre(AllOf(HasSubstr("hf/config.json: "), HasSubstr("attn_pdrop 0.1"))));
}

TEST_F(InitialModelTest, ACheckpointSaysItsSizesItself) {
  const auto maker = Load("");
  ASSERT_TRUE(maker.ok()) << maker.status();
  std::string text = ToYaml(*maker);
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\n");
  for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\\"");
  folder_.Write("hf/manifest.json", absl::StrCat("{\"resolved_job\": \"", text, "\"}"));
  folder_.Write("hf/config.json", R"({"model_type": "gpt2", "n_layer": 7})");
  const auto job = Load(", config: {nHead: 4}");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.model.config.n_layer, 2);
  EXPECT_THAT(Refusal(", config: {nHead: 8}"), AllOf(HasSubstr("is 8, and nHead is 4 in "), HasSubstr("hf/manifest.json")));
}

TEST_F(InitialModelTest, ComparesDefaultsOfOmittedFields) {
  FusionJob job = *Load("");
  EXPECT_TRUE(CheckInitialModel(job, folder_ / "hf").ok());
  job.spec.model.config.n_layer.reset();
  EXPECT_THAT(CheckInitialModel(job, folder_ / "hf").message(), HasSubstr("spec.model.config.nLayer: is 12, and n_layer is 2 in "));
  job.spec.model.config.n_head = 2;
  EXPECT_THAT(CheckInitialModel(job, folder_ / "hf").message(), HasSubstr("spec.model.config.nHead: is 2, and n_head is 4 in "));
}

}  // namespace
}  // namespace fusionllm::job
