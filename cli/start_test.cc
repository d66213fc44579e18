// fusionctl run: what it begins with, a checkpoint of its folder or spec.model.init.from, must be of the job's model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "cli/testing/fusionctl_test.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class StartTest : public FusionctlTest {
 protected:
  StartTest() { Write("text.txt", std::string(400, 'x')); }

  // Of everything below a folder but logs: name and content.
  std::set<std::pair<std::string, std::string>> Files(const std::string& folder) const {
    std::set<std::pair<std::string, std::string>> files;
    for (const auto& entry : fs::recursive_directory_iterator(Path(folder))) {
      const std::string name = entry.path().string();
      if (entry.is_regular_file() && name.find("/logs/") == std::string::npos && name.find("/security/") == std::string::npos) {
        files.emplace(name, base::ReadWholeFile(name));
      }
    }
    return files;
  }

  static constexpr char kRun[] = "run job.yaml --format json --output out --set 'spec.checkpoint={path: kept, everySteps: 1}'";
};

TEST_F(StartTest, AnotherArchitectureIsRefusedByFieldAndNothingIsTouched) {
  const std::string run = kRun;
  ASSERT_EQ(Run(run).code, 0);
  const auto before = Files("out");
  const Outcome layers = Run(run + " --set spec.model.config.nLayer=1 --set spec.training.steps=4");
  EXPECT_EQ(layers.code, 2) << layers.out;
  EXPECT_THAT(layers.err, AllOf(HasSubstr("out/kept/step-000002 is of another model"), HasSubstr("spec.model.config.nLayer 2 -> 1"),
                                HasSubstr("12 tensors that the model does not have: transformer.h.1."), HasSubstr("--fresh"),
                                HasSubstr("another --output"), HasSubstr("spec.checkpoint.resume: never")));
  // Heads and activations leave no trace in the parameters.
  const Outcome heads = Run(run + " --set spec.model.config.nHead=4 --set spec.training.steps=4");
  EXPECT_EQ(heads.code, 2) << heads.out;
  EXPECT_THAT(heads.err, AllOf(HasSubstr("spec.model.config.nHead 2 -> 4;"), Not(HasSubstr("tensor"))));
  EXPECT_EQ(Files("out"), before);

  const Outcome other = Run(run +
                            " --set spec.training.steps=4 --set spec.training.globalBatchSize=8 "
                            "--set spec.training.optimizer.learningRate=0.01 --set spec.training.sequenceLength=8");
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.out, AllOf(HasSubstr("JobChanged"), HasSubstr("spec.training.globalBatchSize 4 -> 8"),
                               HasSubstr("spec.training.optimizer.learningRate 0.001 -> 0.01"), HasSubstr("out/kept/step-000004")));
  EXPECT_EQ(Run(run + " --set spec.model.config.nLayer=1 --fresh").code, 0);
}

TEST_F(StartTest, ADryRunRefusesAnotherArchitectureInTheSameWordsAndOnlyReads) {
  const std::string run = kRun;
  ASSERT_EQ(Run(run).code, 0);
  const auto before = Files("out");
  for (const std::string other : {" --set spec.model.config.nLayer=1 --set spec.training.steps=4", " --set spec.training.steps=1",
                                  " --set spec.model.config.nLayer=1 --set spec.checkpoint.resume=out/kept/step-000001",
                                  " --set spec.checkpoint.resume=nothere/step-000005"}) {
    const Outcome dry = Run(absl::StrCat(run, other, " --dry-run")), real = Run(run + other);
    EXPECT_EQ(dry.code, 2) << other << dry.out;
    EXPECT_EQ(dry.code, real.code) << other;
    EXPECT_THAT(real.err, HasSubstr(dry.err.substr(sizeof "fusionctl: " - 1))) << other;
    EXPECT_EQ(dry.out, "") << "no plan is shown";
  }
  const Outcome nowhere = Run("run job.yaml --set spec.checkpoint.resume=nothere/step-000005");
  EXPECT_THAT(nowhere.err,
              AllOf(HasSubstr(absl::StrCat("spec.checkpoint.resume: checkpoint ", Path("nothere/step-000005"), " does not exist\n")),
                    Not(HasSubstr("this is a new run")), Not(HasSubstr("training: "))));
  EXPECT_EQ(nowhere.code, 2);
  const Outcome good = Run(run + " --set spec.training.steps=4 --dry-run");
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_THAT(good.err, AllOf(HasSubstr("it would go on from "), HasSubstr("out/kept/step-000002, after step 2")));
  EXPECT_EQ(Run(run + " --set spec.model.config.nLayer=1 --fresh --dry-run").code, 0);
  EXPECT_EQ(Run("run job.yaml --set spec.model.config.nLayer=1 --dry-run").code, 0) << "it has a folder of its own";
  EXPECT_EQ(Files("out"), before);
}

