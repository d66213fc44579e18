// Sentences of the field table that follow from the families that there are (lib/models/families.h). Made once.
#pragma once

#include <string>

namespace fusionllm::job {

// Of spec.model.preset.
const std::string& PresetDoc();

// Of the fields of spec.training that recipes of families have defaults for.
struct RecipeSentences {
  std::string learning_rate, beta2, weight_decay, schedule_name, warmup_steps, min_learning_rate, clip_norm;
};
const RecipeSentences& RecipeDocs();

// A section of docs/reference/job-reference.md for each recipe.
std::string TrainingDefaultsSection();

}  // namespace fusionllm::job
