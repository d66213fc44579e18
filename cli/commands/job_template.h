// An annotated job to start from: what `fusionctl init` writes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/job/fusion_job.h"

namespace fusionllm::cli {

struct TemplateOptions {
  job::Family family = job::Family::kGpt2;
  job::DataKind data = job::DataKind::kText;
  std::vector<std::string> paths;  // of the data, as the job is to name them; none for shapes
  std::string name;                // of the job; empty: FAMILY-DATA
  std::string preset;              // size of the model; empty: the smallest
};

// Whether a family can be trained on a kind of data at all.
bool Suits(job::Family family, job::DataKind data);

// A valid job of a family that suits its data: every field it sets with a remark, others as remarks.
std::string JobTemplate(const TemplateOptions& options);

}  // namespace fusionllm::cli