TEST_F(StartTest, ADryRunWithoutAnOutputFolderTakesEveryPlaceOfCheckpoints) {
  ASSERT_EQ(Run(kRun).code, 0);
  const std::string dry = "run job.yaml --dry-run --set spec.training.steps=4 ";
  for (const std::string& checkpoint :
       {absl::StrCat("path: ", Path("elsewhere")), std::string("path: checkpoints/, resume: never"),
        absl::StrCat("path: ", Path("elsewhere"), ", resume: never"), std::string("path: kept, resume: out/kept/latest")}) {
    const Outcome outcome = Run(absl::StrCat(dry, "--set 'spec.checkpoint={", checkpoint, "}'"));
    EXPECT_EQ(outcome.code, 0) << checkpoint << "\n" << outcome.err;
    EXPECT_EQ(absl::StrContains(outcome.err, "it would go on from "), absl::StrContains(checkpoint, "latest")) << outcome.err;
  }
  EXPECT_FALSE(fs::exists(Path("elsewhere")));
}

TEST_F(StartTest, ADryRunRefusesAnOutputFolderThatCannotBeMadeInTheSameWords) {
  Write("afile", "");
  const std::string run = "run job.yaml --output afile/below";
  const Outcome dry = Run(run + " --dry-run"), real = Run(run);
  EXPECT_EQ(dry.code, 2);
  EXPECT_THAT(real.err, ::testing::EndsWith(dry.err));
  EXPECT_EQ(dry.code, real.code);
  EXPECT_EQ(Run("run job.yaml --output a/folder/far/below --dry-run").code, 0);
  EXPECT_FALSE(fs::exists(Path("a")));
}

TEST_F(StartTest, ARunThatIsDoneKeepsTheJobItTrainedWith) {
  const std::string run = "run job.yaml --output out --set 'spec.checkpoint={path: kept, everySteps: 1}'";
  ASSERT_EQ(Run(run).code, 0);
  const auto job = [&] { return base::ReadWholeFile(Path("out/job.yaml")); };
  const std::string before = job();
  const Outcome again = Run(run + " --set spec.training.optimizer.learningRate=0.5");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("done already: an earlier start made all 2 steps, and nothing was left to train, so what has changed in "
                                   "the job had no effect"));
  EXPECT_EQ(job(), before);
  EXPECT_THAT(Run(run).out, AllOf(HasSubstr("done already"), Not(HasSubstr("no effect"))));
  ASSERT_EQ(Run(run + " --set spec.training.optimizer.learningRate=0.5 --set spec.training.steps=3").code, 0);
  EXPECT_THAT(job(), HasSubstr("learningRate: 0.5"));
}

