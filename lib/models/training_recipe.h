// How a model is trained where its job does not say: defaults that depend on the model, so no member initialiser can hold them.
//
// They hold with optimizer adamw, field by field: what the job says always wins (lib/job/training_defaults.h). Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fusionllm::models {

struct TrainingRecipe {
  struct Size {
    const char* name;
    int64_t n_layer, n_embd;
    double learning_rate;
  };

  const char* title;    // of a section of the reference: "How a GPT-2 is trained by default"
  const char* sources;  // its last sentences
  double beta2, weight_decay, clip_norm;
  double min_rate_share;    // of the peak, at the last step: a tenth
  double fine_tuning_rate;  // with spec.model.init.from, whatever the size
  int64_t steps_per_warmup_step;
  int64_t min_warmup_steps;  // where a quarter of the steps is as many
  int64_t max_warmup_steps;
  std::vector<Size> sizes;

  // That of the row whose 12 nLayer nEmbd^2 is nearest by ratio. Kaplan et al., arXiv 2001.08361, table 1: the weights of the blocks with
  // d_attn = d_ff / 4 = d_model.
  double LearningRate(double block_weights) const;
  static double BlockWeights(int64_t n_layer, int64_t n_embd);

  // A 20th of the steps, but 100 or a quarter of them at least: with a 20th alone the loss of small models jumped for a step in runs of 100
  // and 200 steps (docs/results/warm-up.md). Rounded down; 0 below 4 steps.
  int64_t WarmupSteps(int64_t steps) const;
};

}  // namespace fusionllm::models
