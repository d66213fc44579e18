// The families of ops, one file each; op_schema.cc puts them into one registry. Private to lib/opdag.
#pragma once

#include <vector>

#include "lib/opdag/op_schema.h"

namespace fusionllm::opdag::ops {

void AddAttention(std::vector<OpSchema>& schemas);
void AddConvolution(std::vector<OpSchema>& schemas);
void AddElementwise(std::vector<OpSchema>& schemas);
void AddEmbedding(std::vector<OpSchema>& schemas);
void AddLinear(std::vector<OpSchema>& schemas);
void AddLoss(std::vector<OpSchema>& schemas);
void AddMovement(std::vector<OpSchema>& schemas);
void AddNormalization(std::vector<OpSchema>& schemas);
void AddPooling(std::vector<OpSchema>& schemas);
void AddReduction(std::vector<OpSchema>& schemas);
void AddSoftmax(std::vector<OpSchema>& schemas);

}  // namespace fusionllm::opdag::ops