TEST_F(StartTest, AStartThatSaysNothingOfItsHeadsIsWarnedOf) {
  ASSERT_EQ(Run(kRun).code, 0);
  EXPECT_THAT(Run("checkpoint export out/kept/latest lone.safetensors").out, HasSubstr("no config.json is written beside it"));
  const std::string dry = "run job.yaml --dry-run --set spec.model.init.from=";
  EXPECT_THAT(Run(dry + "lone.safetensors").err,
              HasSubstr("lone.safetensors says how many heads its model has (a config.json would), so "));
  EXPECT_THAT(Run(dry + "out/kept/latest").err, Not(HasSubstr("heads"))) << "its manifest says it";
  ASSERT_EQ(Run("checkpoint export out/kept/latest hf/").code, 0);
  EXPECT_THAT(Run(dry + "hf").err, Not(HasSubstr("heads")));
}

TEST_F(StartTest, AStartWithALayerTheJobDoesNotHaveIsRefused) {
  ASSERT_EQ(Run(kRun).code, 0);
  ASSERT_EQ(Run("checkpoint export out/kept/latest start.safetensors").code, 0);
  EXPECT_FALSE(fs::exists(Path("config.json"))) << "transformers would not look for such a file";
  const std::string run = "run job.yaml --output new --set spec.model.config.nLayer=1 --set spec.model.init.from=start.safetensors";
  const Outcome refused = Run(run);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("spec.model.init.from: "), HasSubstr("start.safetensors: it is of another model"),
                                 HasSubstr("spec.model.config.nLayer 2 -> 1"), HasSubstr("spec.model.init.skip: ['transformer.h.1.*']")));
  const Outcome dry = Run(run + " --dry-run");
  EXPECT_EQ(dry.code, 2);
  EXPECT_EQ(dry.err, refused.err);
  EXPECT_FALSE(fs::exists(Path("new")));
  EXPECT_EQ(Run(run + " --set \"spec.model.init.ignore=['transformer.h.1.*']\"").code, 0);
  EXPECT_EQ(Run(run + " --fresh --set \"spec.model.init.skip=['transformer.h.1.*']\"").code, 0);
}

TEST_F(StartTest, AFolderForTransformersSaysItsSizesItself) {
  ASSERT_EQ(Run(kRun).code, 0);
  const Outcome exported = Run("checkpoint export out/kept/latest hf/");
  ASSERT_EQ(exported.code, 0) << exported.err;
  const std::string config = base::ReadWholeFile(Path("hf/config.json"));
  EXPECT_THAT(config, AllOf(HasSubstr("\"model_type\": \"gpt2\""), HasSubstr("[\n    \"GPT2LMHeadModel\"\n  ]"),
                            HasSubstr("\"n_layer\": 2"), HasSubstr("\"n_positions\": 32")));
  EXPECT_EQ(Run("checkpoint export out/kept/step-000001 hf").code, 0) << "of the same sizes";

  const std::string own = Run("--format json eval out/kept/latest --data text.txt --sequence-length 16").out;
  ASSERT_EQ(Run("checkpoint export out/kept/latest hf").code, 0);
  EXPECT_EQ(Run("--format json eval hf --data text.txt --sequence-length 16").out, own);
  EXPECT_THAT(own, HasSubstr("\"windows\":24"));

  const std::string bare = "run job.yaml --output new --set 'spec.model={family: gpt2, init: {from: hf}}'";
  const Outcome run = Run(bare);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(base::ReadWholeFile(Path("new/job.yaml")), AllOf(HasSubstr("nHead: 2\n"), HasSubstr("blockSize: 32\n")));
  const Outcome heads = Run("run job.yaml --output heads --set spec.model.config.nHead=4 --set spec.model.init.from=hf");
  EXPECT_EQ(heads.code, 2);
  EXPECT_THAT(heads.err, AllOf(HasSubstr("--set spec.model.config.nHead: is 4, and n_head is 2 in "), HasSubstr("hf/config.json")));
  const Outcome checkpoint = Run("run job.yaml --output heads --set spec.model.config.nHead=4 --set spec.model.init.from=out/kept/latest");
  EXPECT_EQ(checkpoint.code, 2);
  EXPECT_THAT(checkpoint.err, HasSubstr("is 4, and nHead is 2 in "));
  EXPECT_THAT(Run("eval hf --data text.txt --job job.yaml --set spec.model.config.nHead=4").err, HasSubstr("n_head is 2 in "));

  Write("hf/config.json", "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 32, \"vocab_size\": 1000, \"n_head\": 2}");
  const Outcome words = Run("eval hf --data text.txt");
  EXPECT_EQ(words.code, 2);
  EXPECT_THAT(words.err, AllOf(HasSubstr("a vocabulary of 1000"), HasSubstr("token ids")));
  EXPECT_THAT(Run("checkpoint export out/kept/latest hf").err, HasSubstr("hf/config.json is of another model"));
}

