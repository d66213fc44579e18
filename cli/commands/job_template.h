// An annotated job to start from: what `fusionctl init` writes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/job/fusion_job.h"
#include "lib/models/families.h"

namespace fusionllm::cli {

struct TemplateOptions {
  const models::Family* family = &models::Gpt2Family();
  job::DataKind data = job::DataKind::kText;
  std::vector<std::string> paths;  // of the data, as the job is to name them; none for shapes
  std::string name;                // of the job; empty: FAMILY-DATA
  std::string preset;              // size of the model; empty: the smallest
};

// A valid job of a family that trains on such data: every field it sets with a remark, others as remarks.
std::string JobTemplate(const TemplateOptions& options);

}  // namespace fusionllm::cli
