#include "lib/models/families.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/nearest_name.h"
#include "lib/models/config_json.h"
#include "lib/models/training_recipe.h"

namespace fusionllm::models {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As lib/job/schema.h, as far as tables of fields need it.
struct AnyRule {
  double min = 0, max = 0;
};

class Names {
 public:
  template <class T>
  void Field(absl::string_view name, T&, const AnyRule&, absl::string_view doc) {
    names.emplace_back(name);
    EXPECT_FALSE(doc.empty()) << name;
  }
  std::vector<std::string> names;
};

std::vector<data::DatasetKind> KindsOf(Samples samples) {
  using Kind = data::DatasetKind;
  if (samples == Samples::kTokens) return {Kind::kText, Kind::kTokens};
  return {Kind::kCifar10, Kind::kIdx, Kind::kShapes};
}

// What a job with this preset means, with no findings.
ModelSizes Resolved(const Family& family, const std::optional<std::string>& preset, const ModelSettings& settings = {}) {
  const data::ShapesConfig shapes = {};
  return family.Resolve(
      {.preset = preset,
       .settings = settings,
       .sequence_length = 16,
       .data_kind = KindsOf(family.facts().samples).back(),
       .shapes = shapes},
      [&](auto paths, absl::string_view message) { ADD_FAILURE() << family.name() << ": " << *paths.begin() << ": " << message; });
}

TEST(FamiliesTest, EntriesAgreeWithTheObjects) {
  std::set<std::string> names;
  for (const FamilyEntry& entry : kFamilies) {
    EXPECT_EQ(entry.family().facts().id, entry.id) << entry.name;
    EXPECT_EQ(&FamilyOf(entry.id), &entry.family());
    EXPECT_EQ(entry.family().name(), entry.name);
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
  }
}

TEST(FamiliesTest, FieldsOfTheTableAreThoseOfFamilies) {
  Names table;
  ModelSettings settings;
  Visit(table, settings);
  for (const std::string& name : table.names)
    EXPECT_THAT(OwnersOf(name), ::testing::Not(IsEmpty())) << name << " is of no family's settings";
  for (const Family* family : AllFamilies()) {
    EXPECT_THAT(table.names, ::testing::IsSupersetOf(family->facts().settings))
        << family->name() << ": ModelSettings or its Visit lacks some";
  }
}

TEST(FamiliesTest, PresetsBuildGraphsFromTheirSizesAlone) {
  for (const Family* family : AllFamilies()) {
    const FamilyFacts& facts = family->facts();
    EXPECT_EQ(facts.presets.empty(), !facts.size_field.empty()) << family->name();
    if (facts.presets.empty()) continue;
    EXPECT_THAT(facts.presets, ::testing::Contains(facts.default_preset)) << family->name();
    EXPECT_EQ(Resolved(*family, std::nullopt), Resolved(*family, facts.default_preset));
    const ModelSizes sizes = Resolved(*family, facts.presets.front());
    EXPECT_EQ(Resolved(*family, sizes.preset, sizes.settings), sizes) << family->name() << ": sizes stand for themselves";
    const absl::StatusOr<opdag::Graph> graph = family->Build(sizes, 16);
    EXPECT_TRUE(graph.ok()) << family->name() << ": " << graph.status();
  }
}

TEST(FamiliesTest, TemplatesNameTheirFamilyAndPreset) {
  for (const Family* family : AllFamilies()) {
    for (const data::DatasetKind kind : KindsOf(family->facts().samples)) {
      const JobTemplate lines = family->Template(kind, "");
      EXPECT_THAT(lines.model, HasSubstr(absl::StrCat("    family: ", family->name()))) << data::Name(kind);
      EXPECT_THAT(lines.training, HasSubstr("    steps: ")) << family->name();
      for (const std::string& preset : family->facts().presets) {
        EXPECT_THAT(family->Template(kind, preset).model, HasSubstr(absl::StrCat("    preset: ", preset))) << family->name();
      }
    }
  }
}

TEST(FamiliesTest, StoredFormsNameFieldsOfTheFamily) {
  std::set<std::string> types;
  for (const Family* family : FamiliesWithHuggingFaceFormat()) {
    const HuggingFaceFormat& form = *family->hugging_face_format();
    for (const char* type : form.model_types) EXPECT_TRUE(types.insert(type).second) << type;
    const ModelSizes sizes = Resolved(*family, std::nullopt);
    const absl::StatusOr<opdag::Graph> graph = family->Build(sizes, 16);
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (const StoredSize& size : form.sizes) {
      EXPECT_THAT(family->facts().settings, ::testing::Contains(size.field));
      EXPECT_TRUE((sizes.settings.*size.value).has_value()) << size.field;
      for (const char* module : size.modules) EXPECT_NE(graph->FindParameter(absl::StrCat(module, ".weight")), opdag::kNone) << module;
      if (size.layers == nullptr) continue;
      EXPECT_NE(graph->FindParameter(absl::StrCat(size.layers, "0", form.layer_tensor)), opdag::kNone) << size.layers;
    }
    EXPECT_THAT(family->facts().settings, ::testing::Contains(form.tied_head.field));
    EXPECT_NE(graph->FindParameter(form.tied_head.embedding), opdag::kNone);
    ModelSettings untied;
    untied.*form.tied_head.value = false;
    EXPECT_NE(family->Build(Resolved(*family, std::nullopt, untied), 16)->FindParameter(form.tied_head.head), opdag::kNone);
  }
}

TEST(FamiliesTest, ConfigsThatAreWrittenAreReadBack) {
  for (const Family* family : FamiliesWithHuggingFaceFormat()) {
    ModelSettings settings;
    settings.*family->hugging_face_format()->tied_head.value = false;
    const std::vector<std::string>& presets = family->facts().presets;
    // The smallest, whose sizes are not those that transformers takes for what is left out.
    const std::optional<std::string> preset = presets.empty() ? std::nullopt : std::optional<std::string>(presets.front());
    const ModelSizes sizes = Resolved(*family, preset, settings);
    const auto config = ParseConfigJson(family->FormatConfig(sizes));
    ASSERT_TRUE(config.ok() && config->has_value()) << config.status();
    EXPECT_EQ((*config)->family, family);
    EXPECT_EQ((*config)->sizes, sizes);
    EXPECT_THAT((*config)->problems, IsEmpty());
    EXPECT_THAT((*config)->warnings, IsEmpty());
  }
}

TEST(FamiliesTest, RecipesKnowEveryPreset) {
  for (const Family* family : AllFamilies()) {
    if (family->recipe() == nullptr) continue;
    for (const std::string& preset : family->facts().presets) {
      EXPECT_GT(family->BlockWeights(Resolved(*family, preset)), 0) << family->name() << " " << preset;
    }
  }
}

TEST(FamiliesTest, SynonymsAreFolded) {
  for (const Family* family : AllFamilies()) {
    for (const FieldSynonym& word : family->facts().synonyms) EXPECT_EQ(base::NormalizeName(word.folded), word.folded);
  }
}

TEST(FamiliesTest, TextsListThemAsSentencesDo) {
  EXPECT_EQ(FamiliesText({&Gpt2Family()}), "family gpt2");
  EXPECT_EQ(FamiliesText({&Gpt2Family(), &ResNetFamily()}), "families gpt2 and resnet");
  EXPECT_EQ(FamiliesText({&Gpt2Family(), &ResNetFamily(), &MlpFamily()}), "families gpt2, resnet and mlp");
}

TEST(FamiliesTest, AnUnknownPresetIsReportedWithTheNearest) {
  const std::optional<std::string> preset = "larg";
  const ModelSettings settings = {};
  const data::ShapesConfig shapes = {};
  std::string finding;
  Gpt2Family().Resolve({.preset = preset, .settings = settings, .sequence_length = 16, .shapes = shapes},
                       [&](auto, absl::string_view message) { finding = std::string(message); });
  EXPECT_EQ(finding, "must be one of tiny, small, medium, large, xl for gpt2, got \"larg\"; did you mean large?");
}

TEST(Gpt2FamilyTest, PublishedFilesAreReadByTheNamesOfParameters) {
  const auto file = [](std::set<std::string> names) {
    return FindTensorNameMap([names](absl::string_view tensor) { return names.contains(std::string(tensor)); });
  };
  const TensorNameMap renaming = file({"wte.weight", "h.0.ln_1.weight"});
  ASSERT_NE(renaming, nullptr);
  EXPECT_EQ(renaming("h.0.ln_1.weight"), "transformer.h.0.ln_1.weight");
  EXPECT_EQ(renaming("ln_f.bias"), "transformer.ln_f.bias");
  EXPECT_EQ(renaming("lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(file({"transformer.wte.weight", "wte.weight"}), nullptr);
  EXPECT_EQ(file({"conv1.weight"}), nullptr);
}

}  // namespace
}  // namespace fusionllm::models