TEST_F(StartTest, AnExportIsAFolderUnlessItsNameIsThatOfAFile) {
  ASSERT_EQ(Run(kRun).code, 0);
  const Outcome folder = Run("checkpoint export out/kept/latest hf-1.5");
  EXPECT_EQ(folder.code, 0) << folder.err;
  EXPECT_TRUE(fs::exists(Path("hf-1.5/model.safetensors")) && fs::exists(Path("hf-1.5/config.json")));
  const Outcome other = Run("checkpoint export out/kept/latest pytorch_model.bin");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("name a file pytorch_model.safetensors, or a folder"));
  Write("there", "x");
  const Outcome there = Run("checkpoint export out/kept/latest there");
  EXPECT_EQ(there.code, 2);
  EXPECT_THAT(there.err, HasSubstr("OUT there is no folder"));
  EXPECT_EQ(base::ReadWholeFile(Path("there")), "x");
}

TEST_F(StartTest, EvalOfAModelWithoutDataSaysWhatToGive) {
  ASSERT_EQ(Run(kRun).code, 0);
  ASSERT_EQ(Run("checkpoint export out/kept/latest hf").code, 0);
  const Outcome folder = Run("eval hf");
  EXPECT_EQ(folder.code, 2);
  EXPECT_THAT(folder.err, AllOf(HasSubstr("--data is required"), HasSubstr("fusionctl eval hf --data FILE")));
  ASSERT_EQ(Run("checkpoint export out/kept/latest bare.safetensors").code, 0);
  EXPECT_THAT(Run("eval bare.safetensors").err, AllOf(HasSubstr("--job"), HasSubstr("--data FILE")));
  Write("hf/config.json", "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 32, \"vocab_size\": 1000, \"n_head\": 2}");
  EXPECT_THAT(Run("eval hf").err,
              AllOf(HasSubstr("--data is required"), HasSubstr("docs/tasks/prepare-data.md"), HasSubstr("--data FILE.bin")));
}

TEST_F(StartTest, AnExportOfAnotherModelThanGpt2SaysThatItHasNoConfig) {
  ASSERT_EQ(Run("run job.yaml --output mlp --set 'spec.model={family: mlp, config: {layers: [192, 8, 10]}}' "
                "--set 'spec.data={kind: shapes, shapes: {imageSize: 8}}' --set 'spec.checkpoint={path: kept}'")
                .code,
            0);
  const Outcome exported = Run("checkpoint export mlp/kept/latest hf/");
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("no config.json is written"));
  EXPECT_FALSE(fs::exists(Path("hf/config.json")));
  EXPECT_THAT(Run("checkpoint export mlp/kept/latest mlp.safetensors").out, Not(HasSubstr("config.json"))) << "nobody expects one";
}

