// The families of gradient rules, one file each. Private to lib/autodiff.
#pragma once

#include <vector>

#include "lib/autodiff/gradient_rule.h"

namespace fusionllm::autodiff::rules {

using opdag::OpKind;

void AddAttention(std::vector<GradientRule>& rules);
void AddConvolution(std::vector<GradientRule>& rules);
void AddElementwise(std::vector<GradientRule>& rules);
void AddEmbedding(std::vector<GradientRule>& rules);
void AddLinear(std::vector<GradientRule>& rules);
void AddLoss(std::vector<GradientRule>& rules);
void AddMovement(std::vector<GradientRule>& rules);
void AddNormalization(std::vector<GradientRule>& rules);
void AddPooling(std::vector<GradientRule>& rules);
void AddReduction(std::vector<GradientRule>& rules);
void AddSoftmax(std::vector<GradientRule>& rules);

}  // namespace fusionllm::autodiff::rules
