#include "lib/job/family_docs.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/job/scalar.h"
#include "lib/models/families.h"
#include "lib/models/training_recipe.h"

namespace fusionllm::job {
namespace {

using models::Family;
using models::TrainingRecipe;

struct RecipeUse {
  const TrainingRecipe* recipe;
  std::vector<const Family*> families;
};

std::vector<RecipeUse> Recipes() {
  std::vector<RecipeUse> uses;
  for (const Family* family : models::AllFamilies()) {
    const TrainingRecipe* const recipe = family->recipe();
    if (recipe == nullptr) continue;
    auto use = std::find_if(uses.begin(), uses.end(), [recipe](const RecipeUse& other) { return other.recipe == recipe; });
    if (use == uses.end()) use = uses.insert(uses.end(), {recipe, {}});
    use->families.push_back(family);
  }
  return uses;
}

// "for family gpt2 with adamw: cosine".
std::string ByRecipe(absl::string_view condition, const std::function<std::string(const TrainingRecipe&)>& value) {
  std::vector<std::string> parts;
  for (const RecipeUse& use : Recipes()) {
    parts.push_back(absl::StrCat("for ", models::FamiliesText(use.families), condition, ": ", value(*use.recipe)));
  }
  return absl::StrJoin(parts, "; ");
}

std::string PresetsOf(const Family& family) {
  const models::FamilyFacts& facts = family.facts();
  if (facts.presets.empty()) return absl::StrCat(family.name(), " has none");
  return absl::StrCat(family.name(), " ", absl::StrJoin(facts.presets, ", "),
                      " (omitted: ", family.hugging_face_format() != nullptr ? "that of init.from where it says it, else " : "",
                      facts.default_preset, ")");
}

RecipeSentences MakeRecipeDocs() {
  constexpr absl::string_view kAdamw = " with adamw";
  const auto fixed = [](const char* text) { return [text](const TrainingRecipe&) { return std::string(text); }; };
  const auto number = [](double TrainingRecipe::*value) {
    return [value](const TrainingRecipe& recipe) { return NumberText(recipe.*value); };
  };
  const auto warmup = [](const TrainingRecipe& recipe) {
    return absl::StrCat("a ", recipe.steps_per_warmup_step, "th of steps, but at least ", recipe.min_warmup_steps,
                        " or a quarter of them, at most ", recipe.max_warmup_steps, ", unless the schedule is constant");
  };
  return {.learning_rate = absl::StrCat("Peak learning rate. Omitted ", ByRecipe(kAdamw, fixed("by the size of the model")), "."),
          .beta2 = absl::StrCat("Decay of the running mean of squared gradients (the second moment) of optimizer adamw. Omitted ",
                                ByRecipe("", number(&TrainingRecipe::beta2)), "."),
          .weight_decay = absl::StrCat("On parameters of two or more dimensions. Omitted with sgd: 0; ",
                                       ByRecipe(kAdamw, number(&TrainingRecipe::weight_decay)), "."),
          .schedule_name =
              absl::StrCat("Shape of the learning rate after the warm-up: falls to minLearningRate at the last step, or stays. Omitted ",
                           ByRecipe(kAdamw, fixed("cosine")), "."),
          .warmup_steps = absl::StrCat("Steps of linear rise. Omitted ", ByRecipe(kAdamw, warmup), "."),
          .min_learning_rate = absl::StrCat("At most learningRate. Omitted ",
                                            ByRecipe(kAdamw, fixed("a tenth of learningRate, unless the schedule is constant")), "."),
          .clip_norm =
              absl::StrCat("Largest global gradient norm; 0: off. Omitted ", ByRecipe(kAdamw, number(&TrainingRecipe::clip_norm)), ".")};
}

// "`tiny`, `small` and `xl` begin at 0.001, 6.0e-04, 2.0e-04".
std::string RatesOfPresets(const Family& family, const TrainingRecipe& recipe) {
  std::vector<std::string> names, rates;
  const models::ModelSettings none = {};
  const data::ShapesConfig no_shapes = {};
  for (const std::string& preset : family.facts().presets) {
    const std::optional<std::string> wanted = preset;
    const models::ModelSizes sizes = family.Resolve(
        {.preset = wanted, .settings = none, .sequence_length = 1, .data_kind = data::DatasetKind::kTokens, .shapes = no_shapes},
        [](auto, auto) {});
    names.push_back(absl::StrCat("`", preset, "`"));
    rates.push_back(NumberText(recipe.LearningRate(family.BlockWeights(sizes))));
  }
  if (names.empty()) return "";
  const std::string last = std::move(names.back());
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), names.empty() ? "" : " and ", last, " begin at ", absl::StrJoin(rates, ", "));
}

std::string SectionOf(const RecipeUse& use) {
  const TrainingRecipe& recipe = *use.recipe;
  std::string text = absl::StrCat(
      "\n## ", recipe.title, "\n\nFields of `spec.training` that a job of ", models::FamiliesText(use.families),
      " with optimizer adamw leaves out, one by one; what the job says always wins. Other families and sgd keep the defaults of the tables "
      "above.\n\n| field | default |\n|---|---|\n| `optimizer.learningRate` | by size (below); ",
      NumberText(recipe.fine_tuning_rate), " with `spec.model.init.from`, the Trainer's of transformers |\n| `optimizer.beta2` | ",
      NumberText(recipe.beta2), " |\n| `optimizer.weightDecay` | ", NumberText(recipe.weight_decay), " |\n| `gradientClipNorm` | ",
      NumberText(recipe.clip_norm), " |\n| `schedule.name` | cosine |\n| `schedule.warmupSteps` | a ", recipe.steps_per_warmup_step,
      "th of `steps`, but at least ", recipe.min_warmup_steps, " or a quarter of them, at most ", recipe.max_warmup_steps,
      "; none with a constant schedule |\n"
      "| `schedule.minLearningRate` | a tenth of `learningRate`; 0 with a constant schedule |\n\n"
      "The learning rate is that of the nearest row by 12 nLayer nEmbd², the weights of the blocks:\n\n"
      "| size | nLayer | nEmbd | learning rate |\n|---|---|---|---|\n");
  for (const TrainingRecipe::Size& size : recipe.sizes) {
    absl::StrAppend(&text, "| ", size.name, " | ", size.n_layer, " | ", size.n_embd, " | ", NumberText(size.learning_rate), " |\n");
  }
  std::vector<std::string> rates;
  for (const Family* family : use.families) {
    std::string of_family = RatesOfPresets(*family, recipe);
    const std::string whose = use.families.size() == 1 ? "" : absl::StrCat("of ", family->name(), " ");
    if (!of_family.empty()) rates.push_back(absl::StrCat(whose, of_family));
  }
  return absl::StrCat(text, rates.empty() ? "\n" : absl::StrCat("\nSo presets ", absl::StrJoin(rates, "; "), ". "),
                      "Sources: ", recipe.sources, "\n");
}

}  // namespace

const std::string& PresetDoc() {
  static const std::string doc = [] {
    std::vector<std::string> families;
    for (const Family* family : models::AllFamilies()) families.push_back(PresetsOf(*family));
    return absl::StrCat("Size: ", absl::StrJoin(families, "; "), ".");
  }();
  return doc;
}

const RecipeSentences& RecipeDocs() {
  static const RecipeSentences sentences = MakeRecipeDocs();
  return sentences;
}

std::string TrainingDefaultsSection() {
  std::string sections;
  for (const RecipeUse& use : Recipes()) absl::StrAppend(&sections, SectionOf(use));
  return sections;
}

}  // namespace fusionllm::job
