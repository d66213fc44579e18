#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/model_config.h"
#include "lib/job/parse.h"

namespace fusionllm::job {
namespace {

using models::Gpt2Settings;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Spec GptSpec(const char* preset) {
  Spec spec;
  spec.model.family = models::FamilyName::kGpt2;
  spec.model.preset = preset;
  spec.training.sequence_length = 128;
  return spec;
}

Gpt2Settings Gpt(const Spec& spec) {
  const absl::StatusOr<ResolvedModel> model = ResolveModel(spec);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  return model->sizes.settings;
}

TEST(ModelConfigTest, GptPresetsHaveThePublishedSizes) {
  const struct {
    const char* name;
    Gpt2Settings config;
  } presets[] = {{"tiny", {4, 4, 128, 256, 128, true}},
                 {"small", {12, 12, 768, 50257, 128, true}},
                 {"medium", {24, 16, 1024, 50257, 128, true}},
                 {"large", {36, 20, 1280, 50257, 128, true}},
                 {"xl", {48, 25, 1600, 50257, 128, true}}};
  for (const auto& preset : presets) EXPECT_TRUE(Gpt(GptSpec(preset.name)) == preset.config) << preset.name;
}

TEST(ModelConfigTest, OverridesReplaceThePresetFieldByField) {
  Spec spec = GptSpec("tiny");
  spec.model.config.n_layer = 6;
  spec.model.config.block_size = 1024;
  spec.model.config.tie_weights = false;
  EXPECT_TRUE(Gpt(spec) == (Gpt2Settings{6, 4, 128, 256, 1024, false}));
}

TEST(ModelConfigTest, WithoutAPresetGptIsSmallAndResnetIs18) {
  Spec spec = GptSpec("tiny");
  spec.model.preset.reset();
  EXPECT_EQ(Gpt(spec).n_embd, 768);
  spec.model.family = models::FamilyName::kResnet;
  spec.data.kind = DataKind::kCifar10;
  const models::ModelSizes resnet = ResolveModel(spec)->sizes;
  EXPECT_EQ(resnet.preset, "18");
  EXPECT_TRUE(static_cast<const models::ResNetSettings&>(resnet.settings) == (models::ResNetSettings{models::Stem::kCifar, 10, 32}));
}

TEST(ModelConfigTest, ResnetDepthsAreTheFivePublishedOnes) {
  Spec spec;
  spec.model.family = models::FamilyName::kResnet;
  spec.data.kind = DataKind::kShapes;
  for (const char* depth : {"18", "34", "50", "101", "152"}) {
    spec.model.preset = depth;
    EXPECT_EQ(ResolveModel(spec)->sizes.preset, depth);
  }
  spec.model.preset = "20";
  EXPECT_THAT(std::string(ResolveModel(spec).status().message()), HasSubstr("must be one of 18, 34, 50, 101, 152 for resnet, got \"20\""));
  spec.model.preset = "34";
  spec.model.config.num_classes = 4;
  EXPECT_THAT(std::string(ResolveModel(spec).status().message()), HasSubstr("spec.model.config.numClasses: must be at least"));
}

TEST(ModelConfigTest, ResnetImagesAreAsLargeAsThoseOfTheData) {
  Spec spec;
  spec.model.family = models::FamilyName::kResnet;
  const auto size = [&] { return ResolveModel(spec)->sizes.settings.image_size; };
  spec.data.kind = DataKind::kShapes;
  spec.data.shapes.image_size = 16;
  EXPECT_EQ(size(), 16);
  spec.data.kind = DataKind::kCifar10;
  EXPECT_EQ(size(), 32);
  spec.data.kind = DataKind::kIdx;
  EXPECT_EQ(size(), 28);
  spec.model.config.image_size = 20;
  EXPECT_EQ(size(), 20);
  spec.data.kind = DataKind::kCifar10;
  EXPECT_EQ(std::string(ResolveModel(spec).status().message()),
            "spec.model.config.imageSize: must be 32, as the images of spec.data are, got 20");
}

TEST(ModelConfigTest, AnMlpFitsTheImagesMadeUpForIt) {
  Spec spec;
  spec.model.family = models::FamilyName::kMlp;
  spec.data.kind = DataKind::kShapes;
  spec.data.shapes.image_size = 16;
  spec.model.config.layers = {768, 64, 10};
  EXPECT_THAT(ResolveModel(spec)->sizes.settings.layers, ElementsAre(768, 64, 10));
  spec.model.config.layers = {784, 64, 9};
  EXPECT_EQ(std::string(ResolveModel(spec).status().message()),
            "spec.model.config.layers: the first width must be the values of an image, 3 x 16 x 16 = 768, got 784\n"
            "spec.model.config.layers: the last width must be at least spec.data.shapes.numClasses, which is 10, got 9");
  spec.model.config.layers = {};
  EXPECT_EQ(std::string(ResolveModel(spec).status().message()), "spec.model.config.layers: required for family mlp");
}

TEST(ModelConfigTest, AGraphIsOfNoFamily) {
  const absl::StatusOr<FusionJob> job = ParseFusionJob(
      "{apiVersion: fusionllm.io/v1alpha1, kind: FusionJob, metadata: {name: t},"
      " spec: {model: {graph: {file: model.dag}}, data: {kind: shapes}}}",
      "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<ResolvedModel> model = ResolveModel(job->spec);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, nullptr);
  EXPECT_EQ(job->spec.model.graph->file, "model.dag");
}

}  // namespace
}  // namespace fusionllm::job
