// How a model is trained where its job does not say, for families with a recipe of their own (lib/models/training_recipe.h) and optimizer
// adamw: what the job says always wins, field by field; other families and optimizers keep the defaults of the table. Pure.
#pragma once

#include <string>

#include "lib/job/fusion_job.h"

namespace fusionllm::job {

struct Node;  // document.h

// Sets what `root`, the document that `job` was read from, leaves out. Does nothing for a model that cannot be resolved.
void FillInTrainingDefaults(const Node& root, FusionJob& job);

// How the job is trained, and whether it is as by default for its model: "adamw, learning rate 6e-4, warm-up 100 steps, cosine to 6e-5,
// weight decay 0.1, clip 1 (the defaults for gpt2 small)".
std::string TrainingSentence(const FusionJob& job);

}  // namespace fusionllm::job
