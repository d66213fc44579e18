#include "lib/models/gpt2/recipe.h"

namespace fusionllm::models {

const TrainingRecipe& Gpt2Recipe() {
  static const TrainingRecipe recipe = {
      .title = "How a GPT-2 is trained by default",
      .sources =
          "GPT-3 (arXiv 2005.14165), table 2.1 and appendix B: Adam with beta2 0.95, weight decay 0.1, clipping at 1.0, "
          "warm-up, cosine to a tenth; its first row is nanoGPT's character-level model. The rates were chosen there for half a "
          "million to three million tokens a step: a much smaller step may want less. "
          "[adr/0030](../design/adr/0030-gpt-2-trains-well-by-default.md) has the reasons.",
      .beta2 = 0.95,
      .weight_decay = 0.1,
      .clip_norm = 1.0,
      .min_rate_share = 0.1,
      .fine_tuning_rate = 5e-5,
      .steps_per_warmup_step = 20,
      .min_warmup_steps = 100,
      .max_warmup_steps = 2000,
      // All but the first: GPT-3's table 2.1. The first is the size and rate of nanoGPT's character-level model.
      .sizes = {{"10M", 6, 384, 1.0e-3},
                {"125M", 12, 768, 6.0e-4},
                {"350M", 24, 1024, 3.0e-4},
                {"760M", 24, 1536, 2.5e-4},
                {"1.3B", 24, 2048, 2.0e-4},
                {"2.7B", 32, 2560, 1.6e-4},
                {"6.7B", 32, 4096, 1.2e-4},
                {"13B", 40, 5140, 1.0e-4},
                {"175B", 96, 12288, 0.6e-4}}};
  return recipe;
}

}  // namespace fusionllm::models
