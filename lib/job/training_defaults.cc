#include "lib/job/training_defaults.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/job/document.h"
#include "lib/job/scalar.h"

namespace fusionllm::job {
namespace {

struct Size {
  const char* name;
  int64_t n_layer, n_embd;
  double learning_rate;
};

// All but the first: GPT-3's table 2.1. The first is the size and rate of nanoGPT's character-level model.
constexpr Size kSizes[] = {
    {"10M", 6, 384, 1.0e-3},    {"125M", 12, 768, 6.0e-4},  {"350M", 24, 1024, 3.0e-4},
    {"760M", 24, 1536, 2.5e-4}, {"1.3B", 24, 2048, 2.0e-4}, {"2.7B", 32, 2560, 1.6e-4},
    {"6.7B", 32, 4096, 1.2e-4}, {"13B", 40, 5140, 1.0e-4},  {"175B", 96, 12288, 0.6e-4},
};

// Weights of the blocks: Kaplan et al., arXiv 2001.08361, table 1, with d_attn = d_ff / 4 = d_model.
double BlockWeights(int64_t n_layer, int64_t n_embd) {
  return 12.0 * static_cast<double>(n_layer) * static_cast<double>(n_embd) * static_cast<double>(n_embd);
}

// 6e-4 / 10 is 6e-5 to whoever reads the resolved job.
double Tidy(double value) {
  double tidy = value;
  return absl::SimpleAtod(absl::StrFormat("%.12g", value), &tidy) ? tidy : value;
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
  const auto distance = [&](const Size& size) { return std::abs(std::log(BlockWeights(size.n_layer, size.n_embd)) - wanted); };
  const Size* const nearest =
      std::min_element(std::begin(kSizes), std::end(kSizes), [&](const Size& a, const Size& b) { return distance(a) < distance(b); });
  return nearest->learning_rate;
}

int64_t GptWarmupSteps(int64_t steps) {
  const int64_t least = std::min(kGptLeastWarmupSteps, steps / 4);
  return std::min(kGptMostWarmupSteps, std::max(least, steps / kGptStepsPerWarmupStep));
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
      "th of `steps`, but at least ", kGptLeastWarmupSteps, " or a quarter of them, at most ", kGptMostWarmupSteps,
      "; none with a constant schedule |\n"
      "| `schedule.minLearningRate` | a tenth of `learningRate`; 0 with a constant schedule |\n\n"
      "The learning rate is that of the nearest row by 12 nLayer nEmbd², the weights of the blocks:\n\n"
      "| size | nLayer | nEmbd | learning rate |\n|---|---|---|---|\n");
  for (const Size& size : kSizes) {
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
                  "[adr/0030](adr/0030-gpt-2-trains-well-by-default.md) has the reasons.\n");
  return text;
}

}  // namespace fusionllm::job
