// How a GPT-2 is trained where its job does not say: defaults that depend on the model, so no member initialiser can hold them.
//
// They hold for family gpt2 with optimizer adamw, field by field: what the job says always wins, and other families and optimizers keep the
// defaults of the table. Sources: Brown et al., "Language Models are Few-Shot Learners", arXiv 2005.14165, table 2.1 (learning rates) and
// appendix B (betas, weight decay, clipping, warm-up, cosine to a tenth). docs/design/adr/0030 has the reasons. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "lib/job/fusion_job.h"
#include "lib/job/model_config.h"

namespace fusionllm::job {

struct Node;  // document.h

inline constexpr double kGptBeta2 = 0.95;
inline constexpr double kGptWeightDecay = 0.1;
inline constexpr double kGptClipNorm = 1.0;
inline constexpr double kGptMinimumShare = 0.1;     // of the peak, at the last step
inline constexpr double kGptFineTuningRate = 5e-5;  // with spec.model.init.from, whatever the size
inline constexpr int64_t kGptStepsPerWarmupStep = 20;
inline constexpr int64_t kGptMinWarmupSteps = 100;  // where a quarter of the steps is as many
inline constexpr int64_t kGptMaxWarmupSteps = 2000;

// That of the row whose 12 nLayer nEmbd^2 is nearest by ratio.
double GptLearningRate(const GptConfig& model);
// A 20th of the steps, but 100 or a quarter of them at least: with a 20th alone the loss of small models jumped for a step in runs of 100
// and 200 steps (docs/results/warm-up.md). Rounded down; 0 below 4 steps.
int64_t GptWarmupSteps(int64_t steps);

// Sets what `root`, the document that `job` was read from, leaves out. Does nothing for a model that cannot be resolved.
void FillInTrainingDefaults(const Node& root, FusionJob& job);

// How the job is trained, and whether it is as by default for its model: "adamw, learning rate 6e-4, warm-up 100 steps, cosine to 6e-5,
// weight decay 0.1, clip 1 (the defaults for gpt2 small)".
std::string TrainingSentence(const FusionJob& job);

// The above as a section of docs/reference/job-reference.md.
std::string TrainingDefaultsSection();

}  // namespace fusionllm::job
