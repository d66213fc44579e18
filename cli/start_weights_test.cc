// fusionctl run and eval: a file of weights is read as it was meant, what differs is reported at once before anything starts, and only what
// is needed is demanded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/testing/fusionctl_test.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/reader.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class StartWeightsTest : public FusionctlTest {
 protected:
  StartWeightsTest() { Write("text.txt", std::string(400, 'x')); }

  // Trained for two steps, and written to `file`.
  void Train(const std::string& file, const std::string& options = "") {
    const Outcome trained = Run(absl::StrCat("run job.yaml --output made --set 'spec.checkpoint={path: kept}' ", options));
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Outcome exported = Run(absl::StrCat("checkpoint export made/kept/latest ", file));
    ASSERT_EQ(exported.code, 0) << exported.err;
  }

  // Writes `to` as a copy of `from` with other text in its header, and `data` behind it.
  void Rewrite(const std::string& from, const std::string& to, const std::vector<std::pair<std::string, std::string>>& texts,
               const std::string& data = "") {
    const std::string bytes = base::ReadWholeFile(Path(from));
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    std::string header = absl::StrReplaceAll(bytes.substr(sizeof length, length), texts);
    ASSERT_NE(header, bytes.substr(sizeof length, length));
    const uint64_t rewritten = header.size();
    Write(to,
          std::string(reinterpret_cast<const char*>(&rewritten), sizeof rewritten) + header + bytes.substr(sizeof length + length) + data);
  }
  // With one tensor more, of an unknown type.
  void AddForeign(const std::string& from, const std::string& to) {
    const auto file = checkpoint::SafetensorsFile::Open(Path(from));
    ASSERT_TRUE(file.ok()) << file.status();
    const int64_t end = file->tensors().back().end;
    Rewrite(from, to,
            {{"{\"__metadata__\"", absl::StrCat(R"({"extra.scale":{"dtype":"Q7","shape":[4],"data_offsets":[)", end, ",", end + 3,
                                                R"(],"codec":{"v":[1]}},"__metadata__")")}},
            "abc");
  }
  std::string BytesOf(const std::string& checkpoint, const std::string& tensor) const {
    const auto reader = checkpoint::CheckpointReader::Open(Path(checkpoint));
    EXPECT_TRUE(reader.ok()) << reader.status();
    const checkpoint::StoredTensor& stored = reader->tensors().at(tensor);
    std::string bytes(static_cast<size_t>(stored.entry->bytes()), ' ');
    EXPECT_TRUE(stored.file->ReadBytes(*stored.entry, 0, std::as_writable_bytes(std::span(bytes))).ok());
    return bytes;
  }
};

TEST_F(StartWeightsTest, ATypeThatIsNotKnownStopsOnlyAModelThatNeedsTheTensor) {
  Train("start.safetensors");
  AddForeign("start.safetensors", "foreign.safetensors");
  EXPECT_EQ(Run("checkpoint verify foreign.safetensors").code, 0);
  EXPECT_EQ(Run("checkpoint inspect foreign.safetensors").code, 0);
  EXPECT_EQ(Run("checkpoint export foreign.safetensors again.safetensors").code, 0);
  constexpr char kWarning[] = "1 tensor that the model does not have, left unread: extra.scale";
  for (const std::string run :
       {"run job.yaml --output a --set spec.model.init.from=foreign.safetensors",
        "run job.yaml --dry-run --set spec.model.init.from=again.safetensors", "eval foreign.safetensors --job job.yaml --data text.txt"}) {
    const Outcome outcome = Run(run);
    EXPECT_EQ(outcome.code, 0) << run << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(kWarning)) << run;
  }
  EXPECT_THAT(Run("run job.yaml --dry-run --set 'spec.model.init={from: foreign.safetensors, ignore: [extra.*]}'").err,
              Not(HasSubstr("extra.scale")));

  Rewrite("start.safetensors", "needed.safetensors",
          {{R"("transformer.wpe.weight":{"dtype":"F32")", R"("transformer.wpe.weight":{"dtype":"Q32")"}});
  EXPECT_EQ(Run("checkpoint verify needed.safetensors").code, 0);
  const Outcome needed = Run("run job.yaml --output b --set spec.model.init.from=needed.safetensors");
  EXPECT_EQ(needed.code, 2);
  EXPECT_THAT(needed.err, HasSubstr("1 tensor is Q32, where F32, F16 and BF16 are read: transformer.wpe.weight; convert the file"));
  EXPECT_FALSE(fs::exists(Path("b")));
  Rewrite("start.safetensors", "lower.safetensors",
          {{R"("transformer.wpe.weight":{"dtype":"F32")", R"("transformer.wpe.weight":{"dtype":"f32")"}});
  EXPECT_THAT(Run("run job.yaml --output b --set spec.model.init.from=lower.safetensors").err,
              HasSubstr("transformer.wpe.weight is of a type \"f32\", which safetensors does not have: write F32"));
}

