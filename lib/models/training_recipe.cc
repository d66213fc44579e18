#include "lib/models/training_recipe.h"

#include <algorithm>
#include <cmath>

namespace fusionllm::models {

double TrainingRecipe::BlockWeights(int64_t n_layer, int64_t n_embd) {
  return 12.0 * static_cast<double>(n_layer) * static_cast<double>(n_embd) * static_cast<double>(n_embd);
}

double TrainingRecipe::LearningRate(double block_weights) const {
  const double wanted = std::log(block_weights);
  const auto distance = [&](const Size& size) { return std::abs(std::log(BlockWeights(size.n_layer, size.n_embd)) - wanted); };
  return std::min_element(sizes.begin(), sizes.end(), [&](const Size& a, const Size& b) { return distance(a) < distance(b); })
      ->learning_rate;
}

int64_t TrainingRecipe::WarmupSteps(int64_t steps) const {
  const int64_t least = std::min(min_warmup_steps, steps / 4);
  return std::min(max_warmup_steps, std::max(least, steps / steps_per_warmup_step));
}

}  // namespace fusionllm::models
