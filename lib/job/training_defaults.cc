#include "lib/job/training_defaults.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "lib/base/pluralize.h"
#include "lib/job/document.h"
#include "lib/job/parse.h"
#include "lib/job/scalar.h"

namespace fusionllm::job {
namespace {

struct ModelSize {
  const char* name;
  int64_t n_layer, n_embd;
  double learning_rate;
};

// All but the first: GPT-3's table 2.1. The first is the size and rate of nanoGPT's character-level model.
constexpr ModelSize kSizes[] = {
    {"10M", 6, 384, 1.0e-3},    {"125M", 12, 768, 6.0e-4},  {"350M", 24, 1024, 3.0e-4},
    {"760M", 24, 1536, 2.5e-4}, {"1.3B", 24, 2048, 2.0e-4}, {"2.7B", 32, 2560, 1.6e-4},
    {"6.7B", 32, 4096, 1.2e-4}, {"13B", 40, 5140, 1.0e-4},  {"175B", 96, 12288, 0.6e-4},
};

// Weights of the blocks: Kaplan et al., arXiv 2001.08361, table 1, with d_attn = d_ff / 4 = d_model.
double BlockWeights(int64_t n_layer, int64_t n_embd) {
  return 12.0 * static_cast<double>(n_layer) * static_cast<double>(n_embd) * static_cast<double>(n_embd);
}

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
  const GptConfig* const gpt = resolved.ok() ? std::get_if<GptConfig>(&*resolved) : nullptr;
  if (model.preset && model.config == ModelSettings()) {
    absl::StrAppend(&text, " ", *model.preset);
  } else if (gpt != nullptr) {
    absl::StrAppend(&text, " of ", base::Pluralize(gpt->n_layer, "layer"), ", width ", gpt->n_embd);
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

double GptLearningRate(const GptConfig& model) {
  const double wanted = std::log(BlockWeights(model.n_layer, model.n_embd));
  const auto distance = [&](const ModelSize& size) { return std::abs(std::log(BlockWeights(size.n_layer, size.n_embd)) - wanted); };
  const ModelSize* const nearest = std::min_element(std::begin(kSizes), std::end(kSizes),
                                                    [&](const ModelSize& a, const ModelSize& b) { return distance(a) < distance(b); });
  return nearest->learning_rate;
}

int64_t GptWarmupSteps(int64_t steps) {
  const int64_t least = std::min(kGptMinWarmupSteps, steps / 4);
  return std::min(kGptMaxWarmupSteps, std::max(least, steps / kGptStepsPerWarmupStep));
}

void FillInTrainingDefaults(const Node& root, FusionJob& job) {
  Spec& spec = job.spec;
  Training& training = spec.training;
  if (spec.model.family != Family::kGpt2 || training.optimizer.name != OptimizerName::kAdamw) return;
  const absl::StatusOr<ResolvedModel> model = ResolveModel(spec);
  const GptConfig* const gpt = model.ok() ? std::get_if<GptConfig>(&*model) : nullptr;
  if (gpt == nullptr) return;
  const auto absent = [&](auto... keys) { return !Given(root, {"spec", "training", keys...}); };
  Optimizer& optimizer = training.optimizer;
  if (absent("optimizer", "learningRate")) optimizer.learning_rate = spec.model.init.from ? kGptFineTuningRate : GptLearningRate(*gpt);
  if (absent("optimizer", "beta2")) optimizer.beta2 = kGptBeta2;
  if (absent("optimizer", "weightDecay")) optimizer.weight_decay = kGptWeightDecay;
  if (absent("gradientClipNorm")) training.gradient_clip_norm = kGptClipNorm;
  Schedule& schedule = training.schedule;
  if (absent("schedule", "name")) schedule.name = ScheduleName::kCosine;
  // Who writes constant means it; and a run with a constant rate can be given more steps later without being another one.
  if (schedule.name == ScheduleName::kConstant) return;
  if (absent("schedule", "warmupSteps")) schedule.warmup_steps = GptWarmupSteps(training.steps);
  if (absent("schedule", "minLearningRate")) {
    schedule.min_learning_rate = Tidy(optimizer.learning_rate * kGptMinimumShare);
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

std::string TrainingDefaultsSection() {
  std::string text = absl::StrCat(
      "\n## How a GPT-2 is trained by default\n\n"
      "Fields of `spec.training` that a job of family gpt2 with optimizer adamw leaves out, one by one; what the job says always wins. "
      "Other "
      "families and sgd keep the defaults of the tables above.\n\n"
      "| field | default |\n|---|---|\n"
      "| `optimizer.learningRate` | by size (below); ",
      NumberText(kGptFineTuningRate), " with `spec.model.init.from`, the Trainer's of transformers |\n| `optimizer.beta2` | ",
      NumberText(kGptBeta2), " |\n| `optimizer.weightDecay` | ", NumberText(kGptWeightDecay), " |\n| `gradientClipNorm` | ",
      NumberText(kGptClipNorm), " |\n| `schedule.name` | cosine |\n| `schedule.warmupSteps` | a ", kGptStepsPerWarmupStep,
      "th of `steps`, but at least ", kGptMinWarmupSteps, " or a quarter of them, at most ", kGptMaxWarmupSteps,
      "; none with a constant schedule |\n"
      "| `schedule.minLearningRate` | a tenth of `learningRate`; 0 with a constant schedule |\n\n"
      "The learning rate is that of the nearest row by 12 nLayer nEmbd², the weights of the blocks:\n\n"
      "| size | nLayer | nEmbd | learning rate |\n|---|---|---|---|\n");
  for (const ModelSize& size : kSizes) {
    absl::StrAppend(&text, "| ", size.name, " | ", size.n_layer, " | ", size.n_embd, " | ", NumberText(size.learning_rate), " |\n");
  }
  absl::StrAppend(&text, "\nSo presets `tiny`, `small`, `medium`, `large` and `xl` begin at ");
  constexpr GptConfig kPresets[] = {{4, 4, 128}, {12, 12, 768}, {24, 16, 1024}, {36, 20, 1280}, {48, 25, 1600}};
  for (const GptConfig& preset : kPresets) {
    absl::StrAppend(&text, &preset == kPresets ? "" : ", ", NumberText(GptLearningRate(preset)));
  }
  absl::StrAppend(&text,
                  ". Sources: GPT-3 (arXiv 2005.14165), table 2.1 and appendix B: Adam with beta2 0.95, weight decay 0.1, clipping at 1.0, "
                  "warm-up, cosine to a tenth; its first row is nanoGPT's character-level model. The rates were chosen there for half a "
                  "million to three million tokens a step: a much smaller step may want less. "
                  "[adr/0030](../design/adr/0030-gpt-2-trains-well-by-default.md) has the reasons.\n");
  return text;
}

}  // namespace fusionllm::job