TEST_F(StartWeightsTest, VerifyTellsDamagedFromNotSupported) {
  Train("start.safetensors");
  const std::string whole = base::ReadWholeFile(Path("start.safetensors"));
  Write("cut.safetensors", whole.substr(0, whole.size() - 7));
  Write("zip.safetensors", absl::StrCat("PK\x03\x04", std::string(100, 'x')));
  const Outcome cut = Run("checkpoint verify cut.safetensors"), zip = Run("checkpoint verify zip.safetensors");
  EXPECT_EQ(cut.code, 1);
  EXPECT_THAT(cut.err, HasSubstr("cut off"));
  EXPECT_EQ(zip.code, 2);
  EXPECT_THAT(zip.err, HasSubstr("is a zip archive, such as torch.save writes, and no safetensors file"));
}

TEST_F(StartWeightsTest, AHeadOfItsOwnIsNotReadAsTiedUnlessThatIsSaid) {
  Train("start.safetensors", "--set spec.model.config.tieWeights=false");
  const std::string run = "run job.yaml --output new --set spec.model.init.from=start.safetensors";
  for (const std::string& refuses : {run, run + " --dry-run", std::string("eval start.safetensors --job job.yaml --data text.txt")}) {
    const Outcome refused = Run(refuses);
    EXPECT_EQ(refused.code, 2) << refuses;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("lm_head.weight"), HasSubstr("spec.model.config.tieWeights: false"),
                                   HasSubstr("spec.model.init.skip: ['lm_head.*']"), Not(HasSubstr("measur"))));
  }
  EXPECT_FALSE(fs::exists(Path("new")));
  EXPECT_EQ(Run(run + " --set spec.model.config.tieWeights=false").code, 0);
  EXPECT_EQ(Run(run + " --fresh --set \"spec.model.init.skip=['lm_head.*']\"").code, 0);
}

TEST_F(StartWeightsTest, WhatSkipNamesBeginsAsWithoutAStartAndARunGoesOnWithAllOfIt) {
  Train("start.safetensors");
  const std::string none = " --set spec.training.steps=0 --set 'spec.checkpoint={path: kept}'";
  ASSERT_EQ(Run("run job.yaml --output fresh" + none).code, 0);
  const std::string start = "run job.yaml --output new --set \"spec.model.init={from: start.safetensors, skip: ['transformer.wpe.*']}\"";
  ASSERT_EQ(Run(start + none).code, 0);
  for (const char* tensor : {"transformer.wpe.weight", "transformer.wte.weight"}) {
    const std::string bytes = BytesOf("new/kept/step-000000", tensor);
    EXPECT_EQ(bytes == BytesOf("fresh/kept/step-000000", tensor), absl::StrContains(tensor, "wpe")) << tensor;
    EXPECT_EQ(bytes == BytesOf("start.safetensors", tensor), absl::StrContains(tensor, "wte")) << tensor;
  }
  const std::string more = " --set spec.training.steps=2 --set 'spec.checkpoint={path: kept}'";
  const Outcome on = Run(start + more);
  ASSERT_EQ(on.code, 0) << on.err;
  EXPECT_THAT(on.out, HasSubstr("step-000002"));
  EXPECT_NE(BytesOf("new/kept/step-000002", "transformer.wpe.weight"), BytesOf("fresh/kept/step-000000", "transformer.wpe.weight"));
  const std::string eval = "--format json eval new/kept/latest --data text.txt";
  EXPECT_EQ(Run(eval).code, 0) << "it has what began fresh";
  const std::string trained = BytesOf("new/kept/step-000002", "transformer.wpe.weight");
  ASSERT_EQ(Run(start + " --set spec.training.steps=3 --set spec.training.optimizer.learningRate=1.0e-30 "
                        "--set 'spec.checkpoint={path: kept}'")
                .code,
            0);
  EXPECT_EQ(BytesOf("new/kept/step-000003", "transformer.wpe.weight"), trained) << "skip is of the start, not of what a run goes on from";
}