// As with a checkpoint of a release without these fields (job_data_rules_test).
TEST_F(StartTest, ARunThatGoesOnKeepsWhatWasHeldOut) {
  const std::string run = std::string(kRun) + " --set 'spec.data.validation={fraction: 0.25}'";
  const Outcome begun = Run(run);
  ASSERT_EQ(begun.code, 0) << begun.err;
  EXPECT_THAT(begun.out, AllOf(HasSubstr("DataOpened"), HasSubstr("1 file, 400 B: "),
                               ContainsRegex("18 windows of 16 tokens to train on .[0-9]+ steps of [0-9]+ are [0-9.]+ epochs."),
                               HasSubstr("6 held out for validation, drawn evenly over all of the data")));
  EXPECT_THAT(Run(run + " --set spec.training.steps=3").out, AllOf(HasSubstr("drawn evenly"), Not(HasSubstr("DataRulesKept"))));
  const std::string end = run + " --fresh --set 'spec.data.validation={fraction: 0.25, split: end}'";
  EXPECT_THAT(Run(end).out, HasSubstr("the last ones of the data"));
  const Outcome kept = Run(run + " --set spec.training.steps=4");
  EXPECT_THAT(kept.out, AllOf(HasSubstr("DataRulesKept"), HasSubstr("spec.data.validation.split: end"),
                              HasSubstr("6 held out for validation, the last ones of the data"), Not(HasSubstr("none -> "))));
  EXPECT_THAT(Run(run + " --set spec.training.steps=5").out, HasSubstr("the last ones of the data")) << "also from its own checkpoint";
}

TEST_F(StartTest, WhatIsNoTextIsSkippedAndSaidOnce) {
  fs::create_directories(Path("d"));
  Write("d/a.txt", std::string(200, 'x'));
  Write("d/b.gz", "\x1f\x8b...");
  const Outcome run = Run("run job.yaml --format json --output new --set spec.data.path=[d]");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("1 file skipped: b.gz (it is compressed (gzip))"), HasSubstr("\"files\":[{\"bytes\":200,\"path\":")));
  EXPECT_EQ(run.out.find("DataOpened"), run.out.rfind("DataOpened"));
  const Outcome named = Run("run job.yaml --output new --set spec.data.path=[d/b.gz]");
  EXPECT_EQ(named.code, 2);
  EXPECT_THAT(named.err, AllOf(HasSubstr("d/b.gz is not UTF-8 text"), HasSubstr("spec.data.encoding: bytes")));
}

TEST_F(StartTest, ValidationDataThatAreTrainedOnAreWarnedOf) {
  fs::create_directories(Path("d"));
  for (const char* name : {"d/a.txt", "d/b.txt", "d/c.txt", "d/d.txt", "held.txt"}) Write(name, std::string(200, 'x'));
  fs::create_symlink(Path("d/b.txt"), Path("link.txt"));
  const std::string data = " --set 'spec.data.path=[d]' --set 'spec.data.validation={path: [link.txt, held.txt]}'";
  constexpr char kWarning[] =
      "warning: --set spec.data.validation: spec.data.validation.path: link.txt is also trained on (spec.data.path)";
  EXPECT_THAT(Run(std::string(kRun) + " --dry-run" + data).err,
              AllOf(HasSubstr(kWarning), HasSubstr("dry run: data: 4 files, 800 B: a.txt")));
  EXPECT_THAT(Run("plan job.yaml" + data).err, HasSubstr(kWarning));
  const Outcome run = Run(std::string(kRun) + data);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr(kWarning));
  EXPECT_THAT(run.out, AllOf(HasSubstr("4 files, 800 B: a.txt, b.txt, c.txt and 1 more, in " + Path("d") + "; "),
                             HasSubstr("link.txt is trained on, too")));
  EXPECT_THAT(
      Run(std::string(kRun) + " --fresh --set 'spec.data={kind: text, path: [held.txt, d, held.txt], validation: {fraction: 0.2}}'").err,
      HasSubstr(
          "warning: --set spec.data: spec.data.path: held.txt is listed more than once, so it counts as often, and what is held out for "
          "validation is trained on, too"));
  EXPECT_THAT(Run(std::string(kRun) + " --fresh").err, Not(HasSubstr("warning: spec.data")));
}

}  // namespace
}  // namespace fusionllm::cli
