#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/differences.h"
#include "lib/job/parse.h"

namespace fusionllm::job {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

FusionJob Job(const std::string& spec) {
  const auto job =
      ParseFusionJob(absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n", spec), "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(FusionJob{});
}

constexpr char kText[] = "  data: {kind: text, path: [a]}\n";

TEST(JobDifferencesTest, FieldsAreNamedByPathWithBothValues) {
  const FusionJob from =
      Job(absl::StrCat("  model: {family: gpt2}\n", kText, "  training: {steps: 200, optimizer: {learningRate: 0.1}}\n"));
  const FusionJob to = Job(absl::StrCat("  model: {family: gpt2}\n", kText,
                                        "  training: {steps: 400, optimizer: {name: sgd, learningRate: 0.1}}\n  checkpoint: {keep: 2}\n"));
  EXPECT_THAT(Differences(from, from), IsEmpty());
  const auto differences = Differences(from, to);
  EXPECT_THAT(differences, ::testing::Contains(FieldDifference{"spec.training.steps", "200", "400"}));
  EXPECT_THAT(differences, ::testing::Contains(FieldDifference{"spec.training.optimizer.name", "adamw", "sgd"}));
  EXPECT_THAT(differences, ::testing::Contains(FieldDifference{"spec.training.optimizer.beta1", "0.9", "none"}));
  EXPECT_THAT(differences, ::testing::Contains(FieldDifference{"spec.checkpoint.keep", "none", "2"}));
  EXPECT_THAT(ArchitectureDifferences(differences), IsEmpty());
  EXPECT_EQ(ToString(differences, 1), absl::StrCat("spec.training.steps 200 -> 400 and ", differences.size() - 1, " more"));
}

TEST(JobDifferencesTest, AModelIsComparedByItsSizes) {
  const std::string data = absl::StrCat(kText, "  training: {sequenceLength: 64}\n");
  const FusionJob preset = Job("  model: {family: gpt2, preset: tiny}\n" + data);
  const FusionJob sizes =
      Job("  model: {family: gpt2, preset: xl, config: {nLayer: 4, nHead: 4, nEmbd: 128, vocabSize: 256, blockSize: 64}}\n" + data);
  EXPECT_THAT(Differences(preset, sizes), IsEmpty());
  const FusionJob other = Job("  model: {family: gpt2, preset: tiny, config: {nLayer: 2}, init: {seed: 5}}\n" + data);
  EXPECT_THAT(ArchitectureDifferences(Differences(preset, other)), ElementsAre(FieldDifference{"spec.model.config.nLayer", "4", "2"}));
  // Positions follow the sequence length where they are not written down.
  const FusionJob longer = Job(absl::StrCat("  model: {family: gpt2, preset: tiny}\n", kText, "  training: {sequenceLength: 128}\n"));
  EXPECT_THAT(ArchitectureDifferences(Differences(preset, longer)),
              ElementsAre(FieldDifference{"spec.model.config.blockSize", "64", "128"}));
}

TEST(JobDifferencesTest, ElementsOfListsAreNamedByTheirIndex) {
  const std::string model = absl::StrCat("  model: {family: gpt2, preset: tiny}\n", kText);
  const FusionJob from = Job(model + "  strategy: {pins: [{ops: 'a*', device: one}, {ops: 'b*', device: two}]}\n");
  const FusionJob to = Job(model + "  strategy: {pins: [{ops: 'a*', device: one}, {ops: 'b*', device: three}], exclude: [x]}\n");
  EXPECT_THAT(Differences(from, to), ElementsAre(FieldDifference{"spec.strategy.pins[1].device", "two", "three"},
                                                 FieldDifference{"spec.strategy.exclude", "none", "[\"x\"]"}));
}

}  // namespace
}  // namespace fusionllm::job
