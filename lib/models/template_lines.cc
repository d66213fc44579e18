#include "lib/models/template_lines.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fusionllm::models {

std::string BeforeRemark(std::string line) {
  constexpr size_t kRemarks = 33;
  line.resize(std::max(line.size() + 1, kRemarks), ' ');
  return line;
}

std::string ImageTraining(absl::string_view micro_batch_remark) {
  return absl::StrCat(
      "    steps: 200                   # there are no epochs: one is (images / globalBatchSize) steps\n"
      "    globalBatchSize: 64          # images in a step, over all devices\n"
      "    microBatchSize: 16           # images in one pass",
      micro_batch_remark,
      "\n"
      "    optimizer: {name: sgd, learningRate: 0.05, momentum: 0.9, weightDecay: 5.0e-4}\n"
      "    schedule: {name: cosine, warmupSteps: 10}\n"
      "    evaluation: {everySteps: 50, batches: 4}\n");
}

}  // namespace fusionllm::models
