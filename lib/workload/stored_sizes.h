// The fields of spec.model that would fit parameters which lie in a file, by their names and shapes. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lib/checkpoint/safetensors_header.h"
#include "lib/job/differences.h"
#include "lib/job/model_config.h"

namespace fusionllm::workload {

inline constexpr char kGptEmbedding[] = "transformer.wte.weight", kGptHead[] = "lm_head.weight";

// By name; null: of files elsewhere only the names are known.
using StoredEntries = std::map<std::string, const checkpoint::TensorEntry*>;

// What the file says and the job has instead; nothing for families other than gpt2 and resnet. `head_unread`, `head_missing`: of the head
// of a gpt2.
std::vector<job::FieldDifference> SizeDifferences(const job::ResolvedModel& wanted, const StoredEntries& stored, bool head_unread,
                                                  bool head_missing);

}  // namespace fusionllm::workload
