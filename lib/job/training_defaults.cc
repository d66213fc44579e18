#include "lib/job/training_defaults.h"

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "lib/base/pluralize.h"
#include "lib/job/document.h"
#include "lib/job/model_config.h"
#include "lib/job/parse.h"
#include "lib/job/scalar.h"
#include "lib/models/training_recipe.h"

namespace fusionllm::job {
namespace {

// 6e-4 / 10 is 6e-5 to readers of the resolved job.
double Tidy(double value) {
  double tidy = value;
  return absl::SimpleAtod(absl::StrFormat("%.12g", value), &tidy) ? tidy : value;
}

// "6e-4", "0.05": a rate as people write it.
std::string RateText(double value) {
  if (value == 0 || value >= 0.01) return NumberText(value);
  std::string mantissa = absl::StrFormat("%.2e", value);  // rounded: "1.00e-03" of 0.0009999
  const size_t at = mantissa.find('e');
  const std::string exponent = absl::StrReplaceAll(mantissa.substr(at), {{"e-0", "e-"}});
  mantissa.resize(mantissa.find_last_not_of('0', at - 1) + 1);
  if (mantissa.back() == '.') mantissa.pop_back();
  return absl::StrCat(mantissa, exponent);
}

// "gpt2 small", "gpt2 of 4 layers, width 128", "resnet", "a graph of its own".
std::string ModelText(const Spec& spec) {
  const Model& model = spec.model;
  if (!model.family) return "a graph of its own";
  std::string text(ToString(*model.family));
  const absl::StatusOr<ResolvedModel> resolved = ResolveModel(spec);
  if (model.preset && model.config == models::ModelSettings()) {
    absl::StrAppend(&text, " ", *model.preset);
  } else if (resolved.ok()) {
    absl::StrAppend(&text, resolved->family->SizeText(resolved->sizes));
  }
  return model.init.from ? absl::StrCat(text, " that starts from trained weights") : text;
}

// The same job without a word on how it is trained but the optimizer's name: what it would be then.
// `keep_rate`: and its learning rate, which others follow.
absl::StatusOr<FusionJob> WithoutTraining(const FusionJob& job, bool keep_rate) {
  Node root;
  Problems problems("job.yaml");
  if (!LoadDocument(ToYaml(job), root, problems)) return problems.ToStatus();
  const auto child = [](Node& node, absl::string_view key) -> Node* { return const_cast<Node*>(node.Find(key)); };
  const auto keep = [](Node& map, const auto& wanted) {
    for (size_t i = map.keys.size(); i-- > 0;) {
      if (wanted(map.keys[i])) continue;
      map.keys.erase(map.keys.begin() + static_cast<std::ptrdiff_t>(i));
      map.items.erase(map.items.begin() + static_cast<std::ptrdiff_t>(i));
    }
  };
  Node* const spec = child(root, "spec");
  Node* const training = spec == nullptr ? nullptr : child(*spec, "training");
  if (training == nullptr) return absl::InternalError("a job without spec.training");
  keep(*training, [](const std::string& key) { return key != "schedule" && key != "gradientClipNorm"; });
  if (Node* const optimizer = child(*training, "optimizer"); optimizer != nullptr) {
    keep(*optimizer, [keep_rate](const std::string& key) { return key == "name" || (keep_rate && key == "learningRate"); });
  }
  return FusionJobFromTree(root);
}

bool Given(const Node& root, std::initializer_list<const char*> path) {
  const Node* at = &root;
  for (const char* key : path) {
    at = at->Find(key);
    if (at == nullptr) return false;
  }
  return true;
}

}  // namespace

void FillInTrainingDefaults(const Node& root, FusionJob& job) {
  Spec& spec = job.spec;
  Training& training = spec.training;
  const models::Family* const family = FamilyOf(spec.model);
  const models::TrainingRecipe* const recipe = family == nullptr ? nullptr : family->recipe();
  if (recipe == nullptr || training.optimizer.name != OptimizerName::kAdamw) return;
  const absl::StatusOr<ResolvedModel> model = ResolveModel(spec);
  if (!model.ok()) return;
  const auto absent = [&](auto... keys) { return !Given(root, {"spec", "training", keys...}); };
  Optimizer& optimizer = training.optimizer;
  if (absent("optimizer", "learningRate")) {
    optimizer.learning_rate = spec.model.init.from ? recipe->fine_tuning_rate : recipe->LearningRate(family->BlockWeights(model->sizes));
  }
  if (absent("optimizer", "beta2")) optimizer.beta2 = recipe->beta2;
  if (absent("optimizer", "weightDecay")) optimizer.weight_decay = recipe->weight_decay;
  if (absent("gradientClipNorm")) training.gradient_clip_norm = recipe->clip_norm;
  Schedule& schedule = training.schedule;
  if (absent("schedule", "name")) schedule.name = ScheduleName::kCosine;
  // Who writes constant means it; and a run with a constant rate can be given more steps later without being another one.
  if (schedule.name == ScheduleName::kConstant) return;
  if (absent("schedule", "warmupSteps")) schedule.warmup_steps = recipe->WarmupSteps(training.steps);
  if (absent("schedule", "minLearningRate")) {
    schedule.min_learning_rate = Tidy(optimizer.learning_rate * recipe->min_rate_share);
  }
}

std::string TrainingSentence(const FusionJob& job) {
  const Training& training = job.spec.training;
  const Optimizer& optimizer = training.optimizer;
  const Schedule& schedule = training.schedule;
  std::string text = absl::StrCat(ToString(optimizer.name), ", learning rate ", RateText(optimizer.learning_rate), ", ");
  if (schedule.warmup_steps > 0) absl::StrAppend(&text, "warm-up ", base::Pluralize(schedule.warmup_steps, "step"), ", ");
  absl::StrAppend(&text, ToString(schedule.name));
  if (schedule.name != ScheduleName::kConstant) absl::StrAppend(&text, " to ", RateText(schedule.min_learning_rate));
  absl::StrAppend(&text, ", weight decay ", NumberText(optimizer.weight_decay), ", ",
                  training.gradient_clip_norm > 0 ? absl::StrCat("clip ", NumberText(training.gradient_clip_norm)) : "no clipping");
  const absl::StatusOr<FusionJob> plain = WithoutTraining(job, /*keep_rate=*/false), at_rate = WithoutTraining(job, /*keep_rate=*/true);
  if (!plain.ok() || !at_rate.ok()) return text;
  const Training& other = plain->spec.training;
  std::vector<std::string> set;
  const auto compare = [&set](bool same, const char* field) {
    if (!same) set.emplace_back(field);
  };
  compare(optimizer.learning_rate == other.optimizer.learning_rate, "learningRate");
  compare(schedule == at_rate->spec.training.schedule, "schedule");
  compare(optimizer.weight_decay == other.optimizer.weight_decay, "weightDecay");
  compare(training.gradient_clip_norm == other.gradient_clip_norm, "gradientClipNorm");
  constexpr size_t kCompared = 4;
  if (set.size() == kCompared) return text;
  return absl::StrCat(text, " (", set.empty() ? "the" : "other values are the", " defaults for ", ModelText(job.spec),
                      set.empty() ? "" : absl::StrCat("; the job sets ", absl::StrJoin(set, ", ")), ")");
}

}  // namespace fusionllm::job