TEST_F(StartWeightsTest, AnotherVocabularyIsRefusedAtOnceWithWhatHelps) {
  Train("start.safetensors");
  ASSERT_EQ(Run("checkpoint export made/kept/latest hf").code, 0);
  for (const std::string from : {"start.safetensors", "hf", "made/kept/latest"}) {
    const std::string run = absl::StrCat(
        "run job.yaml --dry-run --set spec.model.config.vocabSize=320 --set spec.model.config.blockSize=48 "
        "--set \"spec.model.init={from: ",
        from);
    const Outcome refused = Run(run + "}\"");
    EXPECT_EQ(refused.code, 2) << from;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("spec.model.config.vocabSize"), HasSubstr("spec.model.config.blockSize"),
                                   HasSubstr("transformer.wte."), HasSubstr("transformer.wpe."), HasSubstr("spec.model.init.skip")))
        << from;
    EXPECT_EQ(refused.out, "");
    const Outcome skipped = Run(run + ", skip: ['transformer.wte.*', 'transformer.wpe.*']}\"");
    EXPECT_EQ(skipped.code, 0) << from << skipped.err;
  }
  const Outcome unmatched = Run("run job.yaml --dry-run --set \"spec.model.init={from: start.safetensors, skip: ['wte.*']}\"");
  EXPECT_EQ(unmatched.code, 2);
  EXPECT_THAT(unmatched.err, HasSubstr("'wte.*' (did you mean '*wte.*'?)"));
  EXPECT_THAT(Run("run job.yaml --dry-run --set \"spec.model.init={skip: ['transformer.wte.*']}\"").err,
              HasSubstr("spec.model.init.skip: there is no spec.model.init.from"));
}

TEST_F(StartWeightsTest, AResNetWithoutCountersStartsAndOneOfOtherClassesTakesANewHead) {
  const std::string resnet =
      "--set 'spec.model={family: resnet, preset: \"18\", config: {stem: cifar, numClasses: 10}}' "
      "--set 'spec.data={kind: shapes, shapes: {samples: 16, imageSize: 8}}' --set spec.training.globalBatchSize=2 "
      "--set spec.training.steps=1 ";
  Train("resnet.safetensors", resnet);
  Rewrite("resnet.safetensors", "old.safetensors", {{".num_batches_tracked", ".was_not_there_yet"}});
  const std::string run = "run job.yaml --output new --set 'spec.checkpoint={path: kept}' " + resnet;
  const Outcome old = Run(run + "--set spec.model.init.from=old.safetensors");
  EXPECT_EQ(old.code, 0) << old.err;
  EXPECT_EQ(BytesOf("new/kept/latest", "bn1.num_batches_tracked"), BytesOf("resnet.safetensors", "bn1.num_batches_tracked"))
      << "one step each, from 0";
  EXPECT_EQ(Run("eval old.safetensors --job made/job.yaml").code, 0);

  const std::string other = run + "--fresh --set spec.model.config.numClasses=7 --set spec.data.shapes.numClasses=7 ";
  const Outcome refused = Run(other + "--set spec.model.init.from=resnet.safetensors");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("fc.weight is [10, 512], not [7, 512], fc.bias is [10], not [7]"),
                    HasSubstr("spec.model.config.numClasses: 10, or let what differs begin fresh by spec.model.init.skip: ['fc.*']")));
  const Outcome fresh = Run(other + "--set \"spec.model.init={from: resnet.safetensors, skip: ['fc.*']}\"");
  EXPECT_EQ(fresh.code, 0) << fresh.err;
}

TEST_F(StartWeightsTest, ARunThatGoesOnDoesNotAskForItsStartAgain) {
  Train("hf");
  // All sizes come from the start.
  Write("bare.yaml",
        "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: bare}\nspec:\n"
        "  model: {family: gpt2, init: {from: hf}}\n  data: {kind: text, path: [text.txt]}\n"
        "  training: {steps: 2, globalBatchSize: 4, microBatchSize: 2, sequenceLength: 16}\n");
  ASSERT_EQ(Run("run bare.yaml --output r").code, 0);
  fs::rename(Path("hf"), Path("gone"));
  const std::string more = "run bare.yaml --output r --set spec.training.steps=3";
  const Outcome dry = Run(more + " --dry-run");
  EXPECT_EQ(dry.code, 0) << dry.err;
  const Outcome on = Run(more);
  EXPECT_EQ(on.code, 0) << on.err;
  EXPECT_THAT(on.err + on.out, HasSubstr("step 3/3"));
  EXPECT_THAT(Run(more + " --fresh").err, HasSubstr("hf does not exist")) << "a run that begins anew needs it";

  Write("hf/config.json", R"({"model_type": "gpt2", "n_layer": 7, "n_head": 1, "n_embd": 8, "vocab_size": 256, "n_positions": 32})");
  const Outcome other = Run("run bare.yaml --output r --set spec.training.steps=4 --set spec.model.config.nLayer=2");
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(Run("run bare.yaml --output r --set spec.training.steps=5 --set spec.model.config.nLayer=1").err, HasSubstr("nLayer"));
}

}  // namespace
}  // namespace fusionllm::cli
