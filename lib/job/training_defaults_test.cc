#include "lib/job/training_defaults.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/parse.h"
#include "lib/job/warnings.h"
#include "lib/models/gpt2/recipe.h"

namespace fusionllm::job {
namespace {

using ::testing::IsEmpty;

FusionJob Parsed(const std::string& model, const std::vector<std::string>& overrides = {},
                 const std::string& data = "kind: text, path: [a]") {
  const std::string yaml = absl::StrCat("{apiVersion: fusionllm.io/v1alpha1, kind: FusionJob, metadata: {name: t}, spec: {model: {", model,
                                        "}, data: {", data, "}}}");
  const absl::StatusOr<FusionJob> job = ParseFusionJob(yaml, "job.yaml", overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : FusionJob();
}

TEST(TrainingDefaultsTest, PresetsOfGpt2BeginAtTheRatesOfTheirSize) {
  const struct {
    const char* preset;
    double rate;
  } cases[] = {{"tiny", 1e-3}, {"small", 6e-4}, {"medium", 3e-4}, {"large", 2.5e-4}, {"xl", 2e-4}};
  for (const auto& c : cases) {
    const Training training = Parsed(absl::StrCat("family: gpt2, preset: ", c.preset)).spec.training;
    EXPECT_EQ(training.optimizer.learning_rate, c.rate) << c.preset;
    EXPECT_DOUBLE_EQ(training.schedule.min_learning_rate, c.rate / 10) << c.preset;
  }
}

TEST(TrainingDefaultsTest, Gpt2WarmsUpDecaysAndClips) {
  const Training training = Parsed("family: gpt2, preset: tiny").spec.training;
  EXPECT_EQ(training.optimizer.beta1, 0.9);
  EXPECT_EQ(training.optimizer.beta2, 0.95);
  EXPECT_EQ(training.optimizer.weight_decay, 0.1);
  EXPECT_EQ(training.gradient_clip_norm, 1.0);
  EXPECT_EQ(training.schedule.name, ScheduleName::kCosine);
  EXPECT_EQ(training.schedule.warmup_steps, 25);  // of 100
  EXPECT_EQ(training.seed, 1337);
}

TEST(TrainingDefaultsTest, SizesFollowTheOverridesOfThePreset) {
  const models::TrainingRecipe& recipe = models::Gpt2Recipe();
  EXPECT_EQ(Parsed("family: gpt2, preset: tiny, config: {nLayer: 12, nHead: 12, nEmbd: 768}").spec.training.optimizer.learning_rate, 6e-4);
  EXPECT_EQ(recipe.LearningRate(models::TrainingRecipe::BlockWeights(96, 12288)), 0.6e-4);
  EXPECT_EQ(recipe.LearningRate(models::TrainingRecipe::BlockWeights(1, 1)), 1e-3);
}

TEST(TrainingDefaultsTest, WarmUpFitsRunsOfEveryLength) {
  const models::TrainingRecipe& recipe = models::Gpt2Recipe();
  for (const int64_t steps : {0, 1, 2, 3}) EXPECT_EQ(recipe.WarmupSteps(steps), 0) << steps;
  EXPECT_EQ(recipe.WarmupSteps(20), 5);
  EXPECT_EQ(recipe.WarmupSteps(400), 100);
  EXPECT_EQ(recipe.WarmupSteps(1000), 100) << "and not a 20th";
  EXPECT_EQ(recipe.WarmupSteps(10'000), 500);
  EXPECT_EQ(recipe.WarmupSteps(1'000'000), 2000);
  for (const int64_t steps : {0, 1, 2, 5, 19, 20, 21, 100, 100'000}) {
    FusionJob job = Parsed("family: gpt2, preset: tiny", {absl::StrCat("spec.training.steps=", steps)});
    job.spec.checkpoint.emplace();
    EXPECT_THAT(Warnings(job), IsEmpty()) << steps;
  }
}

TEST(TrainingDefaultsTest, WhatTheJobSaysWinsFieldByField) {
  const Training training =
      Parsed("family: gpt2, preset: small",
             {"spec.training.optimizer.learningRate=1.0e-3", "spec.training.schedule.warmupSteps=0", "spec.training.gradientClipNorm=0"})
          .spec.training;
  EXPECT_EQ(training.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(training.optimizer.beta2, 0.95);
  EXPECT_EQ(training.schedule.warmup_steps, 0);
  EXPECT_EQ(training.schedule.min_learning_rate, 1e-4);
  EXPECT_EQ(training.gradient_clip_norm, 0);
  const Training old =
      Parsed("family: gpt2, preset: small",
             {"spec.training.optimizer={learningRate: 1.0e-3, beta2: 0.999, weightDecay: 0.01}",
              "spec.training.schedule={name: constant, warmupSteps: 0, minLearningRate: 0}", "spec.training.gradientClipNorm=0"})
          .spec.training;
  EXPECT_EQ(old, Training());
}

TEST(TrainingDefaultsTest, AConstantScheduleIsConstant) {
  const Training training = Parsed("family: gpt2, preset: tiny", {"spec.training.schedule.name=constant"}).spec.training;
  EXPECT_EQ(training.schedule.min_learning_rate, 0);
  EXPECT_EQ(training.schedule.warmup_steps, 0);
}

TEST(TrainingDefaultsTest, FineTuningIsGentle) {
  for (const char* preset : {"tiny", "xl"}) {
    EXPECT_EQ(Parsed(absl::StrCat("family: gpt2, preset: ", preset, ", init: {from: hf}")).spec.training.optimizer.learning_rate, 5e-5);
  }
}

TEST(TrainingDefaultsTest, OtherFamiliesAndSgdKeepTheirDefaults) {
  EXPECT_EQ(Parsed("family: resnet", {}, "kind: shapes").spec.training, Training());
  EXPECT_EQ(Parsed("family: mlp, config: {layers: [3072, 10]}", {}, "kind: shapes").spec.training, Training());
  Training sgd;
  sgd.optimizer.name = OptimizerName::kSgd;
  sgd.optimizer.weight_decay = 0;
  EXPECT_EQ(Parsed("family: gpt2, preset: tiny", {"spec.training.optimizer.name=sgd"}).spec.training, sgd);
}

TEST(TrainingDefaultsTest, APrintedJobKeepsWhatWasFilledIn) {
  const FusionJob job = Parsed("family: gpt2, preset: medium");
  const absl::StatusOr<FusionJob> again = ParseFusionJob(ToYaml(job), "printed.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, job);
}

TEST(TrainingDefaultsTest, TheSentenceSaysValuesAndWhetherTheyAreDefaults) {
  EXPECT_EQ(TrainingSentence(Parsed("family: gpt2, preset: small", {"spec.training.steps=400"})),
            "adamw, learning rate 6e-4, warm-up 100 steps, cosine to 6e-5, weight decay 0.1, clip 1 (the defaults for gpt2 small)");
  EXPECT_EQ(TrainingSentence(Parsed("family: gpt2, preset: tiny, config: {nLayer: 2}",
                                    {"spec.training.optimizer.learningRate=2.5e-3", "spec.training.schedule={name: constant}"})),
            "adamw, learning rate 2.5e-3, constant, weight decay 0.1, clip 1 (other values are the defaults for gpt2 of 2 layers, width "
            "128; the job sets "
            "learningRate, schedule)");
  EXPECT_EQ(
      TrainingSentence(Parsed("family: mlp, config: {layers: [192, 10]}", {"spec.training.optimizer={name: sgd, learningRate: 0.05}"},
                              "kind: shapes, shapes: {imageSize: 8}")),
      "sgd, learning rate 0.05, constant, weight decay 0, no clipping (other values are the defaults for mlp; the job sets learningRate)");
  EXPECT_EQ(TrainingSentence(
                Parsed("family: gpt2, preset: small", {"spec.training.steps=400", "spec.training.optimizer.learningRate=0.0009999"})),
            "adamw, learning rate 1e-3, warm-up 100 steps, cosine to 1e-4, weight decay 0.1, clip 1 (other values are the defaults for "
            "gpt2 small; "
            "the job sets learningRate)")
      << "the schedule ends at a tenth of whatever the rate is";
}

}  // namespace
}  // namespace fusionllm::job
