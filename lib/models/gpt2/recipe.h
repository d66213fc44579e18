// How a GPT-2 is trained by default. Sources: Brown et al., "Language Models are Few-Shot Learners", arXiv 2005.14165, table 2.1 (learning
// rates) and appendix B (betas, weight decay, clipping, warm-up, cosine to a tenth). docs/design/adr/0030 has the reasons.
#pragma once

#include "lib/models/training_recipe.h"

namespace fusionllm::models {

const TrainingRecipe& Gpt2Recipe();

}  // namespace fusionllm::models
